// copy: y[y_offset + c] = beta * y[y_offset + c] + x[x_offset + c].
// Rows launch (kernels/rows.py) over the copied channels, VECTOR elements a thread.
// Why: bound by memory; one 16-byte access an operand. x and y may differ in layout.
#include "launch.cuh"

extern "C" __global__ void copy(Copy g, Map<const float> x, Map<float> y, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(x.row(g.x_offset + at.c, at.h, 0) + at.i);
    accumulate(y.row(g.y_offset + at.c, at.h, 0) + at.i, value, beta);
}
