// What kernels that walk maps share: where a thread stands, 16-byte accesses, accumulation.
#pragma once

#ifndef VECTOR
#define VECTOR 1  // elements a thread of an elementwise launch takes
#endif

// NVRTC has no math.h.
__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fffffff); }

__device__ __forceinline__ long long global_thread() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }

// `count` neighbours, read and written in one access; their address is a multiple of their size.
template <typename T, int count>
struct alignas(sizeof(T) * count) Pack {
    T value[count];
    __device__ __forceinline__ T& operator[](int k) { return value[k]; }
};

template <int count, typename T>
__device__ __forceinline__ Pack<T, count> load(const T* from) {
    return *reinterpret_cast<const Pack<T, count>*>(from);
}

template <typename T, int count>
__device__ __forceinline__ void store(T* to, Pack<T, count> values) {
    *reinterpret_cast<Pack<T, count>*>(to) = values;
}

// out = beta * out + value; `out` is not read when beta is 0, since it may hold anything, NaN included.
template <typename T>
__device__ __forceinline__ void accumulate(T* out, T value, float beta) {
    *out = beta == 0.0f ? value : beta * *out + value;
}

template <typename T, int count>
__device__ __forceinline__ void accumulate(T* out, Pack<T, count> values, float beta) {
    if (beta != 0.0f) {
        Pack<T, count> old = load<count>(out);
        for (int k = 0; k < count; ++k) values[k] += beta * old[k];
    }
    store(out, values);
}

// Where a thread of an elementwise launch (kernels/rows.py) stands: VECTOR elements from i on, in the row at (c, h).
struct Place {
    int c, h, i;
    bool inside;
};

// Of `channels` x `height` rows of `length` elements. Channels first, as in memory (H, C, W, N).
__device__ __forceinline__ Place place(int channels, int height, int length) {
    const unsigned across = blockDim.x * VECTOR, tiles = (length + across - 1) / across;
    const unsigned row = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const unsigned i = blockIdx.x % tiles * across + threadIdx.x * VECTOR;
    const unsigned c = row % channels, h = row / channels;
    return {int(c), int(h), int(i), i < unsigned(length) && h < unsigned(height)};
}
