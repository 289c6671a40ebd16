// Convolutions of pictures, which have few channels: the part of a picture that a block's pixels look at lies in shared
// memory, and the matrix units read their windows from there. Gathered from global memory, as gemm.cu does it, every
// number of a picture would be copied once a tap, a few bytes at a time.
//
// H x W pixels of CI channels, stored XC apart, which is four, become OH x OW of OC. Numbers of a window's row lie next to
// each other in the patch, as they do in a filter. For bf16 the numbers are widened, which changes none: tf32 holds them
// all. With HALVES they stay as they are, two to a piece, and a pixel has its fourth, which is zero; then the matrix units take the
// filters from shared memory themselves, where they can.
//
// The next patch is on its way while the matrix units work on this one.
#include "warpgroup.cuh"

#define WARPS 8
#if HALVES
typedef u32 piece_t;
#define PIECES 2
#else
typedef float piece_t;
#define PIECES CI
#endif
// From here on what is counted are pieces.
#define WINDOW_ROW (KW * PIECES)
#define TAPS (KH * WINDOW_ROW)
#define STEPS ((TAPS + 7) / 8)
#define PATCH_W ((OW - 1) * STRIDE + KW)
#define PATCH_ROW (PATCH_W * PIECES)
#define IMAGE (OH * OW)

// From where a window begins in the patch to its number tap + t, where the compiler knows the tap, and t is less than
// four: then there is next to nothing to compute. What lies behind the window is multiplied by zero.
__device__ __forceinline__ int offset_of(int tap, int t) {
    const int column = tap % WINDOW_ROW;
    int offset = tap / WINDOW_ROW * PATCH_ROW + column + t;
    if (column + 3 >= WINDOW_ROW && column + t >= WINDOW_ROW) offset += PATCH_ROW - WINDOW_ROW;
    if (tap + 3 >= TAPS && tap + t >= TAPS) offset = 0;
    return offset;
}

// Asks for the rows of the picture that output rows from `y0` on look at; zeros around it.
template <int ROWS> __device__ __forceinline__ void ask_for_patch(piece_t* patch, const act_t* x, int image, int y0) {
    const act_t* from = x + (size_t)image * (H * W * XC);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * PATCH_W; i += WARPS * 32) {
        const int py = y0 * STRIDE - PAD + i / PATCH_W, px = i % PATCH_W - PAD;
        const bool inside = (u32)py < (u32)H && (u32)px < (u32)W;
        const act_t* pixel = inside ? from + (py * W + px) * XC : from;
        const u32 to = (u32)__cvta_generic_to_shared(patch + i * PIECES);
#if HALVES
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(pixel), "r"(inside ? 8 : 0));
#elif PRECISION == PRECISION_BF16
        FloatVec<XC> numbers = {};
        if (inside) numbers = load<XC>(pixel);
#pragma unroll
        for (int c = 0; c < CI; c++) patch[i * CI + c] = numbers.v[c];
#else
#pragma unroll
        for (int c = 0; c < CI; c++)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to + 4 * c), "l"(pixel + c), "r"(inside ? 4 : 0));
#endif
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Piece `tap` of a filter.
__device__ __forceinline__ piece_t filter_piece(const act_t* filter, int tap) {
    if (tap >= TAPS) return 0;
#if HALVES
    const int c = tap % PIECES * 2;
    const act_t* pixel = filter + tap / PIECES * CI;
    return (u32)pixel[c] | (c + 1 < CI ? (u32)pixel[c + 1] << 16 : 0u);
#else
    return widen(filter[tap]);
#endif
}

// Two pieces that a thread takes at once.
struct __align__(2 * sizeof(piece_t)) TwoPieces {
    piece_t first, second;
};

__device__ __forceinline__ void multiply_pieces(float (&c)[4], const piece_t (&a)[4], const TwoPieces& b) {
#if HALVES
    multiply_add_bf16(c, a, b.first, b.second);
#else
    multiply_add(c, a, b.first, b.second);
#endif
}

// Rows of the patch for so many pixels in a row, wherever they begin.
__host__ __device__ constexpr int patch_rows(int pixels) {
    int rows = (pixels + OW - 2) / OW + 1;
    return ((rows < OH ? rows : OH) - 1) * STRIDE + KH;
}

#define NI (OC / 8)
static_assert(NI % 2 == 0, "no such width");
// Eights of the matrix units' columns of which a thread stores its two of each at once, 16 bytes; at the end it may be fewer.
#define EIGHTS (8 / (int)sizeof(act_t))
// The channel in a column of eight number j. Channels that a thread stores at once follow each other, and then come those of the
// next thread: what the four threads of a pixel write are whole sectors of 32 bytes. Of halves of them memory keeps up with few.
__device__ __forceinline__ int channel_of(int j, int column) {
    const int first = j / EIGHTS * EIGHTS, eights = NI - first < EIGHTS ? NI - first : EIGHTS;
    return first * 8 + column / 2 * (2 * eights) + (j - first) * 2 + column % 2;
}

// A thread's channels of one pixel.
__device__ __forceinline__ void store_channels(act_t* pixel, const float (&sums)[NI][4], int which, int t) {
#pragma unroll
    for (int first = 0; first < NI; first += EIGHTS) {
        act_t* to = pixel + channel_of(first, 2 * t);
        // A word is one channel in f32, two in bf16.
        auto word = [&](int j) {
            if constexpr (sizeof(act_t) == 4) return __float_as_uint(sums[first + j / 2][which + j % 2]);
            else return two_bf16(sums[first + j][which], sums[first + j][which + 1]);
        };
        if (first + EIGHTS <= NI) store_words(to, word(0), word(1), word(2), word(3));
        else store_words(to, word(0), word(1));
    }
}

// What a warp's 32 pixels have of the windows' pieces 8 s to 8 s + 7, as the matrix units take it.
__device__ __forceinline__ void read_windows(piece_t (&a)[2][4], const piece_t* const (&window)[4], int s, int t) {
    const int first = offset_of(s * 8, t), second = offset_of(s * 8 + 4, t);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a[i][0] = window[2 * i][first];
        a[i][1] = window[2 * i + 1][first];
        a[i][2] = window[2 * i][second];
        a[i][3] = window[2 * i + 1][second];
    }
}

#if HALVES && WARPGROUPS
// Filters as the units read them: 16 numbers of each at a time, in two pieces of eight.
#define STEP_BYTES (OC * 32)
__device__ __forceinline__ void arrange_filters(unsigned char* filters, const act_t* w) {
    u32* pieces = reinterpret_cast<u32*>(filters);
    for (int i = threadIdx.x; i < STEPS * OC * 8; i += WARPS * 32) {
        const int row = i / 4 % OC, tap = i / (OC * 4) * 4 + i % 4;
        pieces[i] = filter_piece(w + channel_of(row / 8, row % 8) * (KH * KW * CI), tap);
    }
    show_shared();
}
__device__ __forceinline__ void multiply_windows(float (&acc)[2][NI][4], const piece_t* const (&window)[4], const unsigned char* filters, int, int t) {
    // Of two steps, since one is still read while the next is on its way.
    u32 a[2][2][4];
    read_windows(a[0], window, 0, t);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        const u64 b = matrix_in_shared(filters + s * STEP_BYTES, OC * 16, 128);
        begin_products();
        multiply_add_group<false, 0>(acc[0], a[s % 2][0], b);
        multiply_add_group<false, 0>(acc[1], a[s % 2][1], b);
        end_products();
        if (s + 1 == STEPS) break;
        products_done<1>();
        read_windows(a[(s + 1) % 2], window, s + 1, t);
    }
    products_done<0>();
    pin_sums(acc);
}
#else
// Filters in the order in which the matrix units take them.
__device__ __forceinline__ void arrange_filters(unsigned char* memory, const act_t* w) {
    TwoPieces* filters = reinterpret_cast<TwoPieces*>(memory);
    for (int i = threadIdx.x; i < STEPS * NI * 32; i += WARPS * 32) {
        const int tap = i / (NI * 32) * 8 + i % 4;
        const act_t* filter = w + channel_of(i / 32 % NI, i / 4 % 8) * (KH * KW * CI);
        filters[i] = {filter_piece(filter, tap), filter_piece(filter, tap + 4)};
    }
}
__device__ __forceinline__ void multiply_windows(float (&acc)[2][NI][4], const piece_t* const (&window)[4], const unsigned char* memory, int lane, int t) {
    const TwoPieces* filters = reinterpret_cast<const TwoPieces*>(memory);
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
        piece_t a[2][4];
        read_windows(a, window, s, t);
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const TwoPieces b = filters[(s * NI + j) * 32 + lane];
            multiply_pieces(acc[0][j], a[0], b);
            multiply_pieces(acc[1][j], a[1], b);
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(WARPS * 32, RESIDENT)
patch_forward(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* __restrict__ y, int n) {
    constexpr int AT_ONCE = WARPS * 32, TILES = (IMAGE + AT_ONCE - 1) / AT_ONCE, ROWS = patch_rows(AT_ONCE);
    extern __shared__ __align__(128) unsigned char memory[];
    piece_t* patches = reinterpret_cast<piece_t*>(memory + STEPS * OC * 8 * sizeof(piece_t));
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    auto ask = [&](int tile, int which) {
        if (tile < n * TILES) ask_for_patch<ROWS>(patches + which * (ROWS * PATCH_ROW), x, tile / TILES, tile % TILES * AT_ONCE / OW);
    };
    ask(blockIdx.x, 0);
    arrange_filters(memory, w);
    int which = 0;
    for (int tile = blockIdx.x; tile < n * TILES; tile += gridDim.x) {
        const int image = tile / TILES, p0 = tile % TILES * AT_ONCE, y0 = p0 / OW;
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        ask(tile + gridDim.x, which ^ 1);
        const piece_t* patch = patches + which * (ROWS * PATCH_ROW);
        which ^= 1;
        // Each warp has 32 pixels, of which a thread reads four.
        int pixel[4];
        const piece_t* window[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            pixel[i] = p0 + warp * 32 + i * 8 + g;
            int p = pixel[i] < IMAGE ? pixel[i] : p0;
            window[i] = patch + (p / OW - y0) * (STRIDE * PATCH_ROW) + p % OW * (STRIDE * PIECES);
        }
        float acc[2][NI][4] = {};
        multiply_windows(acc, window, memory, lane, t);
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (pixel[i] < IMAGE) store_channels(y + ((size_t)image * IMAGE + pixel[i]) * OC, acc[i / 2], i % 2 * 2, t);
    }
}
