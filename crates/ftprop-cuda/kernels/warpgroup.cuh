// The matrix units of GPUs of compute capability 9.0 at their full rate: four warps multiply together, and read the second operand
// from shared memory themselves. WARPGROUPS says whether there are such units; elsewhere mma.sync does.
#pragma once
#include "common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS 1

// A matrix in shared memory that is read in pieces of 8 rows by 16 bytes, each of them 128 bytes in a row: `along` is how many bytes
// pieces that follow each other in depth lie apart, `down` those of the next eight rows.
//
// Where all rows of 16 bytes that are equally deep follow each other, `down` is 128, and a matrix may begin with any of them: what the
// units read is moved by a row if 16 is added to the address, by 1 in the first bits of what this returns.
__device__ __forceinline__ u64 matrix_in_shared(u32 address, int along, int down) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(along >> 4) << 16 | (u64)(down >> 4) << 32;
}
__device__ __forceinline__ u64 matrix_in_shared(const void* at, int along, int down) {
    return matrix_in_shared((u32)__cvta_generic_to_shared(at), along, down);
}

// What threads wrote to shared memory is seen by these units after this and a barrier.
__device__ __forceinline__ void show_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies 16 bytes to shared memory without waiting for them, or writes zeros.
__device__ __forceinline__ void ask_for(u32 to, const act_t* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}
// What is not a pixel: a place in the padding.
constexpr u32 NOWHERE = ~0u;

// Registers that were written are read by what follows.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all products but those of the last so many groups.
template <int LAST> __device__ __forceinline__ void products_done() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LAST) : "memory"); }
// Compilers know of the waiting and the fence above, but not which registers they are about: these are computed before what follows, and
// read after what came before.
template <int N> __device__ __forceinline__ void pin(u32 (&registers)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(registers[i])::"memory");
}
template <int M, int NI> __device__ __forceinline__ void pin_sums(float (&sums)[M][NI][4]) {
#pragma unroll
    for (int i = 0; i < M * NI * 4; i++) asm volatile("" : "+f"(sums[i / (4 * NI)][i / 4 % NI][i % 4])::"memory");
}

#define SUMS_8(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]), "+f"(c[j + 1][0]), "+f"(c[j + 1][1]), "+f"(c[j + 1][2]), "+f"(c[j + 1][3])
#define SUMS_32(c, j) SUMS_8(c, j), SUMS_8(c, j + 2), SUMS_8(c, j + 4), SUMS_8(c, j + 6)

// c += a b for 64 rows, 16 of each warp, and 8 NI columns, 32 bytes deep: 16 numbers of bf16, 8 of tf32. Of a and c a thread has what
// multiply_add_bf16 and multiply_add_tf32 have; b is in shared memory. WIDE_B says whether its numbers that follow each other in memory have
// the same depth, which those of f32 cannot.
#define NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES_32 NAMES_16 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES_48 NAMES_32 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define NAMES_64 NAMES_48 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES_80 NAMES_64 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define NAMES_96 NAMES_80 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_112 NAMES_96 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define NAMES_128 NAMES_112 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define MULTIPLY_GROUP(N, A0, A1, A2, A3, B, WIDE_B_AT, ...)                                                                       \
    if constexpr (TF32)                                                                                                            \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" NAMES_##N "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3  \
                     "}, %" #B ", 1, 1, 1;"                                                                                        \
                     : __VA_ARGS__                                                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                        \
    else                                                                                                                           \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES_##N "}, {%" #A0 ",%" #A1 ",%" #A2 ",%" #A3 \
                     "}, %" #B ", 1, 1, 1, %" #WIDE_B_AT ";"                                                                       \
                     : __VA_ARGS__                                                                                                 \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(WIDE_B));

template <bool TF32, int WIDE_B, int NI> __device__ __forceinline__ void multiply_add_group(float (&c)[NI][4], const u32 (&a)[4], u64 b) {
    static_assert(!TF32 || !WIDE_B, "f32 numbers follow each other in depth");
    if constexpr (NI == 2) {
        MULTIPLY_GROUP(16, 8, 9, 10, 11, 12, 13, SUMS_8(c, 0))
    } else if constexpr (NI == 4) {
        MULTIPLY_GROUP(32, 16, 17, 18, 19, 20, 21, SUMS_8(c, 0), SUMS_8(c, 2))
    } else if constexpr (NI == 6) {
        MULTIPLY_GROUP(48, 24, 25, 26, 27, 28, 29, SUMS_8(c, 0), SUMS_8(c, 2), SUMS_8(c, 4))
    } else if constexpr (NI == 8) {
        MULTIPLY_GROUP(64, 32, 33, 34, 35, 36, 37, SUMS_32(c, 0))
    } else {
        static_assert(NI == 16, "no such width");
        MULTIPLY_GROUP(128, 64, 65, 66, 67, 68, 69, SUMS_32(c, 0), SUMS_32(c, 8))
    }
}

// The same with both operands in shared memory; numbers of a that follow each other are of the same row.
#define MULTIPLY_SHARED(N, A, B, WIDE_B_AT, ...)                                                                                   \
    if constexpr (TF32)                                                                                                            \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" NAMES_##N "}, %" #A ", %" #B ", 1, 1, 1;"         \
                     : __VA_ARGS__                                                                                                 \
                     : "l"(a), "l"(b));                                                                                            \
    else                                                                                                                           \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" NAMES_##N "}, %" #A ", %" #B                     \
                     ", 1, 1, 1, 0, %" #WIDE_B_AT ";"                                                                              \
                     : __VA_ARGS__                                                                                                 \
                     : "l"(a), "l"(b), "n"(WIDE_B));

template <bool TF32, int WIDE_B, int NI> __device__ __forceinline__ void multiply_shared(float (&c)[NI][4], u64 a, u64 b) {
    static_assert(!TF32 || !WIDE_B, "f32 numbers follow each other in depth");
    if constexpr (NI == 4) {
        MULTIPLY_SHARED(32, 16, 17, 18, SUMS_8(c, 0), SUMS_8(c, 2))
    } else if constexpr (NI == 6) {
        MULTIPLY_SHARED(48, 24, 25, 26, SUMS_8(c, 0), SUMS_8(c, 2), SUMS_8(c, 4))
    } else if constexpr (NI == 8) {
        MULTIPLY_SHARED(64, 32, 33, 34, SUMS_32(c, 0))
    } else if constexpr (NI == 12) {
        MULTIPLY_SHARED(96, 48, 49, 50, SUMS_32(c, 0), SUMS_8(c, 8), SUMS_8(c, 10))
    } else {
        static_assert(NI == 16, "no such width");
        MULTIPLY_SHARED(128, 64, 65, 66, SUMS_32(c, 0), SUMS_32(c, 8))
    }
}
#else
#define WARPGROUPS 0
#endif
