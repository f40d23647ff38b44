// split: y[p C + c, h, w, i] = x[c, h, w, first + p share + i], and 0 where x has no such sample.
// Rows launch (kernels/rows.py) over the channels of all shares, VECTOR samples of one pixel a thread.
// Why: bound by memory; what a rank sends must be contiguous, and in a map the samples of one share are not. x may have
// any layout.
#include "launch.cuh"

extern "C" __global__ void split(Shares g, Map<const float> x, Map<float> y) {
    const Place at = place(g.parts * g.channels, g.height, g.width * g.share);
    if (!at.inside) return;
    const int part = at.c / g.channels, c = at.c % g.channels, w = at.i / g.share, i = at.i % g.share;
    const long long n = g.first + (long long)part * g.share + i;
    Pack<float, VECTOR> value = {};
    if (n < g.batch) value = load<VECTOR>(x.row(c, at.h, w) + n);  // all or nothing: the batch is whole packs
    store(y.row(at.c, at.h, w) + i, value);
}
