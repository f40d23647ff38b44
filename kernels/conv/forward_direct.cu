// Convolution by its definition, one output value a thread. Any geometry.
// Grid: outputs/256 in the order f, p, (q, n); block 256.
// Why: the simplest right answer, for groups of few filters, where a tile would be nearly empty.
#include "direct.cuh"

extern "C" __global__ void forward(Conv g, Map<const float> x, const float* w, const float* b, Map<float> y) {
    convolve<false>(g, x, w, b, y);
}
