// A fully connected layer's gradient with the optimizer's step along it: where a layer has millions of weights, writing the gradient and
// reading it again takes as long as all of its products. `update` and the rest are as in optimizer.cu; nothing else sees this gradient.
//
// A block goes through tiles of TILE_ROWS channels out and TILE_COLUMNS channels in, each for all examples: their sums come from the matrix units,
// go through shared memory, and each thread then learns four neighbouring weights at a time. Blocks are few, one to a multiprocessor, so that the
// kernels of other layers find room beside them: memory has to be kept busy, not the units. So what the step needs of a tile is asked for one tile
// ahead.
#include "formulas.cuh"

constexpr int OUT = LEARNED_OUT, IN = LEARNED_IN, TILE_ROWS = 64, TILE_COLUMNS = 128, THREADS = 256, DEEP = 32;
static_assert(OUT % TILE_ROWS == 0 && IN % TILE_COLUMNS == 0, "tiles come out even");
// Rows of shared memory begin in banks that differ for the threads of a product.
constexpr int LEFT_PITCH = TILE_ROWS + 8, RIGHT_PITCH = TILE_COLUMNS + 8, SUMS_PITCH = TILE_COLUMNS + 4;
constexpr int ACROSS = IN / TILE_COLUMNS, TILES = OUT / TILE_ROWS * ACROSS;
constexpr int OPERANDS = DEEP * (LEFT_PITCH + RIGHT_PITCH), SUMS = TILE_ROWS * SUMS_PITCH;

// Copies DEEP examples' numbers from a column on, widened to f32, with zeros behind the last example.
template <int COLUMNS, int PITCH> __device__ __forceinline__ void copy(float* to, const act_t* from, int width, int first, int n) {
#pragma unroll
    for (int k = 0; k < DEEP * COLUMNS / 4; k += THREADS) {
        const int i = k + threadIdx.x, row = i / (COLUMNS / 4), column = i % (COLUMNS / 4) * 4;
        FloatVec<4> v = {};
        if (first + row < n) v = load<4>(from + (size_t)(first + row) * width + column);
        *reinterpret_cast<float4*>(to + row * PITCH + column) = make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
    }
}

// Has a tile of what is given come to the second-level cache. A thread has a line.
__device__ __forceinline__ void fetch_tile(const float* from, int tile) {
    constexpr int LINE = 32, LINES = TILE_COLUMNS / LINE;
    static_assert(TILE_ROWS * LINES == THREADS, "a line for each thread");
    if (tile >= TILES) return;
    const int row = tile / ACROSS * TILE_ROWS + threadIdx.x / LINES, column = tile % ACROSS * TILE_COLUMNS + threadIdx.x % LINES * LINE;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + (size_t)row * IN + column));
}

// Four numbers in one piece.
__device__ __forceinline__ void store_four(float* to, const float (&v)[4]) {
    store_words(to, __float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3]));
}
__device__ __forceinline__ void store_four(u16* to, const float (&v)[4]) { store_words(to, two_bf16(v[0], v[1]), two_bf16(v[2], v[3])); }

// A tile's sums for n examples, in shared memory, where all threads see them.
__device__ __forceinline__ void multiply_tile(float* memory, const act_t* dy, const act_t* x, int n) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    // Each warp has 32 of the rows and 32 of the columns.
    const int down = warp / 4 * 32, across = warp % 4 * 32;
    float* left = memory;
    float* right = memory + DEEP * LEFT_PITCH;
    float acc[2][4][4] = {};
    for (int first = 0; first < n; first += DEEP) {
        copy<TILE_ROWS, LEFT_PITCH>(left, dy, OUT, first, n);
        copy<TILE_COLUMNS, RIGHT_PITCH>(right, x, IN, first, n);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEEP; k += 8) {
            u32 a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int part = 0; part < 4; part++)
                    a[i][part] = __float_as_uint(left[(k + part / 2 * 4 + t) * LEFT_PITCH + down + i * 16 + part % 2 * 8 + g]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float* b = right + (k + t) * RIGHT_PITCH + across + j * 8 + g;
                const u32 b0 = __float_as_uint(b[0]), b1 = __float_as_uint(b[4 * RIGHT_PITCH]);
#pragma unroll
                for (int i = 0; i < 2; i++) multiply_add_tf32(acc[i][j], a[i], b0, b1);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                memory[(down + i * 16 + e / 2 * 8 + g) * SUMS_PITCH + across + j * 8 + t * 2 + e % 2] = acc[i][j][e];
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(256)
learn_product(const act_t* __restrict__ dy, const act_t* __restrict__ x, float* __restrict__ values, float* __restrict__ moment1,
              float* __restrict__ moment2, float* __restrict__ average, act_t* __restrict__ operands, const DeviceStep* __restrict__ step,
              const float* __restrict__ scalars, int n) {
    __shared__ __align__(16) float memory[OPERANDS > SUMS ? OPERANDS : SUMS];
    const float* at = scalars + (size_t)step->index * SCALARS;
    auto fetch = [&](int tile) {
        fetch_tile(values, tile);
#if MOMENTS >= 1
        fetch_tile(moment1, tile);
#endif
#if MOMENTS >= 2
        fetch_tile(moment2, tile);
#endif
#if AVERAGE
        fetch_tile(average, tile);
#endif
    };
    fetch(blockIdx.x);
    for (int tile = blockIdx.x; tile < TILES; tile += gridDim.x) {
        const int row0 = tile / ACROSS * TILE_ROWS, column0 = tile % ACROSS * TILE_COLUMNS;
        multiply_tile(memory, dy + row0, x + column0, n);
        fetch(tile + gridDim.x);
        constexpr int QUADS = TILE_COLUMNS / 4;
        // Of four at a time everything is read before anything is used.
        constexpr int AT_ONCE = 4;
        for (int first = threadIdx.x; first < TILE_ROWS * QUADS; first += AT_ONCE * THREADS) {
            FloatVec<4> w[AT_ONCE], m[AT_ONCE], v[AT_ONCE], a[AT_ONCE];
            size_t place[AT_ONCE];
#pragma unroll
            for (int q = 0; q < AT_ONCE; q++) {
                const int i = first + q * THREADS;
                place[q] = (size_t)(row0 + i / QUADS) * IN + column0 + i % QUADS * 4;
                w[q] = load<4>(values + place[q]);
#if MOMENTS >= 1
                m[q] = load<4>(moment1 + place[q]);
#endif
#if MOMENTS >= 2
                v[q] = load<4>(moment2 + place[q]);
#endif
#if AVERAGE
                a[q] = load<4>(average + place[q]);
#endif
            }
#pragma unroll
            for (int q = 0; q < AT_ONCE; q++) {
                const int i = first + q * THREADS;
                const float4 sums = *reinterpret_cast<const float4*>(memory + i / QUADS * SUMS_PITCH + i % QUADS * 4);
                const float of[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
                for (int e = 0; e < 4; e++) update(LEARNED_GROUP, w[q].v[e], m[q].v[e], v[q].v[e], gradient(of[e]), at);
                store_four(values + place[q], w[q].v);
#if MOMENTS >= 1
                store_four(moment1 + place[q], m[q].v);
#endif
#if MOMENTS >= 2
                store_four(moment2 + place[q], v[q].v);
#endif
#if AVERAGE
#pragma unroll
                for (int e = 0; e < 4; e++) a[q].v[e] = moving_average(a[q].v[e], w[q].v[e], at[AVERAGE_SCALAR]);
                store_four(average + place[q], a[q].v);
#endif
#pragma unroll
                for (int e = 0; e < 4; e++) w[q].v[e] = operand(w[q].v[e]);
                store_four(operands + place[q], w[q].v);
            }
        }
        // The sums' place is the next tile's operands'.
        __syncthreads();
    }
}
