// What follows a product, in one pass forward: the norm (or the bias), the second summand of a residual sum,
// the pooling, the activation and the dropout; and in one or two passes back: targets and slopes, the
// pooling's and the norm's gradients, and the sums that the norm's and the bias's gradients are.
//
// An input has C channels of HEIGHT x WIDTH, the output POOL_H x POOL_W after pooling. AFFINE says what is done to the
// product's output first: nothing, a norm's scale and shift, or a bias as a shift. RESIDUAL says whether there is a second
// summand, and whether that has a norm of its own. FIXED1 and FIXED2 say that the norm of the first or second summand has no
// statistics: it is a factor and a summand for each channel.
//
// What a unit outputs, `activation(z)`, and what it passes down, `slope(g, z, label, step, random, s, share)`, stand before this
// file: they are written down from their one definition.

#define AFFINE_IDENTITY 1
#define AFFINE_NORM 2
#define AFFINE_BIAS 3
#define RESIDUAL_NONE 1
#define RESIDUAL_PLAIN 2
#define RESIDUAL_NORM 3
#define DROPOUT_NONE 1
#define DROPOUT_VALUES 2
#define DROPOUT_CHANNELS 3

#define ROWS_PER_IMAGE (HEIGHT * WIDTH)

// What the first input comes with: a norm's scale and shift, or a bias as the shift.
struct Affine {
#if AFFINE == AFFINE_NORM
    SumVec<VEC> scale, shift;
#elif AFFINE == AFFINE_BIAS
    FloatVec<VEC> shift;
#endif
#if RESIDUAL == RESIDUAL_NORM
    SumVec<VEC> scale2, shift2;
#endif
    __device__ __forceinline__ Affine(const sum_t* s, const void* t, const sum_t* s2, const sum_t* t2, int c) {
#if AFFINE == AFFINE_NORM
        scale = load_sums<VEC>(s + c);
        shift = load_sums<VEC>((const sum_t*)t + c);
#elif AFFINE == AFFINE_BIAS
        shift = load<VEC>((const float*)t + c);
#endif
#if RESIDUAL == RESIDUAL_NORM
        scale2 = load_sums<VEC>(s2 + c);
        shift2 = load_sums<VEC>(t2 + c);
#endif
    }
    // The pre-activation.
    __device__ __forceinline__ sum_t z(int e, float y, float other) const {
#if AFFINE == AFFINE_NORM
        sum_t z = (sum_t)y * scale.v[e] + shift.v[e];
#elif AFFINE == AFFINE_BIAS
        sum_t z = (sum_t)y + (sum_t)shift.v[e];
#elif AFFINE == AFFINE_IDENTITY
        sum_t z = y;
#else
#error "unknown AFFINE"
#endif
#if RESIDUAL == RESIDUAL_NORM
        z += (sum_t)other * scale2.v[e] + shift2.v[e];
#elif RESIDUAL == RESIDUAL_PLAIN
        z += (sum_t)other;
#elif RESIDUAL != RESIDUAL_NONE
#error "unknown RESIDUAL"
#endif
        return z;
    }
};

__device__ __forceinline__ u64 mask_key(const DeviceStep* step) { return fork(mix(step->dropout_base + step->number), DROPOUT_NUMBER); }
#if DROPOUT != DROPOUT_NONE
// What dropout multiplies an output value by.
__device__ __forceinline__ float kept(u64 key, int pixel, int c) {
#if DROPOUT == DROPOUT_VALUES
    u64 place = (u64)pixel * C + c;
#elif DROPOUT == DROPOUT_CHANNELS
    u64 place = (u64)(pixel / (POOL_H * POOL_W)) * C + c;
#else
#error "unknown DROPOUT"
#endif
    return uniform(key, place) < DROPOUT_P ? 0.0f : 1.0f / (1.0f - DROPOUT_P);
}
#endif

// The pre-activation of an output pixel: the largest of its window, where there is a pool.
__device__ __forceinline__ FloatVec<VEC> before_activation(int pixel, int c, const Affine& affine, const act_t* y, const act_t* y2, u8* argmax) {
    FloatVec<VEC> best;
#if POOL
    // Compared before they are rounded, so that rounding makes no ties.
    SumVec<VEC> most;
    int image = pixel / (POOL_H * POOL_W), place = pixel % (POOL_H * POOL_W);
    int top = place / POOL_W * POOL_STRIDE - POOL_PAD, left = place % POOL_W * POOL_STRIDE - POOL_PAD;
    u8 at[VEC];
    bool any = false;
#pragma unroll
    for (int r = 0; r < POOL_KERNEL; r++) {
#pragma unroll
        for (int q = 0; q < POOL_KERNEL; q++) {
            int iy = top + r, ix = left + q;
            if ((u32)iy >= (u32)HEIGHT || (u32)ix >= (u32)WIDTH) continue;
            FloatVec<VEC> v = load<VEC>(y + ((size_t)image * ROWS_PER_IMAGE + iy * WIDTH + ix) * C + c);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sum_t z = affine.z(e, v.v[e], 0.0f);
                // The first of equals wins, and so does a NaN.
                if (!any || z > most.v[e] || z != z) {
                    most.v[e] = z;
                    at[e] = (u8)(r * POOL_KERNEL + q);
                }
            }
            any = true;
        }
    }
    store_bytes<VEC>(argmax + (size_t)pixel * C + c, at);
#pragma unroll
    for (int e = 0; e < VEC; e++) best.v[e] = (float)most.v[e];
#else
    best = load<VEC>(y + (size_t)pixel * C + c);
    FloatVec<VEC> other;
#if RESIDUAL != RESIDUAL_NONE
    other = load<VEC>(y2 + (size_t)pixel * C + c);
#endif
#pragma unroll
    for (int e = 0; e < VEC; e++) best.v[e] = (float)affine.z(e, best.v[e], RESIDUAL != RESIDUAL_NONE ? other.v[e] : 0.0f);
#endif
    return best;
}

// The activation and what follows it.
__device__ __forceinline__ void activate(FloatVec<VEC> z, int pixel, int c, act_t* out, const DeviceStep* step, bool training) {
#pragma unroll
    for (int e = 0; e < VEC; e++) z.v[e] = activation(z.v[e]);
#if DROPOUT != DROPOUT_NONE
    if (training) {
        u64 key = mask_key(step);
#pragma unroll
        for (int e = 0; e < VEC; e++) z.v[e] *= kept(key, pixel, c + e);
    }
#endif
#pragma unroll
    for (int e = 0; e < VEC; e++) z.v[e] = operand(z.v[e]);
    store<VEC>(out + (size_t)pixel * C + c, z);
}

extern "C" __global__ void __launch_bounds__(256)
epilogue_forward(const act_t* __restrict__ y, const sum_t* __restrict__ scale, const void* __restrict__ shift, const act_t* __restrict__ y2,
                 const sum_t* __restrict__ scale2, const sum_t* __restrict__ shift2, act_t* __restrict__ out, u8* __restrict__ argmax,
                 const DeviceStep* __restrict__ step, int n, int training) {
    const int count = n * POOL_H * POOL_W * (C / VEC);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        int c = i % (C / VEC) * VEC, pixel = i / (C / VEC);
        const Affine affine(scale, shift, scale2, shift2, c);
        activate(before_activation(pixel, c, affine, y, y2, argmax), pixel, c, out, step, training);
    }
}

// The numbers of the norms' backward pass; a norm has its mean and inverse deviation, gamma, where its
// gradients go, and three coefficients a channel: dy = a (dz - c - b (y - mean)).
struct NormBackward {
    const sum_t* mean;
    const sum_t* inverse;
    const float* gamma;
    float* d_gamma;
    float* d_beta;
    sum_t* coefficients;
};
static_assert(sizeof(NormBackward) == NORM_BACKWARD_BYTES, "the host's struct has another size");

#define NORMS ((AFFINE == AFFINE_NORM) + (RESIDUAL == RESIDUAL_NORM))
#define SUMS (1 + NORMS)

// What slopes are taken with: what dropout's mask and a target rule's random numbers come from, the number that training's
// progress decides for the layer loss, an unweighted unit's share. What a unit's rule does not look at is not computed.
struct SlopeInputs {
    u64 key, target_key;
    float s, share, number;
    const u32* labels;
    __device__ __forceinline__ SlopeInputs(const DeviceStep* step, const float* scalars, const u32* labels, int n) : labels(labels) {
#if DROPOUT != DROPOUT_NONE
        key = mask_key(step);
#endif
        target_key = fork(mix(step->target_base + step->number), HARD_LAYER);
        s = scalars[(size_t)step->index * SCALARS + LOSS_SCALAR];
        number = (float)step->number;
        share = 1.0f / (float)n;
    }
    // For the unit at a pixel of the output and a channel.
    __device__ __forceinline__ float slope_of(float g, float z, int pixel, int c) const {
        return slope(g, z, (float)labels[pixel / (POOL_H * POOL_W)], number, uniform(target_key, (u64)pixel * C + c), s, share);
    }
};

// Slopes by the pre-activations z of one place, from those by the output.
__device__ __forceinline__ FloatVec<VEC> slopes_at(int row, int c, const FloatVec<VEC>& z, const act_t* dout, const u8* argmax, const SlopeInputs& inputs) {
    FloatVec<VEC> d;
#if POOL
#pragma unroll
    for (int e = 0; e < VEC; e++) d.v[e] = 0.0f;
    int image = row / ROWS_PER_IMAGE, place = row % ROWS_PER_IMAGE;
    int py = place / WIDTH + POOL_PAD, px = place % WIDTH + POOL_PAD;
    // The windows that this place lies in.
    int oy1 = py / POOL_STRIDE, ox1 = px / POOL_STRIDE;
    int oy0 = py < POOL_KERNEL ? 0 : (py - POOL_KERNEL) / POOL_STRIDE + 1;
    int ox0 = px < POOL_KERNEL ? 0 : (px - POOL_KERNEL) / POOL_STRIDE + 1;
    oy1 = oy1 < POOL_H - 1 ? oy1 : POOL_H - 1;
    ox1 = ox1 < POOL_W - 1 ? ox1 : POOL_W - 1;
    for (int oy = oy0; oy <= oy1; oy++)
        for (int ox = ox0; ox <= ox1; ox++) {
            int pixel = (image * POOL_H + oy) * POOL_W + ox;
            u8 chosen[VEC];
            load_bytes<VEC>(argmax + (size_t)pixel * C + c, chosen);
            FloatVec<VEC> g = load<VEC>(dout + (size_t)pixel * C + c);
            int mine = (py - oy * POOL_STRIDE) * POOL_KERNEL + px - ox * POOL_STRIDE;
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (chosen[e] == mine) {
#if DROPOUT != DROPOUT_NONE
                    g.v[e] *= kept(inputs.key, pixel, c + e);
#endif
                    d.v[e] += inputs.slope_of(g.v[e], z.v[e], pixel, c + e);
                }
            }
        }
#else
    d = load<VEC>(dout + (size_t)row * C + c);
#pragma unroll
    for (int e = 0; e < VEC; e++) {
#if DROPOUT != DROPOUT_NONE
        d.v[e] *= kept(inputs.key, row, c + e);
#endif
        d.v[e] = inputs.slope_of(d.v[e], z.v[e], row, c + e);
    }
#endif
    return d;
}

// A norm's coefficients for one channel, and its gradients.
struct Coefficients {
    sum_t a, b, k;
    __device__ __forceinline__ Coefficients(const NormBackward& norm, bool fixed, int j, sum_t sum, sum_t product, int rows) {
        sum_t inverse = norm.inverse[j];
        a = (sum_t)norm.gamma[j] * inverse;
        b = fixed ? (sum_t)0 : product * inverse * inverse / (sum_t)rows;
        k = fixed ? (sum_t)0 : sum / (sum_t)rows;
    }
    __device__ __forceinline__ void keep(const NormBackward& norm, int j, sum_t sum, sum_t product) const {
        norm.d_gamma[j] = (float)(product * norm.inverse[j]);
        norm.d_beta[j] = (float)sum;
        norm.coefficients[j] = a;
        norm.coefficients[C + j] = b;
        norm.coefficients[2 * C + j] = k;
    }
};

// Slopes by a norm's input from those by its output. The differences come first: for a small batch the two
// terms nearly cancel.
__device__ __forceinline__ FloatVec<VEC> through_norm(const FloatVec<VEC>& d, const FloatVec<VEC>& y, const SumVec<VEC>& mean, const SumVec<VEC>& a,
                                                  const SumVec<VEC>& b, const SumVec<VEC>& k) {
    FloatVec<VEC> r;
#pragma unroll
    for (int e = 0; e < VEC; e++) r.v[e] = (float)(a.v[e] * (((sum_t)d.v[e] - k.v[e]) - ((sum_t)y.v[e] - mean.v[e]) * b.v[e]));
    return r;
}

// From the slopes by the output to those by the pre-activation (dz), with their sums over each channel.
// Without a norm dz is the gradient of the inputs and is written where that belongs; the blocks' sums are then left to
// bias_gradient, since nothing further down waits for them.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
epilogue_backward(const act_t* __restrict__ dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const void* __restrict__ shift,
                  const act_t* __restrict__ y2, const sum_t* __restrict__ scale2, const sum_t* __restrict__ shift2, const u8* __restrict__ argmax,
                  act_t* dz, act_t* dz2, NormBackward norm1, NormBackward norm2, int biased, sum_t* __restrict__ partial,
                  u32* __restrict__ counter, const DeviceStep* __restrict__ step, const float* __restrict__ scalars,
                  const u32* __restrict__ labels, int n) {
    const ColumnThread thread;
    const int c = thread.c, rows = n * ROWS_PER_IMAGE;
    sum_t sums[SUMS][VEC];
    clear(sums);
    if (thread.active) {
        const Affine affine(scale, shift, scale2, shift2, c);
        const SlopeInputs inputs(step, scalars, labels, n);
#if AFFINE == AFFINE_NORM
        const SumVec<VEC> mean1 = load_sums<VEC>(norm1.mean + c);
#endif
#if RESIDUAL == RESIDUAL_NORM
        const SumVec<VEC> mean2 = load_sums<VEC>(norm2.mean + c);
#endif
#pragma unroll 2
        for (int row = blockIdx.x * THREADS_Y + thread.y; row < rows; row += gridDim.x * THREADS_Y) {
            size_t at = (size_t)row * C + c;
            FloatVec<VEC> here = load<VEC>(y + at), other, z;
#if RESIDUAL != RESIDUAL_NONE
            other = load<VEC>(y2 + at);
#endif
#pragma unroll
            for (int e = 0; e < VEC; e++) z.v[e] = (float)affine.z(e, here.v[e], RESIDUAL != RESIDUAL_NONE ? other.v[e] : 0.0f);
            FloatVec<VEC> d = slopes_at(row, c, z, dout, argmax, inputs);
#if NORMS == 0
#pragma unroll
            for (int e = 0; e < VEC; e++) d.v[e] = operand(d.v[e]);
#endif
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sums[0][e] += d.v[e];
#if AFFINE == AFFINE_NORM
                sums[1][e] += (sum_t)d.v[e] * ((sum_t)here.v[e] - mean1.v[e]);
#endif
#if RESIDUAL == RESIDUAL_NORM
                sums[SUMS - 1][e] += (sum_t)d.v[e] * ((sum_t)other.v[e] - mean2.v[e]);
#endif
            }
#if NORMS == 0
#if RESIDUAL != RESIDUAL_NONE
            if (dz2) {
                FloatVec<VEC> w = d;
#if ACCUMULATE2
                FloatVec<VEC> had = load<VEC>(dz2 + at);
#pragma unroll
                for (int e = 0; e < VEC; e++) w.v[e] = operand(w.v[e] + had.v[e]);
#endif
                store<VEC>(dz2 + at, w);
            }
#endif
#if ACCUMULATE1
            FloatVec<VEC> had = load<VEC>(dz + at);
#pragma unroll
            for (int e = 0; e < VEC; e++) d.v[e] = operand(d.v[e] + had.v[e]);
#endif
#endif
            if (dz) store<VEC>(dz + at, d);
        }
    }
#if NORMS == 0
    if (biased) write_partial(sums, thread, partial);
#else
    write_partial(sums, thread, partial);
    if (!last_block(counter + blockIdx.y, gridDim.x)) return;
    reduce_partials(sums, thread, partial, gridDim.x);
    if (!thread.active || thread.y != 0) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        const int j = c + e;
#if AFFINE == AFFINE_NORM
        Coefficients(norm1, FIXED1, j, sums[0][e], sums[1][e], rows).keep(norm1, j, sums[0][e], sums[1][e]);
#endif
#if RESIDUAL == RESIDUAL_NORM
        Coefficients(norm2, FIXED2, j, sums[0][e], sums[SUMS - 1][e], rows).keep(norm2, j, sums[0][e], sums[SUMS - 1][e]);
#endif
    }
#endif
}

// The sums that blocks of epilogue_backward put aside, which are a bias's gradient.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
bias_gradient(const sum_t* __restrict__ partial, float* __restrict__ d_bias, int blocks) {
    const ColumnThread thread;
    sum_t sums[1][VEC];
    reduce_partials(sums, thread, partial, blocks);
    if (!thread.active || thread.y != 0) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) d_bias[thread.c + e] = (float)sums[0][e];
}

__device__ __forceinline__ FloatVec<VEC> through_norm(const FloatVec<VEC>& d, const FloatVec<VEC>& y, const sum_t* mean, const sum_t* coefficients, int c) {
    return through_norm(d, y, load_sums<VEC>(mean + c), load_sums<VEC>(coefficients + c), load_sums<VEC>(coefficients + C + c),
                        load_sums<VEC>(coefficients + 2 * C + c));
}

// The second pass back, where there is a norm: from dz to the gradients of the inputs.
extern "C" __global__ void __launch_bounds__(256)
epilogue_backward_input(const act_t* dz, const act_t* __restrict__ y, const act_t* __restrict__ y2, const sum_t* __restrict__ mean1,
                        const sum_t* __restrict__ coefficients1, const sum_t* __restrict__ mean2, const sum_t* __restrict__ coefficients2, act_t* dy, act_t* dy2, int n) {
    const int count = n * ROWS_PER_IMAGE * (C / VEC);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        int c = i % (C / VEC) * VEC;
        size_t at = (size_t)i * VEC;
        FloatVec<VEC> d = load<VEC>(dz + at);
#if RESIDUAL != RESIDUAL_NONE
        if (dy2) {
            FloatVec<VEC> w = d;
#if RESIDUAL == RESIDUAL_NORM
            w = through_norm(d, load<VEC>(y2 + at), mean2, coefficients2, c);
#endif
#if ACCUMULATE2
            FloatVec<VEC> had = load<VEC>(dy2 + at);
#pragma unroll
            for (int e = 0; e < VEC; e++) w.v[e] += had.v[e];
#endif
#pragma unroll
            for (int e = 0; e < VEC; e++) w.v[e] = operand(w.v[e]);
            store<VEC>(dy2 + at, w);
        }
#endif
        if (dy) {
#if AFFINE == AFFINE_NORM
            d = through_norm(d, load<VEC>(y + at), mean1, coefficients1, c);
#endif
#if ACCUMULATE1
            FloatVec<VEC> had = load<VEC>(dy + at);
#pragma unroll
            for (int e = 0; e < VEC; e++) d.v[e] += had.v[e];
#endif
#pragma unroll
            for (int e = 0; e < VEC; e++) d.v[e] = operand(d.v[e]);
            store<VEC>(dy + at, d);
        }
    }
}
