// What the losses by logits share: a warp takes the CLASSES logits of an example.
#pragma once
#include "common.cuh"

#if LOGITS_F32
typedef float logit_t;
#else
typedef act_t logit_t;
#endif

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
