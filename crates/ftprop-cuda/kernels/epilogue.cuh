// What follows a product, in one pass forward: the norm (or the bias), the second summand of a residual sum,
// the pooling, the activation and the dropout; and in one or two passes back: targets and slopes, the
// pooling's and the norm's gradients, and the sums that the norm's and the bias's gradients are.
//
// An input has C channels of HEIGHT x WIDTH, the output POOL_H x POOL_W after pooling. AFFINE says what is done to the
// product's output first: nothing, a norm's scale and shift, or a bias as a shift. RESIDUAL says whether there is a second
// summand, and whether that has a norm of its own. FIXED1 and FIXED2 say that the norm of the first or second summand has no
// statistics: it is a factor and a summand for each channel.
//
// What a unit outputs, `activation(z)`, and what it passes down, `slope(g, z, label, step, random, s, share)`, stand in
// formulas.cuh: they are written down from their one definition.
//
// With BRANCH there are two outputs: the pre-activation, which goes around what follows, and the activation of it as it is kept.
// The slopes by both meet again on the way back.
//
// This file has what the kernels of epilogue.cu and epilogue_cooperative.cu share.
#pragma once
#include "column_reduction.cuh"
#include "formulas.cuh"

#define AFFINE_IDENTITY 1
#define AFFINE_NORM 2
#define AFFINE_BIAS 3
#define RESIDUAL_NONE 1
#define RESIDUAL_PLAIN 2
#define RESIDUAL_NORM 3
#define DROPOUT_NONE 1
#define DROPOUT_VALUES 2
#define DROPOUT_CHANNELS 3
// A pool takes the largest pre-activation of its window, or the largest output where the activation comes before it.
#define POOL_NONE 1
#define POOL_BEFORE 2
#define POOL_AFTER 3
#if POOL != POOL_NONE && POOL != POOL_BEFORE && POOL != POOL_AFTER
#error "unknown POOL"
#endif

// Where in its window a pool's largest value was.
#if POOL_KERNEL <= 16
typedef u8 position_t;
#elif POOL_KERNEL <= 256
typedef u16 position_t;
#else
typedef u32 position_t;
#endif
static_assert(sizeof(position_t) == POSITION_BYTES, "the host sets aside another size for positions");

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

// Random numbers are of a place in the whole batch: those of earlier examples come before.
__device__ __forceinline__ u64 mask_key(const DeviceStep* step) {
    const u64 places = DROPOUT == DROPOUT_CHANNELS ? C : (u64)POOL_H * POOL_W * C;
    return fork(mix(step->dropout_base + step->number), DROPOUT_NUMBER) + step->first * places;
}
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

// What a unit outputs, before dropout, from its pre-activation; with a pool the largest of its window, whose place is kept.
// `bad` says that a pre-activation is no number, which thresholds would hide; the first pass to see that leaves its own number.
struct Outputs {
    FloatVec<VEC> v;
    bool bad;
};

#if POOL != POOL_NONE
// The larger of two. A NaN is larger than all.
__device__ __forceinline__ float larger_of(float a, float b) {
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
    return larger;
}

// Takes z where it is larger, and says whether it did.
__device__ __forceinline__ bool take_larger(float& most, float z) {
    const float larger = larger_of(most, z);
    const bool took = !(larger == most);
    most = larger;
    return took;
}
__device__ __forceinline__ bool take_larger(double& most, double z) {
    const bool took = z > most || z != z;
    most = took ? z : most;
    return took;
}

// A window and the largest of it, of which the first counts.
struct PoolWindow {
    SumVec<VEC> most;
    FloatVec<VEC> from;
    Whole<VEC, u32> at;
    bool bad;
    // Places outside of the map are not looked at, but where the window's first place in it is, r0 and q0, is read for them, so
    // that no load waits for a branch. With WHOLE there are none.
    template <bool WHOLE> __device__ __forceinline__ void look(const act_t* corner, int top, int left, int r0, int q0, const Affine& affine) {
        const sum_t nothing = -__int_as_float(0x7f800000);
        // A NaN among all pre-activations stays in it.
        float all = -__int_as_float(0x7f800000);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            most.v[e] = nothing;
            from.v[e] = 0.0f;
            at.v[e] = (u32)(r0 * POOL_KERNEL + q0);
        }
        constexpr int AT_ONCE = POOL_KERNEL <= 4 ? POOL_KERNEL : 1;
#pragma unroll(AT_ONCE)
        for (int r = 0; r < POOL_KERNEL; r++) {
#pragma unroll(AT_ONCE)
            for (int q = 0; q < POOL_KERNEL; q++) {
                const bool inside = WHOLE || ((u32)(top + r) < (u32)HEIGHT && (u32)(left + q) < (u32)WIDTH);
                const FloatVec<VEC> v = load<VEC>(corner + (inside ? ((r - r0) * WIDTH + q - q0) * C : 0));
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    sum_t z = affine.z(e, v.v[e], 0.0f);
#if POOL == POOL_AFTER
                    all = larger_of(all, (float)z);
                    z = activation((float)z);
#endif
                    // Chosen, not branched to: neighbouring channels seldom agree.
                    const bool took = take_larger(most.v[e], inside ? z : nothing);
                    from.v[e] = took ? v.v[e] : from.v[e];
                    at.v[e] = took ? (u32)(r * POOL_KERNEL + q) : at.v[e];
                }
            }
        }
        bad = all != all;
#pragma unroll
        for (int e = 0; e < VEC; e++) bad |= most.v[e] != most.v[e];
    }
    // The chosen places as they are kept.
    __device__ __forceinline__ Whole<VEC, position_t> positions() const {
        Whole<VEC, position_t> kept;
#pragma unroll
        for (int e = 0; e < VEC; e++) kept.v[e] = (position_t)at.v[e];
        return kept;
    }
};

// With KEEPS_LARGEST, `largest` gets the input's values where these were. They are compared before they are rounded, so that
// rounding makes no ties.
__device__ __forceinline__ Outputs pooled_outputs(int pixel, int c, const Affine& affine, const act_t* y, position_t* argmax, act_t* largest) {
    const int image = pixel / (POOL_H * POOL_W), place = pixel % (POOL_H * POOL_W);
    const int top = place / POOL_W * POOL_STRIDE - POOL_PAD, left = place % POOL_W * POOL_STRIDE - POOL_PAD;
    const int r0 = POOL_PAD > 0 && top < 0 ? -top : 0, q0 = POOL_PAD > 0 && left < 0 ? -left : 0;
    const act_t* corner = y + ((size_t)image * ROWS_PER_IMAGE + (top + r0) * WIDTH + left + q0) * C + c;
    PoolWindow window;
    if (POOL_PAD == 0 || (top >= 0 && left >= 0 && top + POOL_KERNEL <= HEIGHT && left + POOL_KERNEL <= WIDTH)) {
        window.look<true>(corner, top, left, 0, 0, affine);
    } else {
        window.look<false>(corner, top, left, r0, q0, affine);
    }
    store_whole<VEC>(argmax + (size_t)pixel * C + c, window.positions());
    if constexpr (KEEPS_LARGEST) store<VEC>(largest + (size_t)pixel * C + c, window.from);
    Outputs out;
    out.bad = window.bad;
#pragma unroll
    for (int e = 0; e < VEC; e++) out.v.v[e] = POOL == POOL_AFTER ? (float)window.most.v[e] : activation((float)window.most.v[e]);
    return out;
}
#endif

__device__ __forceinline__ Outputs outputs(const FloatVec<VEC>& here, const FloatVec<VEC>& other, const Affine& affine) {
    Outputs out;
    out.bad = false;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        float z = (float)affine.z(e, here.v[e], RESIDUAL != RESIDUAL_NONE ? other.v[e] : 0.0f);
        out.bad |= z != z;
        out.v.v[e] = BRANCH ? z : activation(z);
    }
    return out;
}

// Dropout, and rounding for the next product.
__device__ __forceinline__ void keep_outputs(FloatVec<VEC> v, int pixel, int c, act_t* out, const DeviceStep* step, bool training) {
#if DROPOUT != DROPOUT_NONE
    if (training) {
        u64 key = mask_key(step);
#pragma unroll
        for (int e = 0; e < VEC; e++) v.v[e] *= kept(key, pixel, c + e);
    }
#endif
#pragma unroll
    for (int e = 0; e < VEC; e++) v.v[e] = operand(v.v[e]);
    store<VEC>(out + (size_t)pixel * C + c, v);
}

// The numbers of the norms' backward pass; a norm has its mean and inverse deviation, gamma, where its
// gradients go, and three coefficients a channel: dy = a (dz - k - b (y - mean)); what is kept is a, b and k - b mean.
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
    // Of the units of an example.
    static constexpr int PLACES = POOL == POOL_AFTER ? ROWS_PER_IMAGE : POOL_H * POOL_W;
    u64 key, target_key;
    float s, share, number;
    const u32* labels;
    __device__ __forceinline__ SlopeInputs(const DeviceStep* step, const float* scalars, const u32* labels, int n) : labels(labels) {
#if DROPOUT != DROPOUT_NONE
        key = mask_key(step);
#endif
        target_key = fork(mix(step->target_base + step->number), HARD_LAYER) + step->first * ((u64)PLACES * C);
        s = scalars[(size_t)step->index * SCALARS + LOSS_SCALAR];
        number = (float)step->number;
        share = share_of(step, n);
    }
    // For the unit at a place and a channel. Units have the pixels of the output, or those of the input where the pool comes
    // after them.
    __device__ __forceinline__ float slope_of(float g, float z, int place, int c) const {
        return slope(g, z, (float)labels[place / PLACES], number, uniform(target_key, (u64)place * C + c), s, share);
    }
};

#if POOL != POOL_NONE
// Slopes by the pre-activations z of one place, from those by the output: of every window that the place lies in and was the
// largest of. There are at most WINDOWS by WINDOWS of them.
#define WINDOWS ((POOL_KERNEL + POOL_STRIDE - 1) / POOL_STRIDE)
__device__ __forceinline__ FloatVec<VEC> pooled_slopes(int row, int c, const FloatVec<VEC>& z, const act_t* dout, const position_t* argmax,
                                                       const SlopeInputs& inputs) {
    FloatVec<VEC> d = {};
    int image = row / ROWS_PER_IMAGE, place = row % ROWS_PER_IMAGE;
    int py = place / WIDTH + POOL_PAD, px = place % WIDTH + POOL_PAD;
    const int oy1 = py / POOL_STRIDE, ox1 = px / POOL_STRIDE;
    constexpr int AT_ONCE = WINDOWS <= 2 ? WINDOWS : 1;
#pragma unroll(AT_ONCE)
    for (int i = WINDOWS - 1; i >= 0; i--) {
        const int oy = oy1 - i, in_y = py - oy * POOL_STRIDE;
        if (oy < 0 || oy >= POOL_H || in_y >= POOL_KERNEL) continue;
#pragma unroll(AT_ONCE)
        for (int j = WINDOWS - 1; j >= 0; j--) {
            const int ox = ox1 - j, in_x = px - ox * POOL_STRIDE;
            if (ox < 0 || ox >= POOL_W || in_x >= POOL_KERNEL) continue;
            const int pixel = (image * POOL_H + oy) * POOL_W + ox;
            const size_t at = (size_t)pixel * C + c;
            const Whole<VEC, position_t> chosen = load_whole<VEC>(argmax + at);
            FloatVec<VEC> g = load<VEC>(dout + at);
            const int mine = in_y * POOL_KERNEL + in_x;
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (chosen.v[e] != mine) continue;
#if DROPOUT != DROPOUT_NONE
                g.v[e] *= kept(inputs.key, pixel, c + e);
#endif
                d.v[e] += POOL == POOL_AFTER ? g.v[e] : inputs.slope_of(g.v[e], z.v[e], pixel, c + e);
            }
        }
    }
#if POOL == POOL_AFTER
#pragma unroll
    for (int e = 0; e < VEC; e++) d.v[e] = inputs.slope_of(d.v[e], z.v[e], row, c + e);
#endif
    return d;
}
#endif

// The same without a pool, from the slopes g by the output.
__device__ __forceinline__ FloatVec<VEC> plain_slopes(int row, int c, const FloatVec<VEC>& z, FloatVec<VEC> g, const SlopeInputs& inputs) {
#pragma unroll
    for (int e = 0; e < VEC; e++) {
#if DROPOUT != DROPOUT_NONE
        g.v[e] *= kept(inputs.key, row, c + e);
#endif
        g.v[e] = inputs.slope_of(g.v[e], z.v[e], row, c + e);
    }
    return g;
}

// Either, where nothing has been read yet.
__device__ __forceinline__ FloatVec<VEC> slopes_at(int row, int c, const FloatVec<VEC>& z, const act_t* dout, const position_t* argmax,
                                                   const SlopeInputs& inputs) {
#if POOL != POOL_NONE
    return pooled_slopes(row, c, z, dout, argmax, inputs);
#else
    return plain_slopes(row, c, z, load<VEC>(dout + (size_t)row * C + c), inputs);
#endif
}

#if BRANCH
// The activation of an output.
__device__ __forceinline__ void keep_branch(const FloatVec<VEC>& z, int pixel, int c, act_t* branch) {
    FloatVec<VEC> v;
#pragma unroll
    for (int e = 0; e < VEC; e++) v.v[e] = operand(activation(as_kept(z.v[e])));
    store<VEC>(branch + (size_t)pixel * C + c, v);
}

// Slopes by an output z from those by its activation and those that came around.
__device__ __forceinline__ FloatVec<VEC> joined_slopes(int row, int c, const FloatVec<VEC>& z, const FloatVec<VEC>& passed, FloatVec<VEC> around,
                                                       const SlopeInputs& inputs) {
#pragma unroll
    for (int e = 0; e < VEC; e++) around.v[e] = as_kept(around.v[e] + inputs.slope_of(passed.v[e], z.v[e], row, c + e));
    return around;
}
#endif

__device__ __forceinline__ FloatVec<VEC> pre_activations(const FloatVec<VEC>& here, const FloatVec<VEC>& other, const Affine& affine) {
    FloatVec<VEC> z;
#pragma unroll
    for (int e = 0; e < VEC; e++) z.v[e] = (float)affine.z(e, here.v[e], RESIDUAL != RESIDUAL_NONE ? other.v[e] : 0.0f);
    return z;
}

// A norm's coefficients for one channel, and its gradients.
struct Coefficients {
    sum_t a, b, k;
    __device__ __forceinline__ Coefficients(const NormBackward& norm, bool fixed, int j, sum_t sum, sum_t product, int rows) {
        sum_t inverse = norm.inverse[j];
        a = (sum_t)norm.gamma[j] * inverse;
        b = fixed ? (sum_t)0 : product * inverse * inverse / (sum_t)rows;
        k = fixed ? (sum_t)0 : sum / (sum_t)rows - b * norm.mean[j];
    }
    __device__ __forceinline__ void keep(const NormBackward& norm, int j, sum_t sum, sum_t product) const {
        norm.d_gamma[j] = (float)(product * norm.inverse[j]);
        norm.d_beta[j] = (float)sum;
        norm.coefficients[j] = a;
        norm.coefficients[C + j] = b;
        norm.coefficients[2 * C + j] = k;
    }
};

// Slopes by a norm's input from those by its output.
struct ThroughNorm {
    SumVec<VEC> a, b, k;
    __device__ __forceinline__ ThroughNorm(const sum_t* a, const sum_t* b, const sum_t* k) : a(load_sums<VEC>(a)), b(load_sums<VEC>(b)), k(load_sums<VEC>(k)) {}
    __device__ __forceinline__ ThroughNorm(const sum_t* coefficients, int c)
        : ThroughNorm(coefficients + c, coefficients + C + c, coefficients + 2 * C + c) {}
    __device__ __forceinline__ FloatVec<VEC> slopes(const FloatVec<VEC>& d, const FloatVec<VEC>& y) const {
        FloatVec<VEC> r;
#pragma unroll
        for (int e = 0; e < VEC; e++) r.v[e] = (float)(a.v[e] * (((sum_t)d.v[e] - k.v[e]) - (sum_t)y.v[e] * b.v[e]));
        return r;
    }
};

// Writes slopes, or adds them to those that are there.
template <bool ADDS> __device__ __forceinline__ void keep_slopes(act_t* to, FloatVec<VEC> d) {
    if constexpr (ADDS) {
        const FloatVec<VEC> had = load<VEC>(to);
#pragma unroll
        for (int e = 0; e < VEC; e++) d.v[e] += had.v[e];
    }
#pragma unroll
    for (int e = 0; e < VEC; e++) d.v[e] = operand(d.v[e]);
    store<VEC>(to, d);
}
