// The three products of a fully connected layer, by kernels of ours alone: y = w x + b, dx = beta dx + w' dy,
// dw = beta dw + dy x'. Matrices are row-major and contiguous: x [features][N], y [outputs][N], w [outputs][features].
// With parts, each is a product of its own, the parts of every matrix lying one after the other.
// A block of 256 threads computes a tile of TILE_M x TILE_J elements. Grid: tiles of the result, the rows fastest, then
// parts.
// Why: single loads, so that no size is special; neighbouring threads read neighbours whichever way a matrix lies.
#include "gemm.cuh"

using T = Tile<TILE_M, TILE_J>;

// Blocks that a multiprocessor holds: on sm_80 two of the largest tile would spill.
constexpr int RESIDENT = T::M * T::J == 128 * 128 ? 1 : 2;

// An operand whose k are neighbours: element (i, k) is first[i * pitch + k].
template <int LENGTH>
struct Rows {
    AlongK<T, LENGTH, 1> part;
    const float* from;  // the thread's first element
    long long pitch;
    int rows, left;  // rows from the thread's first one on; k left to load

    __device__ Rows(const float* first, int skip, int rows, int depth) : pitch(depth) {
        from = first + (skip + part.row(0)) * pitch + part.k();
        this->rows = rows - skip - part.row(0);
        left = depth - part.k();
    }

    __device__ __forceinline__ void fetch() {
        for (int i = 0; i < part.COUNT; ++i) {
            const bool inside = left > 0 && i * part.STRIDE < rows && part.has(i);
            part.values[i][0] = inside ? from[i * part.STRIDE * pitch] : 0.0f;
        }
        from += T::DEPTH;
        left -= T::DEPTH;
    }
};

// An operand whose rows are neighbours: element (i, k) is first[k * pitch + i].
template <int LENGTH>
struct Columns {
    AlongJ<T, LENGTH, 1> part;
    const float* from;  // the tile's first element at the thread's k
    long long pitch;
    int rows, left;  // rows from the tile on; k left to load

    __device__ Columns(const float* first, int skip, int rows, int depth)
        : from(first + part.k() * (long long)rows + skip), pitch(rows), rows(rows - skip), left(depth - part.k()) {}

    __device__ __forceinline__ void fetch() {
        for (int i = 0; i < part.COUNT; ++i)
            part.values[i][0] = left > 0 && part.column(i) < rows ? from[part.column(i)] : 0.0f;
        from += T::DEPTH * pitch;
        left -= T::DEPTH;
    }
};

template <typename A, typename B>
struct Operands {
    A a;
    B b;

    __device__ __forceinline__ void fetch() {
        a.fetch();
        b.fetch();
    }

    __device__ __forceinline__ void put(Stage<T>& stage) {
        a.part.put(stage.a);
        b.part.put(stage.b);
    }
};

// out[m][j] = beta out + bias[m] + sum over k of a[m][k] b[j][k], in each part.
template <typename A, typename B>
__device__ void product(const float* a, const float* b, int rows, int columns, int depth, const float* bias, float* out,
                        float beta) {
    __shared__ Stage<T> stages[2];
    const int tiles = (rows + T::M - 1) / T::M;
    const int m = blockIdx.x % tiles * T::M, across = (columns + T::J - 1) / T::J;
    const int j = blockIdx.x / tiles % across * T::J;
    const long long part = blockIdx.x / tiles / across;
    a += part * rows * depth;
    b += part * depth * columns;
    out += part * rows * columns;
    if (bias) bias += part * rows;
    float sums[T::ROWS][T::COLS];
    Operands<A, B> operands{A(a, m, rows, depth), B(b, j, columns, depth)};
    multiply(operands, (depth + T::DEPTH - 1) / T::DEPTH, stages, sums);
#pragma unroll
    for (int i = 0; i < T::ROWS; ++i)
#pragma unroll
        for (int e = 0; e < T::COLS; ++e) {
            const int row = m + T::row(i), column = j + T::column(e);
            if (row < rows && column < columns)
                accumulate(out + row * (long long)columns + column, sums[i][e] + (bias ? bias[row] : 0.0f), beta);
        }
}

extern "C" __global__ void __launch_bounds__(T::THREADS, RESIDENT)
    forward(Fc g, Map<const float> x, const float* w, const float* b, Map<float> y) {
    product<Rows<T::M>, Columns<T::J>>(w, x.data, g.outputs / g.parts, g.batch, g.features / g.parts, b, y.data, 0.0f);
}

extern "C" __global__ void __launch_bounds__(T::THREADS, RESIDENT)
    dgrad(Fc g, Map<const float> dy, const float* w, Map<float> dx, float beta) {
    product<Columns<T::M>, Columns<T::J>>(w, dy.data, g.features / g.parts, g.batch, g.outputs / g.parts, nullptr,
                                          dx.data, beta);
}

extern "C" __global__ void __launch_bounds__(T::THREADS, RESIDENT)
    wgrad(Fc g, Map<const float> x, Map<const float> dy, float* dw, float beta) {
    product<Rows<T::M>, Rows<T::J>>(dy.data, x.data, g.outputs / g.parts, g.features / g.parts, g.batch, nullptr, dw, beta);
}
