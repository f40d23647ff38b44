// Max pooling. max_forward: y = maximum of the window. max_backward: dx = beta * dx + dy of the windows whose first
// maximum, in row-major order, the pixel is.
// Rows launch (kernels/rows.py) over y forward and over dx backward, VECTOR samples of one pixel a thread.
// Constant ABSOLUTE: the maximum is of the absolute value; y keeps the sign.
// Why: each thread owns its output, so the order of a sum is fixed and nothing is atomic. Backward compares the pixel
// with y and looks for an earlier equal only when it matches; that needs no stored index, and windows overlap in cache.
#include "launch.cuh"
#include "window.cuh"

__device__ __forceinline__ float rank(float value) { return ABSOLUTE ? fabsf(value) : value; }

extern "C" __global__ void max_forward(Pool g, Map<const float> x, Map<float> y) {
    const Place at = place(g.channels, g.out_h, g.out_w * g.batch);
    if (!at.inside) return;
    const int column = at.i / g.batch, n = at.i % g.batch;
    const Span rows = window(at.h, g.size_h, g.stride_h, g.start_h, g.height);
    const Span columns = window(column, g.size_w, g.stride_w, g.start_w, g.width);
    const bool empty = rows.end <= rows.begin || columns.end <= columns.begin;
    Pack<float, VECTOR> best;
    for (int k = 0; k < VECTOR; ++k) best[k] = empty || ABSOLUTE ? 0.0f : -infinity();
    for (int h = rows.begin; h < rows.end; ++h) {
        for (int w = columns.begin; w < columns.end; ++w) {
            Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, h, w) + n);
            for (int k = 0; k < VECTOR; ++k)
                if (rank(value[k]) > rank(best[k]) || value[k] != value[k]) best[k] = value[k];
        }
    }
    store(y.row(at.c, at.h, 0) + at.i, best);
}

// Whether the rank `best` occurs in the window before (h, w), for sample n of channel c.
__device__ bool earlier(const Map<const float>& x, Span rows, Span columns, int c, int h, int w, int n, float best) {
    for (int a = rows.begin; a <= h; ++a)
        for (int b = columns.begin; b < (a < h ? columns.end : w); ++b)
            if (rank(x.row(c, a, b)[n]) == best) return true;
    return false;
}

extern "C" __global__ void max_backward(Pool g, Map<const float> x, Map<const float> y, Map<const float> dy,
                                        Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const int w = at.i / g.batch, n = at.i % g.batch;
    const Span over_h = covering(at.h, g.size_h, g.stride_h, g.start_h, g.out_h);
    const Span over_w = covering(w, g.size_w, g.stride_w, g.start_w, g.out_w);
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i), sum = {};
    for (int p = over_h.begin; p < over_h.end; ++p) {
        const Span rows = window(p, g.size_h, g.stride_h, g.start_h, g.height);
        for (int q = over_w.begin; q < over_w.end; ++q) {
            const Span columns = window(q, g.size_w, g.stride_w, g.start_w, g.width);
            Pack<float, VECTOR> best = load<VECTOR>(y.row(at.c, p, q) + n);
            Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, p, q) + n);
            for (int k = 0; k < VECTOR; ++k)
                if (rank(value[k]) == rank(best[k]) && !earlier(x, rows, columns, at.c, at.h, w, n + k, rank(best[k])))
                    sum[k] += gradient[k];
        }
    }
    accumulate(dx.row(at.c, at.h, 0) + at.i, sum, beta);
}
