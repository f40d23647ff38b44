// Response normalisation across maps. lrn_forward: y = x * D^-power with D = k + alpha * (sum of x^2 over the window).
// lrn_backward: dx = beta * dx + dy D^-power - 2 alpha power x * (sum of dy' x' D'^(-power-1) over the windows of others
// that hold this channel).
// Rows launch (kernels/rows.py) over TILE channels a thread. Constants SIZE (of the window), TILE.
// Why: a thread walks TILE neighbouring channels at one pixel and sample, so that a window's values are read and raised
// to a power once per tile rather than once per window, and all its loads are under way together. Every window is summed
// afresh: a running sum would drift.
#include "launch.cuh"

constexpr int BEFORE = SIZE / 2, AFTER = SIZE - 1 - BEFORE;  // neighbours of a window's centre

// The element of channel c, or 0 where there is none.
__device__ __forceinline__ float element(const Map<const float>& x, int channels, int c, const Place& at) {
    return c >= 0 && c < channels ? x.row(c, at.h, 0)[at.i] : 0.0f;
}

template <int count>
__device__ __forceinline__ float sum(const float* values) {
    float total = 0.0f;
    for (int k = 0; k < count; ++k) total += values[k];
    return total;
}

extern "C" __global__ void lrn_forward(Lrn g, Map<const float> x, Map<float> y) {
    const Place at = place((g.channels + TILE - 1) / TILE, g.height, g.width * g.batch);
    if (!at.inside) return;
    const int first = at.c * TILE;
    float value[TILE + SIZE - 1], square[TILE + SIZE - 1];  // of channels first - BEFORE and on
#pragma unroll
    for (int k = 0; k < TILE + SIZE - 1; ++k) value[k] = element(x, g.channels, first - BEFORE + k, at);
#pragma unroll
    for (int k = 0; k < TILE + SIZE - 1; ++k) square[k] = value[k] * value[k];
#pragma unroll
    for (int t = 0; t < TILE; ++t) {
        if (first + t >= g.channels) break;
        const float base = g.k + g.alpha * sum<SIZE>(square + t);
        y.row(first + t, at.h, 0)[at.i] = value[t + BEFORE] * powf(base, -g.power);
    }
}

extern "C" __global__ void lrn_backward(Lrn g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta) {
    const Place at = place((g.channels + TILE - 1) / TILE, g.height, g.width * g.batch);
    if (!at.inside) return;
    const int first = at.c * TILE;
    // Channel c lies in the windows of c - AFTER ... c + BEFORE, so a tile needs the windows of `centres` channels.
    constexpr int centres = TILE + SIZE - 1;
    float value[centres + SIZE - 1], square[centres + SIZE - 1];  // of channels first - AFTER - BEFORE and on
    float direct[centres], ratio[centres];                        // of channels first - AFTER and on
#pragma unroll
    for (int k = 0; k < centres + SIZE - 1; ++k) value[k] = element(x, g.channels, first - AFTER - BEFORE + k, at);
#pragma unroll
    for (int k = 0; k < centres; ++k) direct[k] = element(dy, g.channels, first - AFTER + k, at);
#pragma unroll
    for (int k = 0; k < centres + SIZE - 1; ++k) square[k] = value[k] * value[k];
#pragma unroll
    for (int k = 0; k < centres; ++k) {
        const float base = g.k + g.alpha * sum<SIZE>(square + k);
        direct[k] *= powf(base, -g.power);
        ratio[k] = direct[k] * value[k + BEFORE] / base;
    }
#pragma unroll
    for (int t = 0; t < TILE; ++t) {
        if (first + t >= g.channels) break;
        const float own = value[t + AFTER + BEFORE] * sum<SIZE>(ratio + t);
        const float result = direct[t + AFTER] - 2.0f * g.alpha * g.power * own;
        accumulate(&dx.row(first + t, at.h, 0)[at.i], result, beta);
    }
}
