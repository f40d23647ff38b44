// Maximum across maps. forward: y[o] = the maximum of the channels that output o covers. backward: dx = beta * dx + dy of
// the outputs whose first maximum, in the order of channels, the element is.
// Rows launch (kernels/rows.py) over y forward and over dx backward, VECTOR elements a thread.
// Why: each thread owns its results, so the order of a sum is fixed and nothing is atomic. Backward compares the element
// with y and looks for an earlier equal only when it matches; that needs no stored index.
#include "launch.cuh"
#include "window.cuh"

__device__ __forceinline__ Span group_of(const Cmpool& g, int o) { return window(o, g.size, g.stride, g.start, g.channels); }

extern "C" __global__ void forward(Cmpool g, Map<const float> x, Map<float> y) {
    const Place at = place(g.outputs, g.height, g.width * g.batch);
    if (!at.inside) return;
    const Span group = group_of(g, at.c);
    Pack<float, VECTOR> best = load<VECTOR>(x.row(group.begin, at.h, 0) + at.i);
    for (int c = group.begin + 1; c < group.end; ++c) {
        Pack<float, VECTOR> value = load<VECTOR>(x.row(c, at.h, 0) + at.i);
        for (int e = 0; e < VECTOR; ++e)
            if (value[e] > best[e] || value[e] != value[e]) best[e] = value[e];
    }
    store(y.row(at.c, at.h, 0) + at.i, best);
}

extern "C" __global__ void backward(Cmpool g, Map<const float> x, Map<const float> y, Map<const float> dy, Map<float> dx,
                                    float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const Span outputs = covering(at.c, g.size, g.stride, g.start, g.outputs);
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i), sum = {};
    for (int o = outputs.begin; o < outputs.end; ++o) {
        Pack<float, VECTOR> best = load<VECTOR>(y.row(o, at.h, 0) + at.i);
        Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(o, at.h, 0) + at.i);
        for (int e = 0; e < VECTOR; ++e) {
            bool first = value[e] == best[e];
            for (int c = group_of(g, o).begin; first && c < at.c; ++c) first = x.row(c, at.h, 0)[at.i + e] != best[e];
            if (first) sum[e] += gradient[e];
        }
    }
    accumulate(dx.row(at.c, at.h, 0) + at.i, sum, beta);
}
