// An index of three digits, (high * mids + mid) * lows + low, that advances without dividing.
// The inner dimension of a convolution is one: (channel, r, s), or (p, q, n).
#pragma once

struct Counter {
    int high, mid, low;

    // mids, lows >= 1.
    __device__ __forceinline__ Counter(long long i, int mids, int lows)
        : high(int(i / lows / mids)), mid(int(i / lows % mids)), low(int(i % lows)) {}

    __device__ __forceinline__ void add(const Counter& step, int mids, int lows) {
        low += step.low;
        mid += step.mid;
        high += step.high;
        if (low >= lows) low -= lows, ++mid;
        if (mid >= mids) mid -= mids, ++high;
    }
};
