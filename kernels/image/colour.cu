// rgb2yuv, rgb2lab: the three channels of each pixel to three others, formulas in the layers of these names.
// Rows launch (kernels/rows.py) of one channel, VECTOR elements of each of the three rows a thread.
// Why: bound by memory; one 16-byte access a channel.
#include "launch.cuh"

typedef Pack<float, VECTOR> Row;

__device__ __forceinline__ Row combine(float a, Row r, float b, Row g, float c, Row u) {
    for (int k = 0; k < VECTOR; ++k) r[k] = a * r[k] + b * g[k] + c * u[k];
    return r;
}

extern "C" __global__ void rgb2yuv(Colour g, Map<const float> x, Map<float> y) {
    const Place at = place(1, g.height, g.width * g.batch);
    if (!at.inside) return;
    const Row red = load<VECTOR>(x.row(0, at.h, 0) + at.i), green = load<VECTOR>(x.row(1, at.h, 0) + at.i);
    const Row blue = load<VECTOR>(x.row(2, at.h, 0) + at.i);
    store(y.row(0, at.h, 0) + at.i, combine(0.2126f, red, 0.7152f, green, 0.0722f, blue));
    store(y.row(1, at.h, 0) + at.i, combine(-0.09991f, red, -0.33609f, green, 0.436f, blue));
    store(y.row(2, at.h, 0) + at.i, combine(0.615f, red, -0.55861f, green, -0.05639f, blue));
}

// Nearly the cube root, linear near 0.
__device__ __forceinline__ Row lightness(Row t) {
    for (int k = 0; k < VECTOR; ++k)
        t[k] = t[k] > 0.0088564517f ? powf(t[k], 0.3333f) : 7.787037f * t[k] + 0.13793103f;
    return t;
}

extern "C" __global__ void rgb2lab(Colour g, Map<const float> x, Map<float> y) {
    const Place at = place(1, g.height, g.width * g.batch);
    if (!at.inside) return;
    const Row red = load<VECTOR>(x.row(0, at.h, 0) + at.i), green = load<VECTOR>(x.row(1, at.h, 0) + at.i);
    const Row blue = load<VECTOR>(x.row(2, at.h, 0) + at.i);
    Row fx = lightness(combine(0.49f, red, 0.31f, green, 0.2f, blue));
    Row fy = lightness(combine(0.17697f, red, 0.8124f, green, 0.01063f, blue));
    Row fz = lightness(combine(0.0f, red, 0.01f, green, 0.99f, blue));
    Row l, a, b;
    for (int k = 0; k < VECTOR; ++k) {
        l[k] = 116.0f * fy[k] - (g.center ? 66.0f : 16.0f);
        a[k] = 500.0f * (fx[k] - fy[k]);
        b[k] = 200.0f * (fy[k] - fz[k]);
    }
    store(y.row(0, at.h, 0) + at.i, l);
    store(y.row(1, at.h, 0) + at.i, a);
    store(y.row(2, at.h, 0) + at.i, b);
}
