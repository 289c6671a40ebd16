// The way back through a pool by its windows instead of by places. Windows lie POOL_STRIDE apart, so POOL_STRIDE by POOL_STRIDE
// places, a group, lie in the same WINDOWS by WINDOWS of them: a thread reads these once for all places of a group, and where
// in a window each place lies the compiler knows.
//
// A pool before the activation passes a window's slope to one place. So slopes, and their sums, are taken over windows first
// (epilogue_backward_windows), from the largest values, which the way forward kept (KEEPS_LARGEST); then each place adds up what it
// is given (epilogue_backward_places). Where windows have no place in common, and no norm needs the sums first, one kernel does both
// (TOGETHER). Where the activation comes first, a place's slope follows from the sum of what it is given
// (epilogue_backward_groups), unless slopes are proportional to what is given: then it is the sum of the windows' slopes.
#include "epilogue.cu"

#define GROUPS_DOWN ((HEIGHT + POOL_PAD - 1) / POOL_STRIDE + 1)
#define GROUPS_ACROSS ((WIDTH + POOL_PAD - 1) / POOL_STRIDE + 1)

// What a group is given by its windows: window i, j is i before the last one down and j across.
struct GroupWindows {
    FloatVec<VEC> g[WINDOWS][WINDOWS];
    Whole<VEC, position_t> chosen[WINDOWS][WINDOWS];
    int image, top, left;
    __device__ __forceinline__ GroupWindows(int group, int c, const act_t* dout, const position_t* argmax) {
        image = group / (GROUPS_DOWN * GROUPS_ACROSS);
        const int place = group % (GROUPS_DOWN * GROUPS_ACROSS), down = place / GROUPS_ACROSS, across = place % GROUPS_ACROSS;
        top = down * POOL_STRIDE - POOL_PAD;
        left = across * POOL_STRIDE - POOL_PAD;
#pragma unroll
        for (int i = 0; i < WINDOWS; i++)
#pragma unroll
            for (int j = 0; j < WINDOWS; j++) {
                const int oy = down - i, ox = across - j;
                const bool is_one = (u32)oy < (u32)POOL_H && (u32)ox < (u32)POOL_W;
                const size_t at = (size_t)(is_one ? (image * POOL_H + oy) * POOL_W + ox : 0) * C + c;
                chosen[i][j] = load_whole<VEC>(argmax + at);
                g[i][j] = load<VEC>(dout + at);
#pragma unroll
                for (int e = 0; e < VEC; e++) g[i][j].v[e] = is_one ? g[i][j].v[e] : 0.0f;
            }
    }
    // As the output's slopes come down through dropout.
    __device__ __forceinline__ void drop(u64 key, int c) {
#if DROPOUT != DROPOUT_NONE
#pragma unroll
        for (int i = 0; i < WINDOWS; i++)
#pragma unroll
            for (int j = 0; j < WINDOWS; j++) {
                const int oy = (top + POOL_PAD) / POOL_STRIDE - i, ox = (left + POOL_PAD) / POOL_STRIDE - j;
#pragma unroll
                for (int e = 0; e < VEC; e++) g[i][j].v[e] *= kept(key, (image * POOL_H + oy) * POOL_W + ox, c + e);
            }
#endif
    }
    // What the group's place u, v is given.
    __device__ __forceinline__ FloatVec<VEC> given(int u, int v) const {
        FloatVec<VEC> d = {};
#pragma unroll
        for (int i = WINDOWS - 1; i >= 0; i--)
#pragma unroll
            for (int j = WINDOWS - 1; j >= 0; j--) {
                const int down = u + i * POOL_STRIDE, across = v + j * POOL_STRIDE;
                if (down >= POOL_KERNEL || across >= POOL_KERNEL) continue;
#pragma unroll
                for (int e = 0; e < VEC; e++) d.v[e] += chosen[i][j].v[e] == down * POOL_KERNEL + across ? g[i][j].v[e] : 0.0f;
            }
        return d;
    }
    // The row of the place u, v, or -1 where it lies outside of the map.
    __device__ __forceinline__ int row(int u, int v) const {
        const int y = top + u, x = left + v;
        return (u32)y < (u32)HEIGHT && (u32)x < (u32)WIDTH ? image * ROWS_PER_IMAGE + y * WIDTH + x : -1;
    }
};

// The values of a group's places.
struct GroupValues {
    FloatVec<VEC> v[POOL_STRIDE][POOL_STRIDE];
    __device__ __forceinline__ GroupValues(const GroupWindows& group, int c, const act_t* y) {
#pragma unroll
        for (int i = 0; i < POOL_STRIDE; i++)
#pragma unroll
            for (int j = 0; j < POOL_STRIDE; j++) {
                const int row = group.row(i, j);
                v[i][j] = load<VEC>(y + (size_t)(row < 0 ? 0 : row) * C + c);
            }
    }
};

// Sums over rows as epilogue_backward leaves them: put aside for a bias, taken to a norm's coefficients by the last block.
__device__ __forceinline__ void end_sums(sum_t (&sums)[SUMS][VEC], const ColumnThread& thread, const NormBackward& norm, int biased, sum_t* partial,
                                         u32* counter, int rows) {
#if NORMS == 0
    if (biased) write_partial(sums, thread, partial);
#else
    write_partial(sums, thread, partial);
    if (!last_block(counter + blockIdx.y, gridDim.x)) return;
    reduce_partials(sums, thread, partial, gridDim.x);
    if (!thread.active || thread.y != 0) return;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        const int j = thread.c + e;
        Coefficients(norm, FIXED1, j, sums[0][e], sums[1][e], rows).keep(norm, j, sums[0][e], sums[1][e]);
    }
#endif
}

#if KEEPS_LARGEST
#if TOGETHER
// A window's slope to the place of its largest value, zeros to the others. Places below and beside the last windows are in none.
__device__ __forceinline__ void spread(int pixel, int c, const FloatVec<VEC>& d, const Whole<VEC, position_t>& chosen, act_t* dy) {
    const int image = pixel / (POOL_H * POOL_W), window = pixel % (POOL_H * POOL_W);
    const int down = window / POOL_W, across = window % POOL_W;
#pragma unroll
    for (int u = 0; u < POOL_STRIDE + HEIGHT - POOL_H * POOL_STRIDE; u++)
#pragma unroll
        for (int v = 0; v < POOL_STRIDE + WIDTH - POOL_W * POOL_STRIDE; v++) {
            const bool inside = u < POOL_STRIDE && v < POOL_STRIDE;
            if ((u >= POOL_STRIDE && down != POOL_H - 1) || (v >= POOL_STRIDE && across != POOL_W - 1)) continue;
            FloatVec<VEC> here;
#pragma unroll
            for (int e = 0; e < VEC; e++) here.v[e] = inside && chosen.v[e] == u * POOL_KERNEL + v ? d.v[e] : 0.0f;
            const int row = image * ROWS_PER_IMAGE + (down * POOL_STRIDE + u) * WIDTH + across * POOL_STRIDE + v;
            keep_slopes<ACCUMULATE1>(dy + (size_t)row * C + c, here);
        }
}
#endif

// From the slopes by the output to those by the windows' largest pre-activations, in their place, with the sums over channels; or
// to those by the input.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
epilogue_backward_windows(act_t* dout, const act_t* __restrict__ largest, const position_t* __restrict__ argmax, act_t* __restrict__ dy,
                          const sum_t* __restrict__ scale, const void* __restrict__ shift, NormBackward norm1,
                          int biased, sum_t* __restrict__ partial, u32* __restrict__ counter, const DeviceStep* __restrict__ step,
                          const float* __restrict__ scalars, const u32* __restrict__ labels, int n) {
    const ColumnThread thread;
    const int c = thread.c, pixels = n * POOL_H * POOL_W, apart = gridDim.x * THREADS_Y;
    sum_t sums[SUMS][VEC];
    clear(sums);
    if (thread.active) {
        const Affine affine(scale, shift, nullptr, nullptr, c);
        const SlopeInputs inputs(step, scalars, labels, n);
#if AFFINE == AFFINE_NORM
        const SumVec<VEC> mean = load_sums<VEC>(norm1.mean + c);
#endif
        for (int first = blockIdx.x * THREADS_Y + thread.y; first < pixels; first += ROWS_AT_ONCE * apart) {
            FloatVec<VEC> here[ROWS_AT_ONCE], g[ROWS_AT_ONCE];
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) {
                const int pixel = first + i * apart;
                const size_t at = (size_t)in_turn<TURNED>(pixel < pixels ? pixel : first, pixels) * C + c;
                here[i] = load<VEC>(largest + at);
                g[i] = load<VEC>(dout + at);
            }
#pragma unroll
            for (int i = 0; i < ROWS_AT_ONCE; i++) {
                if (first + i * apart >= pixels) break;
                const int pixel = in_turn<TURNED>(first + i * apart, pixels);
                FloatVec<VEC> d = plain_slopes(pixel, c, pre_activations(here[i], here[i], affine), g[i], inputs);
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    d.v[e] = operand(d.v[e]);
                    sums[0][e] += d.v[e];
#if AFFINE == AFFINE_NORM
                    sums[1][e] += (sum_t)d.v[e] * ((sum_t)here[i].v[e] - mean.v[e]);
#endif
                }
#if TOGETHER
                if (dy) spread(pixel, c, d, load_whole<VEC>(argmax + (size_t)pixel * C + c), dy);
#else
                store<VEC>(dout + (size_t)pixel * C + c, d);
#endif
            }
        }
    }
    end_sums(sums, thread, norm1, biased, partial, counter, n * ROWS_PER_IMAGE);
}

// From the slopes by the windows' largest pre-activations to those by the input.
extern "C" __global__ void __launch_bounds__(MAP_THREADS)
epilogue_backward_places(const act_t* __restrict__ dout, const act_t* __restrict__ y, const position_t* __restrict__ argmax,
                         const sum_t* __restrict__ coefficients1, act_t* __restrict__ dy, int n) {
    const MapThread thread;
    if (!thread.active) return;
    const int c = thread.c, groups = n * GROUPS_DOWN * GROUPS_ACROSS;
#if AFFINE == AFFINE_NORM
    const ThroughNorm through(coefficients1, c);
#endif
    for (int first = thread.first; first < groups; first += thread.stride) {
#pragma unroll 1
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            if (first + i * MAP_Y >= groups) break;
            const GroupWindows group(first + i * MAP_Y, c, dout, argmax);
#if AFFINE == AFFINE_NORM
            const GroupValues values(group, c, y);
#endif
#pragma unroll
            for (int u = 0; u < POOL_STRIDE; u++)
#pragma unroll
                for (int v = 0; v < POOL_STRIDE; v++) {
                    const int row = group.row(u, v);
                    if (row < 0) continue;
                    FloatVec<VEC> d = group.given(u, v);
#if AFFINE == AFFINE_NORM
                    d = through.slopes(d, values.v[u][v]);
#endif
                    keep_slopes<ACCUMULATE1>(dy + (size_t)row * C + c, d);
                }
        }
    }
}
#else
// What epilogue_backward does, where a pool follows the activation.
extern "C" __global__ void __launch_bounds__(COLUMN_THREADS)
epilogue_backward_groups(const act_t* __restrict__ dout, const act_t* __restrict__ y, const sum_t* __restrict__ scale, const void* __restrict__ shift,
                         const position_t* __restrict__ argmax, act_t* dz, NormBackward norm1, int biased, sum_t* __restrict__ partial,
                         u32* __restrict__ counter, const DeviceStep* __restrict__ step, const float* __restrict__ scalars,
                         const u32* __restrict__ labels, int n) {
    const ColumnThread thread;
    const int c = thread.c, groups = n * GROUPS_DOWN * GROUPS_ACROSS;
    sum_t sums[SUMS][VEC];
    clear(sums);
    if (thread.active) {
        const Affine affine(scale, shift, nullptr, nullptr, c);
        const SlopeInputs inputs(step, scalars, labels, n);
#if AFFINE == AFFINE_NORM
        const SumVec<VEC> mean = load_sums<VEC>(norm1.mean + c);
#endif
#pragma unroll 1
        for (int at = blockIdx.x * THREADS_Y + thread.y; at < groups; at += gridDim.x * THREADS_Y) {
            GroupWindows group(in_turn<TURNED>(at, groups), c, dout, argmax);
            const GroupValues values(group, c, y);
            group.drop(inputs.key, c);
#pragma unroll
            for (int u = 0; u < POOL_STRIDE; u++)
#pragma unroll
                for (int v = 0; v < POOL_STRIDE; v++) {
                    const int row = group.row(u, v);
                    if (row < 0) continue;
                    const FloatVec<VEC>& here = values.v[u][v];
                    const FloatVec<VEC> z = pre_activations(here, here, affine);
                    FloatVec<VEC> d = group.given(u, v);
#pragma unroll
                    for (int e = 0; e < VEC; e++) {
                        d.v[e] = inputs.slope_of(d.v[e], z.v[e], row, c + e);
#if NORMS == 0
                        d.v[e] = operand(d.v[e]);
#endif
                        sums[0][e] += d.v[e];
#if AFFINE == AFFINE_NORM
                        sums[1][e] += (sum_t)d.v[e] * ((sum_t)here.v[e] - mean.v[e]);
#endif
                    }
#if NORMS == 0
                    if (dz) keep_slopes<ACCUMULATE1>(dz + (size_t)row * C + c, d);
#elif KEEPS_DZ
                    keep_slopes<false>(dz + (size_t)row * C + c, d);
#endif
                }
        }
    }
    end_sums(sums, thread, norm1, biased, partial, counter, n * ROWS_PER_IMAGE);
}
#endif
