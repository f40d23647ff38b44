// A convolution by its definition, one output value a thread.
#pragma once

#include "launch.cuh"

// The threads are in the order f, p, (q, n). per_position: filters and biases differ from position to position.
template <bool per_position, typename Conv>
__device__ __forceinline__ void convolve(const Conv& g, const Map<const float>& x, const float* w, const float* b,
                                         const Map<float>& y) {
    const long long across = (long long)g.out_w * g.batch, i = global_thread();
    const int f = int(i / across / g.out_h), p = int(i / across % g.out_h), rest = int(i % across);
    if (f >= g.filters) return;
    const int channels = g.channels / g.groups, first = f / (g.filters / g.groups) * channels;
    const int q = rest / g.batch, n = rest % g.batch, top = p * g.stride_h - g.pad_top, left = q * g.stride_w - g.pad_left;
    const long long position = per_position ? p * (long long)g.out_w + q : 0;
    const float* w_crs = w + (position * g.filters + f) * channels * g.rows * g.cols;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c)
        for (int r = 0; r < g.rows; ++r)
            for (int s = 0; s < g.cols; ++s) {
                const float weight = *w_crs++;
                if (unsigned(top + r) < unsigned(g.height) && unsigned(left + s) < unsigned(g.width))
                    sum += weight * x.row(first + c, top + r, left + s)[n];
            }
    y.row(f, p, 0)[rest] = sum + (b ? b[per_position ? (f * (long long)g.out_h + p) * g.out_w + q : f] : 0.0f);
}
