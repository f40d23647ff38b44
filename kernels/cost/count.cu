// counts[0..2][c] += samples declared to be of class c (p >= 0.5), of that class (t >= 0.5), and both; t < 0 counts
// nothing.
// Grid C, block (1, THREADS). Constant THREADS, a power of two.
// Why: small; whole numbers, so that any number of steps adds up without rounding.
#include "reduce.cuh"

struct Counts {
    int declared, positive, both;
    __device__ Counts operator+(Counts other) const {
        return {declared + other.declared, positive + other.positive, both + other.both};
    }
};

extern "C" __global__ void count(Count g, Map<const float> p, Map<const float> t, long long* counts) {
    __shared__ Counts part[THREADS];
    const int c = blockIdx.x;
    Counts sum = {0, 0, 0};
    for (int n = threadIdx.y; n < g.batch; n += THREADS) {
        const float target = t.row(c, 0, 0)[n];
        const bool declared = p.row(c, 0, 0)[n] >= 0.5f && !(target < 0.0f), positive = target >= 0.5f;
        sum = sum + Counts{declared, positive, declared && positive};
    }
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y != 0) return;
    counts[c] += sum.declared;
    counts[g.classes + c] += sum.positive;
    counts[2 * g.classes + c] += sum.both;
}
