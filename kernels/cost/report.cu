// history[offset + i][step % ring] = or += sum of y[i] over the samples; healthy[0] = 0 when the first is not finite
// and g.watched.
// Grid rows, block (1, THREADS). Constant THREADS, a power of two.
// Why: small blocks inside the step, so that the host reads results when it wants to and never waits for them.
#include "reduce.cuh"

extern "C" __global__ void report(Report g, Map<const float> y, const unsigned* clock, double* history, int* healthy) {
    __shared__ double part[THREADS];
    const int i = blockIdx.x;
    double sum = 0.0;
    for (int n = threadIdx.y; n < g.batch; n += THREADS) sum += y.row(i, 0, 0)[n];
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y != 0) return;
    double* slot = history + (long long)(g.offset + i) * g.ring + clock[2] % g.ring;
    *slot = g.first ? sum : *slot + sum;
    if (i == 0 && g.watched && !isfinite(sum)) healthy[0] = 0;
}
