// A bias for each unit of a map. bias: y[c][h][w][n] = beta y + b[c][h][w]. bgrad: db[c][h][w] = beta db + the sum of
// dy[c][h][w][n] over n.
// bias: rows launch (kernels/rows.py), VECTOR samples of one unit a thread. bgrad: grid units in the order of db, block
// up to 128 threads, which add every 128th sample each and then their sums, in a fixed order.
// Why: both are bound by the map; a unit's samples are neighbours, and there are many units.
#include "launch.cuh"
#include "reduce.cuh"

extern "C" __global__ void bias(Units g, const float* b, Map<float> y, float beta) {
    const Place at = place(g.channels, g.height, g.width * g.batch);
    if (!at.inside) return;
    const float own = b[(at.c * (long long)g.height + at.h) * g.width + at.i / g.batch];
    Pack<float, VECTOR> values;
    for (int k = 0; k < VECTOR; ++k) values[k] = own;
    accumulate(y.row(at.c, at.h, 0) + at.i, values, beta);
}

extern "C" __global__ void bgrad(Units g, Map<const float> dy, float* db, float beta) {
    __shared__ float part[128];
    const unsigned unit = blockIdx.x, w = unit % g.width, h = unit / g.width % g.height, c = unit / g.width / g.height;
    float sum = 0.0f;
    for (int n = threadIdx.y; n < g.batch; n += blockDim.y) sum += dy.row(c, h, w)[n];
    sum = reduce_down(sum, Add(), part);
    if (threadIdx.y == 0) accumulate(db + unit, sum, beta);
}
