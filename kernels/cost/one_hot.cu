// Labels to targets: t[c][n] = 1 where c is the label of n, else 0; -1 for an unlabeled sample, NaN for no class.
// Rows launch (kernels/rows.py) over classes, VECTOR samples a thread.
// Why: bound by memory, and small. Costs of targets thus need no second form for labels.
#include "launch.cuh"

extern "C" __global__ void one_hot(OneHot g, const int* labels, Map<float> t) {
    const Place at = place(g.classes, 1, g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value;
    for (int k = 0; k < VECTOR; ++k) {
        const int label = labels[at.i + k];
        const bool known = label < max(g.classes, 2);
        const float hot = label == (g.classes == 1 ? 1 : at.c) ? 1.0f : 0.0f;
        value[k] = label < 0 ? -1.0f : known ? hot : not_a_number();
    }
    store(t.row(at.c, 0, 0) + at.i, value);
}
