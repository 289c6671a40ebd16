// The optimizers: one pass over the flat buffers, of which each weight has MOMENTS. What becomes of one weight,
// `update(group, w, m, v, g, scalars)`, stands in formulas.cuh, written down from its one definition, and so does the moving
// average of the weights where AVERAGE says that there is one. With more groups than one, each weight has the number of its
// group; `update` leaves alone what matrices.cu has learned before. The pass also writes the
// rounded copy that the matrix units read. It takes the weights from `first`, a multiple of four, up to `count`.
#include "formulas.cuh"

extern "C" __global__ void __launch_bounds__(256)
optimize(float* __restrict__ values, const float* __restrict__ grads, float* __restrict__ moment1, float* __restrict__ moment2,
         float* __restrict__ average, act_t* __restrict__ operands, const u8* __restrict__ groups, const float* __restrict__ clip_scale,
         DeviceStep* __restrict__ step, const float* __restrict__ scalars, u32* __restrict__ counter, u32 first, u32 count, int advance) {
    const float* at = scalars + (size_t)step->index * SCALARS;
    const float scale = clip_scale ? *clip_scale : 1.0f;
    const u32 quads = count / 4, stride = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first / 4 + thread; q < quads; q += stride) {
        u32 i = 4 * q;
        FloatVec<4> w = load<4>(values + i), g = load<4>(grads + i), m, v;
#if GROUPS > 1
        const uchar4 quad = *(const uchar4*)(groups + i);
        const u32 of[4] = {quad.x, quad.y, quad.z, quad.w};
#else
        const u32 of[4] = {0, 0, 0, 0};
#endif
#if MOMENTS >= 1
        m = load<4>(moment1 + i);
#endif
#if MOMENTS >= 2
        v = load<4>(moment2 + i);
#endif
#pragma unroll
        for (int e = 0; e < 4; e++) update(of[e], w.v[e], m.v[e], v.v[e], g.v[e] * scale, at);
        store<4>(values + i, w);
#if MOMENTS >= 1
        store<4>(moment1 + i, m);
#endif
#if MOMENTS >= 2
        store<4>(moment2 + i, v);
#endif
#if AVERAGE
        FloatVec<4> a = load<4>(average + i);
#pragma unroll
        for (int e = 0; e < 4; e++) a.v[e] = moving_average(a.v[e], w.v[e], at[AVERAGE_SCALAR]);
        store<4>(average + i, a);
#endif
#if PRECISION != PRECISION_F32
#pragma unroll
        for (int e = 0; e < 4; e++) w.v[e] = operand(w.v[e]);
        store<4>(operands + i, w);
#endif
    }
    for (u32 i = quads * 4 + thread; i < count; i += stride) {
        float w = values[i], m = 0.0f, v = 0.0f;
#if MOMENTS >= 1
        m = moment1[i];
#endif
#if MOMENTS >= 2
        v = moment2[i];
#endif
#if GROUPS > 1
        update(groups[i], w, m, v, grads[i] * scale, at);
#else
        update(0, w, m, v, grads[i] * scale, at);
#endif
        values[i] = w;
#if MOMENTS >= 1
        moment1[i] = m;
#endif
#if MOMENTS >= 2
        moment2[i] = v;
#endif
#if AVERAGE
        average[i] = moving_average(average[i], w, at[AVERAGE_SCALAR]);
#endif
#if PRECISION != PRECISION_F32
        store<1>(operands + i, FloatVec<1>{{operand(w)}});
#endif
    }
    // Every block has read the step by now when the last one moves it on.
    if (advance && last_block(counter, gridDim.x) && threadIdx.x == 0) {
        step->number += 1;
        step->index += 1;
        step->batch += 1;
    }
}
