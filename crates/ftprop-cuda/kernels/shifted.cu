// A convolution whose windows move by one pixel, or the slopes by its input, which are another such convolution: what the windows of
// a block's pixels look at lies in shared memory once, and each tap reads it from another row on.
//
// Pixels are counted over maps that have their padding between rows and between images, one after another: then the pixel that a tap
// looks at is the same number of places further for all of them. Rows' padding is on one side only, since what is right of a row is
// left of the next one. Places in the padding are multiplied too, and not written.
//
// MODE_FORWARD: y from x and w. MODE_INPUT: dx from dy and w; in tf32, where numbers side by side must have the same channel in, w comes
// as turned_filters leaves it.
#include "shifted_tiles.cuh"
#if FILTERS_HELD
#include "shifted_held.cuh"
#elif FILTERS_STAY
#include "shifted_kept.cuh"
#else
#include "shifted_streamed.cuh"
#endif

extern "C" __global__ void __launch_bounds__(256, RESIDENT)
shifted(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* y, const act_t* addend, int n) {
#if WARPGROUPS
    convolve(x, w, y, addend, n);
#endif
}

// Filters with their numbers in the order of taps, channels in and channels out.
extern "C" __global__ void __launch_bounds__(256) turned_filters(const act_t* __restrict__ w, act_t* __restrict__ turned) {
    __shared__ act_t tile[32][33];
    constexpr int NUMBERS = KH * KW * CI;
    const int lane = threadIdx.x % 32, from = blockIdx.x * 32, out = blockIdx.y * 32;
    for (int i = threadIdx.x / 32; i < 32; i += 8)
        if (out + i < OC && from + lane < NUMBERS) tile[i][lane] = w[(size_t)(out + i) * NUMBERS + from + lane];
    __syncthreads();
    for (int i = threadIdx.x / 32; i < 32; i += 8)
        if (from + i < NUMBERS && out + lane < OC) turned[(size_t)(from + i) * OC + out + lane] = tile[lane][i];
}
