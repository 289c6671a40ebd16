// How a block whose filters stay goes through tiles: it has the filters once; each of its groups of warps has tiles of its own, whose patch is
// on its way while the one before is multiplied, or where there is room for one patch only (PATCHES), while that is written. The groups do not
// wait for each other, so that one multiplies while another writes. A tile has PLACES, its patch ROWS.
#pragma once
#include "shifted.cuh"

#if WARPGROUPS

// All of a group's warps are here.
__device__ __forceinline__ void meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

// Asks for what the windows of a tile look at: two threads have a row, each every other piece of it.
template <int PLACES, int ROWS> __device__ __forceinline__ void ask_for_patch(u32 to, const act_t* x, int n, u32 tile) {
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

// Calls `prepare` with where the filters are, once they are there, and for each tile `one` with its patch, its number and what asks for the next
// patch: called with true as soon as products are on their way, and with false once they are done.
template <int PLACES, int ROWS, typename Prepare, typename One>
__device__ __forceinline__ void go_through_tiles(const act_t* x, const act_t* w, int n, Prepare prepare, One one) {
    constexpr int PATCH_BYTES = ROWS * KC * (int)sizeof(act_t);
    static_assert(KC == IN_C && STEP == TAPS, "filters come as a whole");
    extern __shared__ __align__(128) unsigned char memory[];
    // All of a warp agree, which the compiler would not know.
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const u32 filters = (u32)__cvta_generic_to_shared(memory), patches = filters + TAPS * TAP_BYTES + group * (PATCHES * PATCH_BYTES);
    const u32 tiles = ((u32)n * SPACE + PLACES - 1) / PLACES, further = gridDim.x * GROUPS_OF_WARPS;
    u32 tile = blockIdx.x * GROUPS_OF_WARPS + group;
    ask_for_filters(filters, w, 0, 0);
    if (tile < tiles) ask_for_patch<PLACES, ROWS>(patches, x, n, tile);
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    show_shared();
    __syncthreads();
    prepare(filters);
    for (int turn = 0; tile < tiles; tile += further, turn ^= 1) {
        const u32 patch = patches + turn % PATCHES * PATCH_BYTES, next = patches + (turn + 1) % PATCHES * PATCH_BYTES;
        one(patch, tile, [&](bool early) {
            if (early != (PATCHES == 2)) return;
            // With a single patch all of the group have to be done with it.
            if (PATCHES == 1) meet(group);
            if (tile + further < tiles) ask_for_patch<PLACES, ROWS>(next, x, n, tile + further);
            asm volatile("cp.async.commit_group;" ::: "memory");
        });
        // The next patch is there, and nobody reads this one any more.
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        show_shared();
        meet(group);
    }
}
#endif
