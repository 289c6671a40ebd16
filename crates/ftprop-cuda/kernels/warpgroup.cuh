// The matrix units of GPUs of compute capability 9.0 at their full rate: four warps multiply together, and read the second operand
// from shared memory themselves. WARPGROUPS says whether there are such units; elsewhere mma.sync does.
#pragma once
#include "common.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS 1

// A matrix in shared memory that is read in pieces of 8 rows by 16 bytes, each of them 128 bytes in a row: `along` is how many bytes
// pieces that follow each other in depth lie apart, `down` those of the next eight rows.
__device__ __forceinline__ u64 matrix_in_shared(const void* at, int along, int down) {
    const u32 address = (u32)__cvta_generic_to_shared(at);
    return (u64)((address & 0x3ffff) >> 4) | (u64)(along >> 4) << 16 | (u64)(down >> 4) << 32;
}

// What threads wrote to shared memory is seen by these units after this and a barrier.
__device__ __forceinline__ void show_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers that were written are read by what follows.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all products but those of the last so many groups.
template <int LAST> __device__ __forceinline__ void products_done() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LAST) : "memory"); }

#define SUMS_8(c, j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]), "+f"(c[j + 1][0]), "+f"(c[j + 1][1]), "+f"(c[j + 1][2]), "+f"(c[j + 1][3])

// c += a b for 64 rows, 16 of each warp, and 8 NI columns, 16 deep. Of a and c a thread has what multiply_add_bf16 has.
template <int NI> __device__ __forceinline__ void multiply_add_group(float (&c)[NI][4], const u32 (&a)[4], u64 b) {
    static_assert(NI == 2 || NI == 4 || NI == 6 || NI == 8, "no such width");
    if constexpr (NI == 2) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, 1, 1, 1, 0;"
                     : SUMS_8(c, 0)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    } else if constexpr (NI == 4) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, "
                     "{%16,%17,%18,%19}, %20, 1, 1, 1, 0;"
                     : SUMS_8(c, 0), SUMS_8(c, 2)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    } else if constexpr (NI == 6) {
        asm volatile("wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23}, {%24,%25,%26,%27}, %28, 1, 1, 1, 0;"
                     : SUMS_8(c, 0), SUMS_8(c, 2), SUMS_8(c, 4)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    } else {
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
                     "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                     : SUMS_8(c, 0), SUMS_8(c, 2), SUMS_8(c, 4), SUMS_8(c, 6)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
}
#else
#define WARPGROUPS 0
#endif
