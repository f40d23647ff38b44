// sum: y = beta * y + coeff * x.
// Rows launch (kernels/rows.py), VECTOR elements a thread.
// Why: bound by memory; one 16-byte access an operand. x and y may differ in layout.
#include "launch.cuh"

extern "C" __global__ void sum(Sum g, Map<const float> x, Map<float> y, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) value[k] *= g.coeff;
    accumulate(y.row(at.c, at.h, 0) + at.i, value, beta);
}
