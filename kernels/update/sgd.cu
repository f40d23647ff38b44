// v = momentum * v - lr * (scale * dw + decay * w); w = w + v, or w + momentum * v - lr * (...) with Nesterov's momentum.
// Nothing is written where healthy[0] or the parameter's share is 0. scale: 1, or min(1, clip / (norm + 1e-6)).
// Grid `blocks`, block 256: one block of 1024 elements of the flat buffers, 4 neighbours a thread.
// Why: one launch updates every parameter; a block has one owner, so its rates are read once. Bound by memory.
#include "launch.cuh"

extern "C" __global__ void sgd(Sgd g, float* w, const float* dw, float* v, const int* owner, const float* rates,
                               const unsigned* clock, const double* norms, const int* healthy) {
    const float* rate = rates + 4 * owner[blockIdx.x];
    if (healthy[0] == 0 || !(rate[3] > 0)) return;
    const float lr = rate[0], momentum = rate[1], decay = rate[2];
    const float scale = norms ? float(fmin(1.0, g.clip / (norms[clock[2] % g.ring] + 1e-6))) : 1.0f;
    const long long i = global_thread() * 4;
    Pack<float, 4> weight = load<4>(w + i), gradient = load<4>(dw + i), step = load<4>(v + i);
    for (int k = 0; k < 4; ++k) {
        const float pull = lr * scale * gradient[k] + decay * lr * weight[k];
        step[k] = momentum * step[k] - pull;
        weight[k] += g.nesterov ? momentum * step[k] - pull : step[k];
    }
    store(v + i, step);
    store(w + i, weight);
}
