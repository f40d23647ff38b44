// Weight gradient of a convolution as a matrix product that is never laid out:
// dw[f][j] = beta dw + sum over k of dy[f][k] x_columns[j][k],
// with j = (c, r, s) one weight of a filter, and k = (p, q, n) all output pixels and samples.
// A block of 256 threads computes TILE_M filters x TILE_J weights of one group and split. Grid: filters fastest, then
// weights, groups, splits; all in grid.x.
// VECTOR: samples that a thread loads at once: 4 when the batch is a multiple of 4 (maps begin at 16-byte addresses).
// Why: there are few weights and many k, so the sum is cut in panels of PANEL k. The blocks of split i of S add the
// panels i, i + S, ... into workspace[i], neighbours walking the same pixels at the same time; `reduce` then adds the S
// parts in order. Short sums added to each other are also more exact than a long one.
#include "counter.cuh"
#include "gemm.cuh"

using T = Tile<TILE_M, TILE_J>;

// Blocks that a multiprocessor holds. With single loads, the places of a thread's four weights do not fit beside the
// largest tile in half of the registers.
constexpr int RESIDENT = VECTOR == 1 && T::M * T::J == 128 * 128 ? 1 : 2;

// Of `tile`, counted as the grid does: which filters and weights, of which group.
struct Position {
    int filters, weights, tiles_down, tiles_across, tiles;  // of a group; of all groups
    int first_filter, first_weight, group;

    __device__ Position(const Conv& g, int tile) {
        filters = g.filters / g.groups;
        weights = g.channels / g.groups * g.rows * g.cols;
        tiles_down = (filters + T::M - 1) / T::M;
        tiles_across = (weights + T::J - 1) / T::J;
        tiles = tiles_down * tiles_across * g.groups;
        first_filter = tile % tiles_down * T::M;
        first_weight = tile / tiles_down % tiles_across * T::J;
        group = tile / tiles_down / tiles_across % g.groups;
    }

    static __device__ __forceinline__ int panels(const Conv& g) {
        return int(((long long)g.out_h * g.out_w * g.batch + PANEL - 1) / PANEL);
    }

    // The same as in launch.py: about BLOCKS blocks in all, no split without a panel.
    __device__ __forceinline__ int splits(const Conv& g) const { return min(panels(g), (BLOCKS + tiles - 1) / tiles); }
};

// In the workspace the sums of a tile lie as the threads hold them: [split][tile][row][column/4][thread][4].
constexpr int QUADS = T::ROWS * T::COLS / 4;

__device__ __forceinline__ long long quad(long long tile, int i) {
    return ((tile * QUADS + i) * T::THREADS + threadIdx.x) * 4;
}

struct Operands {
    using DY = AlongK<T, T::M, VECTOR>;  // k are neighbours in both
    using X = AlongK<T, T::J, VECTOR>;
    DY dy;
    X x;
    const Conv& g;
    Map<const float> out, image;
    const float* filter;            // dy of the thread's first filter
    int filters;                    // of the group, from the thread's first one on
    const float* corner[X::COUNT];  // where the thread's weights meet output pixel (0, 0), inside the image or not
    int h[X::COUNT], v[X::COUNT];   // row and column of the corner
    Counter k, step;
    int left;  // k left to load

    __device__ Operands(const Conv& g, Map<const float> out, Map<const float> image, int group, int f, int j)
        : g(g), out(out), image(image), k(0, g.out_w, g.batch), step(T::DEPTH, g.out_w, g.batch) {
        const int group_filters = g.filters / g.groups, group_channels = g.channels / g.groups;
        filters = group_filters - f - dy.row(0);
        filter = out.row(group * group_filters + f + dy.row(0), 0, 0);
        for (int i = 0; i < X::COUNT; ++i) {
            const Counter weight(j + x.row(i), g.rows, g.cols);
            // Beyond the last weight, a row that no pixel brings into the image.
            h[i] = weight.high < group_channels ? weight.mid - g.pad_top : -(1 << 30);
            v[i] = weight.low - g.pad_left;
            corner[i] = image.row(group * group_channels + weight.high, h[i], v[i]);
        }
    }

    // The next fetches are of the `count` k from `first` on.
    __device__ __forceinline__ void start(long long first, int count) {
        k = Counter(first + x.k(), g.out_w, g.batch);
        left = count - x.k();
    }

    __device__ __forceinline__ void fetch() {
        const float* pixel = filter + k.high * out.h + k.mid * out.w + k.low;
        for (int i = 0; i < DY::COUNT; ++i) {
            const bool inside = left > 0 && i * DY::STRIDE < filters && dy.has(i);
            dy.values[i] = inside ? load<VECTOR>(pixel + i * DY::STRIDE * out.c) : Pack<float, VECTOR>{};
        }
        const int down = k.high * g.stride_h, across = k.mid * g.stride_w;
        const long long shift = down * image.h + across * image.w + k.low;
        for (int i = 0; i < X::COUNT; ++i) {
            const bool inside = left > 0 && unsigned(h[i] + down) < unsigned(g.height) &&
                                unsigned(v[i] + across) < unsigned(g.width);
            x.values[i] = inside ? load<VECTOR>(corner[i] + shift) : Pack<float, VECTOR>{};
        }
        k.add(step, g.out_w, g.batch);
        left -= T::DEPTH;
    }

    __device__ __forceinline__ void put(Stage<T>& stage) {
        dy.put(stage.a);
        x.put(stage.b);
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, RESIDENT)
    wgrad(Conv g, Map<const float> x, Map<const float> dy, float* dw, float beta, float* workspace) {
    __shared__ Stage<T> stages[2];
    const Position at(g, blockIdx.x);
    Operands operands(g, dy, x, at.group, at.first_filter, at.first_weight);
    const int panels = at.panels(g), splits = at.splits(g);
    float* part = workspace + quad(blockIdx.x, 0);
    float old = 0.0f;  // the first panel finds nothing to add to
    for (int panel = blockIdx.x / at.tiles; panel < panels; panel += splits) {
        const long long first = panel * (long long)PANEL;
        const int count = int(min((long long)g.out_h * g.out_w * g.batch - first, (long long)PANEL));
        float sums[T::ROWS][T::COLS];
        operands.start(first, count);
        multiply(operands, (count + T::DEPTH - 1) / T::DEPTH, stages, sums);
#pragma unroll
        for (int i = 0; i < QUADS; ++i) {
            Pack<float, 4> values;
            for (int e = 0; e < 4; ++e) values[e] = sums[i / (T::COLS / 4)][i % (T::COLS / 4) * 4 + e];
            accumulate(part + i * T::THREADS * 4, values, old);
        }
        old = 1.0f;
    }
}

// dw = beta dw + the splits in order, four weights of a row a thread. Grid: tiles * QUADS, block 256.
extern "C" __global__ void
    reduce(Conv g, Map<const float> x, Map<const float> dy, float* dw, float beta, const float* workspace) {
    const int i = blockIdx.x % QUADS, tile = blockIdx.x / QUADS;
    const Position at(g, tile);
    const int f = at.first_filter + T::row(i / (T::COLS / 4));
    const int weight = at.first_weight + T::column(i % (T::COLS / 4) * 4);
    if (f >= at.filters || weight >= at.weights) return;
    Pack<float, 4> sums = {};
    const int splits = at.splits(g);
    for (int split = 0; split < splits; ++split) {
        Pack<float, 4> part = load<4>(workspace + quad(split * (long long)at.tiles + tile, i));
        for (int e = 0; e < 4; ++e) sums[e] += part[e];
    }
    float* out = dw + (at.group * (long long)at.filters + f) * at.weights + weight;
    for (int e = 0; e < 4 && weight + e < at.weights; ++e) accumulate(out + e, sums[e], beta);
}
