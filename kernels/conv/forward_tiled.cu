// Convolution as a matrix product that is never laid out: y[f][j] = b[f] + sum over k of w[f][k] x_columns[k][j],
// with j = (p, q, n) all output pixels and samples, and k = (c, r, s).
// A block of 256 threads computes TILE_M filters x TILE_J pixels-and-samples of one group. Grid: filters fastest (so
// blocks that read the same pixels run together), then pixels, then groups; all in grid.x.
// VECTOR: samples that a thread loads at once: 4 when the batch is a multiple of 4 (maps begin at 16-byte addresses).
// Why: pixels and samples share one index, so that a batch of 1 fills the tile as well as one of 128; (c, r, s) is
// counted and not divided, so that one compiled kernel serves every filter size.
#include "counter.cuh"
#include "gemm.cuh"

using T = Tile<TILE_M, TILE_J>;

struct Operands {
    using W = AlongK<T, T::M, 1>;       // w[f][k]: k are neighbours
    using X = AlongJ<T, T::J, VECTOR>;  // x_columns[k][j]: samples are neighbours
    W w;
    X x;
    const Conv& g;
    const float* filter;        // the first one of the tile
    int w_k, depth, filters;    // the thread's k; products that an output sums; filters of the group from the tile on
    Map<const float> image;
    const float* corner[X::COUNT];  // under tap (0, 0) of channel 0, inside the image or not
    int h[X::COUNT], v[X::COUNT];    // row and column of the corner
    Counter k, step;

    __device__ Operands(const Conv& g, Map<const float> image, const float* weights, int group, int f, long long j)
        : g(g), image(image), k(x.k(), g.rows, g.cols), step(T::DEPTH, g.rows, g.cols) {
        depth = g.channels / g.groups * g.rows * g.cols;
        filters = g.filters / g.groups - f;
        filter = weights + (group * (long long)(g.filters / g.groups) + f) * depth;
        w_k = w.k();
        for (int i = 0; i < X::COUNT; ++i) {
            const long long column = j + x.column(i), pixel = column / g.batch;
            const int p = int(pixel / g.out_w), q = int(pixel % g.out_w);
            // Beyond the last output, a row that no tap brings into the image.
            h[i] = p < g.out_h ? p * g.stride_h - g.pad_top : -(1 << 30);
            v[i] = q * g.stride_w - g.pad_left;
            corner[i] = image.row(group * (g.channels / g.groups), h[i], v[i]) + column % g.batch;
        }
    }

    __device__ __forceinline__ void fetch() {
        for (int i = 0; i < W::COUNT; ++i) {
            const bool inside = w_k < depth && w.row(i) < filters;
            w.values[i][0] = inside ? filter[w.row(i) * depth + w_k] : 0.0f;
        }
        w_k += T::DEPTH;
        const long long tap = k.high * image.c + k.mid * image.h + k.low * image.w;
        const bool channel = k.high < g.channels / g.groups;
        for (int i = 0; i < X::COUNT; ++i) {
            const bool inside =
                channel && unsigned(h[i] + k.mid) < unsigned(g.height) && unsigned(v[i] + k.low) < unsigned(g.width);
            x.values[i] = inside ? load<VECTOR>(corner[i] + tap) : Pack<float, VECTOR>{};
        }
        k.add(step, g.rows, g.cols);
    }

    __device__ __forceinline__ void put(Stage<T>& stage) {
        w.put(stage.a);
        x.put(stage.b);
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, 2)
    forward(Conv g, Map<const float> x, const float* w, const float* b, Map<float> y) {
    __shared__ Stage<T> stages[2];
    const int filters = g.filters / g.groups, across = g.out_w * g.batch;
    const long long columns = (long long)g.out_h * across;
    const int down = (filters + T::M - 1) / T::M, tiles = int((columns + T::J - 1) / T::J);
    const int first_filter = blockIdx.x % down * T::M, group = blockIdx.x / down / tiles;
    const long long first_column = blockIdx.x / down % tiles * (long long)T::J;

    float sums[T::ROWS][T::COLS];
    Operands operands(g, x, w, group, first_filter, first_column);
    const int depth = g.channels / g.groups * g.rows * g.cols;
    multiply(operands, (depth + T::DEPTH - 1) / T::DEPTH, stages, sums);

#pragma unroll
    for (int j = 0; j < T::COLS; j += VECTOR) {
        const long long column = first_column + T::column(j);
        if (column >= columns) break;
        const int p = int(column / across), rest = int(column % across);
#pragma unroll
        for (int i = 0; i < T::ROWS; ++i) {
            const int f = first_filter + T::row(i);
            if (f >= filters) continue;
            Pack<float, VECTOR> values;
            for (int e = 0; e < VECTOR; ++e) values[e] = sums[i][j + e] + (b ? b[group * filters + f] : 0.0f);
            store(y.row(group * filters + f, p, 0) + rest, values);
        }
    }
}
