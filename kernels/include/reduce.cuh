// Reductions with a fixed order: the same bits on every run.
#pragma once

struct Add {
    template <typename T>
    __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};

struct Max {
    template <typename T>
    __device__ __forceinline__ T operator()(T a, T b) const { return a > b ? a : b; }
};

// Two sums at once.
struct Sums {
    double first, second;
    __device__ __forceinline__ Sums operator+(Sums other) const { return {first + other.first, second + other.second}; }
};

// Combines `value` over threadIdx.y, for each threadIdx.x; all threads get the result and all must call.
// blockDim.y is a power of two; `part` is shared memory of one T a thread.
template <typename T, typename Combine>
__device__ T reduce_down(T value, Combine combine, T* part) {
    const int across = blockDim.x, slot = threadIdx.y * across + threadIdx.x;
    __syncthreads();  // an earlier call may still be reading its result
    part[slot] = value;
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) part[slot] = combine(part[slot], part[slot + half * across]);
    }
    __syncthreads();
    return part[threadIdx.x];
}
