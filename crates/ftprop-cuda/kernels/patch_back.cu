// The slopes by a convolution's input, for stride 1 and not too many channels: the slopes by its output that a block's
// pixels need lie in shared memory as one patch, and the matrix units read windows from there. Every warp takes a part
// of the output's channels, with the filters straight from global memory, and the warps' sums are added at the end.
//
// H x W pixels of CI channels became OH x OW of OC by windows of KH x KW and PAD around. PIXELS is a multiple of 16.

#define WARPS 4
#define PATCH_W (W + KW - 1)
// So far apart that the pixels a warp reads at once lie in different banks.
#define PIXEL (OC + 4)
#define IMAGE (H * W)
#define TILES ((IMAGE + PIXELS - 1) / PIXELS)
#define MI (PIXELS / 16)
#define NI (CI / 8)
// Channels of a warp, eight at a time.
#define PARTS (OC / 8 / WARPS)

constexpr int SPANNED = (PIXELS + W - 2) / W + 1;
constexpr int PATCH_H = (SPANNED < H ? SPANNED : H) + KH - 1;

extern "C" __global__ void __launch_bounds__(WARPS * 32)
patch_back(const act_t* __restrict__ dy, const act_t* __restrict__ w, act_t* dx, int adds) {
    extern __shared__ __align__(16) unsigned char memory[];
    float* patch = reinterpret_cast<float*>(memory);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int image = blockIdx.x / TILES, p0 = blockIdx.x % TILES * PIXELS, y0 = p0 / W;
    const act_t* from = dy + (size_t)image * (OH * OW * OC);
#pragma unroll 4
    for (int i = threadIdx.x; i < PATCH_H * PATCH_W * (OC / 4); i += WARPS * 32) {
        int place = i / (OC / 4), c = i % (OC / 4) * 4;
        int y = y0 + PAD - (KH - 1) + place / PATCH_W, x = place % PATCH_W + PAD - (KW - 1);
        Wide<4> slope = {};
        if ((u32)y < (u32)OH && (u32)x < (u32)OW) slope = load<4>(from + (y * OW + x) * OC + c);
        store<4>(patch + place * PIXEL + c, slope);
    }
    const float* window[2 * MI];
#pragma unroll
    for (int i = 0; i < 2 * MI; i++) {
        int p = p0 + i * 8 + g;
        p = p < IMAGE ? p : p0;
        window[i] = patch + ((p / W - y0) * PATCH_W + p % W) * PIXEL + warp * (8 * PARTS) + t;
    }
    __syncthreads();
    float acc[MI][NI][4] = {};
    // Filters of this warp's channels: a row of CI numbers for each channel and tap.
    const act_t* filters = w + (size_t)(warp * (8 * PARTS) + t) * (KH * KW * CI) + g;
    float ahead[PARTS][NI][2];
    auto fetch = [&](int tap) {
#pragma unroll
        for (int k = 0; k < PARTS; k++)
#pragma unroll
            for (int j = 0; j < NI; j++) {
                const act_t* at = filters + (size_t)(k * 8) * (KH * KW * CI) + tap * CI + j * 8;
                ahead[k][j][0] = widen(at[0]);
                ahead[k][j][1] = widen(at[4 * (KH * KW * CI)]);
            }
    };
    fetch(0);
#pragma unroll 1
    for (int tap = 0; tap < KH * KW; tap++) {
        float b[PARTS][NI][2];
#pragma unroll
        for (int k = 0; k < PARTS; k++)
#pragma unroll
            for (int j = 0; j < NI; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) b[k][j][half] = operand(ahead[k][j][half]);
        if (tap + 1 < KH * KW) fetch(tap + 1);
        // A tap of the filter meets the slopes on the other side.
        const int offset = ((KH - 1 - tap / KW) * PATCH_W + (KW - 1 - tap % KW)) * PIXEL;
#pragma unroll
        for (int k = 0; k < PARTS; k++)
#pragma unroll
            for (int i = 0; i < MI; i++) {
                const float *upper = window[2 * i] + offset + k * 8, *lower = window[2 * i + 1] + offset + k * 8;
                const float a[4] = {upper[0], lower[0], upper[4], lower[4]};
#pragma unroll
                for (int j = 0; j < NI; j++) multiply_add(acc[i][j], a, b[k][j][0], b[k][j][1]);
            }
    }
    // The warps' sums, where the patch was.
    __syncthreads();
    float* sums = patch + warp * (PIXELS * CI);
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NI; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float2* at = reinterpret_cast<float2*>(sums + (i * 16 + half * 8 + g) * CI + j * 8 + 2 * t);
                *at = make_float2(acc[i][j][2 * half], acc[i][j][2 * half + 1]);
            }
    __syncthreads();
    const int count = (IMAGE - p0 < PIXELS ? IMAGE - p0 : PIXELS) * CI;
    act_t* to = dx + ((size_t)image * IMAGE + p0) * CI;
    for (int i = threadIdx.x * 4; i < count; i += WARPS * 128) {
        Wide<4> sum = load<4>(patch + i);
#pragma unroll
        for (int other = 1; other < WARPS; other++) {
            Wide<4> more = load<4>(patch + other * (PIXELS * CI) + i);
#pragma unroll
            for (int e = 0; e < 4; e++) sum.v[e] += more.v[e];
        }
        if (adds) {
            Wide<4> old = load<4>(to + i);
#pragma unroll
            for (int e = 0; e < 4; e++) sum.v[e] += old.v[e];
        }
        store<4>(to + i, sum);
    }
}
