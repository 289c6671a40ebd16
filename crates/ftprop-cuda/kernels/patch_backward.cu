// The slopes by a convolution's input, for stride 1 and not too many channels: the slopes by its output that a block's
// pixels need lie in shared memory as one patch, and the matrix units read windows from there. The warps of a block share
// its pixels two ways and the output's channels four ways; they read filters straight from global memory, and their sums
// are added at the end.
//
// H x W pixels of CI channels became OH x OW of OC by windows of KH x KW and PAD around. PIXELS is a multiple of 32. A
// filter's numbers are read FILTER_WIDTH at a time.
#include "common.cuh"

#define WARPS 8
#define PARTIES 4
#define PATCH_W (W + KW - 1)
// So far apart that the pixels a warp reads at once lie in different banks.
#define PIXEL (OC + 4)
#define IMAGE (H * W)
#define TILES ((IMAGE + PIXELS - 1) / PIXELS)
#define MI (PIXELS / 32)
#define NI (CI / 8)
// A warp's channels, eight at a time, and with each tap of the filter: the steps that it takes.
#define PARTS (OC / 8 / PARTIES)
#define STEPS (KH * KW * PARTS)
// Steps for which filters are on their way.
#define AHEAD 4

constexpr int SPANNED = (PIXELS + W - 2) / W + 1;
constexpr int PATCH_H = (SPANNED < H ? SPANNED : H) + KH - 1;

// NI numbers in a row.
__device__ __forceinline__ void load_row(float (&to)[NI], const float* from) {
#pragma unroll
    for (int j = 0; j < NI; j += FILTER_WIDTH) {
#if FILTER_WIDTH == 4
        *reinterpret_cast<float4*>(to + j) = *reinterpret_cast<const float4*>(from + j);
#elif FILTER_WIDTH == 2
        *reinterpret_cast<float2*>(to + j) = *reinterpret_cast<const float2*>(from + j);
#else
        to[j] = from[j];
#endif
    }
}
__device__ __forceinline__ void load_row(float (&to)[NI], const u16* from) {
#pragma unroll
    for (int j = 0; j < NI; j += FILTER_WIDTH) {
#if FILTER_WIDTH == 4
        FloatVec<4> four = load<4>(from + j);
#pragma unroll
        for (int e = 0; e < 4; e++) to[j + e] = four.v[e];
#elif FILTER_WIDTH == 2
        u32 two = *reinterpret_cast<const u32*>(from + j);
        to[j] = __uint_as_float(two << 16);
        to[j + 1] = __uint_as_float(two & 0xffff0000u);
#else
        to[j] = widen(from[j]);
#endif
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
patch_backward(const act_t* __restrict__ dy, const act_t* __restrict__ w, act_t* dx, int accumulate) {
    extern __shared__ __align__(16) unsigned char memory[];
    float* patch = reinterpret_cast<float*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int party = warp % PARTIES, side = warp / PARTIES;
    const int image = blockIdx.x / TILES, p0 = blockIdx.x % TILES * PIXELS, y0 = p0 / W;
    // Filters of this warp's channels: a row of CI numbers for each channel and tap. The matrix units do not mind which
    // input channel a column is: column g of the j-th eight is g NI + j, so that a thread reads NI numbers in a row.
    const act_t* filters = w + (size_t)(party * (8 * PARTS) + t) * (KH * KW * CI) + g * NI;
    float ahead[AHEAD][2][NI];
    auto fetch = [&](float (&to)[2][NI], int step) {
        const act_t* at = filters + (size_t)(step % PARTS * 8) * (KH * KW * CI) + step / PARTS * CI;
        load_row(to[0], at);
        load_row(to[1], at + 4 * (KH * KW * CI));
    };
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
        if (u < STEPS) fetch(ahead[u], u);
    const act_t* from = dy + (size_t)image * (OH * OW * OC);
#pragma unroll 4
    for (int i = threadIdx.x; i < PATCH_H * PATCH_W * (OC / 4); i += WARPS * 32) {
        int place = i / (OC / 4), c = i % (OC / 4) * 4;
        int y = y0 + PAD - (KH - 1) + place / PATCH_W, x = place % PATCH_W + PAD - (KW - 1);
        FloatVec<4> slope = {};
        if ((u32)y < (u32)OH && (u32)x < (u32)OW) slope = load<4>(from + (y * OW + x) * OC + c);
        store<4>(patch + place * PIXEL + c, slope);
    }
    const float* window[2 * MI];
#pragma unroll
    for (int i = 0; i < 2 * MI; i++) {
        int p = p0 + side * (PIXELS / 2) + i * 8 + g;
        p = p < IMAGE ? p : p0;
        window[i] = patch + ((p / W - y0) * PATCH_W + p % W) * PIXEL + party * (8 * PARTS) + t;
    }
    __syncthreads();
    float acc[MI][NI][4] = {};
#pragma unroll 1
    for (int begin = 0; begin < STEPS; begin += AHEAD) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int step = begin + u, tap = step / PARTS;
            if (step >= STEPS) break;
            float b[2][NI];
#pragma unroll
            for (int j = 0; j < NI; j++) b[0][j] = ahead[u][0][j], b[1][j] = ahead[u][1][j];
            if (step + AHEAD < STEPS) fetch(ahead[u], step + AHEAD);
            // A tap of the filter meets the slopes on the other side.
            const int offset = ((KH - 1 - tap / KW) * PATCH_W + (KW - 1 - tap % KW)) * PIXEL + step % PARTS * 8;
#pragma unroll
            for (int i = 0; i < MI; i++) {
                const float *upper = window[2 * i] + offset, *lower = window[2 * i + 1] + offset;
                const float a[4] = {upper[0], lower[0], upper[4], lower[4]};
#pragma unroll
                for (int j = 0; j < NI; j++) multiply_add(acc[i][j], a, b[0][j], b[1][j]);
            }
        }
    }
    // The warps' sums, where the patch was.
    __syncthreads();
    float* sums = patch + party * (PIXELS * CI);
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int column = 0; column < 2; column++) {
                float* at = sums + (side * (PIXELS / 2) + i * 16 + half * 8 + g) * CI + (2 * t + column) * NI;
#pragma unroll
                for (int j = 0; j < NI; j++) at[j] = acc[i][j][2 * half + column];
            }
    __syncthreads();
    const int count = (IMAGE - p0 < PIXELS ? IMAGE - p0 : PIXELS) * CI;
    act_t* to = dx + ((size_t)image * IMAGE + p0) * CI;
    for (int i = threadIdx.x * 4; i < count; i += WARPS * 128) {
        FloatVec<4> sum = load<4>(patch + i);
#pragma unroll
        for (int other = 1; other < PARTIES; other++) {
            FloatVec<4> more = load<4>(patch + other * (PIXELS * CI) + i);
#pragma unroll
            for (int e = 0; e < 4; e++) sum.v[e] += more.v[e];
        }
        if (accumulate) {
            FloatVec<4> old = load<4>(to + i);
#pragma unroll
            for (int e = 0; e < 4; e++) sum.v[e] += old.v[e];
        }
        store<4>(to + i, sum);
    }
}
