// As prepare.cu, with the colours of each image changed by a matrix, a part erased, and another image mixed in.
// augment_means: the mean colour of each image, for contrast. Grid N, block (1, threads).
// augment: one block takes COLUMNS pixels of one row of SAMPLES images, and of their partners. Grid
// N/SAMPLES * W/COLUMNS * H, block (SAMPLES, threads/SAMPLES). Constants SAMPLES, a power of two up to 32, COLUMNS, CHANNELS,
// THREADS of a block.
// Why: apart from prepare.cu, whose registers and shared memory it would double. All changes of colour are one matrix, so
// that their number costs nothing; sums of bytes are whole numbers, exact in any order.
#include "launch.cuh"
#include "pixels.cuh"
#include "reduce.cuh"

// How one image looks in the end.
struct Look {
    float weights[CHANNELS][CHANNELS], pulled, shift[CHANNELS], gain[CHANNELS];
    int erased[4];
};

__device__ __forceinline__ bool within(const int* box, int h, int w) {
    return h >= box[0] && h - box[0] < box[2] && w >= box[1] && w - box[1] < box[3];
}

__device__ __forceinline__ Look look(const float* colour, const float* means, const float* pull, const int* erased,
                                     int n) {
    Look l = {};
    for (int c = 0; c < CHANNELS; ++c) {
        const float* row = colour + ((long long)n * CHANNELS + c) * (CHANNELS + 2);
        for (int k = 0; k < CHANNELS; ++k) l.weights[c][k] = colour ? row[k] : float(c == k);
        l.shift[c] = colour ? row[CHANNELS] : 0.0f;
        l.gain[c] = colour ? row[CHANNELS + 1] : 1.0f;
        if (pull) l.pulled += pull[n * CHANNELS + c] * means[n * CHANNELS + c];
    }
    for (int k = 0; k < 4; ++k) l.erased[k] = erased ? erased[4 * n + k] : 0;
    return l;
}

// The values of all channels of one pixel; pixel: nullptr outside the image.
__device__ __forceinline__ void shade(const Augment& g, const Look& l, const unsigned char* pixel, const float* mean,
                                      const float* std, int h, int w, float* values) {
    for (int c = 0; c < CHANNELS; ++c) {
        float mixed = l.pulled;
        for (int k = 0; k < CHANNELS && pixel; ++k) mixed += l.weights[c][k] * pixel[k];
        mixed = fminf(fmaxf(mixed, 0.0f), 255.0f);
        const float middle = mean[g.mean_image ? map_at(g, c, h, w) : c];
        const float value = (mixed - middle + l.shift[c]) * l.gain[c] / std[c];
        values[c] = within(l.erased, h, w) ? 0.0f : value;
    }
}

extern "C" __global__ void augment_means(Augment g, const unsigned char* pixels, const int* corner,
                                         const unsigned char* mirror, const float* colour, const float* pull,
                                         const int* erased, const int* partner, const int* patch, const float* blend,
                                         const float* mean, const float* std, Map<float> y, float* means) {
    __shared__ unsigned long long part[THREADS];
    const int n = blockIdx.x, top = corner[2 * n], left = corner[2 * n + 1];
    const int rows = min(top + g.height, g.source_h), columns = min(left + g.width, g.source_w);
    const unsigned char* image = pixels + (long long)n * g.source_h * g.source_w * CHANNELS;
    if (!pull) return;
    unsigned long long sum[CHANNELS] = {};
    for (int h = max(top, 0) + warp(); h < rows; h += warps())
        for (int w = max(left, 0) + threadIdx.y % 32; w < columns; w += 32)
            for (int c = 0; c < CHANNELS; ++c) sum[c] += image[((long long)h * g.source_w + w) * CHANNELS + c];
    for (int c = 0; c < CHANNELS; ++c) {
        const unsigned long long total = reduce_down(sum[c], Add(), part);
        if (threadIdx.y == 0) means[n * CHANNELS + c] = float(double(total) / (double(g.height) * g.width));
    }
}

extern "C" __global__ void augment(Augment g, const unsigned char* pixels, const int* corner,
                                   const unsigned char* mirror, const float* colour, const float* pull,
                                   const int* erased, const int* partner, const int* patch, const float* blend,
                                   const float* mean, const float* std, Map<float> y, float* means) {
    __shared__ unsigned tile[SAMPLES][tile_words(COLUMNS, CHANNELS)], others[SAMPLES][tile_words(COLUMNS, CHANNELS)];
    g.channels = CHANNELS;
    if (!g.contrast) pull = nullptr;
    const Tile at = tile_of_block(g, SAMPLES, COLUMNS);
    for (int i = warp(); i < at.samples; i += warps()) {
        const int n = at.n + i;
        load_strip(g, pixels, strip(g, corner, mirror, n, at.h, at.w, at.columns), tile[i]);
        if (partner && at.h >= patch[4 * n] && at.h - patch[4 * n] < patch[4 * n + 2])
            load_strip(g, pixels, strip(g, corner, mirror, n + partner[n], at.h, at.w, at.columns), others[i]);
    }
    __syncthreads();
    const int n = at.n + threadIdx.x;
    if (n >= g.batch) return;
    const int other = partner ? n + partner[n] : n;
    const Strip own = strip(g, corner, mirror, n, at.h, at.w, at.columns);
    const Strip theirs = strip(g, corner, mirror, other, at.h, at.w, at.columns);
    const Look look_own = look(colour, means, pull, erased, n), look_theirs = look(colour, means, pull, erased, other);
    for (int w = at.w + threadIdx.y; w < at.w + at.columns; w += blockDim.y) {
        float values[CHANNELS], mixed[CHANNELS];
        shade(g, look_own, find(g, own, tile[threadIdx.x], w), mean, std, at.h, w, values);
        if (partner && within(patch + 4 * n, at.h, w)) {
            const float left = blend[n];
            shade(g, look_theirs, find(g, theirs, others[threadIdx.x], w), mean, std, at.h, w, mixed);
            for (int c = 0; c < CHANNELS; ++c) values[c] = left * values[c] + (1.0f - left) * mixed[c];
        }
        for (int c = 0; c < CHANNELS; ++c) y.row(c, at.h, w)[n] = values[c];
    }
}
