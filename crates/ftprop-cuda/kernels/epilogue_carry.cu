// The loss's curvature on its way down through an epilogue without hard units: as slopes go, but by the squares of what those
// are multiplied by, and past a norm's statistics as if they were fixed.
#include "epilogue.cuh"

extern "C" __global__ void __launch_bounds__(256)
epilogue_carry(const act_t* __restrict__ curvature, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const void* __restrict__ shift,
               const act_t* __restrict__ y2, const sum_t* __restrict__ scale2, const sum_t* __restrict__ shift2, const position_t* __restrict__ argmax,
               act_t* __restrict__ to, act_t* __restrict__ to2, const DeviceStep* __restrict__ step, const float* __restrict__ scalars,
               const u32* __restrict__ labels, int n) {
    const SlopeInputs inputs(step, scalars, labels, n);
    const u32 count = (u32)n * (ROWS_PER_IMAGE * (C / VEC));
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int row = i / (C / VEC), c = i % (C / VEC) * VEC;
        const size_t at = (size_t)row * C + c;
        const Affine affine(scale, shift, scale2, shift2, c);
        const FloatVec<VEC> here = load<VEC>(y + at);
        FloatVec<VEC> other = {};
#if RESIDUAL != RESIDUAL_NONE
        other = load<VEC>(y2 + at);
#endif
        // Soft units multiply by 0 or 1, their own squares; so do pools. What is left is dropout's factor once more.
        FloatVec<VEC> d = slopes_at(row, c, pre_activations(here, other, affine), curvature, argmax, inputs), d2;
#pragma unroll
        for (int e = 0; e < VEC; e++) {
#if DROPOUT != DROPOUT_NONE
            d.v[e] *= 1.0f / (1.0f - DROPOUT_P);
#endif
            d2.v[e] = d.v[e];
#if RESIDUAL == RESIDUAL_NORM
            d2.v[e] = (float)(d2.v[e] * (affine.scale2.v[e] * affine.scale2.v[e]));
#endif
#if AFFINE == AFFINE_NORM
            d.v[e] = (float)(d.v[e] * (affine.scale.v[e] * affine.scale.v[e]));
#endif
        }
#if RESIDUAL != RESIDUAL_NONE
        if (to2) keep_slopes<ACCUMULATE2>(to2 + at, d2);
#endif
        if (to) keep_slopes<ACCUMULATE1>(to + at, d);
    }
}
