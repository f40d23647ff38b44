// With share = rates[p, 3]: above 0, dw = share * (pending + dw) and pending = 0; else pending = pending + dw and dw = 0.
// Nothing is written when healthy[0] is 0.
// Grid `blocks`, block 256: one block of 1024 elements of the flat buffers, 4 neighbours a thread.
// Why: whether a parameter moves at a step stands in its rates, so that every step is the same launches and one graph.
#include "launch.cuh"

extern "C" __global__ void collect(Collect g, float* dw, float* pending, const int* owner, const float* rates,
                                   const int* healthy) {
    if (healthy[0] == 0) return;
    const float share = rates[4 * owner[blockIdx.x] + 3];
    const long long i = global_thread() * 4;
    Pack<float, 4> gradient = load<4>(dw + i), total = load<4>(pending + i);
    for (int k = 0; k < 4; ++k) {
        total[k] += gradient[k];
        gradient[k] = share * total[k];
        if (share > 0) total[k] = 0.0f;
    }
    store(dw + i, gradient);
    store(pending + i, total);
}
