// Convolutions of pictures, which have few channels: the part of a picture that a block's pixels look at lies in shared
// memory, and the matrix units read their windows from there. Gathered from global memory, as gemm.cu does it, every
// number of a picture would be copied once a tap, a few bytes at a time.
//
// H x W pixels of CI channels, stored XC apart, which is four, become OH x OW of OC. Numbers of a window's row lie next to each other
// in the patch, as they do in a filter. For bf16 the numbers are widened, which changes none: tf32 holds them all.

#define WARPS 8
#define WINDOW_ROW (KW * CI)
#define TAPS (KH * WINDOW_ROW)
#define STEPS ((TAPS + 7) / 8)
#define PATCH_W ((OW - 1) * STRIDE + KW)
#define PATCH_ROW (PATCH_W * CI)
#define IMAGE (OH * OW)

__device__ __forceinline__ void multiply_add(float (&c)[4], const float (&a)[4], float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}

// From where a window begins in the patch to its number `tap`. What lies behind the window stands for nothing: it is
// multiplied by zero, or not kept.
__device__ __forceinline__ int offset_of(int tap) { return tap < TAPS ? tap / WINDOW_ROW * PATCH_ROW + tap % WINDOW_ROW : 0; }
// The same for tap + t, where the compiler knows the tap, and t is less than four: then there is next to nothing to
// compute.
__device__ __forceinline__ int offset_of(int tap, int t) {
    const int column = tap % WINDOW_ROW;
    int offset = tap / WINDOW_ROW * PATCH_ROW + column + t;
    if (column + 3 >= WINDOW_ROW && column + t >= WINDOW_ROW) offset += PATCH_ROW - WINDOW_ROW;
    if (tap + 3 >= TAPS && tap + t >= TAPS) offset = 0;
    return offset;
}

// The rows of the picture that output rows from `y0` on look at; zeros around it.
template <int ROWS> __device__ __forceinline__ void load_patch(float* patch, const act_t* x, int image, int y0) {
    const act_t* from = x + (size_t)image * (H * W * XC);
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * PATCH_W; i += WARPS * 32) {
        int py = y0 * STRIDE - PAD + i / PATCH_W, px = i % PATCH_W - PAD;
        Wide<XC> pixel = {};
        if ((u32)py < (u32)H && (u32)px < (u32)W) pixel = load<XC>(from + (py * W + px) * XC);
#pragma unroll
        for (int c = 0; c < CI; c++) patch[i * CI + c] = pixel.v[c];
    }
}

// Four numbers to shared memory, or zeros. What needs no widening is not waited for before `copies_done`.
__device__ __forceinline__ void copy_four(float* to, const float* from, bool valid) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid ? 16 : 0));
}
__device__ __forceinline__ void copy_four(float* to, const u16* from, bool valid) {
    Wide<4> numbers = {};
    if (valid) numbers = load<4>(from);
    store<4>(to, numbers);
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Rows of the patch for so many pixels in a row, wherever they begin.
__host__ __device__ constexpr int patch_rows(int pixels) {
    int rows = (pixels + OW - 2) / OW + 1;
    return ((rows < OH ? rows : OH) - 1) * STRIDE + KH;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, OC <= 48 ? 3 : 2)
patch_forward(const act_t* __restrict__ x, const act_t* __restrict__ w, act_t* __restrict__ y, int n) {
    constexpr int PIXELS = WARPS * 32, TILES = (IMAGE + PIXELS - 1) / PIXELS, NI = OC / 8;
    extern __shared__ __align__(16) unsigned char memory[];
    float2* filters = reinterpret_cast<float2*>(memory);
    float* patch = reinterpret_cast<float*>(filters + STEPS * NI * 32);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    // Filters in the order in which the matrix units take them.
    for (int i = threadIdx.x; i < STEPS * NI * 32; i += WARPS * 32) {
        int tap = i / (NI * 32) * 8 + i % 4, channel = i / 32 % NI * 8 + i / 4 % 8;
        const act_t* filter = w + channel * TAPS;
        filters[i] = make_float2(tap < TAPS ? operand(widen(filter[tap])) : 0.0f, tap + 4 < TAPS ? operand(widen(filter[tap + 4])) : 0.0f);
    }
    for (int tile = blockIdx.x; tile < n * TILES; tile += gridDim.x) {
        const int image = tile / TILES, p0 = tile % TILES * PIXELS, y0 = p0 / OW;
        __syncthreads();
        load_patch<patch_rows(PIXELS)>(patch, x, image, y0);
        __syncthreads();
        // Each warp has 32 pixels, of which a thread reads four.
        int pixel[4];
        const float* window[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            pixel[i] = p0 + warp * 32 + i * 8 + g;
            int p = pixel[i] < IMAGE ? pixel[i] : p0;
            window[i] = patch + (p / OW - y0) * (STRIDE * PATCH_ROW) + p % OW * (STRIDE * CI);
        }
        float acc[2][NI][4] = {};
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            const int first = offset_of(s * 8, t), second = offset_of(s * 8 + 4, t);
            float a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                a[i][0] = window[2 * i][first];
                a[i][1] = window[2 * i + 1][first];
                a[i][2] = window[2 * i][second];
                a[i][3] = window[2 * i + 1][second];
            }
#pragma unroll
            for (int j = 0; j < NI; j++) {
                float2 b = filters[(s * NI + j) * 32 + lane];
                multiply_add(acc[0][j], a[0], b.x, b.y);
                multiply_add(acc[1][j], a[1], b.x, b.y);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (pixel[i] >= IMAGE) continue;
            act_t* to = y + ((size_t)image * IMAGE + pixel[i]) * OC + 2 * t;
#pragma unroll
            for (int j = 0; j < NI; j++) {
                float v0 = acc[i / 2][j][i % 2 * 2], v1 = acc[i / 2][j][i % 2 * 2 + 1];
                if constexpr (sizeof(act_t) == 4) *reinterpret_cast<float2*>(to + j * 8) = make_float2(v0, v1);
                else *reinterpret_cast<u32*>(to + j * 8) = (u32)to_bf16(v0) | (u32)to_bf16(v1) << 16;
            }
        }
    }
}

// Every block sums over its pixels and writes the sum aside; patch_sum adds these up in a fixed order. The warps of a
// block share the filters' taps WARPS_N ways, and the pixels among those that have the same taps.
extern "C" __global__ void __launch_bounds__(WARPS * 32, OC <= 32 ? 3 : 2)
patch_gradient(const act_t* __restrict__ dy, const act_t* __restrict__ x, float* __restrict__ sums, int n) {
    constexpr int PIXELS = GRADIENT_PIXELS, TILES = (IMAGE + PIXELS - 1) / PIXELS, MI = OC / 16, NI = (STEPS + WARPS_N - 1) / WARPS_N;
    constexpr int WARPS_K = WARPS / WARPS_N, TOTAL_ROW = STEPS * 8;
    extern __shared__ __align__(16) unsigned char memory[];
    float* slopes = reinterpret_cast<float*>(memory);
    int* begins = reinterpret_cast<int*>(slopes + PIXELS * SLOPE_ROW);
    float* patch = reinterpret_cast<float*>(begins + PIXELS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int warp_n = warp % WARPS_N, warp_k = warp / WARPS_N;
    int offset[NI];
#pragma unroll
    for (int j = 0; j < NI; j++) offset[j] = offset_of((warp_n * NI + j) * 8 + g);
    float acc[MI][NI][4] = {};
    for (int tile = blockIdx.x; tile < n * TILES; tile += gridDim.x) {
        const int image = tile / TILES, p0 = tile % TILES * PIXELS, y0 = p0 / OW;
        const int count = IMAGE - p0 < PIXELS ? IMAGE - p0 : PIXELS;
        __syncthreads();
        const act_t* from = dy + ((size_t)image * IMAGE + p0) * OC;
#pragma unroll 4
        for (int i = threadIdx.x; i < PIXELS * (OC / 4); i += WARPS * 32) {
            int p = i / (OC / 4), c = i % (OC / 4) * 4;
            copy_four(slopes + p * SLOPE_ROW + c, from + p * OC + c, p < count);
        }
        for (int i = threadIdx.x; i < PIXELS; i += WARPS * 32) {
            int p = p0 + (i < count ? i : 0);
            begins[i] = (p / OW - y0) * (STRIDE * PATCH_ROW) + p % OW * (STRIDE * CI);
        }
        load_patch<patch_rows(PIXELS)>(patch, x, image, y0);
        copies_done();
        __syncthreads();
        for (int k = warp_k; k < PIXELS / 8; k += WARPS_K) {
            const int p = k * 8 + t;
            const float *first = patch + begins[p], *second = patch + begins[p + 4];
            float a[MI][4];
#pragma unroll
            for (int i = 0; i < MI; i++) {
                const float* slope = slopes + p * SLOPE_ROW + i * 16 + g;
                a[i][0] = slope[0];
                a[i][1] = slope[8];
                a[i][2] = slope[4 * SLOPE_ROW];
                a[i][3] = slope[4 * SLOPE_ROW + 8];
            }
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const float b0 = first[offset[j]], b1 = second[offset[j]];
#pragma unroll
                for (int i = 0; i < MI; i++) multiply_add(acc[i][j], a[i], b0, b1);
            }
        }
    }
    // The warps' sums, one after another, where the slopes were.
    float* total = slopes;
    for (int k = 0; k < WARPS_K; k++) {
        __syncthreads();
        if (warp_k != k) continue;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                if (warp_n * NI + j >= STEPS) continue;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float2* at = reinterpret_cast<float2*>(total + (i * 16 + half * 8 + g) * TOTAL_ROW + (warp_n * NI + j) * 8 + 2 * t);
                    float2 sum = k == 0 ? make_float2(0.0f, 0.0f) : *at;
                    *at = make_float2(sum.x + acc[i][j][2 * half], sum.y + acc[i][j][2 * half + 1]);
                }
            }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < OC * TAPS; i += WARPS * 32)
        sums[(size_t)blockIdx.x * (OC * TAPS) + i] = total[i / TAPS * TOTAL_ROW + i % TAPS];
}

// Adds up what the blocks of patch_gradient wrote: 32 numbers a block, each by eight threads.
extern "C" __global__ void __launch_bounds__(256) patch_sum(const float* __restrict__ sums, float* __restrict__ out, int blocks) {
    __shared__ float parts[8][32];
    const int lane = threadIdx.x % 32, part = threadIdx.x / 32, i = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (i < OC * TAPS) {
#pragma unroll 8
        for (int b = part; b < blocks; b += 8) sum += sums[(size_t)b * (OC * TAPS) + i];
    }
    parts[part][lane] = sum;
    __syncthreads();
    if (part != 0 || i >= OC * TAPS) return;
#pragma unroll
    for (int other = 1; other < 8; other++) sum += parts[other][lane];
    out[i] = sum;
}
