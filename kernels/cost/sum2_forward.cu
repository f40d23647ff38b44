// y[n] = sum of x^2 over all elements of sample n.
// Two launches (include/samples.cuh): grid tiles of samples * SPLITS, block (samples, lanes); sum2_forward_finish: grid
// N/128, block 128.
// Why: bound by memory; shares keep all multiprocessors busy when a batch is small and its maps are large.
#include "samples.cuh"

extern "C" __global__ void sum2_forward(Sum2 g, Map<const float> x, Map<float> y, double* partial) {
    auto square = [&](int c, int h, int w, int n) {
        const double value = x.row(c, h, w)[n];
        return value * value;
    };
    sum_share(g, square, partial);
}

extern "C" __global__ void sum2_forward_finish(Sum2 g, Map<const float> x, Map<float> y, const double* partial) {
    const int n = int(global_thread());
    if (n < g.batch) y.row(0, 0, 0)[n] = float(sum_sample(partial, n, g.batch));
}
