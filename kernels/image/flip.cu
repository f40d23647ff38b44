// flip: y[c][h][w] = beta * y[c][h][w] + x[c][h][W - 1 - w].
// Rows launch (kernels/rows.py), VECTOR samples of one pixel a thread.
// Why: bound by memory; within a pixel the batch keeps its order, so both sides are 16-byte accesses.
#include "launch.cuh"

extern "C" __global__ void flip(Flip g, Map<const float> x, Map<float> y, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const int w = at.i / g.batch, n = at.i % g.batch;
    accumulate(y.row(at.c, at.h, w) + n, load<VECTOR>(x.row(at.c, at.h, g.width - 1 - w) + n), beta);
}
