// Normalisation over square windows of one map: y = x * D^-power, D = k + alpha * (sum of d^2 over the window).
// d is x itself, or what the window's mean leaves of it. A geometry G has size, alpha, power, k and the sides of the map.
// Each function is a kernel's body: one thread of a rows launch (kernels/rows.py) takes VECTOR samples of a pixel.
#pragma once

#include "launch.cuh"
#include "window.cuh"

// Some rows and columns of a map.
struct Box {
    Span rows, columns;

    __device__ __forceinline__ float area() const {
        return float((rows.end - rows.begin) * (columns.end - columns.begin));
    }
};

// Where a thread stands: VECTOR samples from n on, of pixel (h, w) of channel c.
struct Pixel {
    int c, h, w, n;
    bool inside;

    template <typename G>
    __device__ __forceinline__ explicit Pixel(const G& g) {
        const Place at = place(g.channels, g.height, g.width * g.batch);
        c = at.c, h = at.h, w = at.i / g.batch, n = at.i % g.batch, inside = at.inside;
    }

    template <typename T>
    __device__ __forceinline__ T* in(const Map<T>& map) const {
        return map.row(c, h, w) + n;
    }
};

// The window of pixel (h, w), from h - size / 2 and w - size / 2 on, as far as it lies in the map.
template <typename G>
__device__ __forceinline__ Box window_of(const G& g, int h, int w) {
    return {window(h, g.size, 1, -(g.size / 2), g.height), window(w, g.size, 1, -(g.size / 2), g.width)};
}

// The pixels whose windows hold (h, w).
template <typename G>
__device__ __forceinline__ Box holding(const G& g, int h, int w) {
    return {covering(h, g.size, 1, -(g.size / 2), g.height), covering(w, g.size, 1, -(g.size / 2), g.width)};
}

// The sum of term(values at (h, w), h, w) over a box, row by row.
template <typename Term>
__device__ __forceinline__ Pack<float, VECTOR> box_sum(const Box& box, const Map<const float>& map, int c, int n, Term term) {
    Pack<float, VECTOR> sum = {};
    for (int h = box.rows.begin; h < box.rows.end; ++h)
        for (int w = box.columns.begin; w < box.columns.end; ++w) {
            Pack<float, VECTOR> value = load<VECTOR>(map.row(c, h, w) + n);
            for (int e = 0; e < VECTOR; ++e) sum[e] += term(value[e], h, w);
        }
    return sum;
}

// D at a pixel.
template <typename G>
__device__ __forceinline__ Pack<float, VECTOR> response_base(const G& g, const Map<const float>& d, const Pixel& at) {
    Pack<float, VECTOR> base =
        box_sum(window_of(g, at.h, at.w), d, at.c, at.n, [](float value, int, int) { return value * value; });
    for (int e = 0; e < VECTOR; ++e) base[e] = g.k + g.alpha * base[e];
    return base;
}

// y = x D^-power.
template <typename G>
__device__ __forceinline__ void respond(const G& g, Map<const float> x, Map<const float> d, Map<float> y) {
    const Pixel at(g);
    if (!at.inside) return;
    Pack<float, VECTOR> base = response_base(g, d, at);
    Pack<float, VECTOR> value = load<VECTOR>(at.in(x));
    for (int e = 0; e < VECTOR; ++e) value[e] *= powf(base[e], -g.power);
    store(at.in(y), value);
}

// The first half of the gradient: dx = beta dx + dy D^-power, ratio = dy x D^(-power - 1).
template <typename G>
__device__ __forceinline__ void respond_directly(const G& g, Map<const float> x, Map<const float> d, Map<const float> dy,
                                                 Map<float> dx, float beta, Map<float> ratio) {
    const Pixel at(g);
    if (!at.inside) return;
    Pack<float, VECTOR> base = response_base(g, d, at), value = load<VECTOR>(at.in(x));
    Pack<float, VECTOR> direct = load<VECTOR>(at.in(dy)), own;
    for (int e = 0; e < VECTOR; ++e) {
        direct[e] *= powf(base[e], -g.power);
        own[e] = direct[e] * value[e] / base[e];
    }
    accumulate(at.in(dx), direct, beta);
    store(at.in(ratio), own);
}

// What D's dependence on d at a pixel adds: -2 alpha power d * (sum of ratio over the pixels whose windows hold it).
template <typename G>
__device__ __forceinline__ Pack<float, VECTOR> response_slope(const G& g, Map<const float> d, Map<const float> ratio,
                                                              const Pixel& at) {
    Pack<float, VECTOR> slope =
        box_sum(holding(g, at.h, at.w), ratio, at.c, at.n, [](float value, int, int) { return value; });
    Pack<float, VECTOR> value = load<VECTOR>(at.in(d));
    for (int e = 0; e < VECTOR; ++e) slope[e] *= -2.0f * g.alpha * g.power * value[e];
    return slope;
}

// The i-th map in a workspace, as large as the geometry's.
template <typename G>
__device__ __forceinline__ Map<float> scratch(const G& g, float* workspace, int i) {
    const long long row = (long long)g.width * g.batch;
    return {workspace + i * (row * g.height * g.channels), row * g.height, row, g.batch};
}

__device__ __forceinline__ Map<const float> read_only(const Map<float>& map) { return {map.data, map.c, map.h, map.w}; }
