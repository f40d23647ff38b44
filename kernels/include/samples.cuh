// Sums over all elements (C, H, W) of each sample, in two launches with a fixed order: `sum_share` leaves the sum of
// each of SPLITS shares in the workspace, `sum_sample` adds them. Constants SPLITS, THREADS (of the first's blocks).
#pragma once

#include "launch.cuh"
#include "reduce.cuh"

// partial[share][n] = the sum of value(c, h, w, n) over this block's share. Block (samples, lanes); grid tiles of
// samples times SPLITS. The lanes take elements that lie together: W first, then C, then H.
template <typename Tally, typename G, typename Value>
__device__ void sum_share(const G& g, Value value, Tally* partial) {
    __shared__ Tally part[THREADS];
    const unsigned tiles = (g.batch + blockDim.x - 1) / blockDim.x, share = blockIdx.x / tiles;
    const int n = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    const unsigned width = g.width, channels = g.channels, features = width * channels * g.height;
    Tally sum = Tally();
    if (n < g.batch) {
        for (unsigned f = share * blockDim.y + threadIdx.y; f < features; f += SPLITS * blockDim.y) {
            const unsigned row = f / width;
            sum = sum + value(row % channels, row / channels, f % width, n);
        }
    }
    sum = reduce_down(sum, Add(), part);
    if (n < g.batch && threadIdx.y == 0) partial[share * (long long)g.batch + n] = sum;
}

// The sum of sample n.
template <typename Tally>
__device__ Tally sum_sample(const Tally* partial, int n, int batch) {
    Tally sum = partial[n];
    for (int share = 1; share < SPLITS; ++share) sum = sum + partial[share * (long long)batch + n];
    return sum;
}
