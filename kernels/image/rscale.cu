// rscale: y = a random crop of x shrunk by a random factor, one for all samples, bilinear. The draw is defined in
// reference.py.
// Rows launch (kernels/rows.py) over y, VECTOR samples of one pixel a thread.
// Why: shrinking and cropping are one lattice on x, so that nothing between them is stored. The draw is made again by
// one thread of each block, from the clock: no launch of its own, and nothing that a captured graph would freeze.
#include "bilinear.cuh"
#include "philox.cuh"

struct Lattices {
    Lattice rows, columns;
};

// How many crops there are in `count` sizes: 1 + 4 + ... + count^2.
__device__ double crops(double count) { return count * (count + 1) * (2 * count + 1) / 6; }

__device__ Lattices draw(const Rscale& g, const unsigned* clock) {
    const Words words = philox4x32({0, 0, clock[2], unsigned(g.key)}, clock[0], clock[1]);
    const bool tall = (long long)g.height * g.out_w > (long long)g.width * g.out_h;  // the width decides
    const int side = tall ? g.width : g.height, crop = tall ? g.out_w : g.out_h;
    int s = side - crop;
    const double chosen = (words.word[0] + 0.5) * 0x1p-32 * crops(s + 1);
    while (s > 0 && crops(s) > chosen) --s;  // from the likely end
    const double most = double(side) / (crop + s), least = max(1.0, double(side) / (crop + s + 1));
    const double scale = least + words.word[1] * 0x1p-32 * (most - least);
    const int shrunk_h = tall ? max(int(g.height / scale), g.out_h) : crop + s;
    const int shrunk_w = tall ? crop + s : max(int(g.width / scale), g.out_w);
    const int top = words.word[2] * (shrunk_h - g.out_h + 1ull) >> 32;
    const int left = words.word[3] * (shrunk_w - g.out_w + 1ull) >> 32;
    const bool whole = scale == 1.0;
    return {centred(g.height, shrunk_h, scale, top, whole), centred(g.width, shrunk_w, scale, left, whole)};
}

extern "C" __global__ void rscale(Rscale g, Map<const float> x, const unsigned* clock, Map<float> y) {
    __shared__ Lattices lattices;
    if (threadIdx.x == 0 && threadIdx.y == 0) lattices = draw(g, clock);
    __syncthreads();
    const Place at = place(g.channels, g.out_h, g.out_w * g.batch);
    if (!at.inside) return;
    const int q = at.i / g.batch, n = at.i % g.batch;
    const Between h = between(lattices.rows, at.h, g.height), w = between(lattices.columns, q, g.width);
    store(y.row(at.c, at.h, 0) + at.i, bilinear(x, at.c, h, w, n));
}
