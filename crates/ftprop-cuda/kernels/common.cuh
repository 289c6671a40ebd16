// What every kernel shares: number formats, wide loads and stores, the counter-based random numbers, and
// sums over columns in a fixed order. PRECISION decides how activations are stored (bf16 or f32) and how what a
// matrix unit reads next is rounded.
//
// The host defines a choice as a name, such as PRECISION_TF32. The names' numbers begin at 1, so that one which is not
// known here, which counts as 0, is none of them.
#pragma once
#ifndef PRECISION
#include "sample.cuh"
#endif

#define PRECISION_F32 1
#define PRECISION_TF32 2
#define PRECISION_BF16 3
#if PRECISION != PRECISION_F32 && PRECISION != PRECISION_TF32 && PRECISION != PRECISION_BF16
#error "unknown PRECISION"
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if PRECISION == PRECISION_BF16
typedef u16 act_t;
#else
typedef float act_t;
#endif

// What sums over a batch are taken in, and what follows from them is kept in.
#if PRECISION == PRECISION_F32
typedef double sum_t;
#else
typedef float sum_t;
#endif

// What a step depends on; the host sets it, the last kernel of a step moves it on. `index` is the row of the
// table of scalars, which the host works out for a whole epoch, `batch` the batch's number in its epoch. Where several
// GPUs share a batch, `of` is how many examples it has in all and `first` which of them is this one's first; else both are 0.
struct DeviceStep {
    u64 number;
    u64 dropout_base;
    u64 target_base;
    u64 shuffle_key;
    u64 augment_key;
    u64 flip_key;
    u64 epoch;
    u32 index;
    u32 batch;
    u32 first;
    u32 of;
};

struct DeviceTally {
    double loss_sum;
    u64 examples;
    u64 top1;
    u64 top5;
};

// The host has the same structs, and says how large they are there.
static_assert(sizeof(DeviceStep) == DEVICE_STEP_BYTES && sizeof(DeviceTally) == DEVICE_TALLY_BYTES,
              "the host's structs have another size");

// One over the examples of a batch, n of which are here.
__device__ __forceinline__ float share_of(const DeviceStep* step, int n) { return 1.0f / (float)(step->of ? (int)step->of : n); }

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
// Two numbers as they lie in memory, the first in the lower half.
__device__ __forceinline__ u32 two_bf16(float first, float second) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(second), "f"(first));
    return r;
}
__device__ __forceinline__ float to_tf32(float v) {
    u32 r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return __uint_as_float(r);
}
// Rounds what a matrix unit reads next, so that the unit itself has nothing to cut off, whichever kernel or library it works
// for: activations, slopes, and the copy of the weights.
__device__ __forceinline__ float operand(float v) {
#if PRECISION == PRECISION_TF32
    return to_tf32(v);
#else
    return v;
#endif
}

// What is read again of a number that was written as a value or a slope.
__device__ __forceinline__ float as_kept(float v) {
#if PRECISION == PRECISION_BF16
    return widen(to_bf16(v));
#else
    return operand(v);
#endif
}

// Rounds a weight's gradient. In bf16 libraries give it with no more bits, so ours has no more either.
__device__ __forceinline__ float gradient(float v) {
#if PRECISION == PRECISION_BF16
    return widen(to_bf16(v));
#else
    return v;
#endif
}

#if PRECISION != PRECISION_F32
// What formulas call, which in f32 is the CPU's series, by the unit that has it: to about two units in the last place too.
__device__ __forceinline__ float exp_negative(float x) { return __expf(x); }
// 4e / (1 + e)² with e = exp(-2|x|), by the units for powers of two and reciprocals. The denominator is between 1 and 4, so that
// nothing has to be scaled, and the 4 is two more in the exponent.
__device__ __forceinline__ float sech_squared(float x) {
    float four_e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(four_e) : "f"(fmaf(fabsf(x), -2.8853900818f, 2.0f)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(fmaf(four_e, 0.25f, 1.0f)));
    return four_e * r * r;
}
#endif

template <int N> struct FloatVec {
    float v[N];
};
template <int N> struct SumVec {
    sum_t v[N];
};
template <int N> __device__ __forceinline__ SumVec<N> load_sums(const sum_t* p) {
    SumVec<N> r;
#pragma unroll
    for (int i = 0; i < N; i++) r.v[i] = p[i];
    return r;
}
// What is read for the last time in a while may leave the cache first.
template <bool LAST, typename T> __device__ __forceinline__ T read(const T* p) {
    if constexpr (LAST) return __ldcs(p);
    else return *p;
}
template <int N, bool LAST = false> __device__ __forceinline__ FloatVec<N> load(const float* p) {
    FloatVec<N> r;
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float4 q = read<LAST>(reinterpret_cast<const float4*>(p + i));
            r.v[i] = q.x; r.v[i + 1] = q.y; r.v[i + 2] = q.z; r.v[i + 3] = q.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) r.v[i] = p[i];
    }
    return r;
}
template <int N, bool LAST = false> __device__ __forceinline__ FloatVec<N> load(const u16* p) {
    FloatVec<N> r;
    if constexpr (N == 8) {
        uint4 q = read<LAST>(reinterpret_cast<const uint4*>(p));
        const u32 pairs[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            r.v[2 * i] = __uint_as_float(pairs[i] << 16);
            r.v[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
        }
    } else if constexpr (N == 4) {
        uint2 q = read<LAST>(reinterpret_cast<const uint2*>(p));
        r.v[0] = __uint_as_float(q.x << 16); r.v[1] = __uint_as_float(q.x & 0xffff0000u);
        r.v[2] = __uint_as_float(q.y << 16); r.v[3] = __uint_as_float(q.y & 0xffff0000u);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) r.v[i] = widen(p[i]);
    }
    return r;
}
// Neighbouring words in one piece. As structs compilers take them apart where they come from several places, and memory keeps up
// with few pieces that are no whole sector of 32 bytes together with their neighbours'.
__device__ __forceinline__ void store_words(void* to, u32 a, u32 b) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void store_words(void* to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

template <int N> __device__ __forceinline__ void store(float* p, const FloatVec<N>& r) {
    if constexpr (N % 4 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) *reinterpret_cast<float4*>(p + i) = make_float4(r.v[i], r.v[i + 1], r.v[i + 2], r.v[i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = r.v[i];
    }
}
template <int N> __device__ __forceinline__ void store(u16* p, const FloatVec<N>& r) {
    if constexpr (N == 8) {
        *reinterpret_cast<uint4*>(p) =
            make_uint4(two_bf16(r.v[0], r.v[1]), two_bf16(r.v[2], r.v[3]), two_bf16(r.v[4], r.v[5]), two_bf16(r.v[6], r.v[7]));
    } else if constexpr (N == 4) {
        *reinterpret_cast<uint2*>(p) = make_uint2(two_bf16(r.v[0], r.v[1]), two_bf16(r.v[2], r.v[3]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = to_bf16(r.v[i]);
    }
}
// N activations as they lie in memory, which take half of the registers where they are bf16.
template <int N> struct Packed {
    static constexpr int BYTES = N * sizeof(act_t), WORDS = (BYTES + 3) / 4;
    u32 words[WORDS];
};
template <int N> __device__ __forceinline__ Packed<N> load_packed(const act_t* p) {
    Packed<N> r;
    if constexpr (r.BYTES == 16) {
        const uint4 q = *reinterpret_cast<const uint4*>(p);
        r.words[0] = q.x, r.words[1] = q.y, r.words[2] = q.z, r.words[3] = q.w;
    } else if constexpr (r.BYTES == 8) {
        const uint2 q = *reinterpret_cast<const uint2*>(p);
        r.words[0] = q.x, r.words[1] = q.y;
    } else if constexpr (sizeof(act_t) == 4) {
        r.words[0] = *reinterpret_cast<const u32*>(p);
    } else {
        r.words[0] = (u32)*p;
    }
    return r;
}
template <int N> __device__ __forceinline__ FloatVec<N> unpacked(const Packed<N>& p) {
    FloatVec<N> r;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if constexpr (sizeof(act_t) == 4) r.v[i] = __uint_as_float(p.words[i]);
        else r.v[i] = __uint_as_float(i % 2 ? p.words[i / 2] & 0xffff0000u : p.words[i / 2] << 16);
    }
    return r;
}
template <int N> __device__ __forceinline__ Packed<N> packed(const FloatVec<N>& v) {
    Packed<N> r;
#pragma unroll
    for (int i = 0; i < r.WORDS; i++) {
        if constexpr (sizeof(act_t) == 4) r.words[i] = __float_as_uint(v.v[i]);
        else if constexpr (N == 1) r.words[i] = to_bf16(v.v[0]);
        else r.words[i] = two_bf16(v.v[2 * i], v.v[2 * i + 1]);
    }
    return r;
}
// Small whole numbers, N of them side by side, copied as one piece where that is as wide as the hardware copies.
template <int N, typename T> struct Whole {
    T v[N];
};
template <int N, typename T> __device__ __forceinline__ Whole<N, T> load_whole(const T* p) {
    constexpr int BYTES = N * sizeof(T), EACH = 4 / sizeof(T);
    Whole<N, T> r;
    if constexpr (BYTES == 4 || BYTES == 8 || BYTES == 16) {
        u32 words[BYTES / 4];
        if constexpr (BYTES == 4) {
            words[0] = *reinterpret_cast<const u32*>(p);
        } else if constexpr (BYTES == 8) {
            const uint2 q = *reinterpret_cast<const uint2*>(p);
            words[0] = q.x, words[1] = q.y;
        } else {
            const uint4 q = *reinterpret_cast<const uint4*>(p);
            words[0] = q.x, words[1] = q.y, words[2] = q.z, words[3] = q.w;
        }
#pragma unroll
        for (int i = 0; i < N; i++) r.v[i] = (T)(words[i / EACH] >> (8 * sizeof(T) * (i % EACH)));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) r.v[i] = p[i];
    }
    return r;
}
template <int N, typename T> __device__ __forceinline__ void store_whole(T* p, const Whole<N, T>& r) {
    constexpr int BYTES = N * sizeof(T), EACH = 4 / sizeof(T);
    if constexpr (BYTES == 4 || BYTES == 8 || BYTES == 16) {
        u32 words[BYTES / 4] = {};
#pragma unroll
        for (int i = 0; i < N; i++) words[i / EACH] |= (u32)r.v[i] << (8 * sizeof(T) * (i % EACH));
        if constexpr (BYTES == 4) *reinterpret_cast<u32*>(p) = words[0];
        else if constexpr (BYTES == 8) *reinterpret_cast<uint2*>(p) = make_uint2(words[0], words[1]);
        else *reinterpret_cast<uint4*>(p) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) p[i] = r.v[i];
    }
}

// True in the block that finishes last of `count`; what the others wrote before is then visible to it. One thread counts for its
// block, and its count is a release and an acquire, which the block's barriers pass on: a fence of every thread takes longer than
// all of the rest.
__device__ __forceinline__ bool last_block(u32* counter, u32 count) {
    __shared__ u32 last;
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
        last = before == count - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    return last;
}

// A barrier for `count` blocks, all of which must be running (a cooperative launch); what they wrote before is then
// visible. Its highest bit turns over when the last has come: one block adds what the others leave short of it.
__device__ __forceinline__ void wait_for_blocks(u32* barrier, u32 count, bool one) {
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 before, now, more = one ? 0x80000000u - (count - 1) : 1u;
        asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(barrier), "r"(more) : "memory");
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(barrier) : "memory");
        while (((before ^ now) & 0x80000000u) == 0);
    }
    __syncthreads();
}

// A block sums columns with ACROSS threads across, of EACH columns each, and its remaining threads over rows.
#define COLUMN_THREADS 512

// Adds the sums of a block's threads; those of inactive ones are zero. `own` is [COUNT][EACH]; the result is in the threads
// with y == 0.
template <int COUNT, int EACH, int ACROSS>
__device__ __forceinline__ void reduce_block(sum_t (&own)[COUNT][EACH], int x, int y) {
    constexpr int SPAN = ACROSS * EACH, DOWN = COLUMN_THREADS / ACROSS;
    if constexpr (32 % ACROSS == 0) {
        // First the threads of a warp, then the warps.
        constexpr int WARPS = COLUMN_THREADS / 32;
        __shared__ sum_t parts[WARPS][COUNT * SPAN];
        __shared__ sum_t totals[COUNT * SPAN];
        __syncthreads();
#pragma unroll
        for (int s = 0; s < COUNT; s++)
#pragma unroll
            for (int e = 0; e < EACH; e++) {
#pragma unroll
                for (int other = ACROSS; other < 32; other *= 2) own[s][e] += __shfl_xor_sync(0xffffffffu, own[s][e], other);
                if (threadIdx.x % 32 < ACROSS) parts[threadIdx.x / 32][s * SPAN + x * EACH + e] = own[s][e];
            }
        __syncthreads();
        if (threadIdx.x < COUNT * SPAN) {
            sum_t sum = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += parts[w][threadIdx.x];
            totals[threadIdx.x] = sum;
        }
        __syncthreads();
        if (y == 0) {
#pragma unroll
            for (int s = 0; s < COUNT; s++)
#pragma unroll
                for (int e = 0; e < EACH; e++) own[s][e] = totals[s * SPAN + x * EACH + e];
        }
    } else {
        // Two rounds: each thread adds a few rows of threads, then one thread a column adds what that gave.
        constexpr int FEW = COLUMN_THREADS / SPAN < 1 ? 1 : COLUMN_THREADS / SPAN, PARTS = FEW < DOWN ? FEW : DOWN;
        __shared__ sum_t shared[ACROSS * DOWN * EACH];
#pragma unroll
        for (int s = 0; s < COUNT; s++) {
            __syncthreads();
            if (y < DOWN) {
#pragma unroll
                for (int i = 0; i < EACH; i++) shared[y * SPAN + i * ACROSS + x] = own[s][i];
            }
            __syncthreads();
            if constexpr (DOWN > 1 && PARTS > 1) {
                const int column = threadIdx.x % SPAN, part = threadIdx.x / SPAN;
                sum_t sum = 0;
                if (part < PARTS)
                    for (int d = part; d < DOWN; d += PARTS) sum += shared[d * SPAN + column];
                __syncthreads();
                if (part < PARTS) shared[part * SPAN + column] = sum;
                __syncthreads();
            }
            if (y == 0) {
                constexpr int ROWS = DOWN > 1 && PARTS > 1 ? PARTS : DOWN;
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    sum_t sum = 0;
                    for (int d = 0; d < ROWS; d++) sum += shared[d * SPAN + i * ACROSS + x];
                    own[s][i] = sum;
                }
            }
        }
    }
}

// c += a b on the matrix units, 16 rows, 8 columns. In tf32 they are 8 deep: of a a thread has rows g and g + 8 at depth t,
// then at depth t + 4, of b column g at these depths, of c columns 2t and 2t + 1 of row g, then of row g + 8; g is the lane
// over four, t the rest. In bf16 they are 16 deep, and what is one number there is two that lie next to each other.
__device__ __forceinline__ void multiply_add_tf32(float* c, const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add_bf16(float* c, const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Of f32 numbers that tf32 holds.
__device__ __forceinline__ void multiply_add(float (&c)[4], const float (&a)[4], float b0, float b1) {
    const u32 bits[4] = {__float_as_uint(a[0]), __float_as_uint(a[1]), __float_as_uint(a[2]), __float_as_uint(a[3])};
    multiply_add_tf32(c, bits, __float_as_uint(b0), __float_as_uint(b1));
}

// Four matrices of eight rows of 16 bytes from shared memory, as the matrix units take them; each thread names a row. Transposed,
// their numbers are of 16 bits.
template <typename T> __device__ __forceinline__ void matrices4(u32 (&r)[4], const T* p) {
    u32 a = (u32)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}
template <typename T> __device__ __forceinline__ void matrices4_transposed(u32 (&r)[4], const T* p) {
    u32 a = (u32)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}
