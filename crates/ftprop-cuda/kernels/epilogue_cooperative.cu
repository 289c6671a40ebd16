// The same as epilogue.cu's kernels for one norm and a batch so small that all blocks can run at once: statistics and what
// follows them in one kernel each way. A thread keeps its rows, ROWS_PER_THREAD of them, while the blocks of the same channels
// wait for each other's sums.
#include "epilogue.cu"

// Forward in training.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
epilogue_forward_cooperative(const act_t* __restrict__ y, NormParameters norm, NormSaved saved, sum_t* partial, u32* barrier, act_t* __restrict__ out,
                             position_t* __restrict__ argmax, const DeviceStep* __restrict__ step, u32* __restrict__ not_numbers, u32 pass, int n) {
    const ColumnThread thread;
    const int rows = n * ROWS_PER_IMAGE, first = blockIdx.x * THREADS_Y + thread.y, stride = gridDim.x * THREADS_Y;
    sum_t sums[2][VEC];
    clear(sums);
    FloatVec<VEC> pivot, gamma, beta, here[ROWS_PER_THREAD];
    if (thread.active) {
        pivot = load<VEC>(y + thread.c);
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++)
            if (first + i * stride < rows) here[i] = load<VEC>(y + (size_t)(first + i * stride) * C + thread.c);
        // Not before they are needed, but asked for while the others are on their way.
#pragma unroll
        for (int e = 0; e < VEC; e++) gamma.v[e] = norm.gamma[thread.c + e], beta.v[e] = norm.beta[thread.c + e];
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++)
            if (first + i * stride < rows) add_about(sums, here[i], pivot);
    }
    write_partial(sums, thread, partial);
    if (gridDim.x > 1) {
        wait_for_blocks(barrier + blockIdx.y, gridDim.x, blockIdx.x == 0);
        reduce_partials(sums, thread, partial, gridDim.x);
    }
    __shared__ sum_t scale[THREADS_X * VEC], shift[THREADS_X * VEC];
    if (thread.active && thread.y == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const Moments moments(sums[0][e], sums[1][e], pivot.v[e], rows, norm.eps, gamma.v[e], beta.v[e]);
            scale[thread.x * VEC + e] = moments.scale;
            shift[thread.x * VEC + e] = moments.shift;
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
    for (int i = 0; i < ROWS_PER_THREAD; i++) {
        if (first + i * stride >= rows) break;
        const Outputs made = outputs(here[i], here[i], affine);
        bad |= made.bad;
        keep_outputs(made.v, first + i * stride, thread.c, out, step, true);
    }
#endif
    if (bad) atomicCAS(not_numbers, 0u, pass);
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
epilogue_backward_cooperative(const act_t* __restrict__ dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const sum_t* __restrict__ shift,
                              const position_t* __restrict__ argmax, act_t* dy, NormBackward norm, sum_t* partial, u32* barrier, const DeviceStep* __restrict__ step,
                              const float* __restrict__ scalars, const u32* __restrict__ labels, int n) {
    const ColumnThread thread;
    const int rows = n * ROWS_PER_IMAGE, first = blockIdx.x * THREADS_Y + thread.y, stride = gridDim.x * THREADS_Y;
    sum_t sums[2][VEC];
    clear(sums);
    FloatVec<VEC> here[ROWS_PER_THREAD], d[ROWS_PER_THREAD];
    SumVec<VEC> mean;
    if (thread.active) {
        const Affine affine(scale, shift, nullptr, nullptr, thread.c);
        const SlopeInputs inputs(step, scalars, labels, n);
        mean = load_sums<VEC>(norm.mean + thread.c);
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++)
            if (first + i * stride < rows) here[i] = load<VEC>(y + (size_t)(first + i * stride) * C + thread.c);
#pragma unroll
        for (int i = 0; i < ROWS_PER_THREAD; i++) {
            if (first + i * stride >= rows) break;
            const FloatVec<VEC> z = pre_activations(here[i], here[i], affine);
            d[i] = slopes_at(first + i * stride, thread.c, z, dout, argmax, inputs);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sums[0][e] += d[i].v[e];
                sums[1][e] += (sum_t)d[i].v[e] * ((sum_t)here[i].v[e] - mean.v[e]);
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
        keep_slopes<ACCUMULATE1>(dy + (size_t)(first + i * stride) * C + thread.c, through.slopes(d[i], here[i]));
    }
}
