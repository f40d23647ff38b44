// y[c][h][w][n] = (pixels_nhwc[n][top + h][left + w'][c] - mean[c]) / std[c]; w' is mirrored where mirror[n].
// One block takes COLUMNS pixels of one row of SAMPLES images through shared memory. Grid N/SAMPLES * W/COLUMNS * H,
// block (SAMPLES, threads/SAMPLES). Constants SAMPLES, a power of two up to 32, COLUMNS, CHANNELS.
// Why: bound by memory. Images are read along (w, c), four bytes a lane whatever the corner, and the map is written
// along n; the strips of 32 samples begin in 32 banks. Mirroring is done on the way out of shared memory.
#include "pixels.cuh"

extern "C" __global__ void prepare(Prepare g, const unsigned char* pixels, const int* corner,
                                   const unsigned char* mirror, const float* mean, const float* std, Map<float> y) {
    __shared__ unsigned tile[SAMPLES][tile_words(COLUMNS, CHANNELS)];
    g.channels = CHANNELS;
    const Tile at = tile_of_block(g, SAMPLES, COLUMNS);
    for (int n = warp(); n < at.samples; n += warps())
        load_strip(g, pixels, strip(g, corner, mirror, at.n + n, at.h, at.w, at.columns), tile[n]);
    __syncthreads();
    const int n = at.n + threadIdx.x;
    if (n >= g.batch) return;
    const Strip s = strip(g, corner, mirror, n, at.h, at.w, at.columns);
    for (int c = 0; c < CHANNELS; ++c) {
        const float scale = std[c], reciprocal = 1.0f / scale, of_channel = g.mean_image ? 0.0f : mean[c];
        for (int w = at.w + threadIdx.y; w < at.w + at.columns; w += blockDim.y) {
            const unsigned char* pixel = find(g, s, tile[threadIdx.x], w);
            const float value = pixel ? pixel[c] : 0, middle = g.mean_image ? mean[map_at(g, c, at.h, w)] : of_channel;
            y.row(c, at.h, w)[n] = divided(value - middle, scale, reciprocal);
        }
    }
}
