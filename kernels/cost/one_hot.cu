// Labels to targets: t[c][n] = 1 where c is the label of n, else 0; -1 for an unlabeled sample, NaN for no
// class; of a sample mixed of two, parts of both.
// Rows launch (kernels/rows.py) over classes, VECTOR samples a thread.
// Why: bound by memory, and small. Costs of targets thus need no second form for labels.
#include "labels.cuh"
#include "launch.cuh"

extern "C" __global__ void one_hot(OneHot g, const int* labels, const int* second, const float* share, Map<float> t) {
    const Place at = place(g.classes, 1, g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value;
    for (int k = 0; k < VECTOR; ++k) {
        const Labels label = labels_of(labels, second, share, at.i + k);
        const bool known = max(label.first, label.second) < max(g.classes, 2);
        const float target = label.target(g.classes == 1 ? 1 : at.c);
        value[k] = label.first < 0 ? -1.0f : known ? target : not_a_number();
    }
    store(t.row(at.c, 0, 0) + at.i, value);
}
