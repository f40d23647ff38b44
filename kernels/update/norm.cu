// norms[clock[2] % ring] = sqrt(sum of dw^2).
// Two launches: PARTS blocks write one partial sum each to the workspace (grid PARTS, block (1, 256), 4 neighbours a
// thread); gradient_norm_finish adds them in order (grid 1, block (1, 256)). Constant PARTS.
// Why: a fixed number of parts keeps the order of the sum fixed; float64, since sums of squares lose digits. Bound by
// memory.
#include "launch.cuh"
#include "reduce.cuh"

extern "C" __global__ void gradient_norm(Norm g, const float* dw, const unsigned* clock, double* norms,
                                         double* partial) {
    __shared__ double part[256];
    double sum = 0.0;
    for (long long block = blockIdx.x; block < g.blocks; block += PARTS) {
        Pack<float, 4> gradient = load<4>(dw + block * 1024 + threadIdx.y * 4);
        for (int k = 0; k < 4; ++k) sum += double(gradient[k]) * gradient[k];
    }
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) partial[blockIdx.x] = sum;
}

extern "C" __global__ void gradient_norm_finish(Norm g, const float* dw, const unsigned* clock, double* norms,
                                                const double* partial) {
    __shared__ double part[256];
    double sum = 0.0;
    for (int k = threadIdx.y; k < PARTS; k += 256) sum += partial[k];
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) norms[clock[2] % g.ring] = sqrt(sum);
}
