// Kernels that reduce over the channels of a map: threadIdx.x walks the samples (a column each), threadIdx.y the channels.
#pragma once

#include "launch.cuh"
#include "reduce.cuh"

struct Column {
    int h, i;  // the row, and the element within it
    bool inside;
};

// Of `length` columns in each row; grid.x counts tiles of blockDim.x columns, tile by tile along each row.
__device__ __forceinline__ Column column(int length) {
    const unsigned tiles = (length + blockDim.x - 1) / blockDim.x;
    const int i = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    return {int(blockIdx.x / tiles), i, i < length};
}

// The largest of `channels` elements of a column; every thread of the block must call.
__device__ __forceinline__ float column_max(const Map<const float>& x, int channels, const Column& at, float* part) {
    float top = -infinity();
    if (at.inside)
        for (int c = threadIdx.y; c < channels; c += blockDim.y) top = fmaxf(top, x.row(c, at.h, 0)[at.i]);
    return reduce_down(top, Max(), part);
}
