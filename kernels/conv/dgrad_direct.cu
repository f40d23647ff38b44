// Input gradient of a convolution by its definition, one image value a thread. Any geometry.
// Grid: image values/256 in the order c, h, (v, n); block 256.
// Why: the simplest right answer, for groups of few channels, where a tile would be nearly empty.
#include "launch.cuh"

extern "C" __global__ void dgrad(Conv g, Map<const float> dy, const float* w, Map<float> dx, float beta) {
    const long long across = (long long)g.width * g.batch, i = global_thread();
    const int c = int(i / across / g.height), h = int(i / across % g.height), rest = int(i % across);
    if (c >= g.channels) return;
    const int channels = g.channels / g.groups, filters = g.filters / g.groups, group = c / channels;
    const int down = h + g.pad_top, right = rest / g.batch + g.pad_left, n = rest % g.batch;
    float sum = 0.0f;
    for (int f = group * filters; f < (group + 1) * filters; ++f) {
        const float* w_rs = w + (f * (long long)channels + c % channels) * g.rows * g.cols;
        for (int r = 0; r < g.rows; ++r)
            for (int s = 0; s < g.cols; ++s) {
                // The output whose tap (r, s) met this pixel, if there is one.
                const int p = (down - r) / g.stride_h, q = (right - s) / g.stride_w;
                if (down - r == p * g.stride_h && right - s == q * g.stride_w && unsigned(p) < unsigned(g.out_h) &&
                    unsigned(q) < unsigned(g.out_w))
                    sum += w_rs[r * g.cols + s] * dy.row(f, p, q)[n];
            }
    }
    accumulate(dx.row(c, h, 0) + rest, sum, beta);
}
