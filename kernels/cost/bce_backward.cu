// Gradient of binary cross-entropy, 0 for a target below 0: bce_backward, dx = beta * dx + scale * ((1 - t) / (1 - x) -
// weight t / x); bce_logits_backward, dx = beta * dx + scale * ((1 - t) p - weight t (1 - p)).
// Rows launch (kernels/rows.py), VECTOR elements a thread.
// Why: bound by memory; 16-byte accesses.
#include "launch.cuh"

extern "C" __global__ void bce_backward(Bce g, Map<const float> x, Map<const float> t, Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i);
    Pack<float, VECTOR> target = load<VECTOR>(t.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) {
        const float p = value[k], above = p <= 0.0f ? infinity() : p, below = p >= 1.0f ? infinity() : 1.0f - p;
        const float slope = (1.0f - target[k]) / below - g.weight * target[k] / above;
        value[k] = target[k] < 0.0f ? 0.0f : g.scale * slope;
    }
    accumulate(dx.row(at.c, at.h, 0) + at.i, value, beta);
}

extern "C" __global__ void bce_logits_backward(Bce g, Map<const float> p, Map<const float> t, Map<float> dx,
                                               float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(p.row(at.c, at.h, 0) + at.i);
    Pack<float, VECTOR> target = load<VECTOR>(t.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) {
        const float slope = (1.0f - target[k]) * value[k] - g.weight * target[k] * (1.0f - value[k]);
        value[k] = target[k] < 0.0f ? 0.0f : g.scale * slope;
    }
    accumulate(dx.row(at.c, at.h, 0) + at.i, value, beta);
}
