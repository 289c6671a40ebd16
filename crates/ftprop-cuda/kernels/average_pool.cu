// Average pooling; padding counts as zeros. C channels of HEIGHT x WIDTH become POOL_H x POOL_W.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256) average_pool_forward(const act_t* __restrict__ x, act_t* __restrict__ y, int n) {
    const int count = n * POOL_H * POOL_W * (C / VEC);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        int c = i % (C / VEC) * VEC, pixel = i / (C / VEC);
        int image = pixel / (POOL_H * POOL_W), place = pixel % (POOL_H * POOL_W);
        int top = place / POOL_W * POOL_STRIDE - POOL_PAD, left = place % POOL_W * POOL_STRIDE - POOL_PAD;
        FloatVec<VEC> sum;
#pragma unroll
        for (int e = 0; e < VEC; e++) sum.v[e] = 0.0f;
        for (int r = 0; r < POOL_KERNEL; r++)
            for (int q = 0; q < POOL_KERNEL; q++) {
                int iy = top + r, ix = left + q;
                if ((u32)iy >= (u32)HEIGHT || (u32)ix >= (u32)WIDTH) continue;
                FloatVec<VEC> v = load<VEC>(x + ((size_t)(image * HEIGHT + iy) * WIDTH + ix) * C + c);
#pragma unroll
                for (int e = 0; e < VEC; e++) sum.v[e] += v.v[e];
            }
#pragma unroll
        for (int e = 0; e < VEC; e++) sum.v[e] = operand(sum.v[e] * (1.0f / (POOL_KERNEL * POOL_KERNEL)));
        store<VEC>(y + (size_t)pixel * C + c, sum);
    }
}

// Slopes go down by a share of each window's pixels; curvature by its square.
extern "C" __global__ void __launch_bounds__(256) average_pool_backward(const act_t* __restrict__ dy, act_t* dx, int n, int accumulate, float share) {
    const int count = n * HEIGHT * WIDTH * (C / VEC);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        int c = i % (C / VEC) * VEC, row = i / (C / VEC);
        int image = row / (HEIGHT * WIDTH), place = row % (HEIGHT * WIDTH);
        int py = place / WIDTH + POOL_PAD, px = place % WIDTH + POOL_PAD;
        int oy0 = py < POOL_KERNEL ? 0 : (py - POOL_KERNEL) / POOL_STRIDE + 1, oy1 = min(py / POOL_STRIDE, POOL_H - 1);
        int ox0 = px < POOL_KERNEL ? 0 : (px - POOL_KERNEL) / POOL_STRIDE + 1, ox1 = min(px / POOL_STRIDE, POOL_W - 1);
        FloatVec<VEC> sum;
#pragma unroll
        for (int e = 0; e < VEC; e++) sum.v[e] = 0.0f;
        for (int oy = oy0; oy <= oy1; oy++)
            for (int ox = ox0; ox <= ox1; ox++) {
                FloatVec<VEC> g = load<VEC>(dy + ((size_t)(image * POOL_H + oy) * POOL_W + ox) * C + c);
#pragma unroll
                for (int e = 0; e < VEC; e++) sum.v[e] += g.v[e] * share;
            }
        size_t at = (size_t)row * C + c;
        if (accumulate) {
            FloatVec<VEC> had = load<VEC>(dx + at);
#pragma unroll
            for (int e = 0; e < VEC; e++) sum.v[e] += had.v[e];
        }
#pragma unroll
        for (int e = 0; e < VEC; e++) sum.v[e] = operand(sum.v[e]);
        store<VEC>(dx + at, sum);
    }
}
