// Filters come and go: a step reads those of a tap, or of a row of taps, and some channels, while those of the next ones are on their
// way. The matrix units read both operands from shared memory themselves.
#pragma once
#include "shifted.cuh"

#if WARPGROUPS
// Places of a block, and rows of its patch: as many more as lie between the first tap and the last.
constexpr int PLACES = GROUPS_OF_WARPS * MT * 64, ROWS = (PLACES + (KH - 1) * WIDE + KW - 1 + 7) / 8 * 8;
constexpr int PARTS = IN_C / KC, STEPS = TAPS / STEP;
constexpr int PATCH_BYTES = ROWS * KC * (int)sizeof(act_t), STEP_BYTES = STEP * TAP_BYTES;
// Filters are asked for AHEAD steps before they are used. Where those of a step go, the units are done since the last barrier.
constexpr int AHEAD = STAGES - 2;
// Parts of the next channels' patch, one a step: from the second, when nobody reads its place any more, to the last that comes in time.
constexpr int PATCH_PARTS = STEPS - AHEAD;
static_assert(AHEAD >= 1 && (PARTS == 1 || PATCH_PARTS >= 1), "the next patch would come too late");

// The pixels that the rows of a block's patch are, whatever channels are there.
__device__ __forceinline__ void find_rows(u32 (&rows)[ROWS], int n) {
    for (int row = threadIdx.x; row < ROWS; row += THREADS) rows[row] = find_pixel(blockIdx.x * PLACES + row, n);
}

// Asks for a part, one of so many, of what a block's windows look at, from `channel` on. Eight threads write eight rows.
template <int OF> __device__ __forceinline__ void ask_for_patch(u32 to, const act_t* x, const u32 (&rows)[ROWS], int channel, int part) {
    constexpr int ALL = ROWS * ACROSS, EACH = (ALL + OF * 8 - 1) / (OF * 8) * 8;
    const int end = min(ALL, (part + 1) * EACH);
    for (int i = part * EACH + threadIdx.x; i < end; i += THREADS) {
        const int row = i / (8 * ACROSS) * 8 + i % 8, piece = i / 8 % ACROSS;
        const u32 at = rows[row];
        const act_t* from = at != NOWHERE ? x + (size_t)at * IN_C + channel + piece * PIECE : x;
        ask_for(to + (piece * ROWS + row) * 16, from, at != NOWHERE);
    }
}

// One step: each group of warps has MT times 64 of the places.
__device__ __forceinline__ void multiply_step(float (&acc)[MT][NI][4], u32 patch, u32 filters, int step) {
    // All of a warp agree, which the compiler would not know.
    const u64 a = matrix_in_shared(patch, ROWS * 16, 128) + __shfl_sync(~0u, threadIdx.x / 128, 0) * (MT * 64);
#if WIDE_FILTERS
    const u64 b = matrix_in_shared(filters, 128, KC * 16);
    constexpr int DEEPER = 16;
#else
    const u64 b = matrix_in_shared(filters, BN * 16, 128);
    constexpr int DEEPER = 2 * BN;
#endif
    begin_products();
#pragma unroll
    for (int t = 0; t < STEP; t++) {
        const int tap = step * STEP + t, shift = tap / KW * WIDE + tap % KW;
#pragma unroll
        for (int k = 0; k < KC * (int)sizeof(act_t) / 32; k++)
#pragma unroll
            for (int m = 0; m < MT; m++)
                multiply_shared<PRECISION == PRECISION_TF32, WIDE_FILTERS>(acc[m], a + shift + m * 64 + k * (2 * ROWS),
                                                                             b + t * (TAP_BYTES / 16) + k * DEEPER);
    }
    end_products();
}

__device__ __forceinline__ void convolve(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* y, const act_t* addend, int n) {
    extern __shared__ __align__(128) unsigned char memory[];
    const u32 filters = (u32)__cvta_generic_to_shared(memory), patches = filters + STAGES * STEP_BYTES;
    auto ask_ahead = [&](int at) {
        if (at < PARTS * STEPS) ask_for_filters(filters + at % STAGES * STEP_BYTES, w, at / STEPS * KC, at % STEPS);
    };
    __shared__ u32 rows[ROWS];
    find_rows(rows, n);
    __syncthreads();
    ask_for_patch<1>(patches, x, rows, 0, 0);
#pragma unroll
    for (int at = 0; at < AHEAD; at++) {
        ask_ahead(at);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    float acc[MT][NI][4] = {};
    int at = 0;
    for (int part = 0; part < PARTS; part++) {
        for (int step = 0; step < STEPS; step++, at++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
#ifndef UNFENCED
            show_shared();
#endif
            __syncthreads();
            multiply_step(acc, patches + part % 2 * PATCH_BYTES, filters + at % STAGES * STEP_BYTES, step);
            ask_ahead(at + AHEAD);
            if constexpr (PARTS > 1) {
                if (part + 1 < PARTS && step >= 1 && step <= PATCH_PARTS)
                    ask_for_patch<PATCH_PARTS>(patches + (part + 1) % 2 * PATCH_BYTES, x, rows, (part + 1) * KC, step - 1);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
            products_done<1>();
        }
    }
    products_done<0>();
    pin_sums(acc);
    write_places(acc, blockIdx.x * PLACES + threadIdx.x / 128 * (MT * 64), y, addend, n);
}
#endif
