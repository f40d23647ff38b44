// narrow: y = the bfloat16 nearest to x, of two equally near ones the even; a NaN stays one. widen: the way back.
// Grid `blocks`, block 256: one block of 1024 elements of the flat buffers, 4 neighbours a thread.
// Why: half the bytes on the wire for one pass over memory. Bound by memory; 16-byte accesses of the wide side.
#include "launch.cuh"

__device__ __forceinline__ unsigned short nearest(float x) {
    const unsigned bits = unsigned(__float_as_int(x));
    if (isnan(x)) return static_cast<unsigned short>(bits >> 16 | 0x40u);
    return static_cast<unsigned short>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

extern "C" __global__ void narrow(Halve g, const float* x, unsigned short* y) {
    const long long i = global_thread() * 4;
    const Pack<float, 4> wide = load<4>(x + i);
    Pack<unsigned short, 4> half;
    for (int k = 0; k < 4; ++k) half.value[k] = nearest(wide.value[k]);
    store(y + i, half);
}

extern "C" __global__ void widen(Halve g, const unsigned short* x, float* y) {
    const long long i = global_thread() * 4;
    const Pack<unsigned short, 4> half = load<4>(x + i);
    Pack<float, 4> wide;
    for (int k = 0; k < 4; ++k) wide.value[k] = __int_as_float(int(unsigned(half.value[k]) << 16));
    store(y + i, wide);
}
