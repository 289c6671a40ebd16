// The same as epilogue.cu's kernels for one norm and a batch so small that all blocks can run at once: statistics and what
// follows them in one kernel each way. A thread keeps its rows, ROWS_PER_THREAD of them, while the blocks of the same channels
// wait for each other's sums.

// Forward in training.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
epilogue_forward_cooperative(const act_t* __restrict__ y, NormParameters norm, NormSaved saved, sum_t* partial, u32* barrier, act_t* __restrict__ out,
                             u8* __restrict__ argmax, const DeviceStep* __restrict__ step, int n) {
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
#if POOL
    for (int pixel = first; pixel < n * POOL_H * POOL_W; pixel += stride)
        activate(before_activation(pixel, thread.c, affine, y, nullptr, argmax), pixel, thread.c, out, step, true);
#else
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; i++) {
        if (first + i * stride >= rows) break;
        FloatVec<VEC> z;
#pragma unroll
        for (int e = 0; e < VEC; e++) z.v[e] = (float)affine.z(e, here[i].v[e], 0.0f);
        activate(z, first + i * stride, thread.c, out, step, true);
    }
#endif
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
epilogue_backward_cooperative(const act_t* __restrict__ dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const sum_t* __restrict__ shift,
                              const u8* __restrict__ argmax, act_t* dy, NormBackward norm, sum_t* partial, u32* barrier, const DeviceStep* __restrict__ step,
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
            FloatVec<VEC> z;
#pragma unroll
            for (int e = 0; e < VEC; e++) z.v[e] = (float)affine.z(e, here[i].v[e], 0.0f);
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
    SumVec<VEC> a = load_sums<VEC>(coefficients[0] + thread.x * VEC), b = load_sums<VEC>(coefficients[1] + thread.x * VEC),
                 k = load_sums<VEC>(coefficients[2] + thread.x * VEC);
#pragma unroll
    for (int i = 0; i < ROWS_PER_THREAD; i++) {
        if (first + i * stride >= rows) break;
        act_t* to = dy + (size_t)(first + i * stride) * C + thread.c;
        FloatVec<VEC> r = through_norm(d[i], here[i], mean, a, b, k);
#if ACCUMULATE1
        FloatVec<VEC> had = load<VEC>(to);
#pragma unroll
        for (int e = 0; e < VEC; e++) r.v[e] += had.v[e];
#endif
#pragma unroll
        for (int e = 0; e < VEC; e++) r.v[e] = operand(r.v[e]);
        store<VEC>(to, r);
    }
}
