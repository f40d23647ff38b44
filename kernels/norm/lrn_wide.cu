// Response normalisation across maps with windows of any size, or aligned blocks; see lrn.cu for the formulas.
// Rows launch (kernels/rows.py), one element a thread. No constants.
// Why: lrn.cu keeps a window in registers, which ends at some size. This one reads windows through the cache.
#include "launch.cuh"
#include "window.cuh"

// The channels that the window of channel c covers.
__device__ __forceinline__ Span window_of(const Lrn& g, int c) {
    return g.blocked ? window(c / g.size, g.size, g.size, 0, g.channels) : window(c, g.size, 1, -(g.size / 2), g.channels);
}

// k + alpha * (sum of x^2 over the window of channel c).
__device__ float base(const Lrn& g, const Map<const float>& x, int c, const Place& at) {
    float sum = 0.0f;
    const Span span = window_of(g, c);
    for (int j = span.begin; j < span.end; ++j) {
        const float value = x.row(j, at.h, 0)[at.i];
        sum += value * value;
    }
    return g.k + g.alpha * sum;
}

extern "C" __global__ void lrn_forward(Lrn g, Map<const float> x, Map<float> y) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const float power = powf(base(g, x, at.c, at), -g.power);
    y.row(at.c, at.h, 0)[at.i] = x.row(at.c, at.h, 0)[at.i] * power;
}

extern "C" __global__ void lrn_backward(Lrn g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    float direct = 0.0f, sum = 0.0f;
    // The channels whose windows hold channel c.
    const Span span = g.blocked ? window_of(g, at.c) : covering(at.c, g.size, 1, -(g.size / 2), g.channels);
    for (int j = span.begin; j < span.end; ++j) {
        const float own = base(g, x, j, at), scaled = dy.row(j, at.h, 0)[at.i] * powf(own, -g.power);
        if (j == at.c) direct = scaled;
        sum += scaled * x.row(j, at.h, 0)[at.i] / own;
    }
    const float result = direct - 2.0f * g.alpha * g.power * x.row(at.c, at.h, 0)[at.i] * sum;
    accumulate(&dx.row(at.c, at.h, 0)[at.i], result, beta);
}
