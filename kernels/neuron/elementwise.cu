// Neurons: y = f(x); dx = beta * dx + f'(x) dy with the derivative taken from y.
// Rows launch (kernels/rows.py), VECTOR elements a thread. Constant KIND: index into KINDS of reference.py.
// Why: bound by memory; one 16-byte access an operand and enough threads to cover its latency reach copy bandwidth.
#include "launch.cuh"

template <int kind>
__device__ float f(float x) {
    if (kind == 0) return x > 0.0f || x != x ? x : 0.0f;  // like NumPy's maximum, NaN passes through
    if (kind == 1) return tanhf(x);
    return 1.0f / (1.0f + expf(-x));
}

template <int kind>
__device__ float derivative(float y) {
    if (kind == 0) return y > 0.0f ? 1.0f : 0.0f;
    if (kind == 1) return 1.0f - y * y;
    return y * (1.0f - y);
}

extern "C" __global__ void forward(Neuron g, Map<const float> x, Map<float> y) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) value[k] = f<KIND>(value[k]);
    store(y.row(at.c, at.h, 0) + at.i, value);
}

extern "C" __global__ void backward(Neuron g, Map<const float> y, Map<const float> dy, Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    Pack<float, VECTOR> output = load<VECTOR>(y.row(at.c, at.h, 0) + at.i);
    Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) gradient[k] *= derivative<KIND>(output[k]);
    accumulate(dx.row(at.c, at.h, 0) + at.i, gradient, beta);
}
