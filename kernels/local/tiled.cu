// The three products of a local convolution as matrix products that are never laid out, one for each position and group:
// forward: y[f][n] = b[f] + sum over k = (c, r, s) of w[f][k] x_columns[k][n], for each output position
// dgrad: dx[c][n] = beta dx + sum over k = (p, q, f) of w[p][q][f][c][tap] dy[p][q][f][n], for each image pixel, over the
//        positions whose window holds it
// wgrad: dw[f][j] = beta dw + sum over n of dy[f][n] x_columns[j][n], j = (c, r, s), for each output position
// A block of 256 threads computes a tile of TILE_M x TILE_J. Grid: rows of the result fastest, then columns, groups,
// positions; all in grid.x.
// VECTOR: samples that a thread loads at once: 4 when the batch is a multiple of 4 (maps begin at 16-byte addresses).
// Why: each weight serves one position, so it is read (in wgrad written) once for all samples of a tile; there is
// nothing to gain from walking positions. dgrad asks for the windows of a pixel rather than scatter: no atomics.
#include "counter.cuh"
#include "gemm.cuh"
#include "window.cuh"

using T = Tile<TILE_M, TILE_J>;

// Blocks that a multiprocessor holds. With single loads, the places of a thread's operands do not fit beside the
// largest tile in half of the registers.
constexpr int RESIDENT = VECTOR == 1 && T::M * T::J == 128 * 128 ? 1 : 2;

__shared__ Stage<T> stages[2];

// Of this block: the first row and column of its tile, the group, and the pixel whose product it is.
struct Position {
    int row, column, group, p, q;

    __device__ Position(int rows, int columns, int groups, int width) {
        const int down = (rows + T::M - 1) / T::M, across = (columns + T::J - 1) / T::J;
        unsigned block = blockIdx.x;
        row = block % down * T::M;
        block /= down;
        column = block % across * T::J;
        block /= across;
        group = block % groups;
        block /= groups;
        p = block / width;
        q = block % width;
    }
};

__device__ __forceinline__ int depth_of(const Local& g) { return g.channels / g.groups * g.rows * g.cols; }

struct Forward {
    using W = AlongK<T, T::M, 1>;       // w[f][k]: k are neighbours
    using X = AlongJ<T, T::J, VECTOR>;  // x_columns[k][n]: samples are neighbours
    W w;
    X x;
    const Local& g;
    const float* filter;      // the first one of the tile, at the thread's k
    const float* corner;      // under tap (0, 0) of the group's channel 0, inside the image or not; the tile's first sample
    Map<const float> image;
    int h, v;                 // row and column of the corner
    int depth, left;          // weights of a filter; those from the thread's k on
    int filters, samples;     // of the group, of the batch, from the tile on
    Counter k, step;

    __device__ Forward(const Local& g, const Position& at, Map<const float> image, const float* weights)
        : g(g), image(image), k(x.k(), g.rows, g.cols), step(T::DEPTH, g.rows, g.cols) {
        depth = depth_of(g);
        left = depth - w.k();
        filters = g.filters / g.groups - at.row;
        samples = g.batch - at.column;
        const long long first = (at.p * (long long)g.out_w + at.q) * g.filters + at.group * (g.filters / g.groups) + at.row;
        filter = weights + first * depth + w.k();
        h = at.p * g.stride_h - g.pad_top;
        v = at.q * g.stride_w - g.pad_left;
        corner = image.row(at.group * (g.channels / g.groups), h, v) + at.column;
    }

    __device__ __forceinline__ void fetch() {
        for (int i = 0; i < W::COUNT; ++i) {
            const bool inside = left > 0 && w.row(i) < filters;
            w.values[i][0] = inside ? filter[w.row(i) * (long long)depth] : 0.0f;
        }
        filter += T::DEPTH;
        left -= T::DEPTH;
        const bool tap = k.high < g.channels / g.groups && unsigned(h + k.mid) < unsigned(g.height) &&
                         unsigned(v + k.low) < unsigned(g.width);
        const float* pixel = corner + k.high * image.c + k.mid * image.h + k.low * image.w;
        for (int i = 0; i < X::COUNT; ++i) {
            const bool inside = tap && x.column(i) < samples;
            x.values[i] = inside ? load<VECTOR>(pixel + x.column(i)) : Pack<float, VECTOR>{};
        }
        k.add(step, g.rows, g.cols);
    }

    __device__ __forceinline__ void put(Stage<T>& stage) {
        w.put(stage.a);
        x.put(stage.b);
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, RESIDENT)
    forward(Local g, Map<const float> x, const float* w, const float* b, Map<float> y) {
    const int filters = g.filters / g.groups;
    const Position at(filters, g.batch, g.groups, g.out_w);
    float sums[T::ROWS][T::COLS];
    Forward operands(g, at, x, w);
    multiply(operands, (operands.depth + T::DEPTH - 1) / T::DEPTH, stages, sums);

#pragma unroll
    for (int i = 0; i < T::ROWS; ++i) {
        if (at.row + T::row(i) >= filters) continue;
        const int f = at.group * filters + at.row + T::row(i);
        const float bias = b ? b[(f * (long long)g.out_h + at.p) * g.out_w + at.q] : 0.0f;
        float* out = y.row(f, at.p, at.q);
#pragma unroll
        for (int j = 0; j < T::COLS; j += VECTOR) {
            const int n = at.column + T::column(j);
            if (n >= g.batch) break;
            Pack<float, VECTOR> values;
            for (int e = 0; e < VECTOR; ++e) values[e] = sums[i][j + e] + bias;
            store(out + n, values);
        }
    }
}

struct Dgrad {
    using W = AlongJ<T, T::M, 1>;        // w[k][c]: channels are nearer to each other than filters
    using DY = AlongJ<T, T::J, VECTOR>;  // dy[k][n]: samples are neighbours
    W w;
    DY dy;
    const Local& g;
    const Position& at;
    const Span &down, &across;  // the output rows and columns whose windows hold the pixel
    const float* weights;
    Map<const float> out;
    Counter k, step;

    __device__ Dgrad(const Local& g, const Position& at, const Span& down, const Span& across, Map<const float> out,
                     const float* weights)
        : g(g), at(at), down(down), across(across), weights(weights), out(out),
          k(dy.k(), across.end - across.begin, g.filters / g.groups),
          step(T::DEPTH, across.end - across.begin, g.filters / g.groups) {}

    __device__ __forceinline__ void fetch() {
        const int p = down.begin + k.high, q = across.begin + k.mid, filters = g.filters / g.groups;
        const int channels = g.channels / g.groups, taps = g.rows * g.cols, f = at.group * filters + k.low;
        const int r = at.p + g.pad_top - p * g.stride_h, s = at.q + g.pad_left - q * g.stride_w;
        const float* tap = weights + (((p * (long long)g.out_w + q) * g.filters + f) * channels + at.row) * taps + r * g.cols + s;
        for (int i = 0; i < W::COUNT; ++i) {
            const bool inside = p < down.end && at.row + w.column(i) < channels;
            w.values[i][0] = inside ? tap[w.column(i) * (long long)taps] : 0.0f;
        }
        const float* unit = out.row(f, p, q) + at.column;
        for (int i = 0; i < DY::COUNT; ++i) {
            const bool inside = p < down.end && at.column + dy.column(i) < g.batch;
            dy.values[i] = inside ? load<VECTOR>(unit + dy.column(i)) : Pack<float, VECTOR>{};
        }
        k.add(step, across.end - across.begin, filters);
    }

    __device__ __forceinline__ void put(Stage<T>& stage) {
        w.put(stage.a);
        dy.put(stage.b);
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, RESIDENT)
    dgrad(Local g, Map<const float> dy, const float* w, Map<float> dx, float beta) {
    const int channels = g.channels / g.groups;
    const Position at(channels, g.batch, g.groups, g.width);
    const Span down = covering(at.p, g.rows, g.stride_h, -g.pad_top, g.out_h);
    const Span across = covering(at.q, g.cols, g.stride_w, -g.pad_left, g.out_w);
    float sums[T::ROWS][T::COLS] = {};
    if (down.begin < down.end && across.begin < across.end) {
        const int depth = (down.end - down.begin) * (across.end - across.begin) * (g.filters / g.groups);
        Dgrad operands(g, at, down, across, dy, w);
        multiply(operands, (depth + T::DEPTH - 1) / T::DEPTH, stages, sums);
    }

#pragma unroll
    for (int i = 0; i < T::ROWS; ++i) {
        if (at.row + T::row(i) >= channels) continue;
        float* out = dx.row(at.group * channels + at.row + T::row(i), at.p, at.q);
#pragma unroll
        for (int j = 0; j < T::COLS; j += VECTOR) {
            const int n = at.column + T::column(j);
            if (n >= g.batch) break;
            Pack<float, VECTOR> values;
            for (int e = 0; e < VECTOR; ++e) values[e] = sums[i][j + e];
            accumulate(out + n, values, beta);
        }
    }
}

struct Wgrad {
    using DY = AlongK<T, T::M, VECTOR>;  // samples, which are k here, are neighbours in both
    using X = AlongK<T, T::J, VECTOR>;
    DY dy;
    X x;
    const float* unit;              // dy of the thread's first filter and sample
    long long pitch;                // from filter to filter
    int filters;                    // of the group, from the thread's first one on
    const float* pixel[X::COUNT];   // under each of the thread's weights; null outside the image
    int left;                       // samples left to load

    __device__ Wgrad(const Local& g, const Position& at, Map<const float> out, Map<const float> image) : pitch(out.c) {
        filters = g.filters / g.groups - at.row - dy.row(0);
        unit = out.row(at.group * (g.filters / g.groups) + at.row + dy.row(0), at.p, at.q) + dy.k();
        left = g.batch - x.k();
        for (int i = 0; i < X::COUNT; ++i) {
            const Counter weight(at.column + x.row(i), g.rows, g.cols);
            const int h = at.p * g.stride_h - g.pad_top + weight.mid, v = at.q * g.stride_w - g.pad_left + weight.low;
            const bool inside = x.has(i) && weight.high < g.channels / g.groups && unsigned(h) < unsigned(g.height) &&
                                unsigned(v) < unsigned(g.width);
            pixel[i] = inside ? image.row(at.group * (g.channels / g.groups) + weight.high, h, v) + x.k() : nullptr;
        }
    }

    __device__ __forceinline__ void fetch() {
        for (int i = 0; i < DY::COUNT; ++i) {
            const bool inside = left > 0 && i * DY::STRIDE < filters && dy.has(i);
            dy.values[i] = inside ? load<VECTOR>(unit + i * DY::STRIDE * pitch) : Pack<float, VECTOR>{};
        }
        for (int i = 0; i < X::COUNT; ++i) {
            x.values[i] = left > 0 && pixel[i] ? load<VECTOR>(pixel[i]) : Pack<float, VECTOR>{};
            if (pixel[i]) pixel[i] += T::DEPTH;
        }
        unit += T::DEPTH;
        left -= T::DEPTH;
    }

    __device__ __forceinline__ void put(Stage<T>& stage) {
        dy.put(stage.a);
        x.put(stage.b);
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, RESIDENT)
    wgrad(Local g, Map<const float> x, Map<const float> dy, float* dw, float beta) {
    const int filters = g.filters / g.groups, depth = depth_of(g);
    const Position at(filters, depth, g.groups, g.out_w);
    float sums[T::ROWS][T::COLS];
    Wgrad operands(g, at, dy, x);
    multiply(operands, (g.batch + T::DEPTH - 1) / T::DEPTH, stages, sums);

    const long long first = (at.p * (long long)g.out_w + at.q) * g.filters + at.group * filters + at.row;
    const bool whole = depth % 4 == 0 && reinterpret_cast<unsigned long long>(dw) % 16 == 0;
#pragma unroll
    for (int i = 0; i < T::ROWS; ++i) {
        if (at.row + T::row(i) >= filters) continue;
        float* out = dw + (first + T::row(i)) * depth + at.column;
#pragma unroll
        for (int j = 0; j < T::COLS; j += 4) {
            const int weight = T::column(j);
            Pack<float, 4> values;
            for (int e = 0; e < 4; ++e) values[e] = sums[i][j + e];
            if (whole && at.column + weight < depth) accumulate(out + weight, values, beta);
            for (int e = 0; e < 4 && !whole && at.column + weight + e < depth; ++e) accumulate(out + weight + e, values[e], beta);
        }
    }
}
