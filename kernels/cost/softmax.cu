// Softmax over channels. softmax_forward: y = exp(x - max) / sum. softmax_backward: dx = beta * dx + y (dy - sum y dy).
// Block (columns, lanes): a column is one pixel of one sample, its lanes share the channels. Grid H * W*N/columns.
// Constant THREADS, of a block.
// Why: with a thousand classes and a hundred samples there are too few columns to give each one thread.
#include "column.cuh"

extern "C" __global__ void softmax_forward(Softmax g, Map<const float> x, Map<float> y) {
    __shared__ float part[THREADS];
    const Column at = column(g.width * g.batch);
    const float top = column_max(x, g.channels, at, part);
    float sum = 0.0f;
    if (at.inside) {
        for (int c = threadIdx.y; c < g.channels; c += blockDim.y) {
            const float value = expf(x.row(c, at.h, 0)[at.i] - top);
            y.row(c, at.h, 0)[at.i] = value;
            sum += value;
        }
    }
    sum = reduce_down(sum, Add(), part);
    if (at.inside)
        for (int c = threadIdx.y; c < g.channels; c += blockDim.y) y.row(c, at.h, 0)[at.i] /= sum;
}

extern "C" __global__ void softmax_backward(Softmax g, Map<const float> y, Map<const float> dy, Map<float> dx,
                                            float beta) {
    __shared__ float part[THREADS];
    const Column at = column(g.width * g.batch);
    float sum = 0.0f;
    if (at.inside)
        for (int c = threadIdx.y; c < g.channels; c += blockDim.y)
            sum += y.row(c, at.h, 0)[at.i] * dy.row(c, at.h, 0)[at.i];
    sum = reduce_down(sum, Add(), part);
    if (!at.inside) return;
    for (int c = threadIdx.y; c < g.channels; c += blockDim.y) {
        const float value = y.row(c, at.h, 0)[at.i] * (dy.row(c, at.h, 0)[at.i] - sum);
        accumulate(&dx.row(c, at.h, 0)[at.i], value, beta);
    }
}
