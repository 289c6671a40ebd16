// The loss of the whole network: slopes of the mean loss by the logits, and the running tally. A warp takes an
// example; the block that finishes last adds the blocks' tallies in their order. In learning, classes have weights where
// WEIGHTED says so, and where MIXED says so an example's label shares its place with that of the example as far from the
// other end of the batch. `losses`, where it is given, has each example's own.
#include "logits.cuh"

// A loss as a multiple of 2^-30, as the CPU has it: such sums are exact, and so the same however examples were counted together,
// which goes by the clock.
__device__ __forceinline__ double on_grid(double loss) { return rint(loss * 1073741824.0) * (1.0 / 1073741824.0); }

extern "C" __global__ void __launch_bounds__(256)
output_loss(const logit_t* __restrict__ logits, const u32* __restrict__ labels, act_t* __restrict__ slopes, DeviceTally* __restrict__ tally, DeviceTally* __restrict__ partial,
            u32* __restrict__ counter, double* __restrict__ losses, const u32* __restrict__ not_numbers, const float* __restrict__ weights, const DeviceStep* __restrict__ step, const float* __restrict__ scalars, int n,
            int learning) {
    __shared__ double warp_loss[8];
    __shared__ u32 warp_top1[8], warp_top5[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const float share = share_of(step, n);
    double loss = 0.0;
    u32 top1 = 0, top5 = 0;
    for (int i = blockIdx.x * warps + warp; i < n; i += gridDim.x * warps) {
        const logit_t* z = logits + (size_t)i * CLASSES;
        act_t* out = slopes + (size_t)i * CLASSES;
        const Learned learned(labels, weights, step, scalars, i, n, learning);
        const int y = learned.y, other = learned.other;
        const float weight = learned.weight, other_weight = learned.other_weight;
        const float zy = widen(z[y]);
        u32 above = 0;
        for (int j = lane; j < CLASSES; j += 32) {
            float v = widen(z[j]);
            // Counts what is not below, so that a NaN or a tie never counts as right by accident.
            if (j != y && !(v < zy || (v == zy && j > y))) above++;
        }
        above = __reduce_add_sync(~0u, above);
        top1 += above < 1;
        top5 += above < 5;
        auto write = [&](int j, float v) {
            FloatVec<1> w;
            w.v[0] = operand(v);
            store<1>(out + j, w);
        };
#if OUTPUT_LOSS == OUTPUT_LOSS_CROSS_ENTROPY
        const float most = largest_logit(z, lane);
        double sum = 0.0, all = 0.0;
        for (int j = lane; j < CLASSES; j += 32) {
            sum += (double)expf(widen(z[j]) - most);
            all += (double)widen(z[j]);
        }
        sum = warp_sum(sum);
        all = warp_sum(all);
        const float label = 1.0f - SMOOTHING, each = SMOOTHING / (float)CLASSES, whole = weight + other_weight;
        if (learning) {
            float scale = 1.0f / (float)sum;
            for (int j = lane; j < CLASSES; j += 32) {
                float wanted = each * whole + (j == y ? label * weight : 0.0f) + (j == other ? label * other_weight : 0.0f);
                write(j, (expf(widen(z[j]) - most) * scale * whole - wanted) * share);
            }
        }
        const double shown = (double)weight * (double)zy + (other_weight == 0.0f ? 0.0 : (double)other_weight * (double)widen(z[other]));
        const double own = (double)whole * (log(sum) + (double)most) - (double)label * shown - (each == 0.0f ? 0.0 : (double)each * (double)whole * all);
#elif OUTPUT_LOSS == OUTPUT_LOSS_MULTI_HINGE || OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_MULTI_HINGE
        const float scale = share * weight / (float)CLASSES;
        double sum = 0.0;
        float total = 0.0f;
        for (int j = lane; j < CLASSES; j += 32) {
            float v = j == y ? 0.0f : fmaxf(1.0f - zy + widen(z[j]), 0.0f);
            float s = scale * (OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_MULTI_HINGE ? 2.0f * v : (v > 0.0f ? 1.0f : 0.0f));
            sum += OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_MULTI_HINGE ? (double)v * (double)v : (double)v;
            total += s;
            if (learning && j != y) write(j, s);
        }
        sum = warp_sum(sum);
        total = warp_sum(total);
        if (learning && lane == 0) write(y, -total);
        const double own = (double)weight * sum / (double)CLASSES;
#elif OUTPUT_LOSS == OUTPUT_LOSS_CRAMMER_SINGER
        // The strongest rival; of equals the last, as the CPU takes it.
        float best = 0.0f;
        int rival = -1;
        for (int j = lane; j < CLASSES; j += 32)
            if (j != y && (rival < 0 || widen(z[j]) >= best)) {
                best = widen(z[j]);
                rival = j;
            }
#pragma unroll
        for (int d = 16; d; d >>= 1) {
            float other = __shfl_xor_sync(~0u, best, d);
            int at = __shfl_xor_sync(~0u, rival, d);
            if (at >= 0 && (rival < 0 || other > best || (other == best && at > rival))) {
                best = other;
                rival = at;
            }
        }
        float violation = rival < 0 ? 0.0f : fmaxf(1.0f - zy + best, 0.0f);
        if (learning)
            for (int j = lane; j < CLASSES; j += 32)
                write(j, violation > 0.0f ? (j == rival ? share * weight : j == y ? -share * weight : 0.0f) : 0.0f);
        const double own = (double)weight * (double)violation;
#elif OUTPUT_LOSS == OUTPUT_LOSS_ONE_VS_REST_HINGE || OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_ONE_VS_REST_HINGE
        double sum = 0.0;
        for (int j = lane; j < CLASSES; j += 32) {
            float t = j == y ? 1.0f : -1.0f, v = fmaxf(1.0f - t * widen(z[j]), 0.0f);
            sum += OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_ONE_VS_REST_HINGE ? (double)v * (double)v : (double)v;
            if (learning) write(j, -t * share * weight / (float)CLASSES * (OUTPUT_LOSS == OUTPUT_LOSS_SQUARED_ONE_VS_REST_HINGE ? 2.0f * v : (v > 0.0f ? 1.0f : 0.0f)));
        }
        const double own = (double)weight * warp_sum(sum) / (double)CLASSES;
#else
#error "unknown OUTPUT_LOSS"
#endif
        loss += on_grid(own);
        if (losses && lane == 0) losses[i] = own;
    }
    if (lane == 0) {
        warp_loss[warp] = loss;
        warp_top1[warp] = top1;
        warp_top5[warp] = top5;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps; w++) {
            loss += warp_loss[w];
            top1 += warp_top1[w];
            top5 += warp_top5[w];
        }
        partial[blockIdx.x].loss_sum = loss;
        partial[blockIdx.x].top1 = top1;
        partial[blockIdx.x].top5 = top5;
    }
    if (last_block(counter, gridDim.x) && threadIdx.x == 0) {
        for (int b = 0; b < gridDim.x; b++) {
            tally->loss_sum += __ldcg(&partial[b].loss_sum);
            tally->top1 += __ldcg(&partial[b].top1);
            tally->top5 += __ldcg(&partial[b].top5);
        }
        tally->examples += (u64)n;
        // What met no number on its way here may have hidden it behind a threshold.
        if (__ldcg(not_numbers)) tally->loss_sum = __longlong_as_double(0x7ff8000000000000ll);
    }
}
