// What every kernel shares: number formats, wide loads and stores, the counter-based random numbers, and
// sums over columns in a fixed order. PREC is 0 for f32, 1 for tf32, 2 for bf16; it decides how activations
// are stored (bf16 or f32) and how what a matrix unit reads next is rounded.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if PREC == 2
typedef u16 act_t;
#else
typedef float act_t;
#endif

// What sums over a batch are taken in, and what follows from them is kept in.
#if PREC == 0
typedef double sum_t;
#else
typedef float sum_t;
#endif

// What a step depends on; the host sets it, the last kernel of a step moves it on. `index` is the row of the
// table of scalars, `batch` the batch's number in its epoch.
struct Step {
    u64 number;
    u64 dropout_base;
    u64 shuffle_key;
    u64 augment_key;
    u32 index;
    u32 batch;
};

// The numbers of one step that a schedule changes, worked out by the host for a whole epoch.
struct Scalars {
    float lr;
    float rate;
    float root;
    float keep;
    float tau;
};

struct Tally {
    double loss_sum;
    u64 examples;
    u64 top1;
    u64 top5;
};

__device__ __forceinline__ u64 mix(u64 x) {
    u64 z = x + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
__device__ __forceinline__ float uniform(u64 key, u64 index) { return (float)(mix(key + index) >> 40) * (1.0f / 16777216.0f); }
__device__ __forceinline__ u64 fork(u64 key, u64 index) { return mix(mix(key + index)); }

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ float widen(u16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ u16 to_bf16(float v) {
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}
__device__ __forceinline__ float to_tf32(float v) {
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return __uint_as_float(r);
}
// Rounds what a matrix unit reads next, so that the unit itself has nothing to cut off.
__device__ __forceinline__ float operand(float v) {
#if PREC == 1
    return to_tf32(v);
#else
    return v;
#endif
}

template <int N> struct Wide {
    float v[N];
};
template <int N> struct WideSum {
    sum_t v[N];
};
template <int N> __device__ __forceinline__ WideSum<N> load_sums(const sum_t* p) {
    WideSum<N> r;
#pragma unroll
    for (int i = 0; i < N; i++) r.v[i] = p[i];
    return r;
}
template <int N> __device__ __forceinline__ Wide<N> load(const float* p) {
    Wide<N> r;
    if constexpr (N == 4) {
        float4 q = *reinterpret_cast<const float4*>(p);
        r.v[0] = q.x; r.v[1] = q.y; r.v[2] = q.z; r.v[3] = q.w;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) r.v[i] = p[i];
    }
    return r;
}
template <int N> __device__ __forceinline__ Wide<N> load(const u16* p) {
    Wide<N> r;
    if constexpr (N == 4) {
        uint2 q = *reinterpret_cast<const uint2*>(p);
        r.v[0] = __uint_as_float(q.x << 16); r.v[1] = __uint_as_float(q.x & 0xffff0000u);
        r.v[2] = __uint_as_float(q.y << 16); r.v[3] = __uint_as_float(q.y & 0xffff0000u);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) r.v[i] = widen(p[i]);
    }
    return r;
}
template <int N> __device__ __forceinline__ void store(float* p, const Wide<N>& r) {
    if constexpr (N == 4) *reinterpret_cast<float4*>(p) = make_float4(r.v[0], r.v[1], r.v[2], r.v[3]);
    else {
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = r.v[i];
    }
}
template <int N> __device__ __forceinline__ void store(u16* p, const Wide<N>& r) {
    if constexpr (N == 4) {
        uint2 q;
        q.x = (u32)to_bf16(r.v[0]) | (u32)to_bf16(r.v[1]) << 16;
        q.y = (u32)to_bf16(r.v[2]) | (u32)to_bf16(r.v[3]) << 16;
        *reinterpret_cast<uint2*>(p) = q;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = to_bf16(r.v[i]);
    }
}
template <int N> __device__ __forceinline__ void store_bytes(u8* p, const u8 (&v)[N]) {
    if constexpr (N == 4) *reinterpret_cast<uchar4*>(p) = make_uchar4(v[0], v[1], v[2], v[3]);
    else {
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = v[i];
    }
}
template <int N> __device__ __forceinline__ void load_bytes(const u8* p, u8 (&v)[N]) {
    if constexpr (N == 4) {
        uchar4 q = *reinterpret_cast<const uchar4*>(p);
        v[0] = q.x; v[1] = q.y; v[2] = q.z; v[3] = q.w;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = p[i];
    }
}

// True in the block that finishes last of `count`; what the others wrote before is then visible to it.
__device__ __forceinline__ bool last_block(u32* counter, u32 count) {
    __shared__ u32 last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == count - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// Waits until `count` blocks, all of which must be running, have come here; what they wrote before is then visible. The
// gate's highest bit turns over when the last has come: one block adds what the others leave short of it.
__device__ __forceinline__ void meet(u32* gate, u32 count, bool one) {
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 before, now, more = one ? 0x80000000u - (count - 1) : 1u;
        asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(gate), "r"(more) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(gate) : "memory");
        while (((before ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// Columns are spread over the threads of a block VEC at a time, ACROSS times, its remaining threads over rows.
#define COLUMN_THREADS 512

// Adds the sums of a block's threads; those of inactive ones are zero. `own` is [SUMS][VEC]; the result is in the threads
// with down == 0.
template <int SUMS, int VEC, int ACROSS>
__device__ __forceinline__ void add_down(sum_t (&own)[SUMS][VEC], int across, int down) {
    constexpr int WIDTH = ACROSS * VEC, DOWN = COLUMN_THREADS / ACROSS;
    if constexpr (32 % ACROSS == 0) {
        // First the threads of a warp, then the warps.
        constexpr int WARPS = COLUMN_THREADS / 32;
        __shared__ sum_t parts[WARPS][SUMS * WIDTH];
        __shared__ sum_t totals[SUMS * WIDTH];
        __syncthreads();
#pragma unroll
        for (int s = 0; s < SUMS; s++)
#pragma unroll
            for (int e = 0; e < VEC; e++) {
#pragma unroll
                for (int other = ACROSS; other < 32; other *= 2) own[s][e] += __shfl_xor_sync(0xffffffffu, own[s][e], other);
                if (threadIdx.x % 32 < ACROSS) parts[threadIdx.x / 32][s * WIDTH + across * VEC + e] = own[s][e];
            }
        __syncthreads();
        if (threadIdx.x < SUMS * WIDTH) {
            sum_t sum = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += parts[w][threadIdx.x];
            totals[threadIdx.x] = sum;
        }
        __syncthreads();
        if (down == 0) {
#pragma unroll
            for (int s = 0; s < SUMS; s++)
#pragma unroll
                for (int e = 0; e < VEC; e++) own[s][e] = totals[s * WIDTH + across * VEC + e];
        }
    } else {
        // Two rounds: each thread adds a few rows of threads, then one thread a column adds what that gave.
        constexpr int FEW = COLUMN_THREADS / WIDTH < 1 ? 1 : COLUMN_THREADS / WIDTH, PARTS = FEW < DOWN ? FEW : DOWN;
        __shared__ sum_t shared[ACROSS * DOWN * VEC];
#pragma unroll
        for (int s = 0; s < SUMS; s++) {
            __syncthreads();
            if (down < DOWN) {
#pragma unroll
                for (int i = 0; i < VEC; i++) shared[down * WIDTH + i * ACROSS + across] = own[s][i];
            }
            __syncthreads();
            if constexpr (DOWN > 1 && PARTS > 1) {
                const int column = threadIdx.x % WIDTH, part = threadIdx.x / WIDTH;
                sum_t sum = 0;
                if (part < PARTS)
                    for (int d = part; d < DOWN; d += PARTS) sum += shared[d * WIDTH + column];
                __syncthreads();
                if (part < PARTS) shared[part * WIDTH + column] = sum;
                __syncthreads();
            }
            if (down == 0) {
                constexpr int ROWS = DOWN > 1 && PARTS > 1 ? PARTS : DOWN;
#pragma unroll
                for (int i = 0; i < VEC; i++) {
                    sum_t sum = 0;
                    for (int d = 0; d < ROWS; d++) sum += shared[d * WIDTH + i * ACROSS + across];
                    own[s][i] = sum;
                }
            }
        }
    }
}

#if PREC != 0
// c += a b on the matrix units, 16 rows, 8 columns, 8 deep. Of a a thread has rows g and g + 8 at depth t, then at depth
// t + 4, of b column g at these depths, of c columns 2t and 2t + 1 of row g, then of row g + 8; g is the lane over four,
// t the rest.
__device__ __forceinline__ void multiply_add(float (&c)[4], const float (&a)[4], float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
#endif
