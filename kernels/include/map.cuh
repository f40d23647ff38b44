// A map: logical axes C, H, W, N with N contiguous; strides in elements. The host packs it in kernels/abi.py.
#pragma once

template <typename T>
struct Map {
    T* data;
    long long c, h, w;  // strides

    // The row of N values at (c, h, w).
    __device__ __forceinline__ T* row(int ci, int hi, int wi) const { return data + ci * c + hi * h + wi * w; }
};
