// The optimizers: one pass over the flat buffers. OPTIMIZER: 0 SGD, 1 SGD with momentum, 2 Adam and AdamW,
// 3 RMSprop, 4 RMSprop with momentum. For bf16 the pass also writes the copy that the matrix units read.

extern "C" __global__ void __launch_bounds__(256)
optimize(float* __restrict__ values, const float* __restrict__ grads, float* __restrict__ moment1, float* __restrict__ moment2,
         u16* __restrict__ copy, const float* __restrict__ clip_scale, Step* __restrict__ step, const Scalars* __restrict__ scalars,
         u32* __restrict__ counter, u32 count, int advance) {
    const Scalars at = scalars[step->index];
    const float scale = clip_scale ? *clip_scale : 1.0f;
    auto one = [&](float w, float g, float& m, float& v) {
        g = g * scale + DECAY * w;
#if OPTIMIZER == 0
        return w - at.lr * g;
#elif OPTIMIZER == 1
        m = MOMENTUM * m + g;
        return w - at.lr * (NESTEROV ? g + MOMENTUM * m : m);
#elif OPTIMIZER == 2
        m = BETA1 * m + REST1 * g;
        v = BETA2 * v + REST2 * g * g;
        return w * at.keep - at.rate * m / (sqrtf(v) * at.root + EPS);
#elif OPTIMIZER == 3
        m = ALPHA * m + REST1 * g * g;
        return w - at.lr * g / (sqrtf(m) + EPS);
#else
        m = ALPHA * m + REST1 * g * g;
        v = MOMENTUM * v + g / (sqrtf(m) + EPS);
        return w - at.lr * v;
#endif
    };
    const u32 quads = count / 4, stride = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = thread; q < quads; q += stride) {
        u32 i = 4 * q;
        Wide<4> w = load<4>(values + i), g = load<4>(grads + i), m, v;
#if OPTIMIZER >= 1
        m = load<4>(moment1 + i);
#endif
#if OPTIMIZER == 2 || OPTIMIZER == 4
        v = load<4>(moment2 + i);
#endif
#pragma unroll
        for (int e = 0; e < 4; e++) w.v[e] = one(w.v[e], g.v[e], m.v[e], v.v[e]);
        store<4>(values + i, w);
#if OPTIMIZER >= 1
        store<4>(moment1 + i, m);
#endif
#if OPTIMIZER == 2 || OPTIMIZER == 4
        store<4>(moment2 + i, v);
#endif
#if PREC == 2
        store<4>(copy + i, w);
#endif
    }
    for (u32 i = quads * 4 + thread; i < count; i += stride) {
        float m = 0.0f, v = 0.0f;
#if OPTIMIZER >= 1
        m = moment1[i];
#endif
#if OPTIMIZER == 2 || OPTIMIZER == 4
        v = moment2[i];
#endif
        float w = one(values[i], grads[i], m, v);
        values[i] = w;
#if OPTIMIZER >= 1
        moment1[i] = m;
#endif
#if OPTIMIZER == 2 || OPTIMIZER == 4
        moment2[i] = v;
#endif
#if PREC == 2
        copy[i] = to_bf16(w);
#endif
    }
    // Every block has read the step by now when the last one moves it on.
    if (advance && last_block(counter, gridDim.x) && threadIdx.x == 0) {
        step->number += 1;
        step->index += 1;
        step->batch += 1;
    }
}
