// The labels of a sample: one, or two of which it is mixed.
#pragma once

struct Labels {
    int first, second;  // negative: none
    float share;        // of the first
    __device__ __forceinline__ float target(int c) const {
        return (c == first ? share : 0.0f) + (c == second ? 1.0f - share : 0.0f);
    }
};

// second, share: nullptr where no samples are mixed.
__device__ __forceinline__ Labels labels_of(const int* labels, const int* second, const float* share, int n) {
    const bool two = second && second[n] >= 0;
    return {labels[n], two ? second[n] : -1, two ? share[n] : 1.0f};
}
