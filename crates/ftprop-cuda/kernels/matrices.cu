// Optimizers of whole matrices: the direction of each, made orthogonal by a Newton-Schulz iteration, then the step along it.
// What the direction and the step are, `direction(group, d, m, g, at)` and `step_along(group, w, d, at)`, stands in
// formulas.cuh, written down from its one definition. All matrices of a network go through each kernel together.
//
// The iteration is X = aX + (bA + cA^2)X with A = X X^T, on X of `side` rows and `length` columns: the shorter side of the
// matrix first, so X is its transpose where it has more rows than columns. Rows lie `length_stride` (of squares
// `side_stride`) numbers apart, a multiple of 8, and the rest of a row is zero and stays so.
//
// Products are of bf16 numbers, summed in f32; in f32 they are of f32 numbers. Sums have a fixed order.
#include "formulas.cuh"

struct DeviceMatrix {
    u32 first;               // its first weight in the flat buffers
    u32 rows, columns;
    u32 side, length;
    u32 side_stride, length_stride;
    u32 direction;           // where it begins among all directions, among the X, among the squares
    u32 x, square;
    u32 scalars;             // where its four are in a step's row
    u32 group;
    u32 iterations;
    u32 first_square_tile;   // its first tile of those of all squares, of those of all X
    u32 first_x_tile;
    float a, b, c, eps;
    float weight_norm;       // what the weights are scaled to before a step, 0 for nothing
};
static_assert(sizeof(DeviceMatrix) == DEVICE_MATRIX_BYTES, "the host's struct has another size");

#if PRECISION == PRECISION_F32
typedef float elem_t;
#else
typedef u16 elem_t;
#endif
__device__ __forceinline__ void put(float* to, float v) { *to = v; }
__device__ __forceinline__ void put(u16* to, float v) { *to = to_bf16(v); }

__device__ __forceinline__ u32 place_in_x(const DeviceMatrix& m, u32 i) {
    const u32 row = i / m.columns, column = i % m.columns;
    return m.x + (m.rows > m.columns ? column * m.length_stride + row : row * m.length_stride + column);
}

// The directions and the squares of their norms and of the weights', a part a block. A block column a matrix.
extern "C" __global__ void __launch_bounds__(256)
matrix_direction(const DeviceMatrix* __restrict__ matrices, const float* __restrict__ values, const float* __restrict__ grads,
                 float* __restrict__ moment, float* __restrict__ directions, double* __restrict__ squares,
                 const float* __restrict__ clip_scale, const DeviceStep* __restrict__ step, const float* __restrict__ scalars) {
    const DeviceMatrix m = matrices[blockIdx.y];
    const float* at = scalars + (size_t)step->index * SCALARS + m.scalars;
    const float scale = clip_scale ? *clip_scale : 1.0f;
    const u32 count = m.rows * m.columns;
    double own[2] = {0.0, 0.0};
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        float d = 0.0f, moved = moment[m.first + i];
        const float w = values[m.first + i];
        direction(m.group, d, moved, grads[m.first + i] * scale, at);
        moment[m.first + i] = moved;
        directions[m.direction + i] = d;
        own[0] += (double)d * (double)d;
        own[1] += (double)w * (double)w;
    }
    __shared__ double shared[2][256];
    shared[0][threadIdx.x] = own[0];
    shared[1][threadIdx.x] = own[1];
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) {
            shared[0][threadIdx.x] += shared[0][threadIdx.x + half];
            shared[1][threadIdx.x] += shared[1][threadIdx.x + half];
        }
    }
    if (threadIdx.x < 2) squares[((size_t)blockIdx.y * gridDim.x + blockIdx.x) * 2 + threadIdx.x] = shared[threadIdx.x][0];
}

// A matrix's norm, from the parts of NORM_PARTS blocks. `which` is 0 for the direction's, 1 for the weights'.
__device__ __forceinline__ double norm_of(const double* squares, u32 matrix, int which) {
    __shared__ double total;
    if (threadIdx.x == 0) {
        total = 0.0;
        for (u32 part = 0; part < NORM_PARTS; part++) total += squares[((size_t)matrix * NORM_PARTS + part) * 2 + which];
    }
    __syncthreads();
    return sqrt(total);
}

// The iteration's first X.
extern "C" __global__ void __launch_bounds__(256)
matrix_scale(const DeviceMatrix* __restrict__ matrices, const float* __restrict__ directions, const double* __restrict__ squares,
             elem_t* __restrict__ x) {
    const DeviceMatrix m = matrices[blockIdx.y];
    const float scale = 1.0f / ((float)norm_of(squares, blockIdx.y, 0) + m.eps);
    const u32 count = m.rows * m.columns;
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256)
        put(x + place_in_x(m, i), directions[m.direction + i] * scale);
}

// The step along the orthogonal direction; it is in `even` after an even number of iterations, else in `odd`.
extern "C" __global__ void __launch_bounds__(256)
matrix_apply(const DeviceMatrix* __restrict__ matrices, float* __restrict__ values, const elem_t* __restrict__ even,
             const elem_t* __restrict__ odd, const double* __restrict__ squares, const DeviceStep* __restrict__ step,
             const float* __restrict__ scalars) {
    const DeviceMatrix m = matrices[blockIdx.y];
    const float* at = scalars + (size_t)step->index * SCALARS + m.scalars;
    const elem_t* x = m.iterations % 2 ? odd : even;
    const float norm = (float)norm_of(squares, blockIdx.y, 1);
    const float factor = m.weight_norm > 0.0f && norm > 0.0f ? m.weight_norm / norm : 1.0f;
    const u32 count = m.rows * m.columns;
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) {
        float w = values[m.first + i] * factor;
        step_along(m.group, w, widen(x[place_in_x(m, i)]), at);
        values[m.first + i] = w;
    }
}

// One tile of a product: PRODUCT_TILE rows and columns by a block of 128 threads.
#define TILE 64
#define DEPTH 32
#define THREADS 128
static_assert(TILE == PRODUCT_TILE, "the host counts tiles of another size");

// Which matrix a block's tile is of, and the tile's number in it. `x_tiles`: tiles of X, otherwise of squares.
__device__ __forceinline__ DeviceMatrix find_tile(const DeviceMatrix* matrices, u32 count, bool x_tiles, u32& tile) {
    __shared__ u32 found;
    auto first = [&](u32 i) { return x_tiles ? matrices[i].first_x_tile : matrices[i].first_square_tile; };
    for (u32 i = threadIdx.x; i < count; i += THREADS)
        if (first(i) <= blockIdx.x && (i + 1 == count || blockIdx.x < first(i + 1))) found = i;
    __syncthreads();
    const DeviceMatrix m = matrices[found];
    tile = blockIdx.x - (x_tiles ? m.first_x_tile : m.first_square_tile);
    return m;
}

// The operands of one product: left is [rows][depth]; right is [columns][depth], or [depth][columns] where RIGHT_DEPTH_MAJOR.
struct Operands {
    const elem_t* left;
    const elem_t* right;
    u32 left_stride, right_stride;
    u32 rows;          // of left; those past it count as zero
    u32 right_rows;    // of right, likewise
    u32 columns;       // of the result, a multiple of 8
    u32 depth;         // a multiple of 8
};

#if PRECISION == PRECISION_F32
// Each thread has 8 rows and 4 columns.
#define ACCUMULATORS 32
__device__ __forceinline__ void place_of(int i, u32& row, u32& column) {
    row = threadIdx.x / 16 * 8 + i / 4;
    column = threadIdx.x % 16 * 4 + i % 4;
}
template <bool RIGHT_DEPTH_MAJOR>
__device__ __forceinline__ void multiply(const Operands& o, u32 row0, u32 column0, float (&total)[ACCUMULATORS]) {
    __shared__ float left[TILE][DEPTH + 1], right[TILE][DEPTH + 1];
    for (u32 k0 = 0; k0 < o.depth; k0 += DEPTH) {
        __syncthreads();
        for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
            u32 r = i / DEPTH, k = k0 + i % DEPTH;
            left[r][i % DEPTH] = row0 + r < o.rows && k < o.depth ? o.left[(size_t)(row0 + r) * o.left_stride + k] : 0.0f;
            if constexpr (!RIGHT_DEPTH_MAJOR)
                right[r][i % DEPTH] = column0 + r < o.right_rows && k < o.depth ? o.right[(size_t)(column0 + r) * o.right_stride + k] : 0.0f;
            else {
                u32 c = i % TILE, kk = i / TILE;
                right[c][kk] = k0 + kk < o.right_rows && column0 + c < o.columns ? o.right[(size_t)(k0 + kk) * o.right_stride + column0 + c] : 0.0f;
            }
        }
        __syncthreads();
        float part[ACCUMULATORS];
#pragma unroll
        for (int i = 0; i < ACCUMULATORS; i++) part[i] = 0.0f;
        const u32 row = threadIdx.x / 16 * 8, column = threadIdx.x % 16 * 4;
#pragma unroll 4
        for (int k = 0; k < DEPTH; k++)
#pragma unroll
            for (int i = 0; i < ACCUMULATORS; i++) part[i] = fmaf(left[row + i / 4][k], right[column + i % 4][k], part[i]);
#pragma unroll
        for (int i = 0; i < ACCUMULATORS; i++) total[i] += part[i];
    }
}
#else
// Four warps of 32 rows and 32 columns each.
#define ACCUMULATORS 32
#undef STAGES
#define STAGES 4
#define ROW_STRIDE (DEPTH + 8)
#define DEPTH_STRIDE (TILE + 8)
__device__ __forceinline__ void place_of(int i, u32& row, u32& column) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    row = warp / 2 * 32 + i / 16 * 16 + lane / 4 + i / 2 % 2 * 8;
    column = warp % 2 * 32 + i / 4 % 4 * 8 + lane % 4 * 2 + i % 2;
}
__device__ __forceinline__ void copy16(u16* to, const u16* from, bool valid) {
    u32 address = (u32)__cvta_generic_to_shared(to);
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void matrices4(u32 (&r)[4], const u16* p) {
    u32 a = (u32)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}
__device__ __forceinline__ void matrices4_transposed(u32 (&r)[4], const u16* p) {
    u32 a = (u32)__cvta_generic_to_shared(p);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}
template <bool RIGHT_DEPTH_MAJOR>
__device__ __forceinline__ void multiply(const Operands& o, u32 row0, u32 column0, float (&total)[ACCUMULATORS]) {
    __shared__ __align__(16) u16 left[STAGES][TILE * ROW_STRIDE], right[STAGES][TILE * ROW_STRIDE];
    static_assert(DEPTH * DEPTH_STRIDE <= TILE * ROW_STRIDE, "both layouts fit");
    const u32 steps = (o.depth + DEPTH - 1) / DEPTH;
    auto fetch = [&](u32 s) {
        if (s < steps) {
            const u32 k0 = s * DEPTH, stage = s % STAGES;
#pragma unroll
            for (int j = 0; j < TILE * DEPTH / 8 / THREADS; j++) {
                const u32 i = threadIdx.x + j * THREADS, r = i / (DEPTH / 8), k = i % (DEPTH / 8) * 8;
                bool valid = row0 + r < o.rows && k0 + k < o.depth;
                copy16(&left[stage][r * ROW_STRIDE + k], valid ? o.left + (size_t)(row0 + r) * o.left_stride + k0 + k : o.left, valid);
                if constexpr (!RIGHT_DEPTH_MAJOR) {
                    valid = column0 + r < o.right_rows && k0 + k < o.depth;
                    copy16(&right[stage][r * ROW_STRIDE + k], valid ? o.right + (size_t)(column0 + r) * o.right_stride + k0 + k : o.right, valid);
                } else {
                    const u32 kk = i / (TILE / 8), c = i % (TILE / 8) * 8;
                    valid = k0 + kk < o.right_rows && column0 + c < o.columns;
                    copy16(&right[stage][kk * DEPTH_STRIDE + c], valid ? o.right + (size_t)(k0 + kk) * o.right_stride + column0 + c : o.right, valid);
                }
            }
        }
        asm volatile("cp.async.commit_group;");
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) fetch(s);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    for (u32 s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        fetch(s + STAGES - 1);
        const u16 *l = left[s % STAGES], *r = right[s % STAGES];
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            u32 a[2][4], b[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) matrices4(a[i], l + (wm + i * 16 + lane % 16) * ROW_STRIDE + k + lane / 16 * 8);
#pragma unroll
            for (int j = 0; j < 2; j++) {
                if constexpr (RIGHT_DEPTH_MAJOR) matrices4_transposed(b[j], r + (k + lane % 16) * DEPTH_STRIDE + wn + j * 16 + lane / 16 * 8);
                else matrices4(b[j], r + (wn + j * 16 + lane / 16 * 8 + lane % 8) * ROW_STRIDE + k + lane / 8 % 2 * 8);
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    float* c = total + i * 16 + j * 4;
                    multiply_add_bf16(c, a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
                }
        }
    }
}
#endif

// The tile of a product, each element given to `done(row, column, sum)`.
template <bool RIGHT_DEPTH_MAJOR, class Done>
__device__ __forceinline__ void product(const Operands& o, u32 tile, Done done) {
    const u32 across = (o.columns + TILE - 1) / TILE, row0 = tile / across * TILE, column0 = tile % across * TILE;
    float total[ACCUMULATORS];
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) total[i] = 0.0f;
    multiply<RIGHT_DEPTH_MAJOR>(o, row0, column0, total);
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) {
        u32 row, column;
        place_of(i, row, column);
        if (row0 + row < o.rows && column0 + column < o.columns) done(row0 + row, column0 + column, total[i]);
    }
}

// A tile of a square that is its own transpose: with SYMMETRIC those below the diagonal are left to those above it.
struct SymmetricTile {
    u32 down, across;
    __device__ __forceinline__ SymmetricTile(const DeviceMatrix& m, u32 tile) {
        const u32 tiles = (m.side_stride + TILE - 1) / TILE;
        down = tile / tiles;
        across = tile % tiles;
    }
    __device__ __forceinline__ bool is_left() const { return SYMMETRIC && down > across; }
    __device__ __forceinline__ void keep(const DeviceMatrix& m, elem_t* square, u32 row, u32 column, float v) const {
        put(square + m.square + row * m.side_stride + column, v);
        if (SYMMETRIC && down < across && column < m.side) put(square + m.square + column * m.side_stride + row, v);
    }
};

// A = X X^T.
extern "C" __global__ void __launch_bounds__(THREADS)
matrix_gram(const DeviceMatrix* __restrict__ matrices, const elem_t* __restrict__ x, elem_t* __restrict__ gram, u32 count, u32 iteration) {
    u32 tile;
    const DeviceMatrix m = find_tile(matrices, count, false, tile);
    const SymmetricTile symmetric(m, tile);
    if (iteration >= m.iterations || symmetric.is_left()) return;
    const elem_t* own = x + m.x;
    product<false>({own, own, m.length_stride, m.length_stride, m.side, m.side, m.side_stride, m.length_stride}, tile,
                   [&](u32 row, u32 column, float sum) { symmetric.keep(m, gram, row, column, sum); });
}

// B = bA + cA^2; A is its own transpose.
extern "C" __global__ void __launch_bounds__(THREADS)
matrix_polynomial(const DeviceMatrix* __restrict__ matrices, const elem_t* __restrict__ gram, elem_t* __restrict__ polynomial, u32 count,
                  u32 iteration) {
    u32 tile;
    const DeviceMatrix m = find_tile(matrices, count, false, tile);
    const SymmetricTile symmetric(m, tile);
    if (iteration >= m.iterations || symmetric.is_left()) return;
    const elem_t* own = gram + m.square;
    product<false>({own, own, m.side_stride, m.side_stride, m.side, m.side, m.side_stride, m.side_stride}, tile,
                   [&](u32 row, u32 column, float sum) {
                       symmetric.keep(m, polynomial, row, column, m.c * sum + m.b * widen(own[row * m.side_stride + column]));
                   });
}

// X = aX + BX, into the other of the two buffers.
extern "C" __global__ void __launch_bounds__(THREADS)
matrix_next(const DeviceMatrix* __restrict__ matrices, const elem_t* __restrict__ polynomial, const elem_t* __restrict__ x,
            elem_t* __restrict__ next, u32 count, u32 iteration) {
    u32 tile;
    const DeviceMatrix m = find_tile(matrices, count, true, tile);
    if (iteration >= m.iterations) return;
    const elem_t* own = x + m.x;
    product<true>({polynomial + m.square, own, m.side_stride, m.length_stride, m.side, m.side, m.length_stride, m.side_stride}, tile,
                  [&](u32 row, u32 column, float sum) {
                      const u32 at = row * m.length_stride + column;
                      put(next + m.x + at, m.a * widen(own[at]) + sum);
                  });
}
