// Batch normalisation, elementwise parts. batch_forward: y = w * (x - mean) * inv_std + b. batch_infer: the same with
// running statistics. batch_dgrad: dx = beta * dx + w * inv_std * (dy - (sum_dy + xhat * sum_dy_xhat) / n).
// Rows launch (kernels/rows.py), VECTOR elements a thread; a row has one channel, so its constants are read once.
// batch_wgrad: dw = beta * dw + total. batch_join: the statistics from the moments of several batches together. Both
// one channel a thread: grid C/256, block 256.
// Why: bound by memory; one 16-byte access an operand.
#include "launch.cuh"

__device__ __forceinline__ void scale_and_shift(const Place& at, const Map<const float>& x, float mean, float scale,
                                                float shift, const Map<float>& y) {
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k) value[k] = (value[k] - mean) * scale + shift;
    store(y.row(at.c, at.h, 0) + at.i, value);
}

extern "C" __global__ void batch_forward(BatchNorm g, Map<const float> x, const float* mean, const float* inv_std,
                                         const float* w, const float* b, Map<float> y) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (at.inside) scale_and_shift(at, x, mean[at.c], inv_std[at.c] * w[at.c], b[at.c], y);
}

extern "C" __global__ void batch_infer(BatchNorm g, Map<const float> x, const float* running_mean,
                                       const float* running_var, const float* w, const float* b, Map<float> y) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const float inv_std = 1.0f / sqrtf(running_var[at.c] + g.eps);
    scale_and_shift(at, x, running_mean[at.c], inv_std * w[at.c], b[at.c], y);
}

extern "C" __global__ void batch_dgrad(BatchNorm g, Map<const float> x, Map<const float> dy, const float* mean,
                                       const float* inv_std, const float* w, const float* sum_dy,
                                       const float* sum_dy_xhat, Map<float> dx, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const float count = float(g.height) * g.width * (g.samples ? g.samples : g.batch), scale = w[at.c] * inv_std[at.c];
    const float mean_dy = sum_dy[at.c] / count, slope = inv_std[at.c] * (sum_dy_xhat[at.c] / count);
    Pack<float, VECTOR> value = load<VECTOR>(x.row(at.c, at.h, 0) + at.i);
    Pack<float, VECTOR> gradient = load<VECTOR>(dy.row(at.c, at.h, 0) + at.i);
    for (int k = 0; k < VECTOR; ++k)
        gradient[k] = scale * (gradient[k] - mean_dy - (value[k] - mean[at.c]) * slope);
    accumulate(dx.row(at.c, at.h, 0) + at.i, gradient, beta);
}

extern "C" __global__ void batch_wgrad(BatchNorm g, const float* total, float* dw, float beta) {
    const long long c = global_thread();
    if (c < g.channels) accumulate(dw + c, total[c], beta);
}

extern "C" __global__ void batch_join(BatchNorm g, const double* moments, float* mean, float* inv_std,
                                      float* running_mean, float* running_var) {
    const long long c = global_thread();
    if (c >= g.channels) return;
    const double count = double(g.height) * g.width * (g.samples ? g.samples : g.batch), offset = moments[c] / count;
    double variance = moments[g.channels + c] / count - offset * offset;
    if (variance < 0.0) variance = 0.0;  // rounding; NaN stays NaN
    mean[c] = float(running_mean[c] + offset);
    inv_std[c] = float(1.0 / sqrt(variance + g.eps));
    const double unbiased = count > 1.0 ? variance * (count / (count - 1.0)) : variance;
    running_mean[c] += float(g.momentum * offset);
    running_var[c] += float(g.momentum * (unbiased - running_var[c]));
}
