// Windows along one axis: window o covers the positions [start + o * stride, + size) that lie in [0, extent).
#pragma once

struct Span {
    int begin, end;  // empty when end <= begin
};

// The positions that window o covers.
__device__ __forceinline__ Span window(int o, int size, int stride, int start, int extent) {
    const int first = start + o * stride;
    return {max(first, 0), min(first + size, extent)};
}

// The windows, of `count`, that cover position p.
__device__ __forceinline__ Span covering(int p, int size, int stride, int start, int count) {
    const int offset = p - start;  // from the edge of window 0; negative when pixels before it are dropped
    return {offset < size ? 0 : (offset - size) / stride + 1, offset < 0 ? 0 : min(offset / stride + 1, count)};
}
