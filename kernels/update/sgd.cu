// v = momentum * v - lr * dw - decay * lr * w; w = w + v, unless healthy[0] is 0.
// Grid `blocks`, block 256: one block of 1024 elements of the flat buffers, 4 neighbours a thread.
// Why: one launch updates every parameter; a block has one owner, so its rates are read once. Bound by memory.
#include "launch.cuh"

extern "C" __global__ void sgd(Sgd g, float* w, const float* dw, float* v, const int* owner, const float* rates,
                               const int* healthy) {
    if (healthy[0] == 0) return;
    const float* rate = rates + 3 * owner[blockIdx.x];
    const float lr = rate[0], momentum = rate[1], decay = rate[2];
    const long long i = global_thread() * 4;
    Pack<float, 4> weight = load<4>(w + i), gradient = load<4>(dw + i), step = load<4>(v + i);
    for (int k = 0; k < 4; ++k) {
        step[k] = momentum * step[k] - lr * gradient[k] - decay * lr * weight[k];
        weight[k] += step[k];
    }
    store(v + i, step);
    store(w + i, weight);
}
