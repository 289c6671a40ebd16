// The same as epilogue.cu's kernels for one norm and a batch so small that all blocks can run at once: statistics and what
// follows them in one kernel each way, where COOPERATIVE_BACK says so on the way back too. A thread keeps its rows,
// ROWS_PER_THREAD of them, while the blocks of the same channels wait for each other's sums.
#include "epilogue.cu"

// Rows of other maps that are on their way at once.
#define TOGETHER (ROWS_PER_THREAD < 4 ? ROWS_PER_THREAD : 4)

// Forward in training.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 1)
epilogue_forward_cooperative(const act_t* __restrict__ y, NormParameters norm, NormSaved saved, const act_t* __restrict__ y2, sum_t* partial, u32* barrier,
                             act_t* __restrict__ out, act_t* __restrict__ branch, position_t* __restrict__ argmax, const DeviceStep* __restrict__ step,
                             u32* __restrict__ not_numbers, u32 pass, int n) {
    const ColumnThread thread;
    const int rows = n * ROWS_PER_IMAGE, first = blockIdx.x * THREADS_Y + thread.y, stride = gridDim.x * THREADS_Y;
    sum_t sums[2][VEC];
    clear(sums);
    FloatVec<VEC> pivot;
    Packed<VEC> here[ROWS_PER_THREAD];
    __shared__ sum_t scale[THREADS_X * VEC], shift[THREADS_X * VEC];
    if (thread.active) {
        pivot = load<VEC>(y + thread.c);
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++)
            if (first + i * stride < rows) here[i] = load_packed<VEC>(y + (size_t)(first + i * stride) * C + thread.c);
        // Gamma and beta are not needed yet, but asked for while the others are on their way.
        if (thread.y == 0) {
#pragma unroll
            for (int e = 0; e < VEC; e++) scale[thread.x * VEC + e] = norm.gamma[thread.c + e], shift[thread.x * VEC + e] = norm.beta[thread.c + e];
        }
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++)
            if (first + i * stride < rows) add_about(sums, unpacked<VEC>(here[i]), pivot);
    }
    write_partial(sums, thread, partial);
    if (gridDim.x > 1) {
        wait_for_blocks(barrier + blockIdx.y, gridDim.x, blockIdx.x == 0);
        reduce_partials(sums, thread, partial, gridDim.x);
    }
    if (thread.active && thread.y == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const int at = thread.x * VEC + e;
            const Moments moments(sums[0][e], sums[1][e], pivot.v[e], rows, norm.eps, (float)scale[at], (float)shift[at]);
            scale[at] = moments.scale;
            shift[at] = moments.shift;
            if (blockIdx.x == 0) moments.keep(thread.c + e, norm, saved);
        }
    }
    __syncthreads();
    if (!thread.active) return;
    const Affine affine(scale, shift, nullptr, nullptr, thread.x * VEC);
    bool bad = false;
#if POOL != POOL_NONE
    for (int pixel = first; pixel < n * POOL_H * POOL_W; pixel += stride) {
        const Outputs made = pooled_outputs(pixel, thread.c, affine, y, argmax, nullptr);
        bad |= made.bad;
        keep_outputs(made.v, pixel, thread.c, out, step, true);
    }
#else
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; i += TOGETHER) {
#if RESIDUAL != RESIDUAL_NONE
        Packed<VEC> others[TOGETHER];
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            const int row = first + (i + j) * stride;
            others[j] = load_packed<VEC>(y2 + (size_t)(row < rows ? row : rows - 1) * C + thread.c);
        }
#endif
#pragma unroll
        for (int j = 0; j < TOGETHER && i + j < ROWS_PER_THREAD; j++) {
            const int row = first + (i + j) * stride;
            if (row >= rows) break;
            const FloatVec<VEC> own = unpacked<VEC>(here[i + j]);
#if RESIDUAL != RESIDUAL_NONE
            const Outputs made = outputs(own, unpacked<VEC>(others[j]), affine);
#else
            const Outputs made = outputs(own, own, affine);
#endif
            bad |= made.bad;
            keep_outputs(made.v, row, thread.c, out, step, true);
#if BRANCH
            keep_branch(made.v, row, thread.c, branch);
#endif
        }
    }
#endif
    if (bad) atomicCAS(not_numbers, 0u, pass);
}

#if COOPERATIVE_BACK
// Slopes that a thread keeps. Where vectors are wide, as they would be kept in memory.
#if VEC == 8
typedef Packed<VEC> KeptSlopes;
__device__ __forceinline__ KeptSlopes to_keep(FloatVec<VEC>& d) {
    const KeptSlopes kept = packed<VEC>(d);
    d = unpacked<VEC>(kept);
    return kept;
}
__device__ __forceinline__ FloatVec<VEC> from_kept(const KeptSlopes& d) { return unpacked<VEC>(d); }
#else
typedef FloatVec<VEC> KeptSlopes;
__device__ __forceinline__ KeptSlopes to_keep(const FloatVec<VEC>& d) { return d; }
__device__ __forceinline__ FloatVec<VEC> from_kept(const KeptSlopes& d) { return d; }
#endif

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS, 1)
epilogue_backward_cooperative(const act_t* __restrict__ dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const sum_t* __restrict__ shift,
                              const act_t* __restrict__ y2, const act_t* __restrict__ out, const act_t* __restrict__ d_branch,
                              const position_t* __restrict__ argmax, act_t* dy, act_t* dy2, NormBackward norm, sum_t* partial, u32* barrier,
                              const DeviceStep* __restrict__ step, const float* __restrict__ scalars, const u32* __restrict__ labels, int n) {
    const ColumnThread thread;
    const int rows = n * ROWS_PER_IMAGE, first = blockIdx.x * THREADS_Y + thread.y, stride = gridDim.x * THREADS_Y;
    sum_t sums[2][VEC];
    clear(sums);
    Packed<VEC> here[ROWS_PER_THREAD];
    KeptSlopes d[ROWS_PER_THREAD];
    SumVec<VEC> mean;
    if (thread.active) {
        const Affine affine(scale, shift, nullptr, nullptr, thread.c);
        const SlopeInputs inputs(step, scalars, labels, n);
        mean = load_sums<VEC>(norm.mean + thread.c);
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++)
            if (first + i * stride < rows) here[i] = load_packed<VEC>(y + (size_t)(first + i * stride) * C + thread.c);
#if BRANCH
        Packed<VEC> made[2], passed[2], around[2];
#endif
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++) {
            const int row = first + i * stride;
#if BRANCH
            // Two rows of these are on their way at once.
            if (i % 2 == 0) {
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    const size_t next = (size_t)(row + j * stride < rows ? row + j * stride : rows - 1) * C + thread.c;
                    made[j] = load_packed<VEC>(out + next);
                    passed[j] = load_packed<VEC>(d_branch + next);
                    around[j] = load_packed<VEC>(dout + next);
                }
            }
#endif
            if (row >= rows) break;
            const size_t at = (size_t)row * C + thread.c;
            const FloatVec<VEC> own = unpacked<VEC>(here[i]);
#if BRANCH
            const int j = i % 2;
            FloatVec<VEC> slopes =
                joined_slopes(row, thread.c, unpacked<VEC>(made[j]), unpacked<VEC>(passed[j]), unpacked<VEC>(around[j]), inputs);
#else
            const FloatVec<VEC> z = pre_activations(own, RESIDUAL == RESIDUAL_NONE ? own : load<VEC>(y2 + at), affine);
            FloatVec<VEC> slopes = slopes_at(row, thread.c, z, dout, argmax, inputs);
#endif
            d[i] = to_keep(slopes);
#if RESIDUAL == RESIDUAL_PLAIN
            if (dy2) keep_slopes<ACCUMULATE2>(dy2 + at, slopes);
#endif
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sums[0][e] += slopes.v[e];
                sums[1][e] += (sum_t)slopes.v[e] * ((sum_t)own.v[e] - mean.v[e]);
            }
        }
    }
    write_partial(sums, thread, partial);
    if (gridDim.x > 1) {
        wait_for_blocks(barrier + blockIdx.y, gridDim.x, blockIdx.x == 0);
        reduce_partials(sums, thread, partial, gridDim.x);
    }
    __shared__ sum_t coefficients[3][THREADS_X * VEC];
    if (thread.active && thread.y == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const Coefficients channel(norm, FIXED1, thread.c + e, sums[0][e], sums[1][e], rows);
            coefficients[0][thread.x * VEC + e] = channel.a;
            coefficients[1][thread.x * VEC + e] = channel.b;
            coefficients[2][thread.x * VEC + e] = channel.k;
            if (blockIdx.x == 0) channel.keep(norm, thread.c + e, sums[0][e], sums[1][e]);
        }
    }
    __syncthreads();
    if (!thread.active || !dy) return;
    const ThroughNorm through(coefficients[0] + thread.x * VEC, coefficients[1] + thread.x * VEC, coefficients[2] + thread.x * VEC);
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; i++) {
        if (first + i * stride >= rows) break;
        keep_slopes<ACCUMULATE1>(dy + (size_t)(first + i * stride) * C + thread.c, through.slopes(from_kept(d[i]), unpacked<VEC>(here[i])));
    }
}
#endif
