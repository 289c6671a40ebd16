// Filters are held in registers, where they are few: they are the first operand of all products, and pixels the second, so that what the units
// give has channels down and pixels across. Shared memory is then read for pixels alone, of which a product takes up to 128 for 64 channels, and
// the products of a tile follow each other without waiting for anything. As in shifted_kept.cuh each of a block's groups of warps goes through
// tiles of its own, whose patch is on its way while the one before is multiplied.
#pragma once
#include "shifted_tiles.cuh"

#if WARPGROUPS
constexpr int PLACES = MT * 64, ROWS = (PLACES + (KH - 1) * WIDE + KW - 1 + 7) / 8 * 8;
// Sixteen numbers of depth are multiplied at a time: so many times a tap.
constexpr int DEEP = KC / 16, EIGHTS = PLACES / 8;
static_assert(BN == 64 && PRECISION == PRECISION_BF16, "no such filters");

// All filters of 64 channels as the first operand: a warp has sixteen of the channels.
struct Filters {
    u32 of[TAPS * DEEP][4];
    __device__ __forceinline__ void read(u32 filters) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
        for (int i = 0; i < TAPS * DEEP; i++) {
            const u32 tap = filters + i / DEEP * TAP_BYTES;
            const int deep = i % DEEP * 16;
#if WIDE_FILTERS
            const u32 at = tap + ((warp * 2 + lane / 8 % 2) * KC + deep + lane / 16 * 8 + lane % 8) * 16;
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(of[i][0]), "=r"(of[i][1]), "=r"(of[i][2]), "=r"(of[i][3])
                         : "r"(at)
                         : "memory");
#else
            const u32 at = tap + ((deep / 8 + lane / 16) * BN + warp * 16 + lane % 16) * 16;
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(of[i][0]), "=r"(of[i][1]), "=r"(of[i][2]), "=r"(of[i][3])
                         : "r"(at)
                         : "memory");
#endif
        }
    }
};

// A warp's 8×8 numbers with rows and columns changed.
__device__ __forceinline__ u32 turned(u32 pair) {
    u32 out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
    return out;
}
// The same of f32, in halves, so that nothing is rounded.
__device__ __forceinline__ void turn(float& first, float& second) {
    const u32 a = __float_as_uint(first), b = __float_as_uint(second);
    const u32 low = turned(__byte_perm(a, b, 0x5410)), high = turned(__byte_perm(a, b, 0x7632));
    first = __uint_as_float(__byte_perm(low, high, 0x5410));
    second = __uint_as_float(__byte_perm(low, high, 0x7632));
}

// A tile's sums to where they belong. A warp has sixteen channels of every pixel; of the two eights of them a thread of an even lane writes four
// numbers of the first, with its neighbour's, and the neighbour four of the second: together whole sectors of 32 bytes.
__device__ __forceinline__ void write_pixels(float (&acc)[EIGHTS][4], u32 first_place, act_t* y, const act_t* addend, int n) {
    const int lane = threadIdx.x % 32, channel = blockIdx.y * BN + threadIdx.x / 32 % 4 * 16, col = channel + lane % 4 * 2;
    const bool odd = lane % 2, mine = OUT_C % BN == 0 || channel + (odd ? 8 : 0) < OUT_C;
#pragma unroll
    for (int j = 0; j < EIGHTS; j++) {
        const u32 place = first_place + j * 8 + lane / 4, image = place / SPACE, row = place % SPACE / WIDE, c = place % WIDE;
        const bool inside = image < (u32)n && row < OUT_H && c < OUT_W;
        const size_t pixel = inside ? ((size_t)(image * OUT_H + row) * OUT_W + c) * OUT_C : 0;
        u32 low, high;
        if (addend) {
            turn(acc[j][0], acc[j][1]);
            turn(acc[j][2], acc[j][3]);
            const act_t* more = addend + pixel + col;
            if (inside && (OUT_C % BN == 0 || channel < OUT_C)) acc[j][0] += widen(more[0]), acc[j][1] += widen(more[1]);
            if (inside && (OUT_C % BN == 0 || channel + 8 < OUT_C)) acc[j][2] += widen(more[8]), acc[j][3] += widen(more[9]);
            low = two_bf16(acc[j][0], acc[j][1]), high = two_bf16(acc[j][2], acc[j][3]);
        } else {
            low = turned(two_bf16(acc[j][0], acc[j][1])), high = turned(two_bf16(acc[j][2], acc[j][3]));
        }
        const u32 other = __shfl_xor_sync(~0u, odd ? low : high, 1);
        if (inside && mine) store_words(y + pixel + (odd ? col + 6 : col), odd ? other : low, odd ? high : other);
    }
}

__device__ __forceinline__ void convolve(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* y, const act_t* addend, int n) {
    Filters held;
    auto tile_of = [&](u32 patch, u32 tile, auto ask_for_next) {
        float sums[1][EIGHTS][4] = {};
        const u64 pixels = matrix_in_shared(patch, ROWS * 16, 128);
        begin_products();
#pragma unroll
        for (int i = 0; i < TAPS * DEEP; i++) {
            const int tap = i / DEEP, shift = tap / KW * WIDE + tap % KW;
            multiply_add_group<false, 0>(sums[0], held.of[i], pixels + shift + i % DEEP * (2 * ROWS));
        }
        end_products();
        ask_for_next(true);
        products_done<0>();
        pin_sums(sums);
        ask_for_next(false);
        write_pixels(sums[0], tile * PLACES, y, addend, n);
    };
    go_through_tiles<PLACES, ROWS>(x, w, n, [&](u32 filters) { held.read(filters); }, tile_of);
}
#endif
