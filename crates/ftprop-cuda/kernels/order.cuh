// The order of an epoch's examples, as the CPU has it.
#pragma once
#include "common.cuh"

// Which of so many examples comes at a place.
__device__ __forceinline__ u64 shuffled(u64 x, u32 examples, const DeviceStep* __restrict__ step) {
    u32 half = 1;
    while ((1ull << (2 * half)) < (u64)examples) half++;
    const u64 mask = (1ull << half) - 1, key = step->shuffle_key;
    do {
        u64 left = x >> half, right = x & mask;
        for (u64 round = 0; round < 6; round++) {
            u64 next = left ^ ((mix(key + ((round << 32) | right)) >> 32) & mask);
            left = right;
            right = next;
        }
        x = (left << half) | right;
    } while (x >= examples);
    return x;
}
