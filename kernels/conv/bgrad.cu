// Bias gradient: db[f] = beta db[f] + the sum of dy[f].
// Grid of `bgrad`: filters * SPLITS, filters fastest, blocks of 256 threads: each adds every SPLITS-th output row into
// workspace[f][split]. Grid of `reduce`: filters/256, block 256: one thread a filter adds those in order.
// Why: a filter's values are many and filters are few; one block each would leave most of a GPU idle.
#include "launch.cuh"
#include "reduce.cuh"

extern "C" __global__ void bgrad(Conv g, Map<const float> dy, float* db, float beta, float* workspace) {
    __shared__ float part[256];
    const int f = blockIdx.x % g.filters, split = blockIdx.x / g.filters;
    float sum = 0.0f;
    for (int p = split; p < g.out_h; p += SPLITS)
        for (int i = threadIdx.y; i < g.out_w * g.batch; i += blockDim.y) sum += dy.row(f, p, 0)[i];
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) workspace[f * (long long)SPLITS + split] = sum;
}

extern "C" __global__ void reduce(Conv g, Map<const float> dy, float* db, float beta, const float* workspace) {
    const long long f = global_thread();
    if (f >= g.filters) return;
    float sum = 0.0f;
    for (int split = 0; split < SPLITS; ++split) sum += workspace[f * SPLITS + split];
    accumulate(db + f, sum, beta);
}
