// The gradient of filters whose windows move by one pixel: slopes times what the windows look at, over all places. As in shifted.cu
// places are counted over maps that have their padding between rows and images, so that a tap's pixels are those of the slopes some
// places further; and the matrix units read both from shared memory, where the taps of a filter's row share their pixels.
//
// A block has 64 SIXTY_FOURS channels out, BN channels in and the taps of one row, and a share of the places. Where it has only 64 channels out
// its two groups of warps share its places; each writes its own sums, which are added up in a fixed order.
//
// In tf32 the units would want both operands with a channel's places side by side, which they are not. So each number is taken apart
// into two of bf16, of which the second has what the first leaves, and three products of these are more exact than one of tf32. Hard
// activations leave nothing, and where all pixels of a step leave nothing two products do.
#include "warpgroup.cuh"

#define WEIGHTS (OC * KH * KW * CI)

#if WARPGROUPS
constexpr int THREADS = 256, NI = BN / 8, OUT_ROWS = 64 * SIXTY_FOURS;
constexpr int WIDE = W + PAD, SPACE = (H + PAD) * WIDE;
static_assert(OW <= WIDE && OH <= H + PAD && CI % 8 == 0 && OC % 8 == 0 && BN % 16 == 0 && KW <= 9, "no such cut");
// Places of a step, and rows of pixels for all of its taps.
constexpr int PLACES = PLACES_AT_ONCE, ROWS = PLACES + 8;
// Pieces of 16 bytes of what is copied.
constexpr int PIECE = 16 / (int)sizeof(act_t), SLOPE_PIECES = OUT_ROWS / PIECE, PIXEL_PIECES = BN / PIECE;
constexpr int SLOPE_BYTES = SLOPE_PIECES * PLACES * 16, COPY_BYTES = SLOPE_BYTES + PIXEL_PIECES * ROWS * 16;

__device__ __forceinline__ void ask_for(u32 to, const act_t* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}

// What a block computes.
struct Share {
    int out, in, row;
    int first, end;
    __device__ __forceinline__ Share(int n) {
        constexpr int ACROSS = (CI + BN - 1) / BN;
        out = blockIdx.y / ACROSS * OUT_ROWS;
        in = blockIdx.y % ACROSS * BN;
        row = blockIdx.z;
        const int steps = (n * SPACE + PLACES - 1) / PLACES;
        first = (int)((long long)steps * blockIdx.x / gridDim.x);
        end = (int)((long long)steps * (blockIdx.x + 1) / gridDim.x);
    }
};

// Asks for a step's slopes and pixels. Eight threads write eight rows.
__device__ __forceinline__ void ask_for_step(u32 to, const Share& share, const act_t* dy, const act_t* x, int n, int step) {
    for (int i = threadIdx.x; i < PLACES * SLOPE_PIECES; i += THREADS) {
        const int row = i / (8 * SLOPE_PIECES) * 8 + i % 8, piece = i / 8 % SLOPE_PIECES, channel = share.out + piece * PIECE;
        const u32 place = step * PLACES + row, image = place / SPACE, y = place % SPACE / WIDE, c = place % WIDE;
        const bool inside = image < (u32)n && y < OH && c < OW && (OC % OUT_ROWS == 0 || channel < OC);
        const act_t* from = inside ? dy + ((size_t)(image * OH + y) * OW + c) * OC + channel : dy;
        ask_for(to + (piece * PLACES + row) * 16, from, inside);
    }
    const u32 first = step * PLACES + share.row * WIDE - (PAD * WIDE + PAD);
    for (int i = threadIdx.x; i < ROWS * PIXEL_PIECES; i += THREADS) {
        const int row = i / (8 * PIXEL_PIECES) * 8 + i % 8, piece = i / 8 % PIXEL_PIECES, channel = share.in + piece * PIECE;
        // Before the first image this is beyond the last.
        const u32 place = first + row, image = place / SPACE, y = place % SPACE / WIDE, c = place % WIDE;
        const bool inside = place < (u32)n * SPACE && y < H && c < W && (CI % BN == 0 || channel < CI);
        const act_t* from = inside ? x + ((size_t)(image * H + y) * W + c) * CI + channel : x;
        ask_for(to + SLOPE_BYTES + (piece * ROWS + row) * 16, from, inside);
    }
}

// One product: of each place's slopes in bf16 with the pixels of the row's taps.
__device__ __forceinline__ void multiply_places(float (&acc)[KW][NI][4], u32 slopes, u32 pixels) {
    constexpr int ALL = PLACES / 16, OWN = SIXTY_FOURS == 2 ? ALL : ALL / 2;
    const int group = threadIdx.x / 128, begin = SIXTY_FOURS == 2 ? 0 : group * OWN;
    const u64 a = matrix_in_shared(slopes, 128, PLACES * 16) + (SIXTY_FOURS == 2 ? group * (8 * PLACES) : 0) + begin * 16;
    const u64 b = matrix_in_shared(pixels, 128, ROWS * 16) + begin * 16;
#pragma unroll
    for (int k = 0; k < OWN; k++)
#pragma unroll
        for (int s = 0; s < KW; s++) multiply_shared<false, 1, 1>(acc[s], a + k * 16, b + k * 16 + s);
}

#if PRECISION == PRECISION_TF32
// Operands in bf16: what of slopes and pixels fits, and what that leaves.
constexpr int SLOPE_PART = OUT_ROWS / 8 * PLACES * 16, PIXEL_PART = BN / 8 * ROWS * 16, OPERAND_BYTES = 2 * (SLOPE_PART + PIXEL_PART);

// Takes eight numbers apart. True if anything is left.
__device__ __forceinline__ bool take_apart(u32 from, int piece_bytes, u32 to, int part) {
    float v[8];
    u32 high[4], low[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]) : "r"(from + piece_bytes) : "memory");
#pragma unroll
    for (int i = 0; i < 4; i++) {
        high[i] = two_bf16(v[2 * i], v[2 * i + 1]);
        low[i] = two_bf16(v[2 * i] - __uint_as_float(high[i] << 16), v[2 * i + 1] - __uint_as_float(high[i] & 0xffff0000u));
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(high[0]), "r"(high[1]), "r"(high[2]), "r"(high[3]) : "memory");
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to + part), "r"(low[0]), "r"(low[1]), "r"(low[2]), "r"(low[3]) : "memory");
    // Zeros have signs.
    return ((low[0] | low[1] | low[2] | low[3]) & 0x7fff7fffu) != 0;
}

// A step's operands from its copies; each warp tells whether anything is left of the pixels that it took apart.
__device__ __forceinline__ void prepare_step(u32 copies, u32 operands, u32 (&left_of)[THREADS / 32]) {
    for (int i = threadIdx.x; i < PLACES * (OUT_ROWS / 8); i += THREADS) {
        const int row = i % PLACES, eight = i / PLACES;
        take_apart(copies + (2 * eight * PLACES + row) * 16, PLACES * 16, operands + (eight * PLACES + row) * 16, SLOPE_PART);
    }
    bool left = false;
    for (int i = threadIdx.x; i < ROWS * (BN / 8); i += THREADS) {
        const int row = i % ROWS, eight = i / ROWS;
        left |= take_apart(copies + SLOPE_BYTES + (2 * eight * ROWS + row) * 16, ROWS * 16,
                           operands + 2 * SLOPE_PART + (eight * ROWS + row) * 16, PIXEL_PART);
    }
    const bool any = __any_sync(~0u, left);
    if (threadIdx.x % 32 == 0) left_of[threadIdx.x / 32] = any;
    show_shared();
}

__device__ __forceinline__ void multiply_share(float (&acc)[KW][NI][4], const Share& share, const act_t* dy, const act_t* x, int n, u32 memory) {
    __shared__ u32 left[2][THREADS / 32];
    const u32 operands = memory + STAGES * COPY_BYTES;
    auto ask = [&](int step) {
        if (step < share.end) ask_for_step(memory + (step - share.first) % STAGES * COPY_BYTES, share, dy, x, n, step);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int s = 0; s < STAGES - 1; s++) ask(share.first + s);
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    if (share.first < share.end) prepare_step(memory, operands, left[0]);
    for (int step = share.first; step < share.end; step++) {
        const int at = step - share.first;
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 3) : "memory");
        __syncthreads();
        bool any = false;
#pragma unroll
        for (int warp = 0; warp < THREADS / 32; warp++) any |= left[at % 2][warp] != 0;
        const u32 slopes = operands + at % 2 * OPERAND_BYTES, pixels = slopes + 2 * SLOPE_PART;
        begin_products();
        multiply_places(acc, slopes, pixels);
        multiply_places(acc, slopes + SLOPE_PART, pixels);
        if (any) multiply_places(acc, slopes, pixels + PIXEL_PART);
        end_products();
        ask(step + STAGES - 1);
        const int next = at + 1;
        if (step + 1 < share.end) prepare_step(memory + next % STAGES * COPY_BYTES, operands + next % 2 * OPERAND_BYTES, left[next % 2]);
        products_done<0>();
    }
}
#else
__device__ __forceinline__ void multiply_share(float (&acc)[KW][NI][4], const Share& share, const act_t* dy, const act_t* x, int n, u32 memory) {
    // Where a step's copies go, the units are done since the last barrier.
    constexpr int AHEAD = STAGES - 2;
    auto ask = [&](int step) {
        if (step < share.end) ask_for_step(memory + (step - share.first) % STAGES * COPY_BYTES, share, dy, x, n, step);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int s = 0; s < AHEAD; s++) ask(share.first + s);
    int step = share.first;
    // There is one step at least.
    do {
        asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
#ifndef UNFENCED
        show_shared();
#endif
        __syncthreads();
        const u32 slopes = memory + (step - share.first) % STAGES * COPY_BYTES;
        begin_products();
        multiply_places(acc, slopes, slopes + SLOPE_BYTES);
        end_products();
        ask(step + AHEAD);
        products_done<1>();
    } while (++step < share.end);
    products_done<0>();
}
#endif
#endif

// Each group's sums, or with SIXTY_FOURS 2 each block's.
extern "C" __global__ void __launch_bounds__(256, RESIDENT)
shifted_gradient(const act_t* __restrict__ dy, const act_t* __restrict__ x, float* __restrict__ sums, int n) {
#if WARPGROUPS
    extern __shared__ __align__(128) unsigned char memory[];
    const Share share(n);
    float acc[KW][NI][4] = {};
    multiply_share(acc, share, dy, x, n, (u32)__cvta_generic_to_shared(memory));
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
    const int first = share.out + (SIXTY_FOURS == 2 ? group * 64 : 0) + threadIdx.x / 32 % 4 * 16 + lane / 4;
    float* to = sums + (size_t)(SIXTY_FOURS == 2 ? blockIdx.x : 2 * blockIdx.x + group) * WEIGHTS + share.row * (KW * CI) + share.in + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int out = first + half * 8;
        if (OC % OUT_ROWS != 0 && out >= OC) continue;
#pragma unroll
        for (int s = 0; s < KW; s++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                if (CI % BN != 0 && share.in + j * 8 >= CI) continue;
                *reinterpret_cast<float2*>(to + (size_t)out * (KH * KW * CI) + s * CI + j * 8) =
                    make_float2(acc[s][j][2 * half], acc[s][j][2 * half + 1]);
            }
    }
#endif
}

// Adds up what shifted_gradient wrote: 256 numbers a block, four by each of 64 threads, four of which share the sums.
extern "C" __global__ void __launch_bounds__(256) shifted_gradient_reduce(const float* __restrict__ sums, float* __restrict__ out, int count) {
    __shared__ float4 parts[4][64];
    const int lane = threadIdx.x % 64, part = threadIdx.x / 64, i = blockIdx.x * 64 + lane;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    auto add = [&](const float4& v) { sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w); };
    if (i < WEIGHTS / 4) {
#pragma unroll 4
        for (int s = part; s < count; s += 4) add(reinterpret_cast<const float4*>(sums + (size_t)s * WEIGHTS)[i]);
    }
    parts[part][lane] = sum;
    __syncthreads();
    if (part != 0 || i >= WEIGHTS / 4) return;
#pragma unroll
    for (int other = 1; other < 4; other++) add(parts[other][lane]);
    reinterpret_cast<float4*>(out)[i] = make_float4(gradient(sum.x), gradient(sum.y), gradient(sum.z), gradient(sum.w));
}
