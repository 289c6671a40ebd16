// A convolution whose windows move by one pixel, or the slopes by its input, which are another such convolution: what the windows of
// a block's pixels look at lies in shared memory once, and each tap reads it from another row on. The matrix units read both
// operands from there themselves, so that they are all that is busy.
//
// Pixels are counted over maps that have their padding between rows and between images, one after another: then the pixel that a tap
// looks at is the same number of places further for all of them. Rows' padding is on one side only, since what is right of a row is
// left of the next one. Places in the padding are multiplied too, and not written.
//
// MODE_FORWARD: y from x and w. MODE_INPUT: dx from dy and w; in tf32, where numbers side by side must have the same channel in, w comes
// as turned_filters leaves it.
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
// Places of a block, and rows of its patch: as many more as lie between the first tap and the last.
constexpr int PLACES = GROUPS_OF_WARPS * MT * 64, ROWS = (PLACES + (KH - 1) * WIDE + KW - 1 + 7) / 8 * 8;
// Of the channels KC at a time, in pieces of 16 bytes; a step is STEP taps of them.
constexpr int PIECE = 16 / (int)sizeof(act_t), ACROSS = KC / PIECE;
constexpr int PARTS = IN_C / KC, STEPS = TAPS / STEP;
constexpr int PATCH_BYTES = ROWS * KC * (int)sizeof(act_t), TAP_BYTES = BN * KC * (int)sizeof(act_t), STEP_BYTES = STEP * TAP_BYTES;
static_assert(IN_C % KC == 0 && TAPS % STEP == 0 && BN % 16 == 0 && OUT_C % 8 == 0, "no such cut");
static_assert(OUT_W <= WIDE && OUT_H <= IN_H + PAD_Y && PAD_Y >= 0 && PAD_X >= 0, "windows beyond the padding");
// Filters are asked for AHEAD steps before they are used. Where those of a step go, the units are done since the last barrier.
constexpr int AHEAD = STAGES - 2;
// Parts of the next channels' patch, one a step: from the second, when nobody reads its place any more, to the last that comes in time.
constexpr int PATCH_PARTS = STEPS - AHEAD;
static_assert(AHEAD >= 1 && (PARTS == 1 || PATCH_PARTS >= 1), "the next patch would come too late");

// Copies 16 bytes to shared memory without waiting for them, or writes zeros.
__device__ __forceinline__ void ask_for(u32 to, const act_t* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}

// The pixels that the rows of a block's patch are, whatever channels are there; none are the rows of zeros in the padding.
constexpr u32 NOWHERE = ~0u;
__device__ __forceinline__ void find_rows(u32 (&rows)[ROWS], int n) {
    const u32 first = blockIdx.x * PLACES - (PAD_Y * WIDE + PAD_X);
    for (int row = threadIdx.x; row < ROWS; row += THREADS) {
        // Before the first image this is beyond the last.
        const u32 place = first + row, image = place / SPACE, y = place % SPACE / WIDE, c = place % WIDE;
        const bool inside = place < (u32)n * SPACE && y < IN_H && c < IN_W;
        rows[row] = inside ? (image * IN_H + y) * IN_W + c : NOWHERE;
    }
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
                multiply_shared<PRECISION == PRECISION_TF32, 0, WIDE_FILTERS>(acc[m], a + shift + m * 64 + k * (2 * ROWS),
                                                                             b + t * (TAP_BYTES / 16) + k * DEEPER);
    }
    end_products();
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
#endif

extern "C" __global__ void __launch_bounds__(256, RESIDENT)
shifted(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* y, const act_t* addend, int n) {
#if WARPGROUPS
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
    const u32 first = blockIdx.x * PLACES + threadIdx.x / 128 * (MT * 64) + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 place = first + m * 64 + half * 8, image = place / SPACE, row = place % SPACE / WIDE, c = place % WIDE;
            const bool inside = image < (u32)n && row < OUT_H && c < OUT_W;
            const size_t pixel = inside ? ((size_t)(image * OUT_H + row) * OUT_W + c) * OUT_C : 0;
            write_pixel(acc[m], 2 * half, y + pixel, addend ? addend + pixel : nullptr, inside);
        }
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
