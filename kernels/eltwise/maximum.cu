// Maximum of several maps, of which this is the g.index-th. maximum: y = max(y, x), winner = index where x is greater; the
// call of index 0 begins both. maximum_backward: dx = beta * dx + dy where winner is the index.
// Rows launch (kernels/rows.py), VECTOR elements a thread.
// Why: bound by memory. A byte an element tells whose the maximum was, so backward reads no other map; of equal maps it
// is the first.
#include "launch.cuh"

using Byte = unsigned char;
using Bytes = Pack<Byte, VECTOR>;

extern "C" __global__ void maximum(Maximum g, Map<const float> x, Map<float> y, Map<Byte> winner) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    float* best_at = y.row(at.c, at.h, 0) + at.i;
    Byte* index_at = winner.row(at.c, at.h, 0) + at.i;
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i), best = {};
    Bytes index = {};
    if (g.index > 0) {
        best = load<VECTOR>(best_at);
        index = load<VECTOR>(index_at);
    }
    for (int e = 0; e < VECTOR; ++e)
        if (g.index == 0 || value[e] > best[e] || value[e] != value[e]) best[e] = value[e], index[e] = g.index;
    store(best_at, best);
    store(index_at, index);
}

extern "C" __global__ void maximum_backward(Maximum g, Map<const float> dy, Map<const Byte> winner, Map<float> dx,
                                        float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, at.h, 0) + at.i);
    Bytes index = load<VECTOR>(winner.row(at.c, at.h, 0) + at.i);
    for (int e = 0; e < VECTOR; ++e)
        if (index[e] != g.index) gradient[e] = 0.0f;
    accumulate(dx.row(at.c, at.h, 0) + at.i, gradient, beta);
}
