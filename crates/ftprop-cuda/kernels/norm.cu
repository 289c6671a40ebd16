// Batch norm's statistics, where they are not computed together with what follows, and other sums over columns.

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
norm_statistics(const act_t* __restrict__ y, NormForward norm, NormNumbers numbers, sum_t* __restrict__ partial, u32* __restrict__ counter, int rows) {
    const Spot spot;
    sum_t sums[2][VEC];
    clear(sums);
    Wide<VEC> pivot;
    if (spot.active) {
        pivot = load<VEC>(y + spot.c);
#pragma unroll 4
        for (int row = blockIdx.x * DOWN + spot.down; row < rows; row += gridDim.x * DOWN)
            add_about(sums, load<VEC>(y + (size_t)row * C + spot.c), pivot);
    }
    put_aside(sums, spot, partial);
    if (!last_block(counter + blockIdx.y, gridDim.x)) return;
    add_blocks(sums, spot, partial, gridDim.x);
    if (!spot.active || spot.down != 0) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        int j = spot.c + e;
        Moments(sums[0][e], sums[1][e], pivot.v[e], rows, norm.eps, norm.gamma[j], norm.beta[j]).keep(j, norm, numbers);
    }
}

// Scale and shift from the running statistics alone.
extern "C" __global__ void norm_running(NormForward norm, NormNumbers numbers) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    sum_t s = (sum_t)norm.gamma[j] / sqrt((sum_t)norm.running_variance[j] + (sum_t)norm.eps);
    numbers.scale[j] = s;
    numbers.shift[j] = (sum_t)norm.beta[j] - (sum_t)norm.running_mean[j] * s;
}

// The sums of a matrix's columns: the gradient of a bias that no other pass takes along.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
column_sums(const act_t* __restrict__ x, float* __restrict__ out, sum_t* __restrict__ partial, u32* __restrict__ counter, int rows) {
    const Spot spot;
    sum_t sums[1][VEC];
    clear(sums);
    if (spot.active) {
#pragma unroll 4
        for (int row = blockIdx.x * DOWN + spot.down; row < rows; row += gridDim.x * DOWN) {
            Wide<VEC> v = load<VEC>(x + (size_t)row * C + spot.c);
#pragma unroll
            for (int e = 0; e < VEC; e++) sums[0][e] += v.v[e];
        }
    }
    put_aside(sums, spot, partial);
    if (!last_block(counter + blockIdx.y, gridDim.x)) return;
    add_blocks(sums, spot, partial, gridDim.x);
    if (!spot.active || spot.down != 0) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) out[spot.c + e] = (float)sums[0][e];
}
