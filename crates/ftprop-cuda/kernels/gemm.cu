// A convolution's three products as one tiled product whose operands are gathered while they are copied
// to shared memory. MODE_FORWARD: y = x * w. MODE_INPUT: dx from dy and w. MODE_WEIGHTS: dw from x and dy. A fully
// connected layer is the convolution of a 1x1 image.
//
// With split-K the depth is shared by several blocks: each writes its accumulators to the workspace, and the block that
// finishes last adds them in a fixed order, so the same inputs always give the same bits.
#include "common.cuh"

#define MODE_FORWARD 1
#define MODE_INPUT 2
#define MODE_WEIGHTS 3

#if PRECISION == PRECISION_BF16
typedef u16 elem_t;
#else
typedef float elem_t;
#endif
#if MODE == MODE_WEIGHTS || OUT_F32
typedef float out_t;
#else
typedef act_t out_t;
#endif

#define CIG (CI / GROUPS)
#define OCG (OC / GROUPS)
// Channels that x is stored with: more than CI where it is padded with zeros for the sake of wide copies.
#define XCG (GROUPS == 1 ? XC : CIG)
#define THREADS (WARPS_M * WARPS_N * 32)
#define A_DEPTH_MAJOR (MODE == MODE_WEIGHTS)
#define B_DEPTH_MAJOR (MODE != MODE_FORWARD)
#define PAD_DEPTH (16 / (int)sizeof(elem_t))
#define PAD_WIDE 8
#if A_DEPTH_MAJOR
#define A_STRIDE (BM + PAD_WIDE)
#define A_SIZE (BK * A_STRIDE)
#else
#define A_STRIDE (BK + PAD_DEPTH)
#define A_SIZE (BM * A_STRIDE)
#endif
#if B_DEPTH_MAJOR
#define B_STRIDE (BN + PAD_WIDE)
#define B_SIZE (BK * B_STRIDE)
#else
#define B_STRIDE (BK + PAD_DEPTH)
#define B_SIZE (BN * B_STRIDE)
#endif

#if MODE == MODE_FORWARD
#define GEMM_N OCG
#define GEMM_K (KH * KW * XCG)
#define PER_TAP XCG
#elif MODE == MODE_INPUT
#define GEMM_N CIG
#define GEMM_K (KH * KW * OCG)
#define PER_TAP OCG
#elif MODE == MODE_WEIGHTS
#define GEMM_N (KH * KW * XCG)
#else
#error "unknown MODE"
#endif

// Copies a few elements to shared memory without waiting for them, or writes zeros. The lines go through the
// first-level cache: a convolution reads each pixel once a tap.
template <int BYTES> __device__ __forceinline__ void copy_async(u32 to, const elem_t* from, bool valid) {
    if constexpr (BYTES == 2) {
        u16 value = valid ? *reinterpret_cast<const u16*>(from) : (u16)0;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(value));
    } else {
        int bytes = valid ? BYTES : 0;
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes));
    }
}

#if PRECISION == PRECISION_F32
#define MICRO_M (BM / 16)
#define MICRO_N (BN / 16)
#define PAIRS (MICRO_M * MICRO_N / 2)
#else
#define WM (BM / WARPS_M)
#define WN (BN / WARPS_N)
#define MI (WM / 16)
#define NI (WN / 8)
#define PAIRS (MI * NI * 2)
#endif

#if PRECISION == PRECISION_F32
// Sixteen products are summed at a time: short sums lose less to rounding.
__device__ __forceinline__ void multiply(const elem_t* a, const elem_t* b, float (&total)[PAIRS * 2]) {
    int row = threadIdx.x / 16 * MICRO_M, col = threadIdx.x % 16 * MICRO_N;
#pragma unroll 1
    for (int part = 0; part < BK; part += 16) {
        float acc[PAIRS * 2];
#pragma unroll
        for (int i = 0; i < PAIRS * 2; i++) acc[i] = 0.0f;
#pragma unroll 4
        for (int k = part; k < part + 16; k++) {
            float x[MICRO_M], y[MICRO_N];
#pragma unroll
            for (int i = 0; i < MICRO_M; i++) x[i] = A_DEPTH_MAJOR ? a[k * A_STRIDE + row + i] : a[(row + i) * A_STRIDE + k];
#pragma unroll
            for (int j = 0; j < MICRO_N; j++) y[j] = B_DEPTH_MAJOR ? b[k * B_STRIDE + col + j] : b[(col + j) * B_STRIDE + k];
#pragma unroll
            for (int i = 0; i < MICRO_M; i++)
#pragma unroll
                for (int j = 0; j < MICRO_N; j++) acc[i * MICRO_N + j] = fmaf(x[i], y[j], acc[i * MICRO_N + j]);
        }
#pragma unroll
        for (int i = 0; i < PAIRS * 2; i++) total[i] += acc[i];
    }
}
#else
// In tf32 everything arrives rounded, so that the matrix unit has no bits to drop.
__device__ __forceinline__ void multiply(const elem_t* a, const elem_t* b, float (&acc)[PAIRS * 2]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int wm = warp / WARPS_N * WM, wn = warp % WARPS_N * WN;
#if PRECISION == PRECISION_TF32
#define DEPTH 8
#else
#define DEPTH 16
#endif
#pragma unroll
    for (int k = 0; k < BK; k += DEPTH) {
        u32 fa[MI][4], fb[NI][2];
#pragma unroll
        for (int i = 0; i < MI; i++) {
            int m = wm + i * 16;
#if !A_DEPTH_MAJOR
            // Rows 0-7 and 8-15 of the first half of the depth, then of the second.
            matrices4(fa[i], a + (m + lane % 16) * A_STRIDE + k + lane / 16 * (DEPTH / 2));
#elif PRECISION == PRECISION_BF16
            matrices4_transposed(fa[i], a + (k + lane / 16 * 8 + lane % 8) * A_STRIDE + m + lane / 8 % 2 * 8);
#else
            const elem_t* p = a + (k + lane % 4) * A_STRIDE + m + lane / 4;
            fa[i][0] = __float_as_uint(p[0]);
            fa[i][1] = __float_as_uint(p[8]);
            fa[i][2] = __float_as_uint(p[4 * A_STRIDE]);
            fa[i][3] = __float_as_uint(p[4 * A_STRIDE + 8]);
#endif
        }
#if !B_DEPTH_MAJOR || PRECISION == PRECISION_BF16
#pragma unroll
        for (int j = 0; j < NI; j += 2) {
            int n = wn + j * 8;
            u32 r[4];
#if !B_DEPTH_MAJOR
            matrices4(r, b + (n + lane / 16 * 8 + lane % 8) * B_STRIDE + k + lane / 8 % 2 * (DEPTH / 2));
#else
            matrices4_transposed(r, b + (k + lane / 8 % 2 * 8 + lane % 8) * B_STRIDE + n + lane / 16 * 8);
#endif
            fb[j][0] = r[0];
            fb[j][1] = r[1];
            fb[j + 1][0] = r[2];
            fb[j + 1][1] = r[3];
        }
#else
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const elem_t* p = b + (k + lane % 4) * B_STRIDE + wn + j * 8 + lane / 4;
            fb[j][0] = __float_as_uint(p[0]);
            fb[j][1] = __float_as_uint(p[4 * B_STRIDE]);
        }
#endif
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                float* c = acc + (i * NI + j) * 4;
#if PRECISION == PRECISION_TF32
                multiply_add_tf32(c, fa[i], fb[j][0], fb[j][1]);
#else
                multiply_add_bf16(c, fa[i], fb[j][0], fb[j][1]);
#endif
            }
    }
}
#endif

// What a block computes of the product.
struct Share {
    int group, split, m0, n0;
    // Of the whole product.
    int rows, depth;
    // Its tiles of the depth: from the first up to the end.
    int first, end;

    __device__ __forceinline__ Share(int n, int split_k) {
        group = blockIdx.z / split_k;
        split = blockIdx.z % split_k;
        m0 = blockIdx.x * BM;
        n0 = blockIdx.y * BN;
#if MODE == MODE_FORWARD
        rows = n * OH * OW;
        depth = GEMM_K;
#elif MODE == MODE_INPUT
        rows = n * H * W;
        depth = GEMM_K;
#elif MODE == MODE_WEIGHTS
        rows = OCG;
        depth = n * OH * OW;
#endif
        const int depth_tiles = (depth + BK - 1) / BK;
        first = (int)((long long)depth_tiles * split / split_k);
        end = (int)((long long)depth_tiles * (split + 1) / split_k);
    }
};

// Where accumulators 2p and 2p + 1 of a thread belong in the whole product.
__device__ __forceinline__ void place(const Share& share, int p, int& row, int& col) {
#if PRECISION == PRECISION_F32
    row = (threadIdx.x / 16) * MICRO_M + p / (MICRO_N / 2);
    col = (threadIdx.x % 16) * MICRO_N + p % (MICRO_N / 2) * 2;
#else
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int mi = p / (NI * 2), ni = p / 2 % NI;
    row = warp / WARPS_N * WM + mi * 16 + lane / 4 + (p & 1) * 8;
    col = warp % WARPS_N * WN + ni * 8 + lane % 4 * 2;
#endif
    row += share.m0;
    col += share.n0;
}

// What a thread copies of each tile: TIMES pieces of V elements, DOWN rows of the tile apart. Every count is known to the
// compiler, and so is every check that can never fail: addresses are most of the work here.
constexpr int A_LONG = A_DEPTH_MAJOR ? BM : BK, A_ROWS = A_DEPTH_MAJOR ? BK : BM;
constexpr int A_ACROSS = A_LONG / VA, A_DOWN = THREADS / A_ACROSS, A_TIMES = (A_ROWS + A_DOWN - 1) / A_DOWN;
constexpr int B_LONG = B_DEPTH_MAJOR ? BN : BK, B_ROWS = B_DEPTH_MAJOR ? BK : BN;
constexpr int B_ACROSS = B_LONG / VB, B_DOWN = THREADS / B_ACROSS, B_TIMES = (B_ROWS + B_DOWN - 1) / B_DOWN;

#if MODE == MODE_WEIGHTS
// Where each pixel of the right operand's depth begins, and its row and column: worked out once a tile, one tile ahead of its
// use.
struct DepthPixels {
    int4 (&kept)[2][BK];

    __device__ __forceinline__ void find(const Share& share, int tile) const {
        if (threadIdx.x < BK) {
            int k = tile * BK + threadIdx.x, image = k / (OH * OW), pixel = k % (OH * OW);
            int y = pixel / OW * STRIDE - PAD, x = pixel % OW * STRIDE - PAD;
            int base = ((image * H + y) * W + x) * XC + share.group * CIG;
            kept[tile & 1][threadIdx.x] = make_int4(base, k < share.depth ? y : -1000000, x, 0);
        }
    }
};

__device__ __forceinline__ void fetch_left(const Share& share, const elem_t* left, int k0, int a_row, int a_at, u32 to) {
    const bool inside = OCG % BM == 0 || share.m0 + a_at < OCG;
    const elem_t* from = left + (size_t)(k0 + a_row) * OC + share.group * OCG + share.m0 + a_at;
#pragma unroll
    for (int i = 0; i < A_TIMES; i++) {
        if (A_ROWS % A_DOWN != 0 && a_row + i * A_DOWN >= A_ROWS) break;
        bool valid = inside && k0 + a_row + i * A_DOWN < share.depth;
        copy_async<VA * sizeof(elem_t)>(to + i * (A_DOWN * A_STRIDE * (int)sizeof(elem_t)), from + i * (A_DOWN * OC), valid);
    }
}
#else
// Where a row of the left operand begins: its image, and the window's corner in it.
struct __align__(16) Row {
    int base, y, x;
};
__device__ __forceinline__ Row row_of(const Share& share, int i) {
    int m = share.m0 + i;
    Row row;
#if MODE == MODE_FORWARD
    int image = m / (OH * OW), pixel = m % (OH * OW);
    row.y = pixel / OW * STRIDE - PAD;
    row.x = pixel % OW * STRIDE - PAD;
    row.base = ((image * H + row.y) * W + row.x) * XC + share.group * CIG;
#else
    int image = m / (H * W), pixel = m % (H * W);
    row.y = pixel / W + PAD;
    row.x = pixel % W + PAD;
    row.base = image * (OH * OW * OC) + share.group * OCG;
#endif
    if (m >= share.rows) row.y = -1000000;
    return row;
}

// A thread keeps those of the rows it copies, unless they are many; then the block does.
constexpr bool KEPT = A_TIMES <= 4;
struct Rows {
    Row kept[KEPT ? A_TIMES : 1];
    Row (&shared)[KEPT ? 1 : BM];

    __device__ __forceinline__ Rows(const Share& share, Row (&room)[KEPT ? 1 : BM]) : shared(room) {
        if constexpr (KEPT) {
#pragma unroll
            for (int i = 0; i < A_TIMES; i++) kept[i] = row_of(share, threadIdx.x / A_ACROSS + i * A_DOWN);
        } else {
            for (int i = threadIdx.x; i < BM; i += THREADS) shared[i] = row_of(share, i);
            __syncthreads();
        }
    }
    // The row of the thread's piece i, which is row a_row of the tile.
    __device__ __forceinline__ Row at(int i, int a_row) const {
        if constexpr (KEPT) return kept[i];
        else return shared[a_row];
    }
};

__device__ __forceinline__ void fetch_left(const Rows& rows, const elem_t* left, int k0, int a_row, int a_at, u32 to) {
    // Where a tile's depth lies within one tap, that tap is the same for all threads.
    constexpr bool ONE_TAP = PER_TAP % BK == 0;
    const int k = k0 + a_at, tap = (ONE_TAP ? k0 : k) / PER_TAP, c = ONE_TAP ? k0 % PER_TAP + a_at : k % PER_TAP;
    const int r = tap / KW, s = tap % KW;
    const bool inside = GEMM_K % BK == 0 || k < GEMM_K;
#if MODE == MODE_FORWARD
    const int offset = (r * W + s) * XC + c;
#endif
#pragma unroll
    for (int i = 0; i < A_TIMES; i++) {
        if (A_ROWS % A_DOWN != 0 && a_row + i * A_DOWN >= A_ROWS) break;
        const Row row = rows.at(i, a_row + i * A_DOWN);
#if MODE == MODE_FORWARD
        bool valid = inside && (u32)(row.y + r) < (u32)H && (u32)(row.x + s) < (u32)W;
        int at = row.base + offset;
#else
        int y = row.y - r, x = row.x - s;
        bool valid = inside && (STRIDE == 1 || (y >= 0 && x >= 0 && y % STRIDE == 0 && x % STRIDE == 0));
        y /= STRIDE;
        x /= STRIDE;
        valid = valid && (u32)y < (u32)OH && (u32)x < (u32)OW;
        int at = row.base + (y * OW + x) * OC + c;
#endif
        copy_async<VA * sizeof(elem_t)>(to + i * (A_DOWN * A_STRIDE * (int)sizeof(elem_t)), left + at, valid);
    }
}
#endif

#if MODE == MODE_FORWARD
__device__ __forceinline__ void fetch_right(const Share& share, const elem_t* right, int k0, int b_row, int b_at, u32 to) {
    const int k = k0 + b_at;
    bool inside = GEMM_K % BK == 0 || k < GEMM_K;
#if XCG == CIG
    const int at = k;
#else
    inside = inside && k % XCG < CIG;
    const int at = k / XCG * CIG + k % XCG;
#endif
    const elem_t* from = right + (share.group * OCG + share.n0 + b_row) * (KH * KW * CIG) + at;
#pragma unroll
    for (int i = 0; i < B_TIMES; i++) {
        if (B_ROWS % B_DOWN != 0 && b_row + i * B_DOWN >= B_ROWS) break;
        bool valid = inside && (GEMM_N % BN == 0 || share.n0 + b_row + i * B_DOWN < GEMM_N);
        copy_async<VB * sizeof(elem_t)>(to + i * (B_DOWN * B_STRIDE * (int)sizeof(elem_t)), from + i * (B_DOWN * (KH * KW * CIG)), valid);
    }
}
#elif MODE == MODE_INPUT
__device__ __forceinline__ void fetch_right(const Share& share, const elem_t* right, int k0, int b_row, int b_at, u32 to) {
    constexpr bool ONE_TAP = OCG % BK == 0;
    const int col = share.n0 + b_at;
    const bool inside = GEMM_N % BN == 0 || col < GEMM_N;
#pragma unroll
    for (int i = 0; i < B_TIMES; i++) {
        const int kk = b_row + i * B_DOWN;
        if (B_ROWS % B_DOWN != 0 && kk >= B_ROWS) break;
        const int k = k0 + kk, tap = (ONE_TAP ? k0 : k) / OCG, from = ONE_TAP ? k0 % OCG + kk : k % OCG;
        bool valid = inside && (GEMM_K % BK == 0 || k < GEMM_K);
        int at = ((share.group * OCG + from) * (KH * KW) + tap) * CIG + col;
        copy_async<VB * sizeof(elem_t)>(to + i * (B_DOWN * B_STRIDE * (int)sizeof(elem_t)), right + at, valid);
    }
}
#else
__device__ __forceinline__ void fetch_right(const Share& share, const elem_t* right, const int4 (&pixels)[BK], int b_row, int b_at, u32 to) {
    const int col = share.n0 + b_at;
    const bool inside = GEMM_N % BN == 0 || col < GEMM_N;
    const int tap = col / XCG, r = tap / KW, s = tap % KW, offset = (r * W + s) * XC + col % XCG;
#pragma unroll
    for (int i = 0; i < B_TIMES; i++) {
        const int kk = b_row + i * B_DOWN;
        if (B_ROWS % B_DOWN != 0 && kk >= B_ROWS) break;
        const int4 from = pixels[kk];
        bool valid = inside && (u32)(from.y + r) < (u32)H && (u32)(from.z + s) < (u32)W;
        int at = from.x + offset;
        copy_async<VB * sizeof(elem_t)>(to + i * (B_DOWN * B_STRIDE * (int)sizeof(elem_t)), right + at, valid);
    }
}
#endif

// A block's accumulators over its share of the depth, the tiles of which are fetched STAGES - 1 ahead.
__device__ __forceinline__ void multiply_share(const Share& share, const elem_t* left, const elem_t* right, float (&acc)[PAIRS * 2]) {
    extern __shared__ __align__(16) unsigned char memory[];
    elem_t* tiles = reinterpret_cast<elem_t*>(memory);
    const u32 tiles_at = (u32)__cvta_generic_to_shared(tiles);
    const int a_row = threadIdx.x / A_ACROSS, a_at = threadIdx.x % A_ACROSS * VA;
    const int b_row = threadIdx.x / B_ACROSS, b_at = threadIdx.x % B_ACROSS * VB;
#if MODE == MODE_WEIGHTS
    __shared__ int4 pixels_of_depth[2][BK];
    const DepthPixels pixels{pixels_of_depth};
#else
    __shared__ Row rows_of_block[KEPT ? 1 : BM];
    const Rows rows(share, rows_of_block);
#endif
    auto fetch = [&](int tile, int stage) {
        const u32 stage_at = tiles_at + stage * (A_SIZE + B_SIZE) * (int)sizeof(elem_t);
        const u32 a_to = stage_at + (a_row * A_STRIDE + a_at) * (int)sizeof(elem_t);
        const u32 b_to = stage_at + (A_SIZE + b_row * B_STRIDE + b_at) * (int)sizeof(elem_t);
#if MODE == MODE_WEIGHTS
        fetch_left(share, left, tile * BK, a_row, a_at, a_to);
        fetch_right(share, right, pixels.kept[tile & 1], b_row, b_at, b_to);
#else
        fetch_left(rows, left, tile * BK, a_row, a_at, a_to);
        fetch_right(share, right, tile * BK, b_row, b_at, b_to);
#endif
    };

#pragma unroll
    for (int i = 0; i < PAIRS * 2; i++) acc[i] = 0.0f;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
#if MODE == MODE_WEIGHTS
        pixels.find(share, share.first + s);
        __syncthreads();
#endif
        if (share.first + s < share.end) fetch(share.first + s, s);
        asm volatile("cp.async.commit_group;");
    }
#if MODE == MODE_WEIGHTS
    pixels.find(share, share.first + STAGES - 1);
#endif
    int stage = 0;
    for (int tile = share.first; tile < share.end; tile++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        int ahead = tile + STAGES - 1;
        if (ahead < share.end) fetch(ahead, stage == 0 ? STAGES - 1 : stage - 1);
        asm volatile("cp.async.commit_group;");
#if MODE == MODE_WEIGHTS
        pixels.find(share, ahead + 1);
#endif
        const elem_t* a = tiles + stage * (A_SIZE + B_SIZE);
        multiply(a, a + A_SIZE, acc);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
}

// Puts a block's accumulators aside. In the block of a tile that finishes last they become the sums of all of its blocks, and
// true comes back.
__device__ __forceinline__ bool add_splits(const Share& share, float* workspace, u32* counters, int split_k, float (&acc)[PAIRS * 2]) {
    const int tile = (share.group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    float* mine = workspace + (size_t)(tile * split_k + share.split) * (BM * BN) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < PAIRS * 2; i++) __stcg(mine + i * THREADS, acc[i]);
    if (!last_block(counters + tile, split_k)) return false;
    const float* all = workspace + (size_t)(tile * split_k) * (BM * BN) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < PAIRS * 2; i++) acc[i] = 0.0f;
    // As many loads at once as registers allow.
    constexpr int AT_ONCE = PAIRS <= 8 ? 8 : PAIRS <= 16 ? 4 : 2;
#pragma unroll(AT_ONCE)
    for (int s = 0; s < split_k; s++) {
#pragma unroll
        for (int i = 0; i < PAIRS * 2; i++) acc[i] += __ldcg(all + (size_t)s * (BM * BN) + i * THREADS);
    }
    return true;
}

#if MODE == MODE_WEIGHTS
#define OUT_ROW GEMM_N
#elif MODE == MODE_FORWARD
#define OUT_ROW OC
#else
#define OUT_ROW CI
#endif
// Where a row and a column of the whole product are in what is written.
__device__ __forceinline__ size_t place_out(const Share& share, int row, int col) {
#if MODE == MODE_WEIGHTS
    return (size_t)(share.group * OCG + row) * OUT_ROW + col;
#else
    return (size_t)row * OUT_ROW + share.group * GEMM_N + col;
#endif
}

// The sums as they are written: with a bias or an addend, or rounded as gradients are. All of them are looked up before any is
// written.
__device__ __forceinline__ void finish(const Share& share, float (&acc)[PAIRS * 2], const float* __restrict__ bias, const act_t* addend) {
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int row, col;
        place(share, p, row, col);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float& v = acc[2 * p + e];
#if MODE == MODE_WEIGHTS
            v = gradient(v);
#elif MODE == MODE_FORWARD
            if (bias && col + e < GEMM_N) v += bias[share.group * OCG + col + e];
#else
            if (addend && row < share.rows && col + e < GEMM_N) v += widen(addend[place_out(share, row, col) + e]);
#endif
        }
    }
}

// A block's finished sums to where they belong.
#if PRECISION == PRECISION_BF16 && MODE != MODE_WEIGHTS && !OUT_F32 && GEMM_N % 16 == 0 && OUT_ROW % 16 == 0
// Of two eights of columns a thread of an even lane writes four numbers of the first, with its neighbour's, and the neighbour four
// of the second: together whole sectors of 32 bytes, of which memory takes more than of halves.
__device__ __forceinline__ void write_tile(const Share& share, const float (&acc)[PAIRS * 2], out_t* out) {
    const bool odd = threadIdx.x % 2;
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        // A pair of the first eight; that of the second is two further.
        if (p % 4 >= 2) continue;
        int row, col;
        place(share, p, row, col);
        const u32 first = two_bf16(acc[2 * p], acc[2 * p + 1]), second = two_bf16(acc[2 * p + 4], acc[2 * p + 5]);
        const u32 other = __shfl_xor_sync(~0u, odd ? first : second, 1);
        if (row >= share.rows || col >= GEMM_N) continue;
        store_words(out + place_out(share, row, odd ? col + 6 : col), odd ? other : first, odd ? second : other);
    }
}
#else
__device__ __forceinline__ void write_tile(const Share& share, const float (&acc)[PAIRS * 2], out_t* out) {
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int row, col;
        place(share, p, row, col);
        if (row >= share.rows) continue;
        const float v[2] = {acc[2 * p], acc[2 * p + 1]};
#if MODE == MODE_WEIGHTS && XCG != CIG
        // The channels that padding added have no weights.
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int tap = (col + e) / XCG, c = (col + e) % XCG;
            if (col + e < GEMM_N && c < CIG) out[((size_t)row * (KH * KW) + tap) * CIG + c] = v[e];
        }
#else
        const size_t at = place_out(share, row, col);
        if (GEMM_N % 2 == 0 && OUT_ROW % 2 == 0 && PAIRED && col + 1 < GEMM_N) {
            if constexpr (sizeof(out_t) == 4) store_words(out + at, __float_as_uint(v[0]), __float_as_uint(v[1]));
            else *reinterpret_cast<u32*>(out + at) = two_bf16(v[0], v[1]);
        } else {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (col + e < GEMM_N) {
                    if constexpr (sizeof(out_t) == 4) out[at + e] = v[e];
                    else out[at + e] = to_bf16(v[e]);
                }
            }
        }
#endif
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const elem_t* __restrict__ left, const elem_t* __restrict__ right, out_t* out, const float* __restrict__ bias,
     const act_t* addend, float* __restrict__ workspace, u32* __restrict__ counters, int n, int split_k) {
    const Share share(n, split_k);
    float acc[PAIRS * 2];
    multiply_share(share, left, right, acc);
    if (split_k > 1 && !add_splits(share, workspace, counters, split_k, acc)) return;
    finish(share, acc, bias, addend);
    write_tile(share, acc, out);
}
