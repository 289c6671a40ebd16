// The kernels of an epilogue: one pass forward; one back where there is no norm, else one for the sums and one for the slopes.
//
// A thread keeps its VEC channels, with all that is known about them, and goes over rows. It takes ROWS_AT_ONCE of them at a
// time: all are asked for before the first is used, so that memory is never idle.
#include "epilogue.cuh"

// A block has MAP_X threads across channels and the rest over rows.
#define MAP_THREADS 256
#define MAP_Y (MAP_THREADS / MAP_X)
struct MapThread {
    int c, first, stride;
    bool active;
    __device__ __forceinline__ MapThread() {
        c = (blockIdx.y * MAP_X + threadIdx.x % MAP_X) * VEC;
        first = blockIdx.x * (MAP_Y * ROWS_AT_ONCE) + threadIdx.x / MAP_X;
        stride = gridDim.x * (MAP_Y * ROWS_AT_ONCE);
        active = threadIdx.x / MAP_X < MAP_Y && c < C;
    }
};

// With DENSE the ways back keep to so few registers that twice as many threads run at once.
#if DENSE
#define SUM_BOUNDS __launch_bounds__(COLUMN_THREADS, 2)
#define SLOPE_BOUNDS __launch_bounds__(MAP_THREADS, 3)
#else
#define SUM_BOUNDS __launch_bounds__(COLUMN_THREADS)
#define SLOPE_BOUNDS __launch_bounds__(MAP_THREADS)
#endif

// A thread's next rows of a few maps; those past the last are that one again. What is read for the LAST time leaves the cache
// first where maps are large.
template <int COUNT, bool FROM_LAST, bool LAST> struct Rows {
    FloatVec<VEC> here[COUNT], other[COUNT], dout[COUNT];
    const int first, apart, rows;
    __device__ __forceinline__ Rows(int first, int apart, int rows) : first(first), apart(apart), rows(rows) {}
    __device__ __forceinline__ bool valid(int i) const { return first + i * apart < rows; }
    __device__ __forceinline__ int row(int i) const { return in_turn<FROM_LAST>(valid(i) ? first + i * apart : rows - 1, rows); }
    __device__ __forceinline__ size_t at(int i, int c) const { return (size_t)row(i) * C + c; }
    template <bool SLOPES> __device__ __forceinline__ void load_from(const act_t* y, const act_t* y2, const act_t* g, int c) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            here[i] = load<VEC, LAST && LARGE>(y + at(i, c));
#if RESIDUAL != RESIDUAL_NONE
            other[i] = load<VEC, LAST && LARGE>(y2 + at(i, c));
#endif
            if constexpr (SLOPES && POOL == POOL_NONE) dout[i] = load<VEC, (LAST || BRANCH) && LARGE>(g + at(i, c));
        }
    }
    // Slopes by the pre-activations of one of these rows.
    __device__ __forceinline__ FloatVec<VEC> slopes(int i, int c, const Affine& affine, const act_t* g, const position_t* argmax,
                                                    const SlopeInputs& inputs) const {
        const FloatVec<VEC> z = pre_activations(here[i], other[i], affine);
#if POOL != POOL_NONE
        return pooled_slopes(row(i), c, z, g, argmax, inputs);
#else
        return plain_slopes(row(i), c, z, dout[i], inputs);
#endif
    }
};

extern "C" __global__ void __launch_bounds__(MAP_THREADS)
epilogue_forward(const act_t* __restrict__ y, const sum_t* __restrict__ scale, const void* __restrict__ shift, const act_t* __restrict__ y2,
                 const sum_t* __restrict__ scale2, const sum_t* __restrict__ shift2, act_t* __restrict__ out, act_t* __restrict__ branch,
                 position_t* __restrict__ argmax, act_t* __restrict__ largest, const DeviceStep* __restrict__ step, u32* __restrict__ not_numbers, u32 pass, int n, int training) {
    const MapThread thread;
    if (!thread.active) return;
    const int c = thread.c, pixels = n * POOL_H * POOL_W;
    const Affine affine(scale, shift, scale2, shift2, c);
    bool bad = false;
    for (int first = thread.first; first < pixels; first += thread.stride) {
#if POOL != POOL_NONE
#pragma unroll 1
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            if (first + i * MAP_Y >= pixels) break;
            const int pixel = in_turn<TURNED && !STATISTICS>(first + i * MAP_Y, pixels);
            const Outputs outputs = pooled_outputs(pixel, c, affine, y, argmax, largest);
            bad |= outputs.bad;
            keep_outputs(outputs.v, pixel, c, out, step, training);
        }
#else
        Rows<ROWS_AT_ONCE, TURNED && !STATISTICS, true> rows(first, MAP_Y, pixels);
        rows.template load_from<false>(y, y2, nullptr, c);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            const Outputs made = outputs(rows.here[i], rows.other[i], affine);
            bad |= made.bad;
            if (!rows.valid(i)) continue;
            keep_outputs(made.v, rows.row(i), c, out, step, training);
#if BRANCH
            keep_branch(made.v, rows.row(i), c, branch);
#endif
        }
#endif
    }
    if (bad) atomicCAS(not_numbers, 0u, pass);
}

// From the slopes by the output to the sums over each channel of those by the pre-activation (dz), and of dz times what a norm
// saw. Without a norm dz is the gradient of the inputs and is written where that belongs; the blocks' sums are then left to
// bias_gradient, since nothing further down waits for them. With a norm, dz is written for the second pass (KEEPS_DZ) where the
// second summand's slopes are the same numbers, and where there is a pool, since to look through its windows twice takes longer.
// With a BRANCH, whose slopes are `d_branch` and whose output `out` was, dz is written in the place of the slopes by the output
// where it is not kept elsewhere.
extern "C" __global__ void SUM_BOUNDS
epilogue_backward(act_t* dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const void* __restrict__ shift,
                  const act_t* __restrict__ y2, const sum_t* __restrict__ scale2, const sum_t* __restrict__ shift2, const act_t* __restrict__ out,
                  const act_t* __restrict__ d_branch, const position_t* __restrict__ argmax, act_t* dz, act_t* dz2, NormBackward norm1, NormBackward norm2, int biased, sum_t* __restrict__ partial,
                  u32* __restrict__ counter, const DeviceStep* __restrict__ step, const float* __restrict__ scalars,
                  const u32* __restrict__ labels, int n) {
    const ColumnThread thread;
    const int c = thread.c, rows = n * ROWS_PER_IMAGE, apart = gridDim.x * THREADS_Y;
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
        // Two maps more are read for a branch, so fewer rows are enough.
        constexpr int COUNT = BRANCH ? 1 : ROWS_AT_ONCE;
        for (int first = blockIdx.x * THREADS_Y + thread.y; first < rows; first += COUNT * apart) {
            Rows<COUNT, TURNED, false> next(first, apart, rows);
            next.template load_from<true>(y, y2, dout, c);
#if BRANCH
            const FloatVec<VEC> made = load<VEC, LARGE>(out + next.at(0, c)), passed = load<VEC, LARGE>(d_branch + next.at(0, c));
#endif
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                if (!next.valid(i)) break;
                const size_t at = next.at(i, c);
#if BRANCH
                FloatVec<VEC> d = joined_slopes(next.row(i), c, made, passed, next.dout[i], inputs);
#else
                FloatVec<VEC> d = next.slopes(i, c, affine, dout, argmax, inputs);
#endif
#if NORMS == 0
#pragma unroll
                for (int e = 0; e < VEC; e++) d.v[e] = operand(d.v[e]);
#endif
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    sums[0][e] += d.v[e];
#if AFFINE == AFFINE_NORM
                    sums[1][e] += (sum_t)d.v[e] * ((sum_t)next.here[i].v[e] - mean1.v[e]);
#endif
#if RESIDUAL == RESIDUAL_NORM
                    sums[SUMS - 1][e] += (sum_t)d.v[e] * ((sum_t)next.other[i].v[e] - mean2.v[e]);
#endif
                }
#if NORMS == 0
#if RESIDUAL != RESIDUAL_NONE
                if (dz2) keep_slopes<ACCUMULATE2>(dz2 + at, d);
#endif
                if (dz) keep_slopes<ACCUMULATE1>(dz + at, d);
#elif KEEPS_DZ
                keep_slopes<false>((RESIDUAL == RESIDUAL_NONE ? dz : dz2) + at, d);
#elif BRANCH
                keep_slopes<false>(dout + at, d);
#endif
            }
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

// The second pass back, where there is a norm: dz once more, and from it the gradients of the inputs. Reading what dz follows
// from costs no more than writing dz and reading it again would. Where dz was written (KEEPS_DZ), it is `dout` here, and may
// lie where dy will: a thread writes no number before it has read that one. With a BRANCH `dout` is dz too.
extern "C" __global__ void SLOPE_BOUNDS
epilogue_backward_input(const act_t* dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const void* __restrict__ shift,
                        const act_t* __restrict__ y2, const sum_t* __restrict__ scale2, const sum_t* __restrict__ shift2,
                        const position_t* __restrict__ argmax, const sum_t* __restrict__ coefficients1, const sum_t* __restrict__ coefficients2,
                        act_t* dy, act_t* __restrict__ dy2, const DeviceStep* __restrict__ step, const float* __restrict__ scalars,
                        const u32* __restrict__ labels, int n) {
    const MapThread thread;
    if (!thread.active) return;
    const int c = thread.c, rows = n * ROWS_PER_IMAGE;
#if AFFINE == AFFINE_NORM
    const ThroughNorm through1(coefficients1, c);
#endif
#if KEEPS_DZ
    for (int first = thread.first; first < rows; first += thread.stride) {
        FloatVec<VEC> d[ROWS_AT_ONCE], here[ROWS_AT_ONCE];
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            const int row = first + i * MAP_Y;
            const size_t at = (size_t)(row < rows ? row : rows - 1) * C + c;
            d[i] = load<VEC, LARGE>(dout + at);
            here[i] = load<VEC, LARGE>(y + at);
        }
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            const int row = first + i * MAP_Y;
#if AFFINE == AFFINE_NORM
            if (row < rows) keep_slopes<ACCUMULATE1>(dy + (size_t)row * C + c, through1.slopes(d[i], here[i]));
#endif
        }
    }
#else
#if RESIDUAL == RESIDUAL_NORM
    const ThroughNorm through2(coefficients2, c);
#endif
    const Affine affine(scale, shift, scale2, shift2, c);
    const SlopeInputs inputs(step, scalars, labels, n);
    for (int first = thread.first; first < rows; first += thread.stride) {
        Rows<ROWS_AT_ONCE, false, true> next(first, MAP_Y, rows);
        next.template load_from<true>(y, y2, dout, c);
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            if (!next.valid(i)) break;
            const size_t at = next.at(i, c);
#if BRANCH
            const FloatVec<VEC> d = next.dout[i];
#else
            const FloatVec<VEC> d = next.slopes(i, c, affine, dout, argmax, inputs);
#endif
#if RESIDUAL == RESIDUAL_NORM
            if (dy2) keep_slopes<ACCUMULATE2>(dy2 + at, through2.slopes(d, next.other[i]));
#elif RESIDUAL == RESIDUAL_PLAIN
            if (dy2) keep_slopes<ACCUMULATE2>(dy2 + at, d);
#endif
#if AFFINE == AFFINE_NORM
            if (dy) keep_slopes<ACCUMULATE1>(dy + at, through1.slopes(d, next.here[i]));
#else
            if (dy) keep_slopes<ACCUMULATE1>(dy + at, d);
#endif
        }
    }
#endif
}
