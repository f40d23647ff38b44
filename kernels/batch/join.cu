// join: y[c, h, w, first + p share + i] = beta * itself + x[p C + c, h, w, offset + i], where y has such a sample.
// Rows launch (kernels/rows.py) over the channels of all shares, VECTOR samples of one pixel a thread.
// Why: bound by memory; the reverse of split. y may have any layout.
#include "launch.cuh"

extern "C" __global__ void join(Shares g, Map<const float> x, Map<float> y, float beta) {
    const Place at = place(g.parts * g.channels, g.height, g.width * g.share);
    if (!at.inside) return;
    const int part = at.c / g.channels, c = at.c % g.channels, w = at.i / g.share, i = at.i % g.share;
    const long long n = g.first + (long long)part * g.share + i;
    if (n < g.batch) accumulate(y.row(c, at.h, w) + n, load<VECTOR>(x.row(at.c, at.h, w) + g.offset + i), beta);
}
