// Rows of 8-bit images, a tile for each of several samples, by way of shared memory: read along (w, c), where they are
// contiguous, and given out one sample a lane. What lies outside an image is 0.
#pragma once

// What a tile needs of one sample: source columns [first, end) of one row, which begin at byte `begin` of all pixels.
struct Strip {
    long long begin;
    int first, end;  // equal where the tile lies outside the image
    bool mirrored;
    int left;  // source column of the leftmost pixel of the window
};

// Of sample n, for the columns [w, w + columns) of row h of its window.
template <typename G>
__device__ __forceinline__ Strip strip(const G& g, const int* corner, const unsigned char* mirror, int n, int h, int w,
                                       int columns) {
    const int row = corner[2 * n] + h, left = corner[2 * n + 1];
    const bool mirrored = mirror[n] != 0;
    const int lowest = left + (mirrored ? g.width - w - columns : w);
    const bool inside = row >= 0 && row < g.source_h;
    const int first = inside ? min(max(lowest, 0), g.source_w) : 0;
    const int end = inside ? max(min(lowest + columns, g.source_w), first) : 0;
    const long long begin = (((long long)n * g.source_h + row) * g.source_w + first) * g.channels;
    return {inside ? begin : 0, first, end, mirrored, left};
}

// One strip to shared memory, by the 32 lanes of a warp, four bytes at a time: those before its first byte come along,
// so that in shared memory it begins at byte `begin % 4`. The last bytes of all pixels may not fill a word.
template <typename G>
__device__ __forceinline__ void load_strip(const G& g, const unsigned char* pixels, const Strip& s, unsigned* to) {
    const long long bytes = (long long)g.batch * g.source_h * g.source_w * g.channels, first = s.begin / 4;
    const int words = s.end > s.first ? int((s.begin + (s.end - s.first) * g.channels + 3) / 4 - first) : 0;
    for (int i = (threadIdx.y * blockDim.x + threadIdx.x) % 32; i < words; i += 32) {
        const long long at = 4 * (first + i);
        if (at + 4 <= bytes) {
            to[i] = reinterpret_cast<const unsigned*>(pixels)[first + i];
        } else {
            unsigned word = 0;
            for (int k = 0; k < bytes - at; ++k) word |= unsigned(pixels[at + k]) << (8 * k);
            to[i] = word;
        }
    }
}

// Where the channels of column w of the window lie in what load_strip has stored; nullptr outside the image.
template <typename G>
__device__ __forceinline__ const unsigned char* find(const G& g, const Strip& s, const unsigned* stored, int w) {
    const int x = s.left + (s.mirrored ? g.width - 1 - w : w);
    if (x < s.first || x >= s.end) return nullptr;
    return reinterpret_cast<const unsigned char*>(stored) + s.begin % 4 + (x - s.first) * g.channels;
}

// Words of shared memory for a strip: with those before its first byte and an odd number in all, so that the strips of
// neighbours begin in different banks.
constexpr int tile_words(int columns, int channels) { return (columns * channels + 6) / 4 | 1; }

// What a block takes: `samples` images from n on, `columns` columns of their row h from w on.
struct Tile {
    int n, samples, h, w, columns;
};

template <typename G>
__device__ __forceinline__ Tile tile_of_block(const G& g, int samples, int columns) {
    const unsigned tiles_n = (g.batch + samples - 1) / samples, tiles_w = (g.width + columns - 1) / columns;
    const int n = blockIdx.x % tiles_n * samples, w = blockIdx.x / tiles_n % tiles_w * columns;
    return {n, min(samples, g.batch - n), int(blockIdx.x / tiles_n / tiles_w), w, min(columns, g.width - w)};
}

// Of a block of two dimensions.
__device__ __forceinline__ int warp() { return (threadIdx.y * blockDim.x + threadIdx.x) / 32; }
__device__ __forceinline__ int warps() { return blockDim.x * blockDim.y / 32; }

// In a mean image [C, H, W].
template <typename G>
__device__ __forceinline__ long long map_at(const G& g, int c, int h, int w) {
    return ((long long)c * g.height + h) * g.width + w;
}

// a / b, rounded as the division is, with the reciprocal of b (Markstein 1990).
__device__ __forceinline__ float divided(float a, float b, float reciprocal) {
    const float q = a * reciprocal;
    return fmaf(fmaf(-q, b, a), reciprocal, q);
}
