// The greatest of many scores, of equal ones that with the lowest index, and whether its target says that it may be.
#pragma once

#include "launch.cuh"

// All zeros is none yet.
struct Best {
    float score;
    unsigned place;  // index + 1
    int hit;
    __device__ Best operator+(Best other) const {
        if (place == 0 || other.place == 0) return place == 0 ? other : *this;
        const bool ours = score > other.score || (score == other.score && place <= other.place);
        return ours ? *this : other;
    }
};

// A score of its own; NaN is none.
__device__ __forceinline__ Best candidate(float score, unsigned index, float target) {
    return score == score ? Best{score, index + 1, target > 0.0f} : Best{0.0f, 0, 0};
}

// The logarithm as costs of probabilities take it: that of 0 is cut off. NaN stays NaN.
__device__ __forceinline__ float safe_log(float x) { return x <= 0.0f ? -50.0f : logf(x); }
