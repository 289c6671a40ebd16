// What the host writes down from its one definition of each formula: what units output and pass down, what an optimizer does to
// a weight. It gives every file those that it calls; here are stand-ins, so that tools can open a file by itself.
#pragma once
#include "common.cuh"

__device__ __forceinline__ float activation(float z) { return z > 0.0f ? 1.0f : -1.0f; }
__device__ __forceinline__ float slope(float g, float z, float label, float step, float random, float s, float share) { return fabsf(z) < s ? g : 0.0f; }
__device__ __forceinline__ float pull(float g, float z, float further) { return g - further * z; }
__device__ __forceinline__ float target(float g, float z, float further, float label, float step, float random) { return g > 0.0f ? -1.0f : 1.0f; }
__device__ __forceinline__ float counted(float g, float z, float label, float step, float random) { return g; }
__device__ __forceinline__ float slope_at(float t, float g, float z, float s, float share) { return fabsf(z) < s ? -t * fabsf(g) : 0.0f; }
__device__ __forceinline__ float steepness(float t, float g, float z, float s) { return fabsf(z) < s ? -t : 0.0f; }
__device__ __forceinline__ float pressing(float g, float z, float s) { return fabsf(z) < s ? fabsf(g) : 0.0f; }
__device__ __forceinline__ float moved(float g, float z) { return g > 0.0f ? -1.0f : 1.0f; }
__device__ __forceinline__ void update(u32 group, float& w, float& m, float& v, float g, const float* at) { w -= at[group] * (m = v = g); }
__device__ __forceinline__ float moving_average(float a, float w, float share) { return a + share * (w - a); }
__device__ __forceinline__ void direction(u32 group, float& d, float& m, float g, const float* at) { d = m = at[group] * m + g; }
__device__ __forceinline__ void step_along(u32 group, float& w, float d, const float* at) { w -= at[group] * d; }

// How pictures are rounded: never two operations as one.
#define DEVICE __device__ __forceinline__
#define ROUND_FADD __fadd_rn
#define ROUND_FMUL __fmul_rn
#define ROUND_DADD __dadd_rn
#define ROUND_DMUL __dmul_rn
