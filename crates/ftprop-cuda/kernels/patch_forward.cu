// Convolutions of pictures, which have few channels: the part of a picture that a block's pixels look at lies in shared
// memory, and the matrix units read their windows from there. Gathered from global memory, as gemm.cu does it, every
// number of a picture would be copied once a tap, a few bytes at a time.
//
// H x W pixels of CI channels, stored XC apart, which is four, become OH x OW of OC. Numbers of a window's row lie next to
// each other in the patch, as they do in a filter. For bf16 the numbers are widened, which changes none: tf32 holds them
// all. With HALVES they stay as they are, two to a piece, and a pixel has its fourth, which is zero.
#include "common.cuh"

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

// The rows of the picture that output rows from `y0` on look at; zeros around it.
template <int ROWS> __device__ __forceinline__ void load_patch(piece_t* patch, const act_t* x, int image, int y0) {
    const act_t* from = x + (size_t)image * (H * W * XC);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * PATCH_W; i += WARPS * 32) {
        int py = y0 * STRIDE - PAD + i / PATCH_W, px = i % PATCH_W - PAD;
#if HALVES
        uint2 pixel = make_uint2(0u, 0u);
        if ((u32)py < (u32)H && (u32)px < (u32)W) pixel = *reinterpret_cast<const uint2*>(from + (py * W + px) * XC);
        *reinterpret_cast<uint2*>(patch + i * PIECES) = pixel;
#else
        FloatVec<XC> pixel = {};
        if ((u32)py < (u32)H && (u32)px < (u32)W) pixel = load<XC>(from + (py * W + px) * XC);
#pragma unroll
        for (int c = 0; c < CI; c++) patch[i * CI + c] = pixel.v[c];
#endif
    }
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

extern "C" __global__ void __launch_bounds__(WARPS * 32, OC <= 48 ? 3 : 2)
patch_forward(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* __restrict__ y, int n) {
    constexpr int AT_ONCE = WARPS * 32, TILES = (IMAGE + AT_ONCE - 1) / AT_ONCE, NI = OC / 8;
    extern __shared__ __align__(16) unsigned char memory[];
    TwoPieces* filters = reinterpret_cast<TwoPieces*>(memory);
    piece_t* patch = reinterpret_cast<piece_t*>(filters + STEPS * NI * 32);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    // Filters in the order in which the matrix units take them.
    for (int i = threadIdx.x; i < STEPS * NI * 32; i += WARPS * 32) {
        int tap = i / (NI * 32) * 8 + i % 4, channel = i / 32 % NI * 8 + i / 4 % 8;
        const act_t* filter = w + channel * (KH * KW * CI);
        filters[i] = {filter_piece(filter, tap), filter_piece(filter, tap + 4)};
    }
    for (int tile = blockIdx.x; tile < n * TILES; tile += gridDim.x) {
        const int image = tile / TILES, p0 = tile % TILES * AT_ONCE, y0 = p0 / OW;
        __syncthreads();
        load_patch<patch_rows(AT_ONCE)>(patch, x, image, y0);
        __syncthreads();
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
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            const int first = offset_of(s * 8, t), second = offset_of(s * 8 + 4, t);
            piece_t a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                a[i][0] = window[2 * i][first];
                a[i][1] = window[2 * i + 1][first];
                a[i][2] = window[2 * i][second];
                a[i][3] = window[2 * i + 1][second];
            }
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const TwoPieces b = filters[(s * NI + j) * 32 + lane];
                multiply_pieces(acc[0][j], a[0], b);
                multiply_pieces(acc[1][j], a[1], b);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (pixel[i] >= IMAGE) continue;
            act_t* to = y + ((size_t)image * IMAGE + pixel[i]) * OC + 2 * t;
#pragma unroll
            for (int j = 0; j < NI; j++) {
                float v0 = acc[i / 2][j][i % 2 * 2], v1 = acc[i / 2][j][i % 2 * 2 + 1];
                if constexpr (sizeof(act_t) == 4) *reinterpret_cast<float2*>(to + j * 8) = make_float2(v0, v1);
                else *reinterpret_cast<u32*>(to + j * 8) = two_bf16(v0, v1);
            }
        }
    }
}
