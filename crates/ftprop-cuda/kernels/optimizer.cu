// The optimizers: one pass over the flat buffers, of which the optimizer keeps MOMENTS. OPTIMIZER_ADAM is AdamW too. For
// bf16 the pass also writes the copy that the matrix units read.

#define OPTIMIZER_SGD 1
#define OPTIMIZER_SGD_MOMENTUM 2
#define OPTIMIZER_ADAM 3
#define OPTIMIZER_RMSPROP 4
#define OPTIMIZER_RMSPROP_MOMENTUM 5

extern "C" __global__ void __launch_bounds__(256)
optimize(float* __restrict__ values, const float* __restrict__ grads, float* __restrict__ moment1, float* __restrict__ moment2,
         u16* __restrict__ bf16_values, const float* __restrict__ clip_scale, DeviceStep* __restrict__ step, const StepScalars* __restrict__ scalars,
         u32* __restrict__ counter, u32 count, int advance) {
    const StepScalars at = scalars[step->index];
    const float scale = clip_scale ? *clip_scale : 1.0f;
    auto one = [&](float w, float g, float& m, float& v) {
        g = g * scale + DECAY * w;
#if OPTIMIZER == OPTIMIZER_SGD
        return w - at.lr * g;
#elif OPTIMIZER == OPTIMIZER_SGD_MOMENTUM
        m = MOMENTUM * m + g;
        return w - at.lr * (NESTEROV ? g + MOMENTUM * m : m);
#elif OPTIMIZER == OPTIMIZER_ADAM
        m = BETA1 * m + REST1 * g;
        v = BETA2 * v + REST2 * g * g;
        return w * at.keep - at.rate * m / (sqrtf(v) * at.root + EPS);
#elif OPTIMIZER == OPTIMIZER_RMSPROP
        m = ALPHA * m + REST1 * g * g;
        return w - at.lr * g / (sqrtf(m) + EPS);
#elif OPTIMIZER == OPTIMIZER_RMSPROP_MOMENTUM
        m = ALPHA * m + REST1 * g * g;
        v = MOMENTUM * v + g / (sqrtf(m) + EPS);
        return w - at.lr * v;
#else
#error "unknown OPTIMIZER"
#endif
    };
    const u32 quads = count / 4, stride = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = thread; q < quads; q += stride) {
        u32 i = 4 * q;
        FloatVec<4> w = load<4>(values + i), g = load<4>(grads + i), m, v;
#if MOMENTS >= 1
        m = load<4>(moment1 + i);
#endif
#if MOMENTS >= 2
        v = load<4>(moment2 + i);
#endif
#pragma unroll
        for (int e = 0; e < 4; e++) w.v[e] = one(w.v[e], g.v[e], m.v[e], v.v[e]);
        store<4>(values + i, w);
#if MOMENTS >= 1
        store<4>(moment1 + i, m);
#endif
#if MOMENTS >= 2
        store<4>(moment2 + i, v);
#endif
#if PRECISION == PRECISION_BF16
        store<4>(bf16_values + i, w);
#endif
    }
    for (u32 i = quads * 4 + thread; i < count; i += stride) {
        float m = 0.0f, v = 0.0f;
#if MOMENTS >= 1
        m = moment1[i];
#endif
#if MOMENTS >= 2
        v = moment2[i];
#endif
        float w = one(values[i], grads[i], m, v);
        values[i] = w;
#if MOMENTS >= 1
        moment1[i] = m;
#endif
#if MOMENTS >= 2
        moment2[i] = v;
#endif
#if PRECISION == PRECISION_BF16
        bf16_values[i] = to_bf16(w);
#endif
    }
    // Every block has read the step by now when the last one moves it on.
    if (advance && last_block(counter, gridDim.x) && threadIdx.x == 0) {
        step->number += 1;
        step->index += 1;
        step->batch += 1;
    }
}
