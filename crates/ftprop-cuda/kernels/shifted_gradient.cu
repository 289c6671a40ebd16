// The gradient of filters whose windows move by one pixel: slopes times what the windows look at, over all places. As in shifted.cu
// places are counted over maps that have their padding between rows and images, so that a tap's pixels are those of the slopes some
// places further on.
//
// A block has 64 channels out, BN channels in, a part of the taps, dealt out to its groups of warps, and a share of the places. The pixels
// go through a ring in shared memory, each of them once, where all taps read them: a step adds PLACES of them. The slopes are the first
// operand, in registers, which all taps of a group have in common. Each block writes sums of its own, which are added up in a fixed order.
//
// In tf32 the units would want both operands with a channel's places side by side, which they are not. So each number is taken apart
// into two of bf16, of which the second has what the first leaves, and three products of these are more exact than one of tf32. Hard
// activations leave nothing, and as long as no pixel has left anything two products do.
#include "warpgroup.cuh"

#define WEIGHTS (OC * KH * KW * CI)

#if WARPGROUPS
constexpr int GROUPS_OF_WARPS = 3, THREADS = GROUPS_OF_WARPS * 128, NI = BN / 8, OUT_ROWS = 64;
constexpr int WIDE = W + PAD, SPACE = (H + PAD) * WIDE;
// Sets of taps, which have as many or one less.
constexpr int TAPS = KH * KW, SETS = PARTS_OF_TAPS * GROUPS_OF_WARPS, EACH = (TAPS + SETS - 1) / SETS;
static_assert(OW <= WIDE && OH <= H + PAD && CI % 8 == 0 && OC % 8 == 0 && BN % 16 == 0 && SETS <= TAPS, "no such cut");
// A step's places are multiplied in two halves, so that slopes of one are read while the other is multiplied.
constexpr int PLACES = PLACES_AT_ONCE, HALF = PLACES / 2, DEEP = HALF / 16;
// Rows of pixels are counted from the first that the first place looks at; a step looks at so many pieces of PLACES rows beside its own.
constexpr int FURTHER = ((KH - 1) * WIDE + KW - 1 + PLACES - 1) / PLACES;
// Steps that are asked for before they are used, and copies that there are.
constexpr int AHEAD = STEPS_AHEAD, COPIES = AHEAD + 1;
// Numbers of a piece of 16 bytes of what is copied.
constexpr int PIECE = 16 / (int)sizeof(act_t), SLOPE_PIECES = OUT_ROWS / PIECE, PIXEL_PIECES = BN / PIECE;
#if PRECISION == PRECISION_BF16
// The ring has what is asked for, and what the step before may still read.
constexpr int RING = (AHEAD + FURTHER + 2) * PLACES, SLOPE_PITCH = PLACES * 16;
#else
// Numbers are taken apart one step before they are used. Threads of a warp read slopes of two pieces without getting in each other's way.
constexpr int RING = (FURTHER + 3) * PLACES, SLOPE_PITCH = PLACES * 16 + 16;
#endif
// Sixteen rows are read at a time: the ring's first are behind its last once more.
constexpr int RING_PITCH = (RING + 16) * 16, RING_BYTES = BN / 8 * RING_PITCH;
constexpr int SLOPE_BYTES = SLOPE_PIECES * SLOPE_PITCH, PIXEL_BYTES = PRECISION == PRECISION_BF16 ? 0 : PIXEL_PIECES * PLACES * 16;
constexpr int COPY_BYTES = SLOPE_BYTES + PIXEL_BYTES;

// What a block computes, and of that the taps of a group.
struct Share {
    int out, in, tap, taps;
    int first, end;
    __device__ __forceinline__ Share(int n) {
        constexpr int ACROSS = (CI + BN - 1) / BN;
        out = blockIdx.y / ACROSS * OUT_ROWS;
        in = blockIdx.y % ACROSS * BN;
        // All of a warp agree, which the compiler would not know.
        const int set = blockIdx.z * GROUPS_OF_WARPS + __shfl_sync(~0u, threadIdx.x / 128, 0);
        tap = set * TAPS / SETS;
        taps = (set + 1) * TAPS / SETS - tap;
        const int steps = (n * SPACE + PLACES - 1) / PLACES;
        first = (int)((long long)steps * blockIdx.x / gridDim.x);
        end = (int)((long long)steps * (blockIdx.x + 1) / gridDim.x);
    }
};

// Where the rows lie that are copied for a step: a row is looked for once, and copied in pieces by several threads. The rows' numbers are
// those of pixels in dy and x; none are the rows of zeros in the padding.
__device__ __forceinline__ u32 find_slopes(u32 place, int n) {
    const u32 image = place / SPACE, y = place % SPACE / WIDE, c = place % WIDE;
    return image < (u32)n && y < OH && c < OW ? (image * OH + y) * OW + c : NOWHERE;
}
__device__ __forceinline__ u32 find_pixels(u32 place, int n) {
    const u32 image = place / SPACE, y = place % SPACE / WIDE, c = place % WIDE;
    // Before the first image this is beyond the last.
    return place < (u32)n * SPACE && y < H && c < W ? (image * H + y) * W + c : NOWHERE;
}
__device__ __forceinline__ u32 first_pixel(const Share& share) { return (u32)(share.first * PLACES - (PAD * WIDE + PAD)); }

struct Rows {
    u32 slopes[PLACES], pixels[PLACES];
    // By a part of the threads.
    __device__ __forceinline__ void find(const Share& share, int n, int step) {
        const int row = threadIdx.x % PLACES;
        if (threadIdx.x < PLACES) slopes[row] = find_slopes((u32)(share.first + step) * PLACES + row, n);
        else if (threadIdx.x < 2 * PLACES) pixels[row] = find_pixels(first_pixel(share) + (u32)(step + FURTHER) * PLACES + row, n);
    }
};

// Asks for a step's slopes. Eight threads write eight rows.
__device__ __forceinline__ void ask_for_slopes(u32 to, const Share& share, const act_t* dy, const Rows& rows) {
#pragma unroll
    for (int k = 0; k < PLACES * SLOPE_PIECES; k += THREADS) {
        const int i = k + threadIdx.x, row = i / (8 * SLOPE_PIECES) * 8 + i % 8, piece = i / 8 % SLOPE_PIECES;
        if (k + THREADS > PLACES * SLOPE_PIECES && i >= PLACES * SLOPE_PIECES) break;
        const int channel = share.out + piece * PIECE;
        const u32 at = rows.slopes[row];
        const bool inside = at != NOWHERE && (OC % OUT_ROWS == 0 || channel < OC);
        ask_for(to + piece * SLOPE_PITCH + row * 16, inside ? dy + (size_t)at * OC + channel : dy, inside);
    }
}

// Asks for PLACES rows of pixels: calls a function with each row, its piece of 16 bytes and where that is, or null for zeros.
template <typename At, typename To> __device__ __forceinline__ void each_pixel(const Share& share, const act_t* x, At at_row, To to) {
#pragma unroll
    for (int k = 0; k < PLACES * PIXEL_PIECES; k += THREADS) {
        const int i = k + threadIdx.x, row = i / (8 * PIXEL_PIECES) * 8 + i % 8, piece = i / 8 % PIXEL_PIECES;
        if (k + THREADS > PLACES * PIXEL_PIECES && i >= PLACES * PIXEL_PIECES) break;
        const int channel = share.in + piece * PIECE;
        const u32 at = at_row(row);
        const bool inside = at != NOWHERE && (CI % BN == 0 || channel < CI);
        to(row, piece, inside ? x + (size_t)at * CI + channel : x, inside);
    }
}

// Where a tap's pixels are in the ring, in rows from those of the step's first place.
struct Taps {
    int shift[EACH], count;
    __device__ __forceinline__ explicit Taps(const Share& share) : count(share.taps) {
#pragma unroll
        for (int t = 0; t < EACH; t++) shift[t] = (share.tap + t) / KW * WIDE + (share.tap + t) % KW;
    }
};

// Products of half a step, sixteen places at a time: `slopes` with the pixels that the taps look at from row `at` of the ring on.
__device__ __forceinline__ void multiply_places(float (&acc)[EACH][NI][4], const u32 (&slopes)[DEEP][4], u32 ring, int at, const Taps& taps) {
    const u64 pixels = matrix_in_shared(ring, 128, RING_PITCH);
#pragma unroll
    for (int k = 0; k < DEEP; k++)
#pragma unroll
        for (int t = 0; t < EACH; t++) {
            if (t >= TAPS / SETS && t >= taps.count) continue;
            const int row = at + taps.shift[t] + k * 16;
            multiply_add_group<false, 1>(acc[t], slopes[k], pixels + (row < RING ? row : row - RING));
        }
}

#if PRECISION == PRECISION_BF16
struct Slopes {
    u32 of[DEEP][4];
    // Each warp has sixteen of the channels.
    __device__ __forceinline__ void read(u32 copy, int half) {
        const int lane = threadIdx.x % 32, piece = threadIdx.x / 32 % 4 * 2 + lane / 8 % 2, row = half * HALF + lane / 16 * 8 + lane % 8;
#pragma unroll
        for (int k = 0; k < DEEP; k++)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(of[k][0]), "=r"(of[k][1]), "=r"(of[k][2]), "=r"(of[k][3])
                         : "r"(copy + piece * SLOPE_PITCH + (k * 16 + row) * 16)
                         : "memory");
    }
};
constexpr int OPERAND_BYTES = RING_BYTES;

struct Steps {
    const Share& share;
    const act_t *dy, *x;
    int n;
    // Of the step that is asked for, and of the one after it.
    Rows (&table)[2];
    u32 ring, copies;

    // So many times PLACES rows after the first.
    template <typename At> __device__ __forceinline__ void ask_for_pixels(int rows, At at_row) const {
        const int first = rows % (RING / PLACES) * PLACES;
        each_pixel(share, x, at_row, [&](int row, int piece, const act_t* from, bool inside) {
            const int at = first + row;
            const u32 to = ring + piece * RING_PITCH + at * 16;
            ask_for(to, from, inside);
            if (at < 16) ask_for(to + RING * 16, from, inside);
        });
    }
    __device__ __forceinline__ void ask(int step) const {
        if (share.first + step < share.end) {
            const Rows& rows = table[step % 2];
            ask_for_slopes(copies + step % COPIES * COPY_BYTES, share, dy, rows);
            ask_for_pixels(step + FURTHER, [&](int row) { return rows.pixels[row]; });
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __device__ __forceinline__ void begin() const {
        for (int rows = 0; rows < FURTHER; rows++)
            ask_for_pixels(rows, [&](int row) { return find_pixels(first_pixel(share) + rows * PLACES + row, n); });
    }
    __device__ __forceinline__ void prepare(int) {}
    __device__ __forceinline__ void show() const {
#ifndef UNFENCED
        show_shared();
#endif
    }
    __device__ __forceinline__ void multiply(float (&acc)[EACH][NI][4], const Slopes& slopes, int step, int half, const Taps& taps) {
        multiply_places(acc, slopes.of, ring, step % (RING / PLACES) * PLACES + half * HALF, taps);
    }
};
#else
struct Slopes {
    // What of them fits into bf16, and what that leaves.
    u32 high[DEEP][4], low[DEEP][4];
    __device__ __forceinline__ void read(u32 copy, int half) {
        const int lane = threadIdx.x % 32, channel = threadIdx.x / 32 % 4 * 16 + lane / 4, place = half * HALF + lane % 4 * 2;
#pragma unroll
        for (int k = 0; k < DEEP; k++) {
#pragma unroll
            for (int part = 0; part < 4; part++) {
                const int c = channel + part % 2 * 8;
                const u32 at = copy + c / 4 * SLOPE_PITCH + c % 4 * 4 + (k * 16 + part / 2 * 8 + place) * 16;
                float first, second;
                asm volatile("ld.shared.f32 %0, [%1];" : "=f"(first) : "r"(at) : "memory");
                asm volatile("ld.shared.f32 %0, [%1];" : "=f"(second) : "r"(at + 16) : "memory");
                high[k][part] = two_bf16(first, second);
                low[k][part] = left_of_two(first, second, high[k][part]);
            }
            pin(high[k]);
            pin(low[k]);
        }
    }
    __device__ __forceinline__ static u32 left_of_two(float first, float second, u32 high) {
        return two_bf16(first - __uint_as_float(high << 16), second - __uint_as_float(high & 0xffff0000u));
    }
};
constexpr int OPERAND_BYTES = 2 * RING_BYTES;

struct Steps {
    const Share& share;
    const act_t *dy, *x;
    int n;
    // Of the step that is asked for, and of the one after it.
    Rows (&table)[2];
    u32 ring, copies;
    // Whether any pixel so far left anything; the warps of a block tell each other.
    bool left;
    u32 (&told)[2][THREADS / 32];

    __device__ __forceinline__ void ask(int step) const {
        if (share.first + step < share.end) {
            const u32 copy = copies + step % COPIES * COPY_BYTES;
            const Rows& rows = table[step % 2];
            ask_for_slopes(copy, share, dy, rows);
            each_pixel(share, x, [&](int row) { return rows.pixels[row]; }, [&](int row, int piece, const act_t* from, bool inside) {
                ask_for(copy + SLOPE_BYTES + (piece * PLACES + row) * 16, from, inside);
            });
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    // Takes eight numbers apart.
    __device__ __forceinline__ void take_apart(const float (&v)[8], int rows, int row, int eight) {
        u32 high[4], low[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            high[i] = two_bf16(v[2 * i], v[2 * i + 1]);
            low[i] = Slopes::left_of_two(v[2 * i], v[2 * i + 1], high[i]);
        }
        // Zeros have signs.
        left |= ((low[0] | low[1] | low[2] | low[3]) & 0x7fff7fffu) != 0;
        const int at = rows % (RING / PLACES) * PLACES + row;
        const u32 to = ring + eight * RING_PITCH + at * 16;
        store_four(to, high);
        store_four(to + RING_BYTES, low);
        if (at >= 16) return;
        store_four(to + RING * 16, high);
        store_four(to + RING * 16 + RING_BYTES, low);
    }
    __device__ __forceinline__ static void store_four(u32 to, const u32 (&v)[4]) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
    }
    __device__ __forceinline__ void begin() {
        left = false;
        const u32 first = first_pixel(share);
        for (int i = threadIdx.x; i < FURTHER * PLACES * NI; i += THREADS) {
            const int row = i / NI, eight = i % NI, channel = share.in + eight * 8;
            const u32 at = find_pixels(first + row, n);
            float v[8] = {};
            if (at != NOWHERE && (CI % BN == 0 || channel < CI)) {
                const float4* from = reinterpret_cast<const float4*>(x + (size_t)at * CI + channel);
                const float4 a = __ldg(from), b = __ldg(from + 1);
                v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
            }
            take_apart(v, row / PLACES, row % PLACES, eight);
        }
    }
    // Takes apart what a step's last taps look at.
    __device__ __forceinline__ void prepare(int step) {
        if (share.first + step >= share.end) return;
        const u32 copy = copies + step % COPIES * COPY_BYTES + SLOPE_BYTES;
        for (int i = threadIdx.x; i < PLACES * NI; i += THREADS) {
            const int row = i % PLACES, eight = i / PLACES;
            const u32 from = copy + (2 * eight * PLACES + row) * 16;
            float v[8];
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"(from) : "memory");
            asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]) : "r"(from + PLACES * 16) : "memory");
            take_apart(v, step + FURTHER, row, eight);
        }
        const bool any = __any_sync(~0u, left);
        if (threadIdx.x % 32 == 0) told[step % 2][threadIdx.x / 32] = any;
        show_shared();
    }
    __device__ __forceinline__ void show() const {}
    __device__ __forceinline__ void multiply(float (&acc)[EACH][NI][4], const Slopes& slopes, int step, int half, const Taps& taps) {
        const int at = step % (RING / PLACES) * PLACES + half * HALF;
        bool any = false;
#pragma unroll
        for (int warp = 0; warp < THREADS / 32; warp++) any |= told[step % 2][warp] != 0;
        multiply_places(acc, slopes.high, ring, at, taps);
        multiply_places(acc, slopes.low, ring, at, taps);
        if (any) multiply_places(acc, slopes.high, ring + RING_BYTES, at, taps);
    }
};
#endif

// One step: the slopes of its first half are there.
__device__ __forceinline__ void run_step(float (&acc)[EACH][NI][4], Steps& steps, Slopes& first, Slopes& second, int step, const Taps& taps) {
    // The next step's copies, of which a part is needed at the end of this one.
    asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 2) : "memory");
    steps.show();
    __syncthreads();
    begin_products();
    steps.multiply(acc, first, step, 0, taps);
    end_products();
    steps.ask(step + AHEAD);
    steps.table[(step + AHEAD + 1) % 2].find(steps.share, steps.n, step + AHEAD + 1);
    steps.prepare(step + 1);
    // Those of the half before, which had the registers.
    products_done<1>();
    second.read(steps.copies + step % COPIES * COPY_BYTES, 1);
    begin_products();
    steps.multiply(acc, second, step, 1, taps);
    end_products();
    products_done<1>();
    if (steps.share.first + step + 1 < steps.share.end) first.read(steps.copies + (step + 1) % COPIES * COPY_BYTES, 0);
}
#endif

// Each block's sums.
extern "C" __global__ void __launch_bounds__(384, 1)
shifted_gradient(const act_t* __restrict__ dy, const act_t* __restrict__ x, float* __restrict__ sums, int n) {
#if WARPGROUPS
    extern __shared__ __align__(128) unsigned char memory[];
    const Share share(n);
    const Taps taps(share);
    const u32 ring = (u32)__cvta_generic_to_shared(memory);
    float acc[EACH][NI][4] = {};
    __shared__ Rows table[2];
#if PRECISION == PRECISION_BF16
    Steps steps{share, dy, x, n, table, ring, ring + OPERAND_BYTES};
#else
    __shared__ u32 told[2][THREADS / 32];
    Steps steps{share, dy, x, n, table, ring, ring + OPERAND_BYTES, false, told};
#endif
    steps.begin();
    for (int step = 0; step < AHEAD; step++) {
        table[step % 2].find(share, n, step);
        __syncthreads();
        steps.ask(step);
    }
    table[AHEAD % 2].find(share, n, AHEAD);
    asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
    __syncthreads();
    steps.prepare(0);
    Slopes first, second;
    first.read(steps.copies, 0);
    for (int step = 0; share.first + step < share.end; step++) run_step(acc, steps, first, second, step, taps);
    products_done<0>();
    pin_sums(acc);
    const int lane = threadIdx.x % 32, channel = share.out + threadIdx.x / 32 % 4 * 16 + lane / 4;
    float* to = sums + (size_t)blockIdx.x * WEIGHTS + share.tap * CI + share.in + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int out = channel + half * 8;
        if (OC % OUT_ROWS != 0 && out >= OC) continue;
#pragma unroll
        for (int t = 0; t < EACH; t++) {
            if (t >= TAPS / SETS && t >= taps.count) continue;
#pragma unroll
            for (int j = 0; j < NI; j++) {
                if (CI % BN != 0 && share.in + j * 8 >= CI) continue;
                *reinterpret_cast<float2*>(to + (size_t)out * (TAPS * CI) + t * CI + j * 8) =
                    make_float2(acc[t][j][2 * half], acc[t][j][2 * half + 1]);
            }
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
