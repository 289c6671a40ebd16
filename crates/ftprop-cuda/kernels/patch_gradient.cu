// The gradient of a convolution's filters: the slopes by the output's pixels and the part of the input that they look at
// lie in shared memory, and the matrix units read both from there. The sum runs over pixels: every block takes some of
// them and writes its sum aside; patch_gradient_reduce adds these up in a fixed order. A block takes WINDOW_ROWS rows of each filter,
// which are blockIdx.y's.
//
// H x W pixels of CI channels, stored XC apart, became OH x OW of OC. In the patch a pixel takes PIXEL numbers: CI of a
// picture, so that a row of a filter lies there as one piece; else so many that threads read from different banks. For
// bf16 the numbers are widened, which changes none: tf32 holds them all; with HALVES they stay as they are, and a picture's
// pixel has its fourth. With two STAGES the next pixels are on their way while the matrix units work on these.
#include "common.cuh"

#define WARPS 8
#define WINDOW_ROW (KW * CI)
#define TAPS (KH * WINDOW_ROW)
// Taps of a block, and how many eights of them there are.
#define COLUMNS (WINDOW_ROWS * WINDOW_ROW)
#define STEPS ((COLUMNS + 7) / 8)
#define PATCH_W ((OW - 1) * STRIDE + KW)
#define IMAGE (OH * OW)
#define TILES ((IMAGE + PIXELS - 1) / PIXELS)

constexpr int SPANNED = (PIXELS + OW - 2) / OW + 1;
constexpr int PATCH_H = ((SPANNED < OH ? SPANNED : OH) - 1) * STRIDE + WINDOW_ROWS;

#if HALVES
typedef u16 number_t;
#else
typedef float number_t;
#endif
// Bytes of what a block works on at a time.
constexpr int TILE_BYTES = (PIXELS * (SLOPE_ROW * (int)sizeof(number_t) + 4) + PATCH_H * PATCH_W * PIXEL * (int)sizeof(number_t) + 15) / 16 * 16;

// From where a window begins in the patch to its number `tap`. What lies behind the window is not kept.
__device__ __forceinline__ int offset_of(int tap) {
    const int row = tap / WINDOW_ROW, column = tap % WINDOW_ROW;
    return tap < COLUMNS ? (row * PATCH_W + column / CI) * PIXEL + column % CI : 0;
}

// Four numbers to shared memory, or zeros. What needs no widening is waited for by `copies_done` only.
__device__ __forceinline__ void copy_four(float* to, const float* from, bool valid) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid ? 16 : 0));
}
// So many halves as they are.
template <int COUNT> __device__ __forceinline__ void copy_halves(u16* to, const u16* from, bool valid) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(2 * COUNT), "r"(valid ? 2 * COUNT : 0));
}
__device__ __forceinline__ void copy_four(float* to, const u16* from, bool valid) {
    FloatVec<4> numbers = {};
    if (valid) numbers = load<4>(from);
    store<4>(to, numbers);
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all copies but those of the last so many groups.
template <int LAST> __device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_group %0;" ::"n"(LAST) : "memory"); }

// What a block works on at a time.
struct Tile {
    number_t *slopes, *patch;
    int* begins;
    __device__ __forceinline__ Tile(unsigned char* memory, int stage) {
        slopes = reinterpret_cast<number_t*>(memory + stage * TILE_BYTES);
        begins = reinterpret_cast<int*>(slopes + PIXELS * SLOPE_ROW);
        patch = reinterpret_cast<number_t*>(begins + PIXELS);
    }
    __device__ __forceinline__ void begin(const act_t* dy, const act_t* x, int tile, int first_row) const {
        const int image = tile / TILES, p0 = tile % TILES * PIXELS, y0 = p0 / OW;
        const int count = IMAGE - p0 < PIXELS ? IMAGE - p0 : PIXELS;
        const act_t* from = dy + ((size_t)image * IMAGE + p0) * OC;
        constexpr int AT_ONCE = HALVES ? 8 : 4;
#pragma unroll 4
        for (int i = threadIdx.x; i < PIXELS * (OC / AT_ONCE); i += WARPS * 32) {
            int p = i / (OC / AT_ONCE), c = i % (OC / AT_ONCE) * AT_ONCE;
#if HALVES
            copy_halves<8>(slopes + p * SLOPE_ROW + c, from + p * OC + c, p < count);
#else
            copy_four(slopes + p * SLOPE_ROW + c, from + p * OC + c, p < count);
#endif
        }
        for (int i = threadIdx.x; i < PIXELS; i += WARPS * 32) {
            int p = p0 + (i < count ? i : 0);
            begins[i] = ((p / OW - y0) * PATCH_W + p % OW) * (STRIDE * PIXEL);
        }
        const act_t* picture = x + (size_t)image * (H * W * XC);
        constexpr int OF_PIXEL = HALVES && XC % 8 == 0 ? 8 : 4;
#pragma unroll 4
        for (int i = threadIdx.x; i < PATCH_H * PATCH_W * (XC / OF_PIXEL); i += WARPS * 32) {
            int place = i / (XC / OF_PIXEL), c = i % (XC / OF_PIXEL) * OF_PIXEL;
            int py = y0 * STRIDE - PAD + first_row + place / PATCH_W, px = place % PATCH_W - PAD;
            bool inside = (u32)py < (u32)H && (u32)px < (u32)W;
            const act_t* at = picture + (py * W + px) * XC + c;
#if HALVES
            copy_halves<OF_PIXEL>(patch + place * PIXEL + c, inside ? at : picture, inside);
#elif PIXEL % 4 == 0
            copy_four(patch + place * PIXEL + c, at, inside);
#else
            FloatVec<4> pixel = {};
            if (inside) pixel = load<4>(at);
#pragma unroll
            for (int e = 0; e < CI; e++) patch[place * PIXEL + e] = pixel.v[e];
#endif
        }
        end_copies();
    }
};

// The warps of a block share its taps WARPS_N ways, and the pixels among those that have the same taps.
extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT)
patch_gradient(const act_t* __restrict__ dy, const act_t* __restrict__ x, float* __restrict__ sums, int n) {
    constexpr int MI = OC / 16, NI = (STEPS + WARPS_N - 1) / WARPS_N;
    constexpr int WARPS_K = WARPS / WARPS_N, TOTAL_ROW = STEPS * 8;
    extern __shared__ __align__(16) unsigned char memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int warp_n = warp % WARPS_N, warp_k = warp / WARPS_N, first_row = blockIdx.y * WINDOW_ROWS;
    int offset[NI];
#pragma unroll
    for (int j = 0; j < NI; j++) offset[j] = offset_of((warp_n * NI + j) * 8 + g);
    float acc[MI][NI][4] = {};
    if (STAGES == 2 && blockIdx.x < n * TILES) Tile(memory, 0).begin(dy, x, blockIdx.x, first_row);
    for (int tile = blockIdx.x, stage = 0; tile < n * TILES; tile += gridDim.x, stage = STAGES - 1 - stage) {
        __syncthreads();
        if (STAGES == 1) {
            Tile(memory, 0).begin(dy, x, tile, first_row);
            copies_done<0>();
        } else if (tile + gridDim.x < n * TILES) {
            Tile(memory, 1 - stage).begin(dy, x, tile + gridDim.x, first_row);
            copies_done<1>();
        } else {
            copies_done<0>();
        }
        __syncthreads();
        const Tile now(memory, stage);
        const number_t *slopes = now.slopes, *patch = now.patch;
        const int* begins = now.begins;
#if HALVES
        for (int k = warp_k; k < PIXELS / 16; k += WARPS_K) {
            const int p = k * 16 + 2 * t;
            const int2 first = *reinterpret_cast<const int2*>(begins + p), second = *reinterpret_cast<const int2*>(begins + p + 8);
            u32 a[MI][4];
#pragma unroll
            for (int i = 0; i < MI; i++)
                matrices4_transposed(a[i], slopes + (k * 16 + lane / 16 * 8 + lane % 8) * SLOPE_ROW + i * 16 + lane / 8 % 2 * 8);
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const number_t* tap = patch + offset[j];
                const u32 b0 = tap[first.x] | (u32)tap[first.y] << 16, b1 = tap[second.x] | (u32)tap[second.y] << 16;
#pragma unroll
                for (int i = 0; i < MI; i++) multiply_add_bf16(acc[i][j], a[i], b0, b1);
            }
        }
#else
        for (int k = warp_k; k < PIXELS / 8; k += WARPS_K) {
            const int p = k * 8 + t;
            const float *first = patch + begins[p], *second = patch + begins[p + 4];
            float a[MI][4];
#pragma unroll
            for (int i = 0; i < MI; i++) {
                const float* slope = slopes + p * SLOPE_ROW + i * 16 + g;
                a[i][0] = slope[0];
                a[i][1] = slope[8];
                a[i][2] = slope[4 * SLOPE_ROW];
                a[i][3] = slope[4 * SLOPE_ROW + 8];
            }
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const float b0 = first[offset[j]], b1 = second[offset[j]];
#pragma unroll
                for (int i = 0; i < MI; i++) multiply_add(acc[i][j], a[i], b0, b1);
            }
        }
#endif
    }
    // The warps' sums, one after another, where the slopes were.
    float* total = reinterpret_cast<float*>(memory);
    for (int k = 0; k < WARPS_K; k++) {
        __syncthreads();
        if (warp_k != k) continue;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                if (warp_n * NI + j >= STEPS) continue;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float2* at = reinterpret_cast<float2*>(total + (i * 16 + half * 8 + g) * TOTAL_ROW + (warp_n * NI + j) * 8 + 2 * t);
                    float2 sum = k == 0 ? make_float2(0.0f, 0.0f) : *at;
                    *at = make_float2(sum.x + acc[i][j][2 * half], sum.y + acc[i][j][2 * half + 1]);
                }
            }
    }
    __syncthreads();
    float* to = sums + (size_t)blockIdx.x * (OC * TAPS) + first_row * WINDOW_ROW;
    for (int i = threadIdx.x; i < OC * COLUMNS; i += WARPS * 32)
        to[i / COLUMNS * TAPS + i % COLUMNS] = total[i / COLUMNS * TOTAL_ROW + i % COLUMNS];
}

// Adds up what the blocks of patch_gradient wrote: 32 numbers a block, each by eight threads.
extern "C" __global__ void __launch_bounds__(256) patch_gradient_reduce(const float* __restrict__ sums, float* __restrict__ out, int blocks) {
    __shared__ float parts[8][32];
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (i < OC * TAPS) {
#pragma unroll 8
        for (int b = part; b < blocks; b += 8) sum += sums[(size_t)b * (OC * TAPS) + i];
    }
    parts[part][lane] = sum;
    __syncthreads();
    if (part != 0 || i >= OC * TAPS) return;
#pragma unroll
    for (int other = 1; other < 8; other++) sum += parts[other][lane];
    out[i] = gradient(sum);
}
