// Filters stay, where they are small enough. A block reads them once, and then goes through one tile of places after another: each of its
// groups of warps has tiles of its own, whose patch is on its way while the one before is multiplied, or where there is room for one patch
// only (PATCHES), while that is written. The groups do not wait for each other, so that one multiplies while another writes.
//
// Pixels reach the units through registers, since rows that begin anywhere are read from shared memory so without loss.
#pragma once
#include "shifted.cuh"

#if WARPGROUPS
// Rows are four more than a multiple of eight, so that the pieces of a row that two threads write next to each other are in other banks.
constexpr int PLACES = MT * 64, ROWS = (PLACES + (KH - 1) * WIDE + KW - 1 + 3) / 8 * 8 + 4, PATCH_BYTES = ROWS * KC * (int)sizeof(act_t);
static_assert(KC == IN_C && STEP == TAPS, "filters come as a whole");
// Of 32 bytes of depth: those of a tap, and how many are multiplied at a time.
constexpr int DEEP = KC * (int)sizeof(act_t) / 32, AT_ONCE = DEEP % 4 == 0 ? 4 : DEEP % 3 == 0 ? 3 : DEEP % 2 == 0 ? 2 : 1;
constexpr int PARTS = DEEP / AT_ONCE, STEPS = TAPS * PARTS;

// All of a group's warps are here.
__device__ __forceinline__ void meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

// Asks for what the windows of a tile look at: two threads have a row, each every other piece of it.
__device__ __forceinline__ void ask_for_patch(u32 to, const act_t* x, int n, u32 tile) {
    for (int row = threadIdx.x % 128 / 2; row < ROWS; row += 64) {
        const u32 at = find_pixel(tile * PLACES + row, n);
        const act_t* from = at != NOWHERE ? x + (size_t)at * IN_C : x;
#pragma unroll
        for (int k = 0; k < ACROSS; k += 2) {
            const int piece = k + threadIdx.x % 2;
            ask_for(to + (piece * ROWS + row) * 16, at != NOWHERE ? from + piece * PIECE : x, at != NOWHERE);
        }
    }
}

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
    extern __shared__ __align__(128) unsigned char memory[];
    // All of a warp agree, which the compiler would not know.
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const u32 filters = (u32)__cvta_generic_to_shared(memory), patches = filters + TAPS * TAP_BYTES + group * (PATCHES * PATCH_BYTES);
    const u32 tiles = ((u32)n * SPACE + PLACES - 1) / PLACES, further = gridDim.x * GROUPS_OF_WARPS;
    u32 tile = blockIdx.x * GROUPS_OF_WARPS + group;
    ask_for_filters(filters, w, 0, 0);
    if (tile < tiles) ask_for_patch(patches, x, n, tile);
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    show_shared();
    __syncthreads();
    for (int turn = 0; tile < tiles; tile += further, turn ^= 1) {
        const u32 patch = patches + turn % PATCHES * PATCH_BYTES, next = patches + (turn + 1) % PATCHES * PATCH_BYTES;
        auto ask_for_next = [&] {
            if (tile + further < tiles) ask_for_patch(next, x, n, tile + further);
            asm volatile("cp.async.commit_group;" ::: "memory");
        };
        if constexpr (PATCHES == 2) ask_for_next();
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
        if constexpr (PATCHES == 1) {
            meet(group);
            ask_for_next();
        }
        write_places(acc, tile * PLACES, y, addend, n);
        // The next patch is there, and nobody reads this one any more.
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        meet(group);
    }
}
#endif
