// out[p] = (mean |w|, mean |v|) over span p of the flat buffers.
// Two launches: SPLITS blocks a parameter write one partial pair each to the workspace (grid P*SPLITS, block (1, 256));
// magnitude_finish adds them in order (grid P/256, block 256). Constant SPLITS.
// Why: spans differ by orders of magnitude; a fixed number of shares keeps the order of a sum fixed and the largest fast.
#include "launch.cuh"
#include "reduce.cuh"

extern "C" __global__ void magnitude(Magnitude g, const float* w, const float* v, const long long* spans, float* out,
                                     Sums* partial) {
    __shared__ Sums part[256];
    const int p = blockIdx.x / SPLITS;
    const long long begin = spans[2 * p], size = spans[2 * p + 1];
    Sums sum = {0.0, 0.0};
    for (long long j = blockIdx.x % SPLITS * 256 + threadIdx.y; j < size; j += SPLITS * 256)
        sum = sum + Sums{fabsf(w[begin + j]), fabsf(v[begin + j])};
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void magnitude_finish(Magnitude g, const float* w, const float* v, const long long* spans,
                                            float* out, const Sums* partial) {
    const long long p = global_thread();
    if (p >= g.parameters) return;
    Sums sum = {0.0, 0.0};
    for (int k = 0; k < SPLITS; ++k) sum = sum + partial[p * SPLITS + k];
    const double count = max(spans[2 * p + 1], 1ll);
    out[2 * p] = float(sum.first / count);
    out[2 * p + 1] = float(sum.second / count);
}
