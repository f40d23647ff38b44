// Neurons: y = f(x); dx = beta * dx + f'(x) dy with the derivative taken from y, or from x in backward_x.
// Rows launch (kernels/rows.py), VECTOR elements a thread. Constant KIND: index into KINDS of reference.py.
// Why: bound by memory; one 16-byte access an operand and enough threads to cover its latency reach copy bandwidth.
#include "launch.cuh"

enum Kind { RELU, TANH, LOGISTIC, IDENT, BRELU, SOFTRELU, ABS, SQUARE, SQRT, LINEAR, LOG, DRELU };

__device__ __forceinline__ float f(const Neuron& g, float x) {
    if (KIND == RELU) return x > 0.0f || x != x ? x : 0.0f;  // like NumPy's maximum, NaN passes through
    if (KIND == TANH) return g.a * tanhf(g.b * x);
    if (KIND == LOGISTIC) return 1.0f / (1.0f + expf(-x));
    if (KIND == BRELU) return x != x ? x : fminf(fmaxf(x, 0.0f), g.a);
    if (KIND == SOFTRELU) return x > 4.0f ? x : log1pf(expf(x));
    if (KIND == ABS) return fabsf(x);
    if (KIND == SQUARE) return x * x;
    if (KIND == SQRT) return sqrtf(x);
    if (KIND == LINEAR) return g.a * x + g.b;
    if (KIND == LOG) return logf(g.a + x);
    if (KIND == DRELU) return x - g.a * tanhf(x / g.a);
    return x;
}

// Of y in `backward`, of x in `backward_x`.
__device__ __forceinline__ float derivative(const Neuron& g, float v) {
    if (KIND == RELU) return v > 0.0f ? 1.0f : 0.0f;
    if (KIND == TANH) return g.b * (g.a - v * v / g.a);
    if (KIND == LOGISTIC) return v * (1.0f - v);
    if (KIND == BRELU) return v > 0.0f && v < g.a ? 1.0f : 0.0f;
    if (KIND == SOFTRELU) return v > 4.0f ? 1.0f : -expm1f(-v);
    if (KIND == ABS) return v > 0.0f ? 1.0f : -1.0f;
    if (KIND == SQUARE) return 2.0f * v;
    if (KIND == SQRT) return 0.5f / v;
    if (KIND == LINEAR) return g.a;
    if (KIND == LOG) return expf(-v);
    if (KIND == DRELU) return tanhf(v / g.a) * tanhf(v / g.a);
    return 1.0f;
}

extern "C" __global__ void forward(Neuron g, Map<const float> x, Map<float> y) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) value[k] = f(g, value[k]);
    store(y.row(at.c, at.h, 0) + at.i, value);
}

extern "C" __global__ void backward(Neuron g, Map<const float> y, Map<const float> dy, Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> output = load<VECTOR>(y.row(at.c, at.h, 0) + at.i);
    Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) gradient[k] *= derivative(g, output[k]);
    accumulate(dx.row(at.c, at.h, 0) + at.i, gradient, beta);
}

extern "C" __global__ void backward_x(Neuron g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> input = load<VECTOR>(x.row(at.c, at.h, 0) + at.i);
    Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) gradient[k] *= derivative(g, input[k]);
    accumulate(dx.row(at.c, at.h, 0) + at.i, gradient, beta);
}
