// Learning from a teacher: its batch is copied from the pupil's, and the slopes of its part of the loss are mixed into
// those by the pupil's logits. A warp takes an example.
#include "logits.cuh"

#if TEACHER_F32
typedef float teacher_t;
#else
typedef act_t teacher_t;
#endif

extern "C" __global__ void __launch_bounds__(256)
distil(const logit_t* __restrict__ logits, const teacher_t* __restrict__ teacher, act_t* __restrict__ slopes,
       const DeviceStep* __restrict__ step, int n) {
    const int lane = threadIdx.x % 32, i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= n) return;
    const logit_t* z = logits + (size_t)i * CLASSES;
    const teacher_t* t = teacher + (size_t)i * CLASSES;
    act_t* out = slopes + (size_t)i * CLASSES;
    float most, scale, teacher_most, teacher_scale;
    softened(z, lane, most, scale);
    softened(t, lane, teacher_most, teacher_scale);
    const float share = WEIGHT * TEMPERATURE * share_of(step, n);
    for (int j = lane; j < CLASSES; j += 32) {
        float own = expf((widen(z[j]) - most) * (1.0f / TEMPERATURE)) * scale;
        float wanted = expf((widen(t[j]) - teacher_most) * (1.0f / TEMPERATURE)) * teacher_scale;
        FloatVec<1> w;
        w.v[0] = operand((1.0f - WEIGHT) * widen(out[j]) + share * (own - wanted));
        store<1>(out + j, w);
    }
}

// Each example's loss with the teacher's part, from that of its labels.
extern "C" __global__ void __launch_bounds__(256)
distil_losses(const logit_t* __restrict__ logits, const teacher_t* __restrict__ teacher, double* __restrict__ losses, int n) {
    const int lane = threadIdx.x % 32, i = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= n) return;
    const logit_t* z = logits + (size_t)i * CLASSES;
    const teacher_t* t = teacher + (size_t)i * CLASSES;
    float most, scale, teacher_most, teacher_scale;
    softened(z, lane, most, scale);
    softened(t, lane, teacher_most, teacher_scale);
    double divergence = 0.0;
    for (int j = lane; j < CLASSES; j += 32) {
        const double q = (double)(expf((widen(z[j]) - most) * (1.0f / TEMPERATURE)) * scale);
        const double p = (double)(expf((widen(t[j]) - teacher_most) * (1.0f / TEMPERATURE)) * teacher_scale);
        if (p > 0.0) divergence += p * (log(p) - log(fmax(q, 2.2250738585072014e-308)));
    }
    divergence = warp_sum(divergence);
    if (lane == 0) losses[i] = (1.0 - (double)WEIGHT) * losses[i] + (double)WEIGHT * (double)TEMPERATURE * (double)TEMPERATURE * divergence;
}

// The pixels of a batch, from one network's input to another's, which may store more channels than there are.
extern "C" __global__ void __launch_bounds__(256)
copy_pixels(const act_t* __restrict__ from, act_t* __restrict__ to, u32 pixels, u32 channels, u32 from_stored, u32 to_stored) {
    const u32 len = pixels * to_stored;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        u32 pixel = i / to_stored, channel = i % to_stored;
        to[i] = channel < channels ? from[(size_t)pixel * from_stored + channel] : (act_t)0;
    }
}
