// Filters stay in shared memory, where they are small enough, and a block goes through tiles of places (shifted_tiles.cuh). Pixels reach the
// units through registers, since rows that begin anywhere are read from shared memory so without loss.
#pragma once
#include "shifted_tiles.cuh"

#if WARPGROUPS
// Rows are four more than a multiple of eight, so that the pieces of a row that two threads write next to each other are in other banks.
constexpr int PLACES = MT * 64, ROWS = (PLACES + (KH - 1) * WIDE + KW - 1 + 3) / 8 * 8 + 4;
// Of 32 bytes of depth: those of a tap, and how many are multiplied at a time.
constexpr int DEEP = KC * (int)sizeof(act_t) / 32, AT_ONCE = DEEP % 4 == 0 ? 4 : DEEP % 3 == 0 ? 3 : DEEP % 2 == 0 ? 2 : 1;
constexpr int PARTS = DEEP / AT_ONCE, STEPS = TAPS * PARTS;

// The pixels that a step looks at.
struct Pixels {
    u32 of[AT_ONCE][MT][4];
    __device__ __forceinline__ void read(u32 patch, int step) {
        const int tap = step / PARTS, shift = tap / KW * WIDE + tap % KW, lane = threadIdx.x % 32;
        const u32 row = patch + (shift + threadIdx.x / 32 % 4 * 16 + lane % 16 + (lane / 16 + step % PARTS * (2 * AT_ONCE)) * ROWS) * 16;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
            for (int m = 0; m < MT; m++)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(of[k][m][0]), "=r"(of[k][m][1]), "=r"(of[k][m][2]), "=r"(of[k][m][3])
                             : "r"(row + (k * 2 * ROWS + m * 64) * 16)
                             : "memory");
    }
};

// One step, while the pixels of the next are read.
__device__ __forceinline__ void run_step(float (&acc)[MT][NI][4], const Pixels& pixels, Pixels& next, u32 patch, u32 filters, int step) {
    const u32 tap = filters + step / PARTS * TAP_BYTES;
#if WIDE_FILTERS
    const u64 b = matrix_in_shared(tap, 128, KC * 16) + step % PARTS * (AT_ONCE * 16);
    constexpr int DEEPER = 16;
#else
    const u64 b = matrix_in_shared(tap, BN * 16, 128) + step % PARTS * (AT_ONCE * 2 * BN);
    constexpr int DEEPER = 2 * BN;
#endif
    begin_products();
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
#pragma unroll
        for (int m = 0; m < MT; m++)
            multiply_add_group<PRECISION == PRECISION_TF32, WIDE_FILTERS>(acc[m], pixels.of[k][m], b + k * DEEPER);
    end_products();
    // Those of the step before, which had the registers.
    products_done<1>();
    if (step + 1 < STEPS) next.read(patch, step + 1);
}

__device__ __forceinline__ void convolve(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* y, const act_t* addend, int n) {
    u32 filters = 0;
    auto tile_of = [&](u32 patch, u32 tile, auto ask_for_next) {
        ask_for_next(true);
        float acc[MT][NI][4] = {};
        Pixels even, odd;
        even.read(patch, 0);
        for (int step = 0; step < STEPS; step += 2) {
            run_step(acc, even, odd, patch, filters, step);
            if (STEPS % 2 && step + 1 == STEPS) break;
            run_step(acc, odd, even, patch, filters, step + 1);
        }
        products_done<0>();
        pin_sums(acc);
        ask_for_next(false);
        write_places(acc, tile * PLACES, y, addend, n);
    };
    go_through_tiles<PLACES, ROWS>(x, w, n, [&](u32 at) { filters = at; }, tile_of);
}
#endif
