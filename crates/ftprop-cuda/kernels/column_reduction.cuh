// Sums over a batch, channel by channel, and what batch norm makes of them. A block takes THREADS_X times VEC of C channels,
// which are blockIdx.y's, and some of the rows; the blocks' sums are put aside and added in a fixed order.
#pragma once
#include "common.cuh"

// A thread's place: VEC channels from `c` on, and every THREADS_Y-th row of its block's.
#define THREADS_Y (COLUMN_THREADS / THREADS_X)
struct ColumnThread {
    int x, y, c;
    bool active;
    __device__ __forceinline__ ColumnThread() {
        x = threadIdx.x % THREADS_X;
        y = threadIdx.x / THREADS_X;
        c = (blockIdx.y * THREADS_X + x) * VEC;
        active = y < THREADS_Y && c < C;
    }
};

// The place of a row in the order in which rows are gone over. What a product wrote last is still in the cache, so the pass
// that follows it begins with the last row, and the pass after that with the first.
template <bool FROM_LAST> __device__ __forceinline__ int in_turn(int row, int rows) { return FROM_LAST ? rows - 1 - row : row; }

template <int SUMS> __device__ __forceinline__ void clear(sum_t (&sums)[SUMS][VEC]) {
#pragma unroll
    for (int s = 0; s < SUMS; s++)
#pragma unroll
        for (int e = 0; e < VEC; e++) sums[s][e] = 0;
}

// Adds up a block's sums and puts them aside.
template <int SUMS> __device__ __forceinline__ void write_partial(sum_t (&sums)[SUMS][VEC], const ColumnThread& thread, sum_t* partial) {
    reduce_block<SUMS, VEC, THREADS_X>(sums, thread.x, thread.y);
    if (!thread.active || thread.y != 0) return;
#pragma unroll
    for (int s = 0; s < SUMS; s++)
#pragma unroll
        for (int e = 0; e < VEC; e++) partial[((size_t)blockIdx.x * SUMS + s) * C + thread.c + e] = sums[s][e];
}

// Adds up what so many blocks put aside; the result is in the threads with y == 0.
template <int SUMS> __device__ __forceinline__ void reduce_partials(sum_t (&sums)[SUMS][VEC], const ColumnThread& thread, const sum_t* partial, int blocks) {
    clear(sums);
    if (thread.active) {
#pragma unroll 4
        for (int b = thread.y; b < blocks; b += THREADS_Y)
#pragma unroll
            for (int s = 0; s < SUMS; s++)
#pragma unroll
                for (int e = 0; e < VEC; e++) sums[s][e] += __ldcg(partial + ((size_t)b * SUMS + s) * C + thread.c + e);
    }
    reduce_block<SUMS, VEC, THREADS_X>(sums, thread.x, thread.y);
}

// What a norm comes with, and what its statistics give: the running ones are moved along, and each channel ends up with a
// scale and a shift.
struct NormParameters {
    const float* gamma;
    const float* beta;
    float* running_mean;
    float* running_variance;
    float eps;
    float momentum;
};
struct NormSaved {
    sum_t* mean;
    sum_t* inverse;
    sum_t* scale;
    sum_t* shift;
};

static_assert(sizeof(NormParameters) == NORM_PARAMETERS_BYTES && sizeof(NormSaved) == NORM_SAVED_BYTES, "the host's structs have another size");

// A channel's numbers from the sums of its values and of their squares, both taken about the channel's first value, so that
// a mean far from zero costs no digits.
struct Moments {
    sum_t mean, inverse, scale, shift, unbiased;
    __device__ __forceinline__ Moments(sum_t first, sum_t second, float pivot, int rows, float eps, float gamma, float beta) {
        sum_t average = first / (sum_t)rows, variance = second / (sum_t)rows - average * average;
        // Rounding may take it below zero, a NaN must stay one.
        variance = variance < 0 ? 0 : variance;
        mean = (sum_t)pivot + average;
        unbiased = rows > 1 ? variance * ((sum_t)rows / (sum_t)(rows - 1)) : variance;
        inverse = (sum_t)1 / sqrt(variance + (sum_t)eps);
        scale = (sum_t)gamma * inverse;
        shift = (sum_t)beta - mean * scale;
    }
    // The same from the mean and the variance of all rows, wherever they are.
    __device__ __forceinline__ Moments(double of, double variance, double rows, float eps, float gamma, float beta) {
        mean = (sum_t)of;
        unbiased = (sum_t)(rows > 1 ? variance * (rows / (rows - 1)) : variance);
        inverse = (sum_t)(1 / sqrt(variance + (double)eps));
        scale = (sum_t)gamma * inverse;
        shift = (sum_t)beta - mean * scale;
    }
    __device__ __forceinline__ void keep(int j, const NormParameters& norm, const NormSaved& to) const {
        norm.running_mean[j] += norm.momentum * ((float)mean - norm.running_mean[j]);
        norm.running_variance[j] += norm.momentum * ((float)unbiased - norm.running_variance[j]);
        to.mean[j] = mean;
        to.inverse[j] = inverse;
        to.scale[j] = scale;
        to.shift[j] = shift;
    }
};

__device__ __forceinline__ void add_about(sum_t (&sums)[2][VEC], const FloatVec<VEC>& v, const FloatVec<VEC>& pivot) {
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        sum_t d = (sum_t)v.v[e] - (sum_t)pivot.v[e];
        sums[0][e] += d;
        sums[1][e] += d * d;
    }
}

// The sums of a batch's values and of their squares about the first, over all blocks. True for the threads that end up with
// them.
__device__ __forceinline__ bool sum_about_first(sum_t (&sums)[2][VEC], FloatVec<VEC>& pivot, const ColumnThread& thread, const act_t* y, sum_t* partial,
                                                u32* counter, int rows) {
    clear(sums);
    if (thread.active) {
        pivot = load<VEC>(y + thread.c);
#pragma unroll 4
        for (int row = blockIdx.x * THREADS_Y + thread.y; row < rows; row += gridDim.x * THREADS_Y)
            add_about(sums, load<VEC>(y + (size_t)in_turn<TURNED>(row, rows) * C + thread.c), pivot);
    }
    write_partial(sums, thread, partial);
    if (!last_block(counter + blockIdx.y, gridDim.x)) return false;
    reduce_partials(sums, thread, partial, gridDim.x);
    return thread.active && thread.y == 0;
}
