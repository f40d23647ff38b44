// Average and sum pooling. avg_forward: y = sum of the window / area. avg_backward: dx = beta * dx + sum of dy / area
// over the windows that hold the pixel. The area of sums is 1.
// Rows launch (kernels/rows.py) over y forward and over dx backward, VECTOR samples of one pixel a thread.
// Why: each thread owns its output, so the order of a sum is fixed; neighbouring windows meet in cache.
#include "launch.cuh"
#include "window.cuh"

// The length of window o along one axis that the divisor counts.
__device__ int counted(int o, int size, int stride, int start, int extent, bool pad) {
    const int margin = pad ? max(0, -start) : 0;
    const int begin = start + o * stride, end = min(begin + size, extent + margin);
    return max(end - max(begin, -margin), 0);
}

__device__ float area(const Pool& g, int p, int q) {
    if (!g.divide) return 1.0f;
    const float rows = counted(p, g.size_h, g.stride_h, g.start_h, g.height, g.count_pad);
    const float columns = counted(q, g.size_w, g.stride_w, g.start_w, g.width, g.count_pad);
    return fmaxf(rows * columns, 1.0f);
}

extern "C" __global__ void avg_forward(Pool g, Map<const float> x, Map<float> y) {
    const Place at = place(g.channels, g.out_h, g.out_w * g.batch);
    if (!at.inside) return;
    const int column = at.i / g.batch, n = at.i % g.batch;
    const Span rows = window(at.h, g.size_h, g.stride_h, g.start_h, g.height);
    const Span columns = window(column, g.size_w, g.stride_w, g.start_w, g.width);
    Pack<float, VECTOR> sum = {};
    for (int h = rows.begin; h < rows.end; ++h) {
        for (int w = columns.begin; w < columns.end; ++w) {
            Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, h, w) + n);
            for (int k = 0; k < VECTOR; ++k) sum[k] += value[k];
        }
    }
    const float divisor = area(g, at.h, column);
    for (int k = 0; k < VECTOR; ++k) sum[k] /= divisor;
    store(y.row(at.c, at.h, 0) + at.i, sum);
}

extern "C" __global__ void avg_backward(Pool g, Map<const float> dy, Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const int w = at.i / g.batch, n = at.i % g.batch;
    const Span over_h = covering(at.h, g.size_h, g.stride_h, g.start_h, g.out_h);
    const Span over_w = covering(w, g.size_w, g.stride_w, g.start_w, g.out_w);
    Pack<float, VECTOR> sum = {};
    for (int p = over_h.begin; p < over_h.end; ++p) {
        for (int q = over_w.begin; q < over_w.end; ++q) {
            Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, p, q) + n);
            const float divisor = area(g, p, q);
            for (int k = 0; k < VECTOR; ++k) sum[k] += gradient[k] / divisor;
        }
    }
    accumulate(dx.row(at.c, at.h, 0) + at.i, sum, beta);
}
