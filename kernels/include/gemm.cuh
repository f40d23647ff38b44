// The inner part of every tiled product: a block of 256 threads computes an M x J tile of
// C[m][j] = sum over k of A[m][k] B[k][j], in fp32.
//
// The operands pass through shared memory, DEPTH values of k a step, in the order [k][m] and [k][j].  There are two
// stages: the loads for the next step are in flight while the current one is multiplied.
// Each thread accumulates ROWS x COLS values in registers.  A warp is 4 lanes down by 8 across, each with runs of four
// neighbours, so that a 16-byte read of either operand touches a shared-memory bank once.
// What differs between products is where operands come from: an object with
//     void fetch();                // from global memory to registers, zeros where there is nothing; then one step on
//     void put(Stage<T>& stage);   // from registers to shared memory
#pragma once
#include "launch.cuh"

template <int M_, int J_>
struct Tile {
    static constexpr int M = M_, J = J_;
    static constexpr int THREADS = 256;
    static constexpr int DEPTH = 1024 / J;  // one 16-byte load of B a thread and step
    static constexpr int ROWS = M == 128 ? 8 : 4, COLS = J == 128 && M > 32 ? 8 : 4;
    static constexpr int UNROLL = ROWS * COLS == 64 ? 2 : DEPTH;  // more would not fit 128 registers
    static constexpr int WARPS_DOWN = M / (4 * ROWS), WARPS_ACROSS = J / (8 * COLS);
    static_assert(WARPS_DOWN * WARPS_ACROSS * 32 == THREADS, "tiles: 128x128, 128x64, 64x128, 64x64, 32x128");

    // Place in the tile of this thread's i-th accumulator row and j-th column; runs of four are neighbours.
    static __device__ __forceinline__ int row(int i) {
        return (threadIdx.x / 32 % WARPS_DOWN) * 4 * ROWS + i / 4 * 16 + threadIdx.x % 32 / 8 * 4 + i % 4;
    }
    static __device__ __forceinline__ int column(int j) {
        return (threadIdx.x / 32 / WARPS_DOWN) * 8 * COLS + j / 4 * 32 + threadIdx.x % 8 * 4 + j % 4;
    }
};

// One step of both operands. The rows are 4 longer than the tile: transposing writes then miss each other's banks.
template <typename T>
struct Stage {
    alignas(16) float a[T::DEPTH][T::M + 4];
    alignas(16) float b[T::DEPTH][T::J + 4];
};

// An operand whose k are neighbours in memory: a thread loads V of them in each of COUNT rows (m, or j) of the tile.
template <typename T, int LENGTH, int V>
struct AlongK {
    static constexpr int LANES = T::DEPTH / V, STRIDE = T::THREADS / LANES, COUNT = (LENGTH + STRIDE - 1) / STRIDE;
    Pack<float, V> values[COUNT];

    static __device__ __forceinline__ int k() { return threadIdx.x % LANES * V; }
    static __device__ __forceinline__ int row(int i) { return threadIdx.x / LANES + i * STRIDE; }
    static __device__ __forceinline__ bool has(int i) { return LENGTH % STRIDE == 0 || row(i) < LENGTH; }

    __device__ __forceinline__ void put(float (&shared)[T::DEPTH][LENGTH + 4]) {
        for (int i = 0; i < COUNT; ++i)
            for (int e = 0; e < V; ++e)
                if (has(i)) shared[k() + e][row(i)] = values[i][e];
    }
};

// An operand whose columns (j, or m) are neighbours in memory: a thread loads COUNT times V of them at one k.
template <typename T, int LENGTH, int V>
struct AlongJ {
    static constexpr int LANES = T::THREADS / T::DEPTH, COUNT = LENGTH / LANES / V;
    static_assert(COUNT * LANES * V == LENGTH, "the tile is a whole number of loads");
    Pack<float, V> values[COUNT];

    static __device__ __forceinline__ int k() { return threadIdx.x / LANES; }
    static __device__ __forceinline__ int column(int i) { return (threadIdx.x % LANES + i * LANES) * V; }

    __device__ __forceinline__ void put(float (&shared)[T::DEPTH][LENGTH + 4]) {
        for (int i = 0; i < COUNT; ++i) store(&shared[k()][column(i)], values[i]);
    }
};

template <typename T>
__device__ __forceinline__ void multiply_step(const Stage<T>& stage, float (&sums)[T::ROWS][T::COLS]) {
#pragma unroll T::UNROLL
    for (int k = 0; k < T::DEPTH; ++k) {
        Pack<float, 4> a[T::ROWS / 4], b[T::COLS / 4];
        for (int i = 0; i < T::ROWS / 4; ++i) a[i] = load<4>(&stage.a[k][T::row(4 * i)]);
        for (int j = 0; j < T::COLS / 4; ++j) b[j] = load<4>(&stage.b[k][T::column(4 * j)]);
#pragma unroll
        for (int i = 0; i < T::ROWS; ++i)
#pragma unroll
            for (int j = 0; j < T::COLS; ++j) sums[i][j] += a[i / 4][i % 4] * b[j / 4][j % 4];
    }
}

// sums = A B over `steps` steps of k, added in order. All threads of the block call; `stages` is shared memory.
template <typename T, typename Operands>
__device__ __forceinline__ void
    multiply(Operands& operands, int steps, Stage<T> (&stages)[2], float (&sums)[T::ROWS][T::COLS]) {
    for (auto& row : sums)
        for (float& sum : row) sum = 0.0f;
    if (steps == 0) return;
    operands.fetch();
    operands.put(stages[0]);
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        const bool more = step + 1 < steps;
        if (more) operands.fetch();
        multiply_step<T>(stages[step % 2], sums);
        if (more) operands.put(stages[(step + 1) % 2]);
        __syncthreads();
    }
}
