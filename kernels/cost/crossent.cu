// Cross-entropy against targets: y = (-sum of t log p, top-1 error) of each sample, and its gradient; a target below 0
// is none. crossent_*: x holds the probabilities; crossent_logits_*: x holds logits, and p = softmax(x).
// Block (samples, lanes), the lanes share the classes; grid N/samples. Constant THREADS, of a block.
// Why: as softmax.cu. From logits the loss is finite where p underflows.
#include "best.cuh"
#include "column.cuh"

// What one pass over the classes gathers.
struct Tally {
    float exponentials;  // sum of exp(x - top)
    float cost;          // sum of what each target adds through its x alone
    float targets;       // their sum
    int labeled;
    Best best;
    __device__ Tally operator+(Tally t) const {
        return {exponentials + t.exponentials, cost + t.cost, targets + t.targets, labeled + t.labeled, best + t.best};
    }
};

__device__ void store_results(const Map<float>& y, int n, const Tally& all, float loss) {
    y.row(0, 0, 0)[n] = all.labeled ? loss : 0.0f;
    y.row(1, 0, 0)[n] = all.labeled && !(all.best.hit && loss == loss);
}

extern "C" __global__ void crossent_forward(Crossent g, Map<const float> x, Map<const float> t, Map<float> y) {
    __shared__ Tally tallies[THREADS];
    const Column at = column(g.batch);
    Tally all = {};
    if (at.inside) {
        for (int c = threadIdx.y; c < g.classes; c += blockDim.y) {
            const float p = x.row(c, 0, 0)[at.i], target = t.row(c, 0, 0)[at.i];
            if (target < 0.0f) continue;
            all = all + Tally{0.0f, -target * safe_log(p), target, 1, candidate(p, c, target)};
        }
    }
    all = reduce_down(all, Add(), tallies);
    if (at.inside && threadIdx.y == 0) store_results(y, at.i, all, all.cost);
}

extern "C" __global__ void crossent_backward(Crossent g, Map<const float> x, Map<const float> t, Map<float> dx,
                                             float beta) {
    const Column at = column(g.batch);
    if (!at.inside) return;
    for (int c = threadIdx.y; c < g.classes; c += blockDim.y) {
        const float p = x.row(c, 0, 0)[at.i], target = t.row(c, 0, 0)[at.i];
        const float value = target < 0.0f || p <= 0.0f ? 0.0f : -g.scale * target / p;
        accumulate(&dx.row(c, 0, 0)[at.i], value, beta);
    }
}

extern "C" __global__ void crossent_logits_forward(Crossent g, Map<const float> x, Map<const float> t, Map<float> p,
                                                   Map<float> y) {
    __shared__ float part[THREADS];
    __shared__ Tally tallies[THREADS];
    const Column at = column(g.batch);
    const float top = column_max(x, g.classes, at, part);
    Tally all = {};
    if (at.inside) {
        for (int c = threadIdx.y; c < g.classes; c += blockDim.y) {
            const float logit = x.row(c, 0, 0)[at.i], target = t.row(c, 0, 0)[at.i];
            const float value = expf(logit - top), cost = target == 0.0f ? 0.0f : -target * (logit - top);
            p.row(c, 0, 0)[at.i] = value;
            all.exponentials += value;
            if (!(target < 0.0f)) all = all + Tally{0.0f, cost, target, 1, candidate(logit, c, target)};
        }
    }
    all = reduce_down(all, Add(), tallies);
    if (!at.inside) return;
    for (int c = threadIdx.y; c < g.classes; c += blockDim.y) p.row(c, 0, 0)[at.i] /= all.exponentials;
    if (threadIdx.y == 0) store_results(y, at.i, all, all.targets * logf(all.exponentials) + all.cost);
}

extern "C" __global__ void crossent_logits_backward(Crossent g, Map<const float> p, Map<const float> t, Map<float> dx,
                                                    float beta) {
    __shared__ float part[THREADS];
    const Column at = column(g.batch);
    float sum = 0.0f;
    if (at.inside) {
        for (int c = threadIdx.y; c < g.classes; c += blockDim.y) {
            const float target = t.row(c, 0, 0)[at.i];
            sum += target < 0.0f ? 0.0f : target;
        }
    }
    sum = reduce_down(sum, Add(), part);
    if (!at.inside) return;
    for (int c = threadIdx.y; c < g.classes; c += blockDim.y) {
        const float target = t.row(c, 0, 0)[at.i];
        const float value = g.scale * (p.row(c, 0, 0)[at.i] * sum - (target < 0.0f ? 0.0f : target));
        accumulate(&dx.row(c, 0, 0)[at.i], value, beta);
    }
}
