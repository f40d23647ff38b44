// resample: pixels_nhwc[n] = the image of cell n, of its own height and width, at height x width, by Pillow's antialiased
// bilinear filter, bit for bit.
// One block takes ROWS x COLUMNS pixels of one image: their lines along rows to shared memory, in bytes, and from there
// along columns. Grid W/COLUMNS * H/ROWS * N, blocks of one dimension. Constants ROWS, COLUMNS, CHANNELS, MOST, HEAD.
// Why: bound by loads of bytes; two passes of 2 s + 1 taps, where one would have their product. Weights are made once a
// block, in double precision and without fused multiply-adds, whose last bits Pillow's are.

struct Taps {
    int first, count;
    int weight[2 * MOST + 1];
};

// Of output o along a side of `side` pixels that becomes `count`.
__device__ Taps taps(int side, int count, int o) {
    Taps t = {};
    const double scale = __ddiv_rn(side, count), reach = fmax(scale, 1.0), inverse = __ddiv_rn(1.0, reach);
    const double centre = __dmul_rn(o + 0.5, scale);
    t.first = max(int(__dadd_rn(__dadd_rn(centre, -reach), 0.5)), 0);
    t.count = min(int(__dadd_rn(__dadd_rn(centre, reach), 0.5)), side) - t.first;
    double weight[2 * MOST + 1], sum = 0.0;
    for (int k = 0; k < t.count; ++k) {
        const double distance = __dmul_rn(__dadd_rn(__dadd_rn(t.first + k, -centre), 0.5), inverse);
        weight[k] = fmax(__dadd_rn(1.0, -fabs(distance)), 0.0);
        sum = __dadd_rn(sum, weight[k]);
    }
    for (int k = 0; k < t.count; ++k)
        t.weight[k] = int(__dadd_rn(0.5, __dmul_rn(__ddiv_rn(weight[k], sum), 1 << 22)));
    return t;
}

// The weighted sum of bytes that are `stride` apart, rounded to a byte.
__device__ __forceinline__ unsigned char filtered(const unsigned char* bytes, int stride, const Taps& t) {
    int sum = 1 << 21;
    for (int k = 0; k < t.count; ++k) sum += t.weight[k] * bytes[k * stride];
    return sum >> 22;
}

extern "C" __global__ void resample(Resample g, const unsigned char* cells, unsigned char* pixels) {
    constexpr int width = COLUMNS * CHANNELS;
    __shared__ Taps across[COLUMNS], down[ROWS];
    __shared__ unsigned char lines[(ROWS + 2) * MOST + 2][width];
    const int tiles_w = (g.width + COLUMNS - 1) / COLUMNS, tiles_h = (g.height + ROWS - 1) / ROWS;
    const int left = blockIdx.x % tiles_w * COLUMNS, top = blockIdx.x / tiles_w % tiles_h * ROWS;
    const long long n = blockIdx.x / tiles_w / tiles_h;
    const int rows = min(ROWS, g.height - top), row = min(COLUMNS, g.width - left) * CHANNELS;
    const int tall = reinterpret_cast<const int*>(cells + n * g.cell)[0];
    const int wide = reinterpret_cast<const int*>(cells + n * g.cell)[1];
    const bool empty = tall == 0 || wide == 0;
    for (int i = threadIdx.x; i < COLUMNS + ROWS && !empty; i += blockDim.x) {
        if (i < COLUMNS)
            across[i] = taps(wide, g.width, min(left + i, g.width - 1));
        else
            down[i - COLUMNS] = taps(tall, g.height, min(top + i - COLUMNS, g.height - 1));
    }
    __syncthreads();
    const int begin = empty ? 0 : down[0].first, end = empty ? 0 : down[rows - 1].first + down[rows - 1].count;
    for (int i = threadIdx.x; i < (end - begin) * width; i += blockDim.x) {
        const int line = i / width, at = i % width;
        if (at >= row) continue;
        const Taps& t = across[at / CHANNELS];
        const long long from = ((long long)(begin + line) * wide + t.first) * CHANNELS + at % CHANNELS;
        lines[line][at] = filtered(cells + n * g.cell + HEAD + from, CHANNELS, t);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < rows * width; i += blockDim.x) {
        const int line = i / width, at = i % width;
        if (at >= row) continue;
        const long long to = ((n * g.height + top + line) * g.width + left) * CHANNELS + at;
        pixels[to] = empty ? 0 : filtered(&lines[down[line].first - begin][at], width, down[line]);
    }
}
