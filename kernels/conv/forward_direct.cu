// Convolution by its definition, one output value a thread. Any geometry.
// Grid: outputs/256 in the order f, p, (q, n); block 256.
// Why: the simplest right answer, for groups of few filters, where a tile would be nearly empty.
#include "launch.cuh"

extern "C" __global__ void forward(Conv g, Map<const float> x, const float* w, const float* b, Map<float> y) {
    const long long across = (long long)g.out_w * g.batch, i = global_thread();
    const int f = int(i / across / g.out_h), p = int(i / across % g.out_h), rest = int(i % across);
    if (f >= g.filters) return;
    const int channels = g.channels / g.groups, first = f / (g.filters / g.groups) * channels;
    const int top = p * g.stride_h - g.pad_top, left = rest / g.batch * g.stride_w - g.pad_left, n = rest % g.batch;
    const float* w_crs = w + f * (long long)channels * g.rows * g.cols;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c)
        for (int r = 0; r < g.rows; ++r)
            for (int s = 0; s < g.cols; ++s) {
                const float weight = *w_crs++;
                if (unsigned(top + r) < unsigned(g.height) && unsigned(left + s) < unsigned(g.width))
                    sum += weight * x.row(first + c, top + r, left + s)[n];
            }
    y.row(f, p, 0)[rest] = sum + (b ? b[f] : 0.0f);
}
