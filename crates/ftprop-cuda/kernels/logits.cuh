// What the losses by logits share: a warp takes the CLASSES logits of an example.
#pragma once
#include "common.cuh"

#if LOGITS_F32
typedef float logit_t;
#else
typedef act_t logit_t;
#endif

#define OUTPUT_LOSS_CROSS_ENTROPY 1
#define OUTPUT_LOSS_MULTI_HINGE 2
#define OUTPUT_LOSS_SQUARED_MULTI_HINGE 3
#define OUTPUT_LOSS_CRAMMER_SINGER 4
#define OUTPUT_LOSS_ONE_VS_REST_HINGE 5
#define OUTPUT_LOSS_SQUARED_ONE_VS_REST_HINGE 6

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    return v;
}
__device__ __forceinline__ double warp_sum(double v) {
#pragma unroll
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

// The largest logit.
template <typename T> __device__ __forceinline__ float largest_logit(const T* z, int lane) {
    float most = -__int_as_float(0x7f800000);
    for (int j = lane; j < CLASSES; j += 32) most = fmaxf(most, widen(z[j]));
#pragma unroll
    for (int d = 16; d; d >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    return most;
}

#ifdef OUTPUT_LOSS
// What an example is learned as: its label with its weight, and another one where examples are mixed.
struct Learned {
    int y, other;
    float weight, other_weight;
    __device__ __forceinline__ Learned(const u32* labels, const float* weights, const DeviceStep* step, const float* scalars, int i, int n, bool learning) {
#if MIXED
        const float keep = learning ? scalars[(size_t)step->index * SCALARS + MIX_SCALAR] : 1.0f;
        const int own = (int)labels[i], partner = learning ? (int)labels[n - 1 - i] : own;
        // The label with the larger share first: it is the one that is counted.
        y = keep >= 0.5f ? own : partner, other = keep >= 0.5f ? partner : own;
        weight = keep >= 0.5f ? keep : 1.0f - keep, other_weight = keep >= 0.5f ? 1.0f - keep : keep;
#else
        y = (int)labels[i], other = y;
        weight = 1.0f, other_weight = 0.0f;
#endif
#if WEIGHTED
        if (learning) {
            weight *= weights[y];
            other_weight *= weights[other];
        }
#endif
    }
};
#endif

#ifdef TEMPERATURE
// The largest of CLASSES logits, and the sum of their exponentials below it, divided by the temperature.
template <typename T> __device__ __forceinline__ void softened(const T* z, int lane, float& most, float& scale) {
    most = largest_logit(z, lane);
    double sum = 0.0;
    for (int j = lane; j < CLASSES; j += 32) sum += (double)expf((widen(z[j]) - most) * (1.0f / TEMPERATURE));
    scale = 1.0f / (float)warp_sum(sum);
}
#endif
