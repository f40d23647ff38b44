// e = e + k * (w - e), k = weight, or with warmup the larger of weight and 9 / (10 + clock[2]), unless healthy[0] is 0.
// Grid `blocks`, block 256: one block of 1024 elements of the flat buffers, 4 neighbours a thread.
// Why: the weight follows from the clock on the device, so that the step can be replayed. Bound by memory.
#include "launch.cuh"

extern "C" __global__ void average(Average g, const float* w, float* e, const unsigned* clock, const int* healthy) {
    if (healthy[0] == 0) return;
    const float weight = g.warmup ? fmaxf(g.weight, float(9.0 / (10.0 + clock[2]))) : g.weight;
    const long long i = global_thread() * 4;
    Pack<float, 4> now = load<4>(w + i), mean = load<4>(e + i);
    for (int k = 0; k < 4; ++k) mean[k] += weight * (now[k] - mean[k]);
    store(e + i, mean);
}
