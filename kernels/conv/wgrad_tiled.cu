// Weight gradient of a convolution as a matrix product that is never laid out:
// dw[f][j] = beta dw + sum over k of dy[f][k] x_columns[j][k], with j = (c, r, s) one weight of a filter and
// k = (p, q, n) all output pixels and samples.
// There are few weights and many k: the sum is cut in panels of PANEL k, and the blocks of split i of S add the panels
// i, i + S, ... into workspace[i], which has the size of dw; `reduce` then adds the S parts. Short sums are also more exact.
// A block of 256 threads computes TILE_M filters x TILE_J weights of one group and split; grid: filters fastest, then
// weights, groups, splits, all in grid.x. Blocks of one split walk the same pixels together.
// VECTOR: samples a thread loads at once: 4 when the batch is a multiple of 4 (addresses are then multiples of 16 bytes).
#include "counter.cuh"
#include "gemm.cuh"

using T = Tile<TILE_M, TILE_J>;

// The same as in launch.py: about BLOCKS blocks in all, no split without a panel.
__device__ __forceinline__ int split_count(const Conv& g, int tiles) {
    const long long depth = (long long)g.out_h * g.out_w * g.batch;
    return int(min((depth + PANEL - 1) / PANEL, (long long)(BLOCKS + tiles - 1) / tiles));
}

// Blocks that one split takes.
__device__ __forceinline__ int tile_count(const Conv& g) {
    const int filters = g.filters / g.groups, weights = g.channels / g.groups * g.rows * g.cols;
    return (filters + T::M - 1) / T::M * ((weights + T::J - 1) / T::J) * g.groups;
}

struct Operands {
    using DY = AlongK<T, T::M, VECTOR>;  // k are neighbours in both
    using X = AlongK<T, T::J, VECTOR>;
    DY dy;
    X x;
    const Conv& g;
    Map<const float> out, image;
    const float* filter;          // dy of the thread's first filter
    int filters;                  // of the group, from the thread's first one on
    const float* corner[X::COUNT];  // in x: where weight j of the thread meets output pixel (0, 0), inside the image or not
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
        for (int i = 0; i < DY::COUNT; ++i)
            dy.values[i] = left > 0 && i * DY::STRIDE < filters && dy.has(i) ? load<VECTOR>(pixel + i * DY::STRIDE * out.c) : Pack<float, VECTOR>{};
        const int down = k.high * g.stride_h, across = k.mid * g.stride_w;
        const long long shift = down * image.h + across * image.w + k.low;
        for (int i = 0; i < X::COUNT; ++i) {
            const bool inside = left > 0 && unsigned(h[i] + down) < unsigned(g.height) && unsigned(v[i] + across) < unsigned(g.width);
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

extern "C" __global__ void __launch_bounds__(T::THREADS, 2)
    wgrad(Conv g, Map<const float> x, Map<const float> dy, float* dw, float beta, float* workspace) {
    __shared__ Stage<T> stages[2];
    const int filters = g.filters / g.groups, weights = g.channels / g.groups * g.rows * g.cols;
    const int tiles_down = (filters + T::M - 1) / T::M, tiles_across = (weights + T::J - 1) / T::J;

    unsigned block = blockIdx.x;
    const int first_filter = block % tiles_down * T::M;
    block /= tiles_down;
    const int first_weight = block % tiles_across * T::J;
    block /= tiles_across;
    const int group = block % g.groups, split = block / g.groups;
    const int splits = split_count(g, tile_count(g));

    float* part = workspace + (split * (long long)g.groups + group) * filters * weights;
    Operands operands(g, dy, x, group, first_filter, first_weight);
    const long long depth = (long long)g.out_h * g.out_w * g.batch;
    for (long long first = split * (long long)PANEL; first < depth; first += splits * (long long)PANEL) {
        const int count = int(min(depth - first, (long long)PANEL));
        float sums[T::ROWS][T::COLS];
        operands.start(first, count);
        multiply(operands, (count + T::DEPTH - 1) / T::DEPTH, stages, sums);
#pragma unroll
        for (int i = 0; i < T::ROWS; ++i)
#pragma unroll
            for (int j = 0; j < T::COLS; ++j) {
                const int f = first_filter + T::row(i), weight = first_weight + T::column(j);
                if (f < filters && weight < weights)
                    accumulate(part + f * (long long)weights + weight, sums[i][j], first == split * (long long)PANEL ? 0.0f : 1.0f);
            }
    }
}

// One weight a thread: dw = beta dw + the splits in order.
extern "C" __global__ void reduce(Conv g, Map<const float> x, Map<const float> dy, float* dw, float beta, const float* workspace) {
    const long long weights = (long long)g.filters * (g.channels / g.groups) * g.rows * g.cols, i = global_thread();
    if (i >= weights) return;
    const int splits = split_count(g, tile_count(g));
    float sum = 0.0f;
    for (int split = 0; split < splits; ++split) sum += workspace[split * weights + i];
    accumulate(dw + i, sum, beta);
}
