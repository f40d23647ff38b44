// labels: y[n] = x[first + n / run * stride + n % run], and -1 behind the end of x.
// Rows launch (kernels/rows.py) of one row, a label a thread.
// Why: a few hundred numbers; it costs a launch.
#include "launch.cuh"

extern "C" __global__ void labels(Labels g, const int* x, int* y) {
    const Place at = place(1, 1, g.count);
    if (!at.inside) return;
    const int run = g.run ? g.run : g.count;
    const long long from = g.first + (at.i / run) * (long long)g.stride + at.i % run;
    y[at.i] = from < g.batch ? x[from] : -1;
}
