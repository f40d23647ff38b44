// blur: y = beta * y + x convolved along columns (g.vertical) or rows with a symmetric filter, zeros outside.
// Rows launch (kernels/rows.py), VECTOR samples of one pixel a thread. Constants SIZE: taps, an odd number; TAPS: the
// filter, a list.
// Why: two passes of SIZE taps, where one pass would have SIZE * SIZE; the taps are constants of the code, and
// neighbours meet in cache.
#include "launch.cuh"

extern "C" __global__ void blur(Blur g, Map<const float> x, Map<float> y, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const float taps[SIZE] = {TAPS};
    const int w = at.i / g.batch, n = at.i % g.batch;
    Pack<float, VECTOR> sum = {};
#pragma unroll
    for (int tap = 0; tap < SIZE; ++tap) {
        const int row = at.h + (g.vertical ? tap - SIZE / 2 : 0), column = w + (g.vertical ? 0 : tap - SIZE / 2);
        if (row < 0 || row >= g.height || column < 0 || column >= g.width) continue;
        Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, row, column) + n);
        for (int k = 0; k < VECTOR; ++k) sum[k] += taps[tap] * value[k];
    }
    accumulate(y.row(at.c, at.h, w) + n, sum, beta);
}
