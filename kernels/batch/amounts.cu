// amounts: y[n] = x[first + n / run * stride + n % run], and 0 behind the end of x.
// Rows launch (kernels/rows.py) of one row, a number a thread.
// Why: as labels, for the shares of labels in mixed samples.
#include "launch.cuh"

extern "C" __global__ void amounts(Labels g, const float* x, float* y) {
    const Place at = place(1, 1, g.count);
    if (!at.inside) return;
    const int run = g.run ? g.run : g.count;
    const long long from = g.first + (at.i / run) * (long long)g.stride + at.i % run;
    y[at.i] = from < g.batch ? x[from] : 0.0f;
}
