// Batch norm over a batch of which some examples are on other GPUs. What has to be summed with theirs is put aside in f64: of each
// channel the sums of its values and of their squares and, last, the number of rows; on the way back the sums of the slopes and
// of their products with what the norm gave.
#include "column_reduction.cuh"

extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
norm_moments(const act_t* __restrict__ y, double* __restrict__ shared, sum_t* __restrict__ partial, u32* __restrict__ counter, int rows) {
    const ColumnThread thread;
    sum_t sums[2][VEC];
    FloatVec<VEC> pivot;
    if (!sum_about_first(sums, pivot, thread, y, partial, counter, rows)) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        const int j = thread.c + e;
        const double about = pivot.v[e], first = sums[0][e], second = sums[1][e];
        shared[j] = first + rows * about;
        shared[C + j] = second + about * (2 * first + rows * about);
        if (j == 0) shared[2 * C] = rows;
    }
}

// What follows from the sums over all GPUs.
extern "C" __global__ void norm_agreed(const double* __restrict__ shared, NormParameters norm, NormSaved saved) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    const double rows = shared[2 * C], mean = shared[j] / rows, spread = shared[C + j] / rows - mean * mean;
    // Rounding may take it below zero, a NaN must stay one.
    Moments(mean, spread < 0 ? 0 : spread, rows, norm.eps, norm.gamma[j], norm.beta[j]).keep(j, norm, saved);
}

// What the way back has summed here, from the gradients that it left.
extern "C" __global__ void norm_slope_sums(const float* __restrict__ d_gamma, const float* __restrict__ d_beta, double* __restrict__ shared) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    shared[j] = d_beta[j];
    shared[C + j] = d_gamma[j];
}

// The coefficients of a norm's way back, as epilogue.cuh has them, from the sums over all GPUs. The gradients stay those of the
// examples that are here, since all gradients are summed later.
extern "C" __global__ void norm_agreed_slopes(const double* __restrict__ shared, const float* __restrict__ gamma, NormSaved saved,
                                              sum_t* __restrict__ coefficients) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    const double rows = shared[2 * C], inverse = saved.inverse[j], b = shared[C + j] * inverse / rows;
    coefficients[j] = (sum_t)((double)gamma[j] * inverse);
    coefficients[C + j] = (sum_t)b;
    coefficients[2 * C + j] = (sum_t)(shared[j] / rows - b * (double)saved.mean[j]);
}
