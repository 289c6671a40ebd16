// Hard units that stand alone, because their target rule looks further than at a unit's own numbers: at the sum of g over the
// examples of a class, at the loss's curvature, at a teacher's pre-activation, or at what the layers above make of other outputs.
// With CURVED, the curvature comes down through them beside the slopes. An example has UNITS of them; a thread takes VEC side by
// side.
//
// What a unit outputs, `activation(z)`, and the pieces of its slope, `pull`, `target`, `slope_at`, `steepness`, `pressing` and
// `moved`, stand in formulas.cuh: they are written down from their one definition.
#include "formulas.cuh"

// What rules look at further.
#define FURTHER_NOTHING 1
#define FURTHER_CLASS_SUM 2
#define FURTHER_CURVATURE 3
#define FURTHER_TEACHER 4
#define FURTHER_ABOVE 5
#if FURTHER != FURTHER_NOTHING && FURTHER != FURTHER_CLASS_SUM && FURTHER != FURTHER_CURVATURE && FURTHER != FURTHER_TEACHER && FURTHER != FURTHER_ABOVE
#error "unknown FURTHER"
#endif

extern "C" __global__ void __launch_bounds__(256)
target_forward(const act_t* __restrict__ z, act_t* __restrict__ out, u32* __restrict__ not_numbers, u32 pass, int n) {
    const u32 count = (u32)n * (UNITS / VEC);
    bool bad = false;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        FloatVec<VEC> v = load<VEC>(z + (size_t)i * VEC);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            bad |= v.v[e] != v.v[e];
            v.v[e] = operand(activation(v.v[e]));
        }
        store<VEC>(out + (size_t)i * VEC, v);
    }
    if (bad) atomicCAS(not_numbers, 0u, pass);
}

// The numbers of a step that slopes are taken with.
struct StepInputs {
    u64 key;
    float s, share, number;
    __device__ __forceinline__ StepInputs(const DeviceStep* step, const float* scalars, int n) {
        key = fork(mix(step->target_base + step->number), HARD_LAYER) + (u64)step->first * UNITS;
        s = scalars[(size_t)step->index * SCALARS + LOSS_SCALAR];
        number = (float)step->number;
        share = share_of(step, n);
    }
};

// A number as it is when it was stored and is read again.
__device__ __forceinline__ float as_stored(float v) {
    act_t stored;
    store<1>(&stored, FloatVec<1>{{operand(v)}});
    return widen(stored);
}

// Writes numbers, or adds them to those that are there.
__device__ __forceinline__ void keep(act_t* to, FloatVec<VEC> d) {
#if ACCUMULATE1
    const FloatVec<VEC> had = load<VEC>(to);
#pragma unroll
    for (int e = 0; e < VEC; e++) d.v[e] += had.v[e];
#endif
#pragma unroll
    for (int e = 0; e < VEC; e++) d.v[e] = operand(d.v[e]);
    store<VEC>(to, d);
}

// From g by the outputs of VEC units of an example to the slopes by their pre-activations, and the curvature the same way.
__device__ __forceinline__ void take_slopes(size_t at, float label, const FloatVec<VEC>& g, FloatVec<VEC> further, const act_t* z, const act_t* curvature,
                                            act_t* dz, act_t* z_curvature, const StepInputs& inputs) {
    const FloatVec<VEC> here = load<VEC>(z + at);
    FloatVec<VEC> slopes;
#if CURVED
    const FloatVec<VEC> above = load<VEC>(curvature + at);
    FloatVec<VEC> carried;
#if FURTHER == FURTHER_CURVATURE
    further = above;
#endif
#endif
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        const float w = pull(g.v[e], here.v[e], further.v[e]);
        const float random = uniform(inputs.key, (u64)at + e);
        const float t = target(w, here.v[e], further.v[e], label, inputs.number, random);
        slopes.v[e] = slope_at(t, counted(w, here.v[e], label, inputs.number, random), here.v[e], inputs.s, inputs.share);
#if CURVED
        const float f = steepness(t, w, here.v[e], inputs.s);
        carried.v[e] = above.v[e] * (f * f);
#endif
    }
    keep(dz + at, slopes);
#if CURVED
    keep(z_curvature + at, carried);
#endif
}

extern "C" __global__ void __launch_bounds__(256)
target_backward(const act_t* __restrict__ dout, const act_t* __restrict__ z, const act_t* __restrict__ teacher, const act_t* __restrict__ tried,
                const double* __restrict__ before, const double* __restrict__ after, const act_t* __restrict__ curvature, act_t* __restrict__ dz,
                act_t* __restrict__ z_curvature, const DeviceStep* __restrict__ step, const float* __restrict__ scalars,
                const u32* __restrict__ labels, int n) {
    const StepInputs inputs(step, scalars, n);
    const u32 count = (u32)n * (UNITS / VEC);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const size_t at = (size_t)i * VEC;
        FloatVec<VEC> further = {};
#if FURTHER == FURTHER_TEACHER
        further = load<VEC>(teacher + at);
#elif FURTHER == FURTHER_ABOVE
        const FloatVec<VEC> here = load<VEC>(z + at), other = load<VEC>(tried + at);
        const bool helped = after[i / (UNITS / VEC)] < before[i / (UNITS / VEC)];
#pragma unroll
        for (int e = 0; e < VEC; e++) further.v[e] = helped && other.v[e] != as_stored(activation(here.v[e])) ? 1.0f : 0.0f;
#endif
        take_slopes(at, (float)labels[i / (UNITS / VEC)], load<VEC>(dout + at), further, z, curvature, dz, z_curvature, inputs);
    }
}

// The batch's examples by class: `order` has those of class c, as they come in the batch, from starts[c] up to starts[c + 1].
extern "C" __global__ void __launch_bounds__(256)
order_by_class(const u32* __restrict__ labels, u32* __restrict__ order, u32* __restrict__ starts, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const u32 own = labels[i];
        u32 before = 0;
        for (int j = 0; j < n; j++) before += labels[j] < own || (labels[j] == own && j < i);
        order[before] = (u32)i;
    }
    if (i <= CLASSES) {
        u32 before = 0;
        for (int j = 0; j < n; j++) before += labels[j] < (u32)i;
        starts[i] = before;
    }
}

// The same as target_backward where a rule goes by classes: a thread has VEC units in all examples of a class, and adds their
// g in the batch's order first.
extern "C" __global__ void __launch_bounds__(256)
target_backward_by_class(const act_t* __restrict__ dout, const act_t* __restrict__ z, const act_t* __restrict__ curvature, act_t* __restrict__ dz,
                         act_t* __restrict__ z_curvature, const u32* __restrict__ order, const u32* __restrict__ starts, const DeviceStep* __restrict__ step,
                         const float* __restrict__ scalars, int n) {
    const int unit = (blockIdx.x * blockDim.x + threadIdx.x) * VEC;
    if (unit >= UNITS) return;
    const StepInputs inputs(step, scalars, n);
    for (int label = blockIdx.y; label < CLASSES; label += gridDim.y) {
        const u32 first = starts[label], end = starts[label + 1];
        FloatVec<VEC> sum = {};
#pragma unroll 4
        for (u32 i = first; i < end; i++) {
            const FloatVec<VEC> g = load<VEC>(dout + (size_t)order[i] * UNITS + unit);
#pragma unroll
            for (int e = 0; e < VEC; e++) sum.v[e] += g.v[e];
        }
        for (u32 i = first; i < end; i++) {
            const size_t at = (size_t)order[i] * UNITS + unit;
            take_slopes(at, (float)label, load<VEC>(dout + at), sum, z, curvature, dz, z_curvature, inputs);
        }
    }
}

// The outputs with the most pressing of them moved one step to the paper's target: of each example MOST units, of those that press
// alike the first ones. A block takes an example: it finds the number that the last of these presses with, bits from the
// highest down, then goes over the units in their order.
#define TRY_THREADS 256
extern "C" __global__ void __launch_bounds__(TRY_THREADS)
target_try(const act_t* __restrict__ dout, const act_t* __restrict__ z, act_t* __restrict__ tried, const DeviceStep* __restrict__ step,
           const float* __restrict__ scalars, int n) {
    __shared__ u32 counts[256];
    __shared__ u32 shared_least, shared_wanted;
    const float s = StepInputs(step, scalars, n).s;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const size_t first = (size_t)blockIdx.x * UNITS;
    // What is not below 0 is in the order of its bits.
    auto presses = [&](int unit) { return __float_as_uint(pressing(widen(dout[first + unit]), widen(z[first + unit]), s)); };
    u32 least = 0, known = 0, wanted = MOST;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += TRY_THREADS) counts[i] = 0;
        __syncthreads();
        for (int unit = threadIdx.x; unit < UNITS; unit += TRY_THREADS) {
            const u32 bits = presses(unit);
            if (bits != 0 && (bits & known) == least) atomicAdd(&counts[bits >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 digit = 255, rest = wanted;
            while (digit > 0 && counts[digit] < rest) rest -= counts[digit--];
            shared_least = least | digit << shift;
            shared_wanted = rest;
        }
        __syncthreads();
        least = shared_least, wanted = shared_wanted;
        known |= 255u << shift;
    }
    u32 alike = 0;
    for (int begin = 0; begin < UNITS; begin += TRY_THREADS) {
        const int unit = begin + threadIdx.x;
        const u32 bits = unit < UNITS ? presses(unit) : 0;
        const bool same = bits != 0 && bits == least;
        const u32 votes = __ballot_sync(~0u, same);
        if (lane == 0) counts[warp] = __popc(votes);
        __syncthreads();
        u32 place = alike + __popc(votes & ((1u << lane) - 1));
        for (int w = 0; w < TRY_THREADS / 32; w++) {
            if (w < warp) place += counts[w];
            alike += counts[w];
        }
        __syncthreads();
        if (unit < UNITS) {
            const float g = widen(dout[first + unit]), here = widen(z[first + unit]);
            const bool moves = bits != 0 && (bits > least || (same && place < wanted));
            store<1>(tried + first + unit, FloatVec<1>{{operand(moves ? moved(g, here) : activation(here))}});
        }
    }
}
