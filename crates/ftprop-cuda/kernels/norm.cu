// Batch norm's statistics: of the batch in training, with the running ones moved along, or the running ones
// alone. Either way each channel ends up with a scale and a shift that the next pass applies.

// Sums are taken about the channel's first value, so that a mean far from zero costs no digits.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
norm_statistics(const act_t* __restrict__ y, const float* __restrict__ gamma, const float* __restrict__ beta, float* __restrict__ running_mean,
                float* __restrict__ running_variance, sum_t* __restrict__ mean, sum_t* __restrict__ inverse, sum_t* __restrict__ scale,
                sum_t* __restrict__ shift, sum_t* __restrict__ partial, u32* __restrict__ counter, int rows, float eps, float momentum) {
    typedef Columns<C, VEC> Cols;
    const int across = threadIdx.x % Cols::ACROSS, down = threadIdx.x / Cols::ACROSS;
    const int c = (blockIdx.y * Cols::ACROSS + across) * VEC;
    const bool active = down < Cols::DOWN && c < C;
    sum_t sums[2][VEC];
#pragma unroll
    for (int e = 0; e < VEC; e++) sums[0][e] = sums[1][e] = 0.0f;
    Wide<VEC> pivot;
    if (active) {
        pivot = load<VEC>(y + c);
#pragma unroll 4
        for (int row = blockIdx.x * Cols::DOWN + down; row < rows; row += gridDim.x * Cols::DOWN) {
            Wide<VEC> v = load<VEC>(y + (size_t)row * C + c);
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sum_t d = (sum_t)v.v[e] - (sum_t)pivot.v[e];
                sums[0][e] += d;
                sums[1][e] += d * d;
            }
        }
    }
    add_down<2, VEC, Cols::ACROSS, Cols::DOWN>(sums, across, down, active);
    if (active && down == 0) {
#pragma unroll
        for (int s = 0; s < 2; s++)
#pragma unroll
            for (int e = 0; e < VEC; e++) partial[((size_t)blockIdx.x * 2 + s) * C + c + e] = sums[s][e];
    }
    if (!last_block(counter + blockIdx.y, gridDim.x)) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) sums[0][e] = sums[1][e] = 0.0f;
    if (active) {
        for (int b = down; b < gridDim.x; b += Cols::DOWN)
#pragma unroll
            for (int s = 0; s < 2; s++)
#pragma unroll
                for (int e = 0; e < VEC; e++) sums[s][e] += __ldcg(partial + ((size_t)b * 2 + s) * C + c + e);
    }
    add_down<2, VEC, Cols::ACROSS, Cols::DOWN>(sums, across, down, active);
    if (active && down == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            int j = c + e;
            double first = sums[0][e], second = sums[1][e];
            double m = (double)pivot.v[e] + first / rows;
            double variance = (second - first * first / rows) / rows;
            // Rounding may take it below zero, a NaN must stay one.
            variance = variance < 0.0 ? 0.0 : variance;
            double unbiased = rows > 1 ? variance * rows / (rows - 1) : variance;
            running_mean[j] += momentum * ((float)m - running_mean[j]);
            running_variance[j] += momentum * ((float)unbiased - running_variance[j]);
            double inv = 1.0 / sqrt(variance + (double)eps), s = (double)gamma[j] * inv;
            mean[j] = (sum_t)m;
            inverse[j] = (sum_t)inv;
            scale[j] = (sum_t)s;
            shift[j] = (sum_t)((double)beta[j] - m * s);
        }
    }
}

extern "C" __global__ void norm_running(const float* __restrict__ gamma, const float* __restrict__ beta, const float* __restrict__ running_mean,
                                        const float* __restrict__ running_variance, sum_t* __restrict__ scale, sum_t* __restrict__ shift, float eps) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    sum_t s = (sum_t)gamma[j] / sqrt((sum_t)running_variance[j] + (sum_t)eps);
    scale[j] = s;
    shift[j] = (sum_t)beta[j] - (sum_t)running_mean[j] * s;
}

// The sums of a matrix's columns: the gradient of a bias that no other pass takes along.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
column_sums(const act_t* __restrict__ x, float* __restrict__ out, sum_t* __restrict__ partial, u32* __restrict__ counter, int rows) {
    typedef Columns<C, VEC> Cols;
    const int across = threadIdx.x % Cols::ACROSS, down = threadIdx.x / Cols::ACROSS;
    const int c = (blockIdx.y * Cols::ACROSS + across) * VEC;
    const bool active = down < Cols::DOWN && c < C;
    sum_t sums[1][VEC];
#pragma unroll
    for (int e = 0; e < VEC; e++) sums[0][e] = 0.0f;
    if (active) {
#pragma unroll 4
        for (int row = blockIdx.x * Cols::DOWN + down; row < rows; row += gridDim.x * Cols::DOWN) {
            Wide<VEC> v = load<VEC>(x + (size_t)row * C + c);
#pragma unroll
            for (int e = 0; e < VEC; e++) sums[0][e] += v.v[e];
        }
    }
    add_down<1, VEC, Cols::ACROSS, Cols::DOWN>(sums, across, down, active);
    if (active && down == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) partial[(size_t)blockIdx.x * C + c + e] = sums[0][e];
    }
    if (!last_block(counter + blockIdx.y, gridDim.x)) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) sums[0][e] = 0.0f;
    if (active) {
        for (int b = down; b < gridDim.x; b += Cols::DOWN)
#pragma unroll
            for (int e = 0; e < VEC; e++) sums[0][e] += __ldcg(partial + (size_t)b * C + c + e);
    }
    add_down<1, VEC, Cols::ACROSS, Cols::DOWN>(sums, across, down, active);
    if (active && down == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) out[c + e] = (float)sums[0][e];
    }
}
