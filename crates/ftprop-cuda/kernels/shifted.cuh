// What convolutions by shifts have in common, whether filters come and go (shifted_streamed.cuh) or stay (shifted_kept.cuh): which way they
// go, where pixels and filters lie, and how sums are written.
#pragma once
#include "warpgroup.cuh"

#define MODE_FORWARD 1
#define MODE_INPUT 2

#if MODE == MODE_FORWARD
#define IN_H H
#define IN_W W
#define IN_C CI
#define OUT_H OH
#define OUT_W OW
#define OUT_C OC
#define PAD_Y PAD
#define PAD_X PAD
#elif MODE == MODE_INPUT
#define IN_H OH
#define IN_W OW
#define IN_C OC
#define OUT_H H
#define OUT_W W
#define OUT_C CI
#define PAD_Y (KH - 1 - PAD)
#define PAD_X (KW - 1 - PAD)
#else
#error "unknown MODE"
#endif
// Whether filters' numbers that follow each other have the same depth.
#define WIDE_FILTERS (MODE == MODE_INPUT && PRECISION == PRECISION_BF16)

#if WARPGROUPS
constexpr int GROUPS_OF_WARPS = 2, THREADS = GROUPS_OF_WARPS * 128, NI = BN / 8;
constexpr int WIDE = IN_W + PAD_X, SPACE = (IN_H + PAD_Y) * WIDE, TAPS = KH * KW;
// Of the channels KC at a time, in pieces of 16 bytes; a step is STEP taps of them.
constexpr int PIECE = 16 / (int)sizeof(act_t), ACROSS = KC / PIECE;
constexpr int TAP_BYTES = BN * KC * (int)sizeof(act_t);
static_assert(IN_C % KC == 0 && TAPS % STEP == 0 && BN % 16 == 0 && OUT_C % 8 == 0, "no such cut");
static_assert(OUT_W <= WIDE && OUT_H <= IN_H + PAD_Y && PAD_Y >= 0 && PAD_X >= 0, "windows beyond the padding");

// The pixel at a place that windows look at, counted from the first that the first one looks at; none are those in the padding.
__device__ __forceinline__ u32 find_pixel(u32 row, int n) {
    // Before the first image this is beyond the last.
    const u32 place = row - (PAD_Y * WIDE + PAD_X), image = place / SPACE, y = place % SPACE / WIDE, c = place % WIDE;
    return place < (u32)n * SPACE && y < IN_H && c < IN_W ? (image * IN_H + y) * IN_W + c : NOWHERE;
}

// Asks for the filters of a step, from `channel` on.
__device__ __forceinline__ void ask_for_filters(u32 to, const act_t* w, int channel, int step) {
    const int n0 = blockIdx.y * BN;
#pragma unroll
    for (int j = 0; j < STEP * BN * ACROSS; j += THREADS) {
        const int i = j + threadIdx.x;
        if (j + THREADS > STEP * BN * ACROSS && i >= STEP * BN * ACROSS) break;
        const int t = i / (BN * ACROSS), k = i % (BN * ACROSS);
        // Slopes go through windows that are turned around.
        const int tap = MODE == MODE_INPUT ? TAPS - 1 - step * STEP - t : step * STEP + t;
#if WIDE_FILTERS
        const int row = k % KC, piece = k / KC, out = n0 + piece * PIECE;
        const act_t* from = w + ((size_t)(channel + row) * TAPS + tap) * OUT_C + out;
        const int at = piece * KC + row;
#else
        const int row = k / (8 * ACROSS) * 8 + k % 8, piece = k / 8 % ACROSS, out = n0 + row;
        const size_t filter = MODE == MODE_INPUT ? (size_t)tap * OUT_C + out : (size_t)out * TAPS + tap;
        const act_t* from = w + filter * IN_C + channel + piece * PIECE;
        const int at = piece * BN + row;
#endif
        const bool inside = OUT_C % BN == 0 || out < OUT_C;
        ask_for(to + t * TAP_BYTES + at * 16, inside ? from : w, inside);
    }
}

// A row's sums to one pixel, with what is added to them. Of two eights of columns in bf16 a thread of an even lane writes four numbers
// of the first, with its neighbour's, and the neighbour four of the second: together whole sectors of 32 bytes.
__device__ __forceinline__ void write_pixel(const float (&sums)[NI][4], int half, act_t* pixel, const act_t* addend, bool inside) {
    const int n0 = blockIdx.y * BN, t = threadIdx.x % 4 * 2;
    const bool odd = threadIdx.x % 2;
#pragma unroll
    for (int j = 0; j < NI; j += 2) {
        const int col = n0 + j * 8 + t;
        float v[4] = {sums[j][half], sums[j][half + 1], sums[j + 1][half], sums[j + 1][half + 1]};
        const bool first = inside && (OUT_C % BN == 0 || col < OUT_C), second = inside && (OUT_C % BN == 0 || col + 8 < OUT_C);
        if (addend) {
            if (first) v[0] += widen(addend[col]), v[1] += widen(addend[col + 1]);
            if (second) v[2] += widen(addend[col + 8]), v[3] += widen(addend[col + 9]);
        }
#if PRECISION == PRECISION_BF16
        const u32 low = two_bf16(v[0], v[1]), high = two_bf16(v[2], v[3]), other = __shfl_xor_sync(~0u, odd ? low : high, 1);
        if (odd ? second : first) store_words(pixel + (odd ? col + 6 : col), odd ? other : low, odd ? high : other);
#else
        if (first) store_words(pixel + col, __float_as_uint(v[0]), __float_as_uint(v[1]));
        if (second) store_words(pixel + col + 8, __float_as_uint(v[2]), __float_as_uint(v[3]));
#endif
    }
}

// The sums of a group of warps for MT times 64 places from `first` on.
__device__ __forceinline__ void write_places(const float (&acc)[MT][NI][4], u32 first, act_t* y, const act_t* addend, int n) {
    first += threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 place = first + m * 64 + half * 8, image = place / SPACE, row = place % SPACE / WIDE, c = place % WIDE;
            const bool inside = image < (u32)n && row < OUT_H && c < OUT_W;
            const size_t pixel = inside ? ((size_t)(image * OUT_H + row) * OUT_W + c) * OUT_C : 0;
            write_pixel(acc[m], 2 * half, y + pixel, addend ? addend + pixel : nullptr, inside);
        }
}
#endif
