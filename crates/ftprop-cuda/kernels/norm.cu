// Batch norm's statistics, where they are not computed together with what follows, and other sums over columns.
#include "column_reduction.cuh"

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
norm_statistics(const act_t* __restrict__ y, NormParameters norm, NormSaved saved, sum_t* __restrict__ partial, u32* __restrict__ counter, int rows) {
    const ColumnThread thread;
    sum_t sums[2][VEC];
    FloatVec<VEC> pivot;
    if (!sum_about_first(sums, pivot, thread, y, partial, counter, rows)) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        int j = thread.c + e;
        Moments(sums[0][e], sums[1][e], pivot.v[e], rows, norm.eps, norm.gamma[j], norm.beta[j]).keep(j, norm, saved);
    }
}

// Scale and shift from the running statistics alone.
extern "C" __global__ void norm_running(NormParameters norm, NormSaved saved) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    sum_t s = (sum_t)norm.gamma[j] / sqrt((sum_t)norm.running_variance[j] + (sum_t)norm.eps);
    saved.scale[j] = s;
    saved.shift[j] = (sum_t)norm.beta[j] - (sum_t)norm.running_mean[j] * s;
}

// The same where nothing is normalised: the learned factor and summand, and for the way back a mean of 0 and a deviation
// of 1.
extern "C" __global__ void norm_fixed(NormParameters norm, NormSaved saved) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    saved.mean[j] = 0;
    saved.inverse[j] = 1;
    saved.scale[j] = (sum_t)norm.gamma[j];
    saved.shift[j] = (sum_t)norm.beta[j];
}

// The sums of a matrix's columns: the gradient of a bias that no other pass takes along.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
column_sums(const act_t* __restrict__ x, float* __restrict__ out, sum_t* __restrict__ partial, u32* __restrict__ counter, int rows) {
    const ColumnThread thread;
    sum_t sums[1][VEC];
    clear(sums);
    if (thread.active) {
#pragma unroll 4
        for (int row = blockIdx.x * THREADS_Y + thread.y; row < rows; row += gridDim.x * THREADS_Y) {
            FloatVec<VEC> v = load<VEC>(x + (size_t)row * C + thread.c);
#pragma unroll
            for (int e = 0; e < VEC; e++) sums[0][e] += v.v[e];
        }
    }
    write_partial(sums, thread, partial);
    if (!last_block(counter + blockIdx.y, gridDim.x)) return;
    reduce_partials(sums, thread, partial, gridDim.x);
    if (!thread.active || thread.y != 0) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) out[thread.c + e] = (float)sums[0][e];
}
