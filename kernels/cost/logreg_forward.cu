// Multinomial logistic cost: p = softmax(x); y = (negative log likelihood, an error for each k of topk)
// of each sample. Block (samples, lanes), the lanes share the classes; grid N/samples. Constant THREADS, of a block.
// Why: as softmax.cu. The likelihood comes from the logits, so that it is finite where p underflows.
#include "column.cuh"
#include "labels.cuh"

// What one pass over the classes gathers.
struct Tally {
    float exponentials, shifted;  // sum of exp(x - top), sum of x - top
    int behind;                   // classes that do not stand before the one with the larger share
    __device__ Tally operator+(Tally t) const {
        return {exponentials + t.exponentials, shifted + t.shifted, behind + t.behind};
    }
};

extern "C" __global__ void logreg_forward(Logreg g, Map<const float> x, const int* labels, const int* second,
                                          const float* share, Map<float> p, Map<float> y) {
    __shared__ float part[THREADS];
    __shared__ Tally tallies[THREADS];
    const Column at = column(g.batch);
    const Labels label = at.inside ? labels_of(labels, second, share, at.i) : Labels{-1, -1, 1.0f};
    const bool known = label.first >= 0 && label.first < g.classes && label.second < g.classes;
    const int main = label.share >= 0.5f ? label.first : label.second;
    const float chosen = known ? x.row(main, 0, 0)[at.i] : 0.0f, top = column_max(x, g.classes, at, part);
    Tally all = {0.0f, 0.0f, 0};
    if (at.inside) {
        for (int c = threadIdx.y; c < g.classes; c += blockDim.y) {
            const float logit = x.row(c, 0, 0)[at.i], value = expf(logit - top);
            p.row(c, 0, 0)[at.i] = value;
            all = all + Tally{value, logit - top, logit < chosen || (logit == chosen && c >= main)};
        }
    }
    all = reduce_down(all, Add(), tallies);
    if (!at.inside) return;
    for (int c = threadIdx.y; c < g.classes; c += blockDim.y) p.row(c, 0, 0)[at.i] /= all.exponentials;
    if (threadIdx.y != 0) return;
    const int rank = known ? g.classes - all.behind : g.classes;
    float likely = label.share == 0.0f || !known ? 0.0f : label.share * (x.row(label.first, 0, 0)[at.i] - top);
    if (known && label.share != 1.0f) likely += (1.0f - label.share) * (x.row(label.second, 0, 0)[at.i] - top);
    float loss = logf(all.exponentials) - (1.0f - g.smoothing) * likely;
    if (g.smoothing != 0.0f) loss -= g.smoothing / g.classes * all.shifted;
    y.row(0, 0, 0)[at.i] = label.first < 0 ? 0.0f : known ? loss : not_a_number();
    for (int k = 0; k < 8 && g.topk[k] != 0; ++k)
        y.row(1 + k, 0, 0)[at.i] = label.first >= 0 && (!known || rank >= g.topk[k]);
}
