// The three products of a local convolution by their definitions. Any geometry.
// Grid: results/256, in the order f, p, (q, n) of y; c, h, (v, n) of dx; p, q, f, c, r, s of dw; block 256, one result a
// thread.
// Why: the simplest right answer, for groups of few filters and for small batches, where a tile would be nearly empty.
#include "direct.cuh"
#include "window.cuh"

// The weights of filter f at position (p, q).
__device__ __forceinline__ long long filter(const Local& g, int p, int q, int f) {
    return ((p * (long long)g.out_w + q) * g.filters + f) * (g.channels / g.groups) * g.rows * g.cols;
}

extern "C" __global__ void forward(Local g, Map<const float> x, const float* w, const float* b, Map<float> y) {
    convolve<true>(g, x, w, b, y);
}

extern "C" __global__ void dgrad(Local g, Map<const float> dy, const float* w, Map<float> dx, float beta) {
    const long long across = (long long)g.width * g.batch, i = global_thread();
    const int c = int(i / across / g.height), h = int(i / across % g.height), rest = int(i % across);
    if (c >= g.channels) return;
    const int channels = g.channels / g.groups, filters = g.filters / g.groups, group = c / channels;
    const int v = rest / g.batch, n = rest % g.batch;
    const Span down = covering(h, g.rows, g.stride_h, -g.pad_top, g.out_h);
    const Span along = covering(v, g.cols, g.stride_w, -g.pad_left, g.out_w);
    float sum = 0.0f;
    for (int p = down.begin; p < down.end; ++p)
        for (int q = along.begin; q < along.end; ++q) {
            const int r = h + g.pad_top - p * g.stride_h, s = v + g.pad_left - q * g.stride_w;
            const int tap = (c % channels * g.rows + r) * g.cols + s;
            for (int f = group * filters; f < (group + 1) * filters; ++f)
                sum += w[filter(g, p, q, f) + tap] * dy.row(f, p, q)[n];
        }
    accumulate(dx.row(c, h, 0) + rest, sum, beta);
}

extern "C" __global__ void wgrad(Local g, Map<const float> x, Map<const float> dy, float* dw, float beta) {
    const long long weight = global_thread();
    const int channels = g.channels / g.groups, depth = channels * g.rows * g.cols, k = int(weight % depth);
    const int s = k % g.cols, r = k / g.cols % g.rows, c = k / g.cols / g.rows, f = int(weight / depth % g.filters);
    const long long position = weight / depth / g.filters;
    const int p = int(position / g.out_w), q = int(position % g.out_w);
    if (p >= g.out_h) return;
    const int h = p * g.stride_h - g.pad_top + r, v = q * g.stride_w - g.pad_left + s;
    float sum = 0.0f;
    if (unsigned(h) < unsigned(g.height) && unsigned(v) < unsigned(g.width)) {
        const float* seen = x.row(f / (g.filters / g.groups) * channels + c, h, v);
        const float* gradient = dy.row(f, p, q);
        for (int n = 0; n < g.batch; ++n) sum += gradient[n] * seen[n];
    }
    accumulate(dw + weight, sum, beta);
}
