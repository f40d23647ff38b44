// Input gradient of a convolution as a matrix product that is never laid out:
// dx[c][j] = beta dx + sum over k of w[c][k] dy_columns[k][j],
// with j = (h, v, n) image pixels and samples, and k = (f, r, s).
// A block of 256 threads computes TILE_M channels x TILE_J pixels-and-samples of one phase (below) and group. Grid:
// channels fastest, then pixels (as many as the largest phase has), phases, groups; all in grid.x.
// VECTOR: samples that a thread loads at once: 4 when the batch is a multiple of 4 (maps begin at 16-byte addresses).
// Why: image rows of one remainder modulo stride_h meet every stride_h-th filter row only, likewise columns. The pixels
// of one such phase are a product of their own with fewer k: no thread multiplies the zeros that a stride leaves.
#include "counter.cuh"
#include "gemm.cuh"

using T = Tile<TILE_M, TILE_J>;

// One axis of a phase: pixels first, first + stride, ...; taps first_tap, first_tap + stride, ...
// The i-th pixel under the t-th tap meets output base + i - t.
struct Phase {
    int first, pixels, first_tap, taps, base;

    __device__ Phase(int phase, int size, int stride, int pad, int filter) : first(phase) {
        pixels = (size - phase + stride - 1) / stride;
        base = (phase + pad) / stride;
        first_tap = (phase + pad) % stride;
        taps = (filter - first_tap + stride - 1) / stride;  // 0 where the stride skips these pixels
    }
};

struct Operands {
    using W = AlongK<T, T::M, 1>;        // w[c][k]: the taps of a channel are near each other
    using DY = AlongJ<T, T::J, VECTOR>;  // dy_columns[k][j]: samples are neighbours
    W w;
    DY dy;
    const Conv& g;
    const Phase &down, &across;
    const float* weights;   // of the group's first filter, the tile's first channel
    int channels, filters;  // of the group: channels from the tile on, filters
    Map<const float> out;
    const float* corner[DY::COUNT];  // in dy, under the first tap of the first filter, inside or not
    int p[DY::COUNT], q[DY::COUNT];  // row and column of the corner
    Counter w_k, dy_k, step;

    __device__ Operands(const Conv& g, const Phase& down, const Phase& across, Map<const float> out,
                        const float* w_fcrs, int group, int c, long long j)
        : g(g), down(down), across(across), filters(g.filters / g.groups), out(out),
          w_k(w.k(), down.taps, across.taps), dy_k(dy.k(), down.taps, across.taps),
          step(T::DEPTH, down.taps, across.taps) {
        channels = g.channels / g.groups - c;
        weights = w_fcrs + (group * (long long)filters * (g.channels / g.groups) + c) * g.rows * g.cols;
        for (int i = 0; i < DY::COUNT; ++i) {
            const long long column = j + dy.column(i), pixel = column / g.batch;
            const int row = int(pixel / across.pixels);
            // Beyond the last pixel, a row that no tap brings into the output.
            p[i] = row < down.pixels ? down.base + row : -1;
            q[i] = across.base + int(pixel % across.pixels);
            corner[i] = out.row(group * filters, p[i], q[i]) + column % g.batch;
        }
    }

    __device__ __forceinline__ void fetch() {
        const int taps = g.rows * g.cols;
        const int r = down.first_tap + w_k.mid * g.stride_h, s = across.first_tap + w_k.low * g.stride_w;
        const float* filter = weights + w_k.high * (long long)(g.channels / g.groups) * taps + r * g.cols + s;
        for (int i = 0; i < W::COUNT; ++i)
            w.values[i][0] = w_k.high < filters && w.row(i) < channels ? filter[w.row(i) * taps] : 0.0f;
        w_k.add(step, down.taps, across.taps);
        const long long tap = dy_k.high * out.c - dy_k.mid * out.h - dy_k.low * out.w;
        for (int i = 0; i < DY::COUNT; ++i) {
            const bool inside = dy_k.high < filters && unsigned(p[i] - dy_k.mid) < unsigned(g.out_h) &&
                                unsigned(q[i] - dy_k.low) < unsigned(g.out_w);
            dy.values[i] = inside ? load<VECTOR>(corner[i] + tap) : Pack<float, VECTOR>{};
        }
        dy_k.add(step, down.taps, across.taps);
    }

    __device__ __forceinline__ void put(Stage<T>& stage) {
        w.put(stage.a);
        dy.put(stage.b);
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, 2)
    dgrad(Conv g, Map<const float> dy, const float* w, Map<float> dx, float beta) {
    __shared__ Stage<T> stages[2];
    const int phases_down = min(g.stride_h, g.height), phases_across = min(g.stride_w, g.width);
    const int channels = g.channels / g.groups, tiles_down = (channels + T::M - 1) / T::M;
    const long long most = (long long)((g.height - 1) / g.stride_h + 1) * ((g.width - 1) / g.stride_w + 1) * g.batch;
    const int tiles_across = int((most + T::J - 1) / T::J);

    unsigned block = blockIdx.x;
    const int first_channel = block % tiles_down * T::M;
    block /= tiles_down;
    const long long first_column = block % tiles_across * (long long)T::J;
    block /= tiles_across;
    const Phase across(block % phases_across, g.width, g.stride_w, g.pad_left, g.cols);
    block /= phases_across;
    const Phase down(block % phases_down, g.height, g.stride_h, g.pad_top, g.rows);
    const int group = block / phases_down;
    const long long columns = (long long)down.pixels * across.pixels * g.batch;
    if (first_column >= columns) return;

    float sums[T::ROWS][T::COLS] = {};
    const int depth = g.filters / g.groups * down.taps * across.taps;
    if (depth > 0) {
        Operands operands(g, down, across, dy, w, group, first_channel, first_column);
        multiply(operands, (depth + T::DEPTH - 1) / T::DEPTH, stages, sums);
    }

#pragma unroll
    for (int j = 0; j < T::COLS; j += VECTOR) {
        const long long column = first_column + T::column(j), pixel = column / g.batch;
        if (column >= columns) break;
        const int h = down.first + int(pixel / across.pixels) * g.stride_h;
        const int v = across.first + int(pixel % across.pixels) * g.stride_w;
#pragma unroll
        for (int i = 0; i < T::ROWS; ++i) {
            const int c = first_channel + T::row(i);
            if (c >= channels) continue;
            Pack<float, VECTOR> values;
            for (int e = 0; e < VECTOR; ++e) values[e] = sums[i][j + e];
            accumulate(dx.row(group * channels + c, h, v) + column % g.batch, values, beta);
        }
    }
}
