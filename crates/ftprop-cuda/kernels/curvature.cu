// Where the loss's curvature comes from: its second derivatives by the logits, their diagonal, and the squares of the weights that
// it is carried down by. A warp takes an example.
#include "logits.cuh"

extern "C" __global__ void __launch_bounds__(256)
loss_curvature(const logit_t* __restrict__ logits, const u32* __restrict__ labels, act_t* __restrict__ curvature, const float* __restrict__ weights,
               const DeviceStep* __restrict__ step, const float* __restrict__ scalars, int n) {
    const int lane = threadIdx.x % 32, i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= n) return;
    const logit_t* z = logits + (size_t)i * CLASSES;
    act_t* out = curvature + (size_t)i * CLASSES;
    const Learned learned(labels, weights, step, scalars, i, n, true);
    const float share = share_of(step, n), whole = (learned.weight + learned.other_weight) * share;
#if DISTILS
    float most, scale;
    softened(z, lane, most, scale);
#endif
    auto write = [&](int j, float c) {
        c *= whole;
#if DISTILS
        const float p = expf((widen(z[j]) - most) * (1.0f / TEMPERATURE)) * scale;
        c = (1.0f - WEIGHT) * c + WEIGHT * share * p * (1.0f - p);
#endif
        FloatVec<1> w;
        w.v[0] = operand(c);
        store<1>(out + j, w);
    };
#if OUTPUT_LOSS == OUTPUT_LOSS_CROSS_ENTROPY
    const float largest = largest_logit(z, lane);
    double sum = 0.0;
    for (int j = lane; j < CLASSES; j += 32) sum += (double)expf(widen(z[j]) - largest);
    const float all = (float)warp_sum(sum);
    for (int j = lane; j < CLASSES; j += 32) {
        const float p = expf(widen(z[j]) - largest) / all;
        write(j, p * (1.0f - p));
    }
#elif OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_MULTI_HINGE
    const int y = learned.y;
    const float zy = widen(z[y]), each = 2.0f / (float)CLASSES;
    float total = 0.0f;
    for (int j = lane; j < CLASSES; j += 32) {
        const float c = j != y && 1.0f - zy + widen(z[j]) > 0.0f ? each : 0.0f;
        total += c;
        if (j != y) write(j, c);
    }
    total = warp_sum(total);
    if (lane == 0) write(y, total);
#elif OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_ONE_VS_REST_HINGE
    const float each = 2.0f / (float)CLASSES;
    for (int j = lane; j < CLASSES; j += 32) {
        const float t = j == learned.y ? 1.0f : -1.0f;
        write(j, 1.0f - t * widen(z[j]) > 0.0f ? each : 0.0f);
    }
#else
    // The other hinges do not bend.
    for (int j = lane; j < CLASSES; j += 32) write(j, 0.0f);
#endif
}

extern "C" __global__ void __launch_bounds__(256) square_values(const float* __restrict__ values, act_t* __restrict__ squares, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        store<1>(squares + i, FloatVec<1>{{operand(values[i] * values[i])}});
}
