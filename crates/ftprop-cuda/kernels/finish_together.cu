// The same as finish.cu's kernels for one norm and a batch so small that all blocks can run at once: statistics and what
// follows them in one kernel each way. A thread keeps its rows, TOGETHER of them, while the blocks of the same channels
// wait for each other's sums.

// Forward in training.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
finish_together(const act_t* __restrict__ y, NormForward norm, NormNumbers numbers, sum_t* partial, u32* gate, act_t* __restrict__ out,
                u8* __restrict__ choice, const Step* __restrict__ step, int n) {
    const Spot spot;
    const int rows = n * ROWS_PER_IMAGE, first = blockIdx.x * DOWN + spot.down, stride = gridDim.x * DOWN;
    sum_t sums[2][VEC];
    clear(sums);
    Wide<VEC> pivot, gamma, beta, here[TOGETHER];
    if (spot.active) {
        pivot = load<VEC>(y + spot.c);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i * stride < rows) here[i] = load<VEC>(y + (size_t)(first + i * stride) * C + spot.c);
        // Not before they are needed, but asked for while the others are on their way.
#pragma unroll
        for (int e = 0; e < VEC; e++) gamma.v[e] = norm.gamma[spot.c + e], beta.v[e] = norm.beta[spot.c + e];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i * stride < rows) add_about(sums, here[i], pivot);
    }
    put_aside(sums, spot, partial);
    if (gridDim.x > 1) {
        meet(gate + blockIdx.y, gridDim.x, blockIdx.x == 0);
        add_blocks(sums, spot, partial, gridDim.x);
    }
    __shared__ sum_t scale[ACROSS * VEC], shift[ACROSS * VEC];
    if (spot.active && spot.down == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const Moments moments(sums[0][e], sums[1][e], pivot.v[e], rows, norm.eps, gamma.v[e], beta.v[e]);
            scale[spot.across * VEC + e] = moments.scale;
            shift[spot.across * VEC + e] = moments.shift;
            if (blockIdx.x == 0) moments.keep(spot.c + e, norm, numbers);
        }
    }
    __syncthreads();
    if (!spot.active) return;
    const Affine affine(scale, shift, nullptr, nullptr, spot.across * VEC);
#if POOL
    for (int pixel = first; pixel < n * POOL_H * POOL_W; pixel += stride)
        activate(before_activation(pixel, spot.c, affine, y, nullptr, choice), pixel, spot.c, out, step, true);
#else
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) {
        if (first + i * stride >= rows) break;
        Wide<VEC> z;
#pragma unroll
        for (int e = 0; e < VEC; e++) z.v[e] = (float)affine.z(e, here[i].v[e], 0.0f);
        activate(z, first + i * stride, spot.c, out, step, true);
    }
#endif
}

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
finish_back_together(const act_t* __restrict__ dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const sum_t* __restrict__ shift,
                     const u8* __restrict__ choice, act_t* dy, NormBack norm, sum_t* partial, u32* gate, const Step* __restrict__ step,
                     const Scalars* __restrict__ scalars, int n) {
    const Spot spot;
    const int rows = n * ROWS_PER_IMAGE, first = blockIdx.x * DOWN + spot.down, stride = gridDim.x * DOWN;
    sum_t sums[2][VEC];
    clear(sums);
    Wide<VEC> here[TOGETHER], d[TOGETHER];
    WideSum<VEC> mean;
    if (spot.active) {
        const Affine affine(scale, shift, nullptr, nullptr, spot.c);
        const Rule rule(step, scalars, n);
        mean = load_sums<VEC>(norm.mean + spot.c);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            if (first + i * stride < rows) here[i] = load<VEC>(y + (size_t)(first + i * stride) * C + spot.c);
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            if (first + i * stride >= rows) break;
            Wide<VEC> z;
#pragma unroll
            for (int e = 0; e < VEC; e++) z.v[e] = (float)affine.z(e, here[i].v[e], 0.0f);
            d[i] = slopes_at(first + i * stride, spot.c, z, dout, choice, rule);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sums[0][e] += d[i].v[e];
                sums[1][e] += (sum_t)d[i].v[e] * ((sum_t)here[i].v[e] - mean.v[e]);
            }
        }
    }
    put_aside(sums, spot, partial);
    if (gridDim.x > 1) {
        meet(gate + blockIdx.y, gridDim.x, blockIdx.x == 0);
        add_blocks(sums, spot, partial, gridDim.x);
    }
    __shared__ sum_t coefficients[3][ACROSS * VEC];
    if (spot.active && spot.down == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const Coefficients channel(norm, spot.c + e, sums[0][e], sums[1][e], rows);
            coefficients[0][spot.across * VEC + e] = channel.a;
            coefficients[1][spot.across * VEC + e] = channel.b;
            coefficients[2][spot.across * VEC + e] = channel.k;
            if (blockIdx.x == 0) channel.keep(norm, spot.c + e, sums[0][e], sums[1][e]);
        }
    }
    __syncthreads();
    if (!spot.active || !dy) return;
    WideSum<VEC> a = load_sums<VEC>(coefficients[0] + spot.across * VEC), b = load_sums<VEC>(coefficients[1] + spot.across * VEC),
                 k = load_sums<VEC>(coefficients[2] + spot.across * VEC);
#pragma unroll
    for (int i = 0; i < TOGETHER; i++) {
        if (first + i * stride >= rows) break;
        act_t* to = dy + (size_t)(first + i * stride) * C + spot.c;
        Wide<VEC> r = through_norm(d[i], here[i], mean, a, b, k);
#if ACCUMULATE1
        Wide<VEC> had = load<VEC>(to);
#pragma unroll
        for (int e = 0; e < VEC; e++) r.v[e] += had.v[e];
#endif
#pragma unroll
        for (int e = 0; e < VEC; e++) r.v[e] = operand(r.v[e]);
        store<VEC>(to, r);
    }
}
