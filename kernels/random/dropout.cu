// Dropout: y = x / keep where the mask keeps (x itself if not g.scaled), else 0; dropout_backward: dx = beta * dx + the
// same of dy.
// Rows launch (kernels/rows.py), VECTOR samples of one pixel a thread. The mask is defined in reference.py.
// Why: drawing the mask again in the backward pass costs arithmetic under the memory's shadow, and no bytes. One call
// of the generator serves four samples; where a quad begins or a run of places ends among them, there is another one.
#include "launch.cuh"
#include "philox.cuh"

// The place of sample n in the global batch.
__device__ unsigned place_of(const Dropout& g, unsigned offset, int n) {
    const int run = g.run ? g.run : g.batch;
    return offset + unsigned(g.first) + unsigned(n / run) * unsigned(g.stride) + unsigned(n % run);
}

// What each of the thread's elements is multiplied with: 1 / keep (or 1), or 0.
__device__ Pack<float, VECTOR> mask(const Dropout& g, const Place& at, const unsigned* clock) {
    const int w = at.i / g.batch, n = at.i % g.batch;
    const unsigned feature = ((unsigned(g.channel) + at.c) * g.height + at.h) * g.width + w;
    const unsigned long long limit = (unsigned long long)ceil(double(g.keep) * 4294967296.0);
    const float scale = g.scaled ? 1.0f / g.keep : 1.0f;
    Pack<float, VECTOR> factor;
    Words words;
    unsigned quad = 0;
    for (int k = 0; k < VECTOR; ++k) {
        const unsigned sample = place_of(g, clock[3], n + k);
        if (k == 0 || sample / 4 != quad) {
            quad = sample / 4;
            words = philox4x32({feature, quad, clock[2], unsigned(g.key)}, clock[0], clock[1]);
        }
        factor[k] = words.word[sample % 4] < limit ? scale : 0.0f;
    }
    return factor;
}

extern "C" __global__ void dropout(Dropout g, Map<const float> x, const unsigned* clock, Map<float> y) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i), factor = mask(g, at, clock);
    for (int k = 0; k < VECTOR; ++k) value[k] *= factor[k];
    store(y.row(at.c, at.h, 0) + at.i, value);
}

extern "C" __global__ void dropout_backward(Dropout g, Map<const float> dy, const unsigned* clock, Map<float> dx,
                                            float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, at.h, 0) + at.i), factor = mask(g, at, clock);
    for (int k = 0; k < VECTOR; ++k) gradient[k] *= factor[k];
    accumulate(dx.row(at.c, at.h, 0) + at.i, gradient, beta);
}
