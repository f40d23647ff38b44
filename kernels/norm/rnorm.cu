// Response normalisation within a map. rnorm_forward: y = x D^-power, D = k + alpha * (sum of x^2 over the window).
// rnorm_backward: dx = beta dx + dy D^-power - 2 alpha power x * (sum of dy' x' D'^(-power-1) over the pixels whose
// windows hold this one); `rnorm_ratio` comes first and leaves the terms of that sum in the workspace.
// Rows launch (kernels/rows.py), VECTOR samples of one pixel a thread.
// Why: every pixel is raised to a power once in each direction; windows overlap in cache.
#include "response.cuh"

extern "C" __global__ void rnorm_forward(Rnorm g, Map<const float> x, Map<float> y) { respond(g, x, x, y); }

extern "C" __global__ void rnorm_ratio(Rnorm g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta,
                                       float* workspace) {
    respond_directly(g, x, x, dy, dx, beta, scratch(g, workspace, 0));
}

extern "C" __global__ void rnorm_backward(Rnorm g, Map<const float> x, Map<const float> dy, Map<float> dx, float beta,
                                          float* workspace) {
    const Pixel at(g);
    if (at.inside) accumulate(at.in(dx), response_slope(g, x, read_only(scratch(g, workspace, 0)), at), 1.0f);
}
