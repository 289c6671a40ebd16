// A convolution's three products as one tiled product whose operands are gathered while they are copied
// to shared memory. MODE 0: y = x * w. MODE 1: dx from dy and w. MODE 2: dw from x and dy. A fully connected
// layer is the convolution of a 1x1 image.
//
// The depth can be split over blocks: each writes its accumulators aside, and the block that finishes last
// adds them in a fixed order, so the same inputs always give the same bits.

#if PREC == 2
typedef u16 elem_t;
#else
typedef float elem_t;
#endif
#if MODE == 2 || OUT_F32
typedef float out_t;
#else
typedef act_t out_t;
#endif

#define CIG (CI / GROUPS)
#define OCG (OC / GROUPS)
#define THREADS (WARPS_M * WARPS_N * 32)
#define A_DEPTH_MAJOR (MODE == 2)
#define B_DEPTH_MAJOR (MODE != 0)
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

#if MODE == 0
#define GEMM_N OCG
#define GEMM_K (KH * KW * CIG)
#define PER_TAP CIG
#elif MODE == 1
#define GEMM_N CIG
#define GEMM_K (KH * KW * OCG)
#define PER_TAP OCG
#else
#define GEMM_N (KH * KW * CIG)
#endif

template <int BYTES> __device__ __forceinline__ void copy_async(elem_t* to, const elem_t* from, bool valid) {
    if constexpr (BYTES == 2) {
        *to = valid ? *from : (elem_t)0;
    } else {
        u32 shared = (u32)__cvta_generic_to_shared(to);
        int bytes = valid ? BYTES : 0;
        if constexpr (BYTES == 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes));
        else if constexpr (BYTES == 8)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared), "l"(from), "r"(bytes));
        else
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(from), "r"(bytes));
    }
}

__device__ __forceinline__ void matrices4(u32 (&r)[4], const elem_t* p) {
    u32 a = (u32)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}
__device__ __forceinline__ void matrices4_transposed(u32 (&r)[4], const elem_t* p) {
    u32 a = (u32)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}
// Weights are kept in f32 and rounded on their way into the matrix unit.
__device__ __forceinline__ u32 weight(u32 bits) {
#if PREC == 1 && MODE != 2
    return __float_as_uint(to_tf32(__uint_as_float(bits)));
#else
    return bits;
#endif
}

#if PREC == 0
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

// Where accumulators 2p and 2p + 1 of a thread belong in the tile.
__device__ __forceinline__ void place(int p, int& row, int& col) {
#if PREC == 0
    row = (threadIdx.x / 16) * MICRO_M + p / (MICRO_N / 2);
    col = (threadIdx.x % 16) * MICRO_N + p % (MICRO_N / 2) * 2;
#else
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int mi = p / (NI * 2), ni = p / 2 % NI;
    row = warp / WARPS_N * WM + mi * 16 + lane / 4 + (p & 1) * 8;
    col = warp % WARPS_N * WN + ni * 8 + lane % 4 * 2;
#endif
}

__device__ __forceinline__ void multiply(const elem_t* a, const elem_t* b, float (&acc)[PAIRS * 2]) {
#if PREC == 0
    int row = threadIdx.x / 16 * MICRO_M, col = threadIdx.x % 16 * MICRO_N;
#pragma unroll 4
    for (int k = 0; k < BK; k++) {
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
#else
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int wm = warp / WARPS_N * WM, wn = warp % WARPS_N * WN;
#if PREC == 1
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
#elif PREC == 2
            matrices4_transposed(fa[i], a + (k + lane / 16 * 8 + lane % 8) * A_STRIDE + m + lane / 8 % 2 * 8);
#else
            const elem_t* p = a + (k + lane % 4) * A_STRIDE + m + lane / 4;
            fa[i][0] = __float_as_uint(p[0]);
            fa[i][1] = __float_as_uint(p[8]);
            fa[i][2] = __float_as_uint(p[4 * A_STRIDE]);
            fa[i][3] = __float_as_uint(p[4 * A_STRIDE + 8]);
#endif
        }
#if !B_DEPTH_MAJOR || PREC == 2
#pragma unroll
        for (int j = 0; j < NI; j += 2) {
            int n = wn + j * 8;
            u32 r[4];
#if !B_DEPTH_MAJOR
            matrices4(r, b + (n + lane / 16 * 8 + lane % 8) * B_STRIDE + k + lane / 8 % 2 * (DEPTH / 2));
#else
            matrices4_transposed(r, b + (k + lane / 8 % 2 * 8 + lane % 8) * B_STRIDE + n + lane / 16 * 8);
#endif
            fb[j][0] = weight(r[0]);
            fb[j][1] = weight(r[1]);
            fb[j + 1][0] = weight(r[2]);
            fb[j + 1][1] = weight(r[3]);
        }
#else
#pragma unroll
        for (int j = 0; j < NI; j++) {
            const elem_t* p = b + (k + lane % 4) * B_STRIDE + wn + j * 8 + lane / 4;
            fb[j][0] = weight(__float_as_uint(p[0]));
            fb[j][1] = weight(__float_as_uint(p[4 * B_STRIDE]));
        }
#endif
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                float* c = acc + (i * NI + j) * 4;
#if PREC == 1
                asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                             : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
#else
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                             : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
#endif
            }
    }
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const elem_t* __restrict__ left, const elem_t* __restrict__ right, out_t* out, const float* __restrict__ bias,
     const act_t* addend, float* __restrict__ workspace, u32* __restrict__ counters, int n, int splits) {
    extern __shared__ __align__(16) unsigned char memory[];
    elem_t* tiles = reinterpret_cast<elem_t*>(memory);
    // Where each row of the left operand begins: its image, and the window's corner in it.
    __shared__ int row_base[BM], row_y[BM], row_x[BM];

    const int group = blockIdx.z / splits, split = blockIdx.z % splits;
    const int m0 = blockIdx.x * BM, n0 = blockIdx.y * BN;
#if MODE == 0
    const int rows = n * OH * OW, depth = GEMM_K;
#elif MODE == 1
    const int rows = n * H * W, depth = GEMM_K;
#else
    const int rows = OCG, depth = n * OH * OW;
#endif
    const int depth_tiles = (depth + BK - 1) / BK;
    const int first = (int)((long long)depth_tiles * split / splits);
    const int end = (int)((long long)depth_tiles * (split + 1) / splits);

#if MODE != 2
    for (int i = threadIdx.x; i < BM; i += THREADS) {
        int m = m0 + i;
#if MODE == 0
        int image = m / (OH * OW), pixel = m % (OH * OW);
        int y = pixel / OW * STRIDE - PAD, x = pixel % OW * STRIDE - PAD;
        row_base[i] = ((image * H + y) * W + x) * CI + group * CIG;
#else
        int image = m / (H * W), pixel = m % (H * W);
        int y = pixel / W + PAD, x = pixel % W + PAD;
        row_base[i] = image * (OH * OW * OC) + group * OCG;
#endif
        row_y[i] = m < rows ? y : -1000000;
        row_x[i] = x;
    }
    __syncthreads();
#endif

    auto fetch = [&](int tile, int stage) {
        elem_t* a = tiles + stage * (A_SIZE + B_SIZE);
        elem_t* b = a + A_SIZE;
        const int k0 = tile * BK;
#if MODE != 2
        {
            constexpr int ACROSS = BK / VA, DOWN = THREADS / ACROSS;
            const int kk = threadIdx.x % ACROSS * VA;
            const int k = k0 + kk, tap = k / PER_TAP, c = k % PER_TAP, r = tap / KW, s = tap % KW;
#pragma unroll 4
            for (int row = threadIdx.x / ACROSS; row < BM; row += DOWN) {
#if MODE == 0
                int y = row_y[row] + r, x = row_x[row] + s;
                bool valid = k < GEMM_K && (u32)y < (u32)H && (u32)x < (u32)W;
                int at = row_base[row] + (r * W + s) * CI + c;
#else
                int y = row_y[row] - r, x = row_x[row] - s;
                bool valid = k < GEMM_K && y >= 0 && x >= 0 && y % STRIDE == 0 && x % STRIDE == 0;
                y /= STRIDE;
                x /= STRIDE;
                valid = valid && y < OH && x < OW;
                int at = row_base[row] + (y * OW + x) * OC + c;
#endif
                copy_async<VA * sizeof(elem_t)>(a + row * A_STRIDE + kk, left + (valid ? at : 0), valid);
            }
        }
#else
        {
            constexpr int ACROSS = BM / VA, DOWN = THREADS / ACROSS;
            const int mm = threadIdx.x % ACROSS * VA;
#pragma unroll 4
            for (int kk = threadIdx.x / ACROSS; kk < BK; kk += DOWN) {
                int k = k0 + kk;
                bool valid = k < depth && m0 + mm < OCG;
                copy_async<VA * sizeof(elem_t)>(a + kk * A_STRIDE + mm, left + (valid ? k * OC + group * OCG + m0 + mm : 0), valid);
            }
        }
#endif
#if MODE == 0
        {
            constexpr int ACROSS = BK / VB, DOWN = THREADS / ACROSS;
            const int kk = threadIdx.x % ACROSS * VB, k = k0 + kk;
#pragma unroll 4
            for (int col = threadIdx.x / ACROSS; col < BN; col += DOWN) {
                bool valid = k < GEMM_K && n0 + col < GEMM_N;
                int at = (group * OCG + n0 + col) * GEMM_K + k;
                copy_async<VB * sizeof(elem_t)>(b + col * B_STRIDE + kk, right + (valid ? at : 0), valid);
            }
        }
#else
        {
            constexpr int ACROSS = BN / VB, DOWN = THREADS / ACROSS;
            const int nn = threadIdx.x % ACROSS * VB, col = n0 + nn;
#if MODE == 2
            const int tap = col / CIG, c = col % CIG, r = tap / KW, s = tap % KW;
#endif
#pragma unroll 4
            for (int kk = threadIdx.x / ACROSS; kk < BK; kk += DOWN) {
                int k = k0 + kk;
#if MODE == 1
                bool valid = k < GEMM_K && col < GEMM_N;
                int at = ((group * OCG + k % OCG) * (KH * KW) + k / OCG) * CIG + col;
#else
                int image = k / (OH * OW), pixel = k % (OH * OW);
                int y = pixel / OW * STRIDE - PAD + r, x = pixel % OW * STRIDE - PAD + s;
                bool valid = k < depth && col < GEMM_N && (u32)y < (u32)H && (u32)x < (u32)W;
                int at = ((image * H + y) * W + x) * CI + group * CIG + c;
#endif
                copy_async<VB * sizeof(elem_t)>(b + kk * B_STRIDE + nn, right + (valid ? at : 0), valid);
            }
        }
#endif
    };

    float acc[PAIRS * 2];
#pragma unroll
    for (int i = 0; i < PAIRS * 2; i++) acc[i] = 0.0f;

#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (first + s < end) fetch(first + s, s);
        asm volatile("cp.async.commit_group;");
    }
    int stage = 0;
    for (int tile = first; tile < end; tile++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        int ahead = tile + STAGES - 1;
        if (ahead < end) fetch(ahead, stage == 0 ? STAGES - 1 : stage - 1);
        asm volatile("cp.async.commit_group;");
        const elem_t* a = tiles + stage * (A_SIZE + B_SIZE);
        multiply(a, a + A_SIZE, acc);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

    if (splits > 1) {
        const int tile = (group * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        float* mine = workspace + (size_t)(tile * splits + split) * (BM * BN) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < PAIRS * 2; i++) __stcg(mine + i * THREADS, acc[i]);
        if (!last_block(counters + tile, splits)) return;
        const float* all = workspace + (size_t)(tile * splits) * (BM * BN) + threadIdx.x;
#pragma unroll
        for (int i = 0; i < PAIRS * 2; i++) acc[i] = 0.0f;
#pragma unroll 2
        for (int s = 0; s < splits; s++) {
#pragma unroll
            for (int i = 0; i < PAIRS * 2; i++) acc[i] += __ldcg(all + (size_t)s * (BM * BN) + i * THREADS);
        }
    }

#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        int row, col;
        place(p, row, col);
        row += m0;
        col += n0;
        if (row >= rows) continue;
#if MODE == 0
        size_t at = (size_t)row * OC + group * OCG + col;
#elif MODE == 1
        size_t at = (size_t)row * CI + group * CIG + col;
#else
        size_t at = (size_t)(group * OCG + row) * GEMM_N + col;
#endif
        float v[2] = {acc[2 * p], acc[2 * p + 1]};
#pragma unroll
        for (int e = 0; e < 2; e++) {
            if (col + e < GEMM_N) {
#if MODE == 0
                if (bias) v[e] += bias[group * OCG + col + e];
#elif MODE == 1
                if (addend) v[e] += widen(addend[at + e]);
#endif
            }
        }
        constexpr bool even = GEMM_N % 2 == 0 && (MODE == 2 || (MODE == 0 ? OC : CI) % 2 == 0) && PAIRED;
        if (even && col + 1 < GEMM_N) {
            if constexpr (sizeof(out_t) == 4) *reinterpret_cast<float2*>(out + at) = make_float2(v[0], v[1]);
            else *reinterpret_cast<u32*>(out + at) = (u32)to_bf16(v[0]) | (u32)to_bf16(v[1]) << 16;
        } else {
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (col + e < GEMM_N) {
                    if constexpr (sizeof(out_t) == 4) out[at + e] = v[e];
                    else out[at + e] = to_bf16(v[e]);
                }
            }
        }
    }
}
