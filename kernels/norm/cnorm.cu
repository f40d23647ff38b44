// Contrast normalisation. cnorm_forward: y = x D^-power, D = k + alpha * (sum of d^2 over the window), d = x - the mean of
// its window. cnorm_backward: dx = beta dx + dy D^-power + e - the sum of e' / (size of its window) over the pixels whose
// windows hold this one, e = -2 alpha power d * (sum of dy' x' D'^(-power-1) over the same pixels).
// Rows launch (kernels/rows.py), VECTOR samples of one pixel a thread. Forward: `centre`, which leaves d in the workspace,
// then `cnorm_forward`. Backward: `centre_again`, `cnorm_ratio`, `cnorm_slope`, and `cnorm_backward` for the last term,
// the mean's own gradient, if that is wanted. Constant EXACT: it is.
// Why: each sum over windows needs what the one before left at other pixels; d and D are made again rather than kept.
#include "response.cuh"

__device__ __forceinline__ void centre_into(const Cnorm& g, Map<const float> x, Map<float> d) {
    const Pixel at(g);
    if (!at.inside) return;
    const Box box = window_of(g, at.h, at.w);
    Pack<float, VECTOR> sum = box_sum(box, x, at.c, at.n, [](float value, int, int) { return value; });
    Pack<float, VECTOR> value = load<VECTOR>(at.in(x));
    for (int e = 0; e < VECTOR; ++e) value[e] -= sum[e] / box.area();
    store(at.in(d), value);
}

extern "C" __global__ void centre(Cnorm g, Map<const float> x, Map<float> y, float* workspace) {
    centre_into(g, x, scratch(g, workspace, 0));
}

extern "C" __global__ void cnorm_forward(Cnorm g, Map<const float> x, Map<float> y, float* workspace) {
    respond(g, x, read_only(scratch(g, workspace, 0)), y);
}

extern "C" __global__ void centre_again(Cnorm g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta,
                                        float* workspace) {
    centre_into(g, x, scratch(g, workspace, 0));
}

extern "C" __global__ void cnorm_ratio(Cnorm g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta,
                                       float* workspace) {
    respond_directly(g, x, read_only(scratch(g, workspace, 0)), dy, dx, beta, scratch(g, workspace, 1));
}

extern "C" __global__ void cnorm_slope(Cnorm g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta,
                                       float* workspace) {
    const Pixel at(g);
    if (!at.inside) return;
    const Map<float> d = scratch(g, workspace, 0);
    Pack<float, VECTOR> slope = response_slope(g, read_only(d), read_only(scratch(g, workspace, 1)), at);
    accumulate(at.in(dx), slope, 1.0f);
    if (EXACT) store(at.in(d), slope);  // no other thread reads d here
}

extern "C" __global__ void cnorm_backward(Cnorm g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta,
                                          float* workspace) {
    const Pixel at(g);
    if (!at.inside) return;
    Pack<float, VECTOR> sum =
        box_sum(holding(g, at.h, at.w), read_only(scratch(g, workspace, 0)), at.c, at.n,
                [&](float slope, int h, int w) { return slope / window_of(g, h, w).area(); });
    for (int e = 0; e < VECTOR; ++e) sum[e] = -sum[e];
    accumulate(at.in(dx), sum, 1.0f);
}
