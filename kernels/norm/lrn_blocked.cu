// Response normalisation across maps whose windows are aligned blocks of `size` channels; see lrn.cu for the formulas.
// Rows launch (kernels/rows.py), VECTOR elements of one block of channels a thread. No constants.
// Why: the channels of a block share one D, so it is summed and raised to a power once for all of them.
#include "launch.cuh"

// The rows launch over blocks: at.c is the block.
__device__ __forceinline__ Place block_place(const Lrn& g) {
    return place((g.channels + g.size - 1) / g.size, g.height, g.width * g.batch);
}

__device__ __forceinline__ Pack<float, VECTOR> block_base(const Lrn& g, const Map<const float>& x, int first, int end,
                                                          const Place& at) {
    Pack<float, VECTOR> sum = {};
    for (int c = first; c < end; ++c) {
        Pack<float, VECTOR> value = load<VECTOR>(x.row(c, at.h, 0) + at.i);
        for (int e = 0; e < VECTOR; ++e) sum[e] += value[e] * value[e];
    }
    for (int e = 0; e < VECTOR; ++e) sum[e] = g.k + g.alpha * sum[e];
    return sum;
}

extern "C" __global__ void lrn_forward(Lrn g, Map<const float> x, Map<float> y) {
    const Place at = block_place(g);
    if (!at.inside) return;
    const int first = at.c * g.size, end = min(first + g.size, g.channels);
    Pack<float, VECTOR> factor = block_base(g, x, first, end, at);
    for (int e = 0; e < VECTOR; ++e) factor[e] = powf(factor[e], -g.power);
    for (int c = first; c < end; ++c) {
        Pack<float, VECTOR> value = load<VECTOR>(x.row(c, at.h, 0) + at.i);
        for (int e = 0; e < VECTOR; ++e) value[e] *= factor[e];
        store(y.row(c, at.h, 0) + at.i, value);
    }
}

extern "C" __global__ void lrn_backward(Lrn g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta) {
    const Place at = block_place(g);
    if (!at.inside) return;
    const int first = at.c * g.size, end = min(first + g.size, g.channels);
    Pack<float, VECTOR> base = block_base(g, x, first, end, at);
    Pack<float, VECTOR> factor, sum = {};
    for (int e = 0; e < VECTOR; ++e) factor[e] = powf(base[e], -g.power);
    for (int c = first; c < end; ++c) {
        Pack<float, VECTOR> value = load<VECTOR>(x.row(c, at.h, 0) + at.i);
        Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(c, at.h, 0) + at.i);
        for (int e = 0; e < VECTOR; ++e) sum[e] += gradient[e] * value[e];
    }
    for (int e = 0; e < VECTOR; ++e) sum[e] *= 2.0f * g.alpha * g.power * factor[e] / base[e];
    for (int c = first; c < end; ++c) {
        Pack<float, VECTOR> value = load<VECTOR>(x.row(c, at.h, 0) + at.i);
        Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(c, at.h, 0) + at.i);
        for (int e = 0; e < VECTOR; ++e) gradient[e] = gradient[e] * factor[e] - value[e] * sum[e];
        accumulate(dx.row(c, at.h, 0) + at.i, gradient, beta);
    }
}
