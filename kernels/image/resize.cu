// resize: y[c][p][q] = x[c] at (p * scale + H / 2 - P / 2 * scale, ...), clamped to [0, H - 1.01], bilinear.
// Rows launch (kernels/rows.py) over y, VECTOR samples of one pixel a thread.
// Why: bound by memory; the four pixels that outputs share meet in cache.
#include "bilinear.cuh"

extern "C" __global__ void resize(Resize g, Map<const float> x, Map<float> y) {
    const Place at = place(g.channels, g.out_h, g.out_w * g.batch);
    if (!at.inside) return;
    const int q = at.i / g.batch, n = at.i % g.batch;
    const Between h = between(centred(g.height, g.out_h, g.scale, 0, false), at.h, g.height);
    const Between w = between(centred(g.width, g.out_w, g.scale, 0, false), q, g.width);
    store(y.row(at.c, at.h, 0) + at.i, bilinear(x, at.c, h, w, n));
}
