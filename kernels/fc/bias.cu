// Bias of a fully connected layer. `forward` fills y [outputs, N] with it, for the product to be added to: grid outputs*N/256,
// block 256. `bgrad`: db[o] = beta db[o] + the sum of dy[o], a block of 128 threads an output, added in a fixed order.
// Maps are 1 x 1 pixel here, so channels follow each other at the stride c.
#include "launch.cuh"
#include "reduce.cuh"

extern "C" __global__ void forward(Fc g, Map<const float> x, const float* w, const float* b, Map<float> y, void* workspace) {
    const long long i = global_thread();
    if (i >= g.outputs * (long long)g.batch) return;
    const int o = int(i / g.batch);
    y.row(o, 0, 0)[i % g.batch] = b ? b[o] : 0.0f;
}

extern "C" __global__ void bgrad(Fc g, Map<const float> dy, float* db, float beta) {
    __shared__ float part[128];
    float sum = 0.0f;
    for (int n = threadIdx.y; n < g.batch; n += blockDim.y) sum += dy.row(blockIdx.x, 0, 0)[n];
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) accumulate(db + blockIdx.x, sum, beta);
}
