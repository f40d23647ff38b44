// x = factor * x.
// Grid `blocks`, block 256: one block of 1024 elements of a flat buffer, 4 neighbours a thread.
// Why: a rank's share of an average, before the sum over ranks. Bound by memory.
#include "launch.cuh"

extern "C" __global__ void scale(Scale g, float* x) {
    const long long i = global_thread() * 4;
    Pack<float, 4> values = load<4>(x + i);
    for (int k = 0; k < 4; ++k) values[k] *= g.factor;
    store(x + i, values);
}
