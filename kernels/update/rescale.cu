// w[i, :] *= clamp(n, low, high) / n, n being the norm of the row, or that of its deviations from the mean over columns.
// Nothing is written where n (but for rounding), healthy[0] or the parameter's share is 0.
// Grid `rows`, block (1, 256).
// Why: a block sums a row in a fixed order, in float64, and scales it from the cache. The launch is what it costs.
#include "reduce.cuh"

extern "C" __global__ void rescale(Rescale g, float* w, const float* rates, const int* healthy) {
    __shared__ Sums part[256];
    if (healthy[0] == 0 || !(rates[4ll * g.parameter + 3] > 0)) return;
    float* row = w + blockIdx.x * (long long)g.columns;
    Sums sum = {0.0, 0.0};
    for (int c = threadIdx.y; c < g.columns; c += 256) {
        const double value = row[c];
        sum = sum + Sums{value, value * value};
    }
    sum = reduce_down(sum, Add(), part);
    double squares = sum.second, least = 0.0;
    if (g.centered) {
        Sums deviation = {0.0, 0.0};
        const double mean = sum.first / g.columns;
        for (int c = threadIdx.y; c < g.columns; c += 256) {
            const double value = row[c] - mean;
            deviation.first += value * value;
        }
        squares = reduce_down(deviation, Add(), part).first;
        least = 1e-16 * sum.second;  // the rounding of equal weights
    }
    if (!(squares > least)) return;
    const double norm = sqrt(squares) / (g.centered ? g.columns : 1);
    const float factor = float(fmin(fmax(norm, double(g.low)), double(g.high)) / norm);
    for (int c = threadIdx.y; c < g.columns; c += 256) row[c] *= factor;
}
