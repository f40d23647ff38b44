// y[c][h][w][n] = (pixels_nhwc[n][h][w'][c] - mean[c]) / std[c]; w' is mirrored where mirror[n].
// One block transposes BYTES bytes of one image row (pixels and channels together) for SAMPLES images through shared
// memory. Grid (N/SAMPLES * W*C/BYTES * H), block (32, 8). Constants BYTES, SAMPLES.
// Why: images are read along (w, c) and the map is written along n; through shared memory both are contiguous. The pad
// of 4 bytes puts the 32 samples that a warp writes into 32 banks.
#include "launch.cuh"

extern "C" __global__ void prepare(Prepare g, const unsigned char* pixels, const unsigned char* mirror,
                                   const float* mean, const float* std, Map<float> y) {
    __shared__ unsigned char tile[SAMPLES][BYTES + 4];
    const int row_bytes = g.width * g.channels;
    const unsigned tiles_n = (g.batch + SAMPLES - 1) / SAMPLES, tiles_b = (row_bytes + BYTES - 1) / BYTES;
    const int first_n = blockIdx.x % tiles_n * SAMPLES, first_b = blockIdx.x / tiles_n % tiles_b * BYTES;
    const int h = blockIdx.x / tiles_n / tiles_b;
    for (int n = threadIdx.y; n < min(SAMPLES, g.batch - first_n); n += blockDim.y) {
        const unsigned char* row = pixels + ((long long)(first_n + n) * g.height + h) * row_bytes;
        const bool flip = mirror[first_n + n] != 0;
        for (int b = threadIdx.x; b < min(BYTES, row_bytes - first_b); b += blockDim.x) {
            const int w = (first_b + b) / g.channels, c = (first_b + b) % g.channels;
            tile[n][b] = row[(flip ? g.width - 1 - w : w) * g.channels + c];
        }
    }
    __syncthreads();
    for (int b = threadIdx.y; b < min(BYTES, row_bytes - first_b); b += blockDim.y) {
        const int w = (first_b + b) / g.channels, c = (first_b + b) % g.channels;
        for (int n = threadIdx.x; n < min(SAMPLES, g.batch - first_n); n += blockDim.x)
            y.row(c, h, w)[first_n + n] = (tile[n][b] - mean[c]) / std[c];
    }
}
