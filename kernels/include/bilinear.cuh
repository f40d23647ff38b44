// Bilinear sampling of a map at the points of a lattice. Positions are in double: of a float, hundreds of pixels leave
// too few digits to the fraction.
#pragma once
#include "launch.cuh"

// Along one axis, output o lies at first + o * step on the input, clamped to [0, last].
struct Lattice {
    double first, step, last;
};

// `count` outputs of `scale` pixels each about the middle of the side, from the output `first` on.
__device__ __forceinline__ Lattice centred(int side, int count, double scale, int first, bool whole) {
    return {side * 0.5 + (first - count * 0.5) * scale, scale, whole ? side - 1.0 : max(0.0, side - 1.01)};
}

// The two pixels that an output lies between, and the share of the second.
struct Between {
    int first, second;
    float share;
};

__device__ __forceinline__ Between between(const Lattice& lattice, int o, int side) {
    const double at = max(0.0, min(lattice.first + o * lattice.step, lattice.last));
    const int first = int(at);
    return {first, min(first + 1, side - 1), float(at - first)};
}

__device__ __forceinline__ Pack<float, VECTOR> mix(Pack<float, VECTOR> a, Pack<float, VECTOR> b, float share) {
    for (int k = 0; k < VECTOR; ++k) a[k] = (1.0f - share) * a[k] + share * b[k];
    return a;
}

__device__ __forceinline__ Pack<float, VECTOR> bilinear(const Map<const float>& x, int c, Between h, Between w, int n) {
    auto along_row = [&](int row) {
        return mix(load<VECTOR>(x.row(c, row, w.first) + n), load<VECTOR>(x.row(c, row, w.second) + n), w.share);
    };
    return mix(along_row(h.first), along_row(h.second), h.share);
}
