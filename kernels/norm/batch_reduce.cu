// Batch normalisation, sums over a channel: batch_stats (mean, 1/sqrt(var + eps), running statistics), batch_moments
// (sums of x - running_mean and its square) and batch_sums (sum of dy, sum of dy * xhat).
// Two launches each. The first cuts every channel in SPLITS shares: grid C*SPLITS, one partial pair a block, written to
// the workspace. The second, <name>_finish, adds the shares of a channel in order: grid C, block 128.
// Constants SPLITS, THREADS (of the first launch, a power of two), VECTOR.
// Why: shares keep all multiprocessors busy when channels are few. Sums are in double, of differences from a value
// of the channel, so that one pass over x is as accurate as two.
#include "launch.cuh"
#include "reduce.cuh"

constexpr int FINISH = 128;

// Adds value(h, i) -> Sums of VECTOR elements over this block's share of a channel.
template <typename Value>
__device__ void sum_share(int height, int length, Value value, Sums* partial) {
    __shared__ Sums part[THREADS];
    const unsigned packs = length / VECTOR, total = height * packs, share = (total + SPLITS - 1) / SPLITS;
    const unsigned begin = blockIdx.x % SPLITS * share, end = min(begin + share, total);
    Sums sum = {0.0, 0.0};
    for (unsigned j = begin + threadIdx.y; j < end; j += THREADS) sum = sum + value(j / packs, j % packs * VECTOR);
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) partial[blockIdx.x] = sum;
}

// The sums of channel blockIdx.x.
__device__ Sums sum_channel(const Sums* partial) {
    __shared__ Sums part[FINISH];
    Sums sum = {0.0, 0.0};
    for (int k = threadIdx.y; k < SPLITS; k += FINISH) sum = sum + partial[blockIdx.x * (long long)SPLITS + k];
    return reduce_down(sum, Add(), part);
}

// The sums of x - pivot and its square over this block's share of channel c.
__device__ void sum_differences(const BatchNorm& g, const Map<const float>& x, int c, float pivot, Sums* partial) {
    auto differences = [&](int h, int i) {
        Pack<float, VECTOR> value = load<VECTOR>(x.row(c, h, 0) + i);
        Sums sum = {0.0, 0.0};
        for (int k = 0; k < VECTOR; ++k) {
            const double difference = double(value[k]) - pivot;
            sum = sum + Sums{difference, difference * difference};
        }
        return sum;
    };
    sum_share(g.height, g.width * g.batch, differences, partial);
}

extern "C" __global__ void batch_stats(BatchNorm g, Map<const float> x, float* mean, float* inv_std,
                                       float* running_mean, float* running_var, Sums* partial) {
    const int c = blockIdx.x / SPLITS;
    sum_differences(g, x, c, x.row(c, 0, 0)[0], partial);
}

extern "C" __global__ void batch_moments(BatchNorm g, Map<const float> x, const float* running_mean, double* moments,
                                         Sums* partial) {
    const int c = blockIdx.x / SPLITS;
    sum_differences(g, x, c, running_mean[c], partial);
}

extern "C" __global__ void batch_moments_finish(BatchNorm g, Map<const float> x, const float* running_mean,
                                                double* moments, const Sums* partial) {
    const int c = blockIdx.x;
    const Sums sum = sum_channel(partial);
    if (threadIdx.y != 0) return;
    moments[c] = sum.first;
    moments[g.channels + c] = sum.second;
}

extern "C" __global__ void batch_stats_finish(BatchNorm g, Map<const float> x, float* mean, float* inv_std,
                                              float* running_mean, float* running_var, const Sums* partial) {
    const int c = blockIdx.x;
    const Sums sum = sum_channel(partial);
    if (threadIdx.y != 0) return;
    const double count = double(g.height) * g.width * g.batch, offset = sum.first / count;
    const double average = offset + x.row(c, 0, 0)[0];
    double variance = sum.second / count - offset * offset;
    if (variance < 0.0) variance = 0.0;  // rounding; NaN stays NaN
    mean[c] = float(average);
    inv_std[c] = float(1.0 / sqrt(variance + g.eps));
    const double unbiased = count > 1.0 ? variance * (count / (count - 1.0)) : variance;
    running_mean[c] += float(g.momentum * (average - running_mean[c]));
    running_var[c] += float(g.momentum * (unbiased - running_var[c]));
}

extern "C" __global__ void batch_sums(BatchNorm g, Map<const float> x, Map<const float> dy, const float* mean,
                                      const float* inv_std, float* sum_dy, float* sum_dy_xhat, Sums* partial) {
    const int c = blockIdx.x / SPLITS;
    const float average = mean[c];
    auto products = [&](int h, int i) {
        Pack<float, VECTOR> value = load<VECTOR>(x.row(c, h, 0) + i), gradient = load<VECTOR>(dy.row(c, h, 0) + i);
        Sums sum = {0.0, 0.0};
        for (int k = 0; k < VECTOR; ++k)
            sum = sum + Sums{gradient[k], double(gradient[k]) * (double(value[k]) - average)};
        return sum;
    };
    sum_share(g.height, g.width * g.batch, products, partial);
}

extern "C" __global__ void batch_sums_finish(BatchNorm g, Map<const float> x, Map<const float> dy, const float* mean,
                                             const float* inv_std, float* sum_dy, float* sum_dy_xhat,
                                             const Sums* partial) {
    const int c = blockIdx.x;
    const Sums sum = sum_channel(partial);
    if (threadIdx.y != 0) return;
    sum_dy[c] = float(sum.first);
    sum_dy_xhat[c] = float(sum.second * inv_std[c]);
}
