// Gradient of the multinomial logistic cost: dx = beta * dx + scale * (p - target), 0 for an unlabeled sample.
// Rows launch (kernels/rows.py) over classes, VECTOR samples a thread.
// Why: bound by memory, and small; softmax and likelihood differentiate to this one difference.
#include "labels.cuh"
#include "launch.cuh"

extern "C" __global__ void logreg_backward(Logreg g, Map<const float> p, const int* labels, const int* second,
                                           const float* share, Map<float> dx, float beta) {
    const Place at = place(g.classes, 1, g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(p.row(at.c, 0, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) {
        const Labels label = labels_of(labels, second, share, at.i + k);
        const float target = (1.0f - g.smoothing) * label.target(at.c) + g.smoothing / g.classes;
        value[k] = label.first < 0 ? 0.0f : g.scale * (value[k] - target);
    }
    accumulate(dx.row(at.c, 0, 0) + at.i, value, beta);
}
