// Weight gradient of a convolution by its definition, one weight a block of 256 threads. Any geometry.
// Grid: weights, in the order f, c, r, s. A thread adds every 256th value of each output row, then they are added up.
// Why: the simplest right answer, for groups of few filters, where a tile would be nearly empty.
#include "launch.cuh"
#include "reduce.cuh"

extern "C" __global__ void wgrad(Conv g, Map<const float> x, Map<const float> dy, float* dw, float beta) {
    __shared__ float part[256];
    const int channels = g.channels / g.groups, weight = blockIdx.x;
    const int s = weight % g.cols, r = weight / g.cols % g.rows, c = weight / g.cols / g.rows % channels;
    const int f = weight / g.cols / g.rows / channels, group = f / (g.filters / g.groups);
    float sum = 0.0f;
    for (int p = 0; p < g.out_h; ++p) {
        const int h = p * g.stride_h - g.pad_top + r;
        if (unsigned(h) >= unsigned(g.height)) continue;
        for (int i = threadIdx.y; i < g.out_w * g.batch; i += blockDim.y) {
            const int v = i / g.batch * g.stride_w - g.pad_left + s;
            if (unsigned(v) < unsigned(g.width))
                sum += dy.row(f, p, 0)[i] * x.row(group * channels + c, h, v)[i % g.batch];
        }
    }
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) accumulate(dw + weight, sum, beta);
}
