// Binary cross-entropy: y = (sum of -(weight t log p + (1 - t) log(1 - p)), share of wrong bits, top-1 error if g.top1)
// of each sample; a target below 0 is none. bce_forward: x holds p. bce_logits_forward: x holds logits, and
// p = 1 / (1 + exp(-x)).
// Two launches (include/samples.cuh): grid tiles of samples * SPLITS, block (samples, lanes); <name>_finish: grid
// N/128, block 128.
// Why: bound by memory; shares keep all multiprocessors busy when a batch is small and its maps are large.
#include "best.cuh"
#include "samples.cuh"

// Of some elements of a sample.
struct Bits {
    double loss;
    int wrong, labeled;
    Best best;
    __device__ Bits operator+(Bits other) const {
        return {loss + other.loss, wrong + other.wrong, labeled + other.labeled, best + other.best};
    }
};

// Of the element at (c, h, w): its score, whether that declares a 1, its target, and the loss.
__device__ Bits element(const Bce& g, int c, int h, int w, float score, bool declared, float target, float loss) {
    if (target < 0.0f) return {};
    const unsigned index = (unsigned(c) * g.height + h) * g.width + w;
    return {loss, declared != (target >= 0.5f), 1, candidate(score, index, target)};
}

__device__ void store_results(const Bce& g, const Map<float>& y, const Bits* partial) {
    const int n = int(global_thread());
    if (n >= g.batch) return;
    const Bits all = sum_sample(partial, n, g.batch);
    y.row(0, 0, 0)[n] = float(all.loss);
    y.row(1, 0, 0)[n] = float(all.wrong) / max(all.labeled, 1);
    if (g.top1) y.row(2, 0, 0)[n] = all.labeled && !(all.best.hit && all.loss == all.loss);
}

extern "C" __global__ void bce_forward(Bce g, Map<const float> x, Map<const float> t, Map<float> y, Bits* partial) {
    auto value = [&](int c, int h, int w, int n) {
        const float p = x.row(c, h, w)[n], target = t.row(c, h, w)[n];
        const float loss = -g.weight * target * safe_log(p) - (1.0f - target) * safe_log(1.0f - p);
        return element(g, c, h, w, p, p >= 0.5f, target, loss);
    };
    sum_share(g, value, partial);
}

extern "C" __global__ void bce_forward_finish(Bce g, Map<const float> x, Map<const float> t, Map<float> y,
                                              const Bits* partial) {
    store_results(g, y, partial);
}

extern "C" __global__ void bce_logits_forward(Bce g, Map<const float> x, Map<const float> t, Map<float> p, Map<float> y,
                                              Bits* partial) {
    auto value = [&](int c, int h, int w, int n) {
        const float logit = x.row(c, h, w)[n], target = t.row(c, h, w)[n];
        const float small = expf(-fabsf(logit)), tail = log1pf(small);
        const float negative = fmaxf(-logit, 0.0f) + tail, positive = fmaxf(logit, 0.0f) + tail;
        p.row(c, h, w)[n] = (logit >= 0.0f ? 1.0f : small) / (1.0f + small);
        const float loss = g.weight * target * negative + (1.0f - target) * positive;
        return element(g, c, h, w, logit, logit >= 0.0f, target, loss);
    };
    sum_share(g, value, partial);
}

extern "C" __global__ void bce_logits_forward_finish(Bce g, Map<const float> x, Map<const float> t, Map<float> p,
                                                     Map<float> y, const Bits* partial) {
    store_results(g, y, partial);
}
