// Passes that know nothing of layers: batches from a data set on the device or from the host, the
// gradient's norm, the rounded copy of the parameters.
#include "order.cuh"

// A batch of a data set on the device: the epoch's order, each example's window and mirror image from the
// same random numbers as on the CPU, normalised by table: the step's batch, or one so many batches ahead. One block row an example.
extern "C" __global__ void __launch_bounds__(256)
gather_batch(const u8* __restrict__ pixels, const u32* __restrict__ all_labels, const u32* __restrict__ numbers, const float* __restrict__ tables,
             act_t* __restrict__ images, u32* __restrict__ labels, const DeviceStep* __restrict__ step, u32 ahead, u32 examples, u32 batch, int height,
             int width, int channels, int stored, int window_h, int window_w, int pad, int shuffle, int reflect, int crop, int flip, int alternate, int cutout) {
    __shared__ u32 shared_number;
    __shared__ int shared_x, shared_y, shared_flip, blank_x, blank_y;
    if (threadIdx.x == 0) {
        u64 x = (u64)(step->batch + ahead) * batch + step->first + blockIdx.x;
        if (shuffle) x = shuffled(x, examples, step);
        u32 number = numbers ? numbers[x] : (u32)x;
        u64 own = fork(step->augment_key, number);
        u64 room_x = (u64)(width + 2 * pad - window_w), room_y = (u64)(height + 2 * pad - window_h);
        shared_number = number;
        shared_y = crop ? (int)(((mix(own) >> 32) * (room_y + 1)) >> 32) : (int)(room_y / 2);
        shared_x = crop ? (int)(((mix(own + 1) >> 32) * (room_x + 1)) >> 32) : (int)(room_x / 2);
        const u64 side = alternate ? mix(fork(step->flip_key, number) + 2) ^ (step->epoch << 63) : mix(own + 2);
        shared_flip = flip && (side >> 63);
        blank_y = (int)(((mix(own + 3) >> 32) * (u64)window_h) >> 32) - cutout / 2;
        blank_x = (int)(((mix(own + 4) >> 32) * (u64)window_w) >> 32) - cutout / 2;
        if (blockIdx.y == 0) labels[blockIdx.x] = all_labels[number];
    }
    __syncthreads();
    const u8* from = pixels + (size_t)shared_number * height * width * channels;
    const u32 places = window_h * window_w;
    act_t* to = images + (size_t)blockIdx.x * places * stored;
    // A pixel a thread: where it comes from is most of the work.
    for (u32 place = blockIdx.y * blockDim.x + threadIdx.x; place < places; place += gridDim.y * blockDim.x) {
        const int row = place / (u32)window_w;
        int col = place - row * window_w;
        const bool blank = (u32)(row - blank_y) < (u32)cutout && (u32)(col - blank_x) < (u32)cutout;
        if (shared_flip) col = window_w - 1 - col;
        int y = shared_y + row - pad, x = shared_x + col - pad;
        if (reflect) {
            y = y < 0 ? -y : y < height ? y : 2 * height - 2 - y;
            x = x < 0 ? -x : x < width ? x : 2 * width - 2 - x;
        }
        const bool inside = (u32)y < (u32)height && (u32)x < (u32)width;
        const u8* pixel = from + (y * width + x) * channels;
        auto value = [&](int c) { return blank ? 0.0f : operand(tables[c * 256 + (inside ? pixel[c] : 0)]); };
        if (channels == 3 && stored == 4) {
            store<4>(to + place * 4, FloatVec<4>{{value(0), value(1), value(2), 0.0f}});
        } else {
            for (int c = 0; c < channels; c++) store<1>(to + place * stored + c, FloatVec<1>{{value(c)}});
        }
    }
}

// A batch that the host brought, from whichever of the two places it was put in.
extern "C" __global__ void __launch_bounds__(256)
load_staged(const float* __restrict__ staged, const u32* __restrict__ staged_labels, act_t* __restrict__ images, u32* __restrict__ labels,
            const DeviceStep* __restrict__ step, u32 slot_len, u32 slot_batch, u32 len, u32 n, u32 channels, u32 stored) {
    const u32 slot = step->batch & 1;
    const float* from = staged + (size_t)slot * slot_len;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < len; i += gridDim.x * blockDim.x) {
        FloatVec<1> v;
        v.v[0] = operand(from[i]);
        store<1>(images + (size_t)(i / channels) * stored + i % channels, v);
        if (i < n) labels[i] = staged_labels[slot * slot_batch + i];
    }
}

// Mixes a batch in place: example i with example n - 1 - i, each within the window of the step's row of scalars, which has
// the weight of an example's own values and the window's edges. One block row a pair, whose values one thread reads and
// writes both.
extern "C" __global__ void __launch_bounds__(256)
mix_batch(act_t* __restrict__ images, const DeviceStep* __restrict__ step, const float* __restrict__ scalars, u32 row_width, u32 n, int height, int width, int stored) {
    const float* at = scalars + (size_t)step->index * row_width;
    const float own = at[1], rest = 1.0f - own;
    const int top = (int)at[2], bottom = (int)at[3], left = (int)at[4], right = (int)at[5];
    const size_t len = (size_t)height * width * stored;
    act_t* one = images + (size_t)blockIdx.x * len;
    act_t* two = images + (size_t)(n - 1 - blockIdx.x) * len;
    for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < len; i += gridDim.y * blockDim.x) {
        const int row = i / (width * stored), col = i / stored % width;
        if (row < top || row >= bottom || col < left || col >= right) continue;
        const float a = widen(one[i]), b = widen(two[i]);
        FloatVec<1> v, w;
        v.v[0] = operand(own * a + rest * b);
        w.v[0] = operand(own * b + rest * a);
        store<1>(one + i, v);
        store<1>(two + i, w);
    }
}

// Moves an evaluation on to its next batch; training's optimizer does this itself.
extern "C" __global__ void next_batch(DeviceStep* step) { step->batch += 1; }

extern "C" __global__ void __launch_bounds__(256) round_values(const float* __restrict__ values, act_t* __restrict__ operands, u32 count) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        store<1>(operands + i, FloatVec<1>{{operand(values[i])}});
}

extern "C" __global__ void __launch_bounds__(256) widen_values(const u16* __restrict__ from, float* __restrict__ to, u32 count) {
    // Weights may begin anywhere among the gradients.
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    const u32 quads = (size_t)to % 16 == 0 ? count / 4 : 0;
    for (u32 q = thread; q < quads; q += stride) store<4>(to + 4 * q, load<4>(from + 4 * q));
    for (u32 i = 4 * quads + thread; i < count; i += stride) to[i] = widen(from[i]);
}

// Filters of `rows` times `width` pixels laid out as `span` pixels each, from `shift` on, with channels up to `stored`; the rest
// are zeros. And gradients of such laid out as filters are.
extern "C" __global__ void __launch_bounds__(256)
join_filters(const act_t* __restrict__ from, act_t* __restrict__ to, u32 rows, u32 width, u32 channels, u32 span, u32 stored, u32 shift) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * span * stored; i += gridDim.x * blockDim.x) {
        const u32 c = i % stored, place = i / stored % span, row = i / (span * stored);
        const bool inside = c < channels && place >= shift && place - shift < width;
        to[i] = inside ? from[(row * width + place - shift) * channels + c] : (act_t)0;
    }
}
extern "C" __global__ void __launch_bounds__(256)
part_filters(const act_t* __restrict__ from, float* __restrict__ to, u32 rows, u32 width, u32 channels, u32 span, u32 stored, u32 shift) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * width * channels; i += gridDim.x * blockDim.x) {
        const u32 c = i % channels, place = i / channels % width, row = i / (width * channels);
        to[i] = widen(from[(row * span + place + shift) * stored + c]);
    }
}

// What the gradient is multiplied by so that its norm is at most `most`; sums in f64 and a fixed order. `counted` says
// which gradients count, a byte each; all do where it is null.
extern "C" __global__ void __launch_bounds__(256)
clip(const float* __restrict__ grads, const u8* __restrict__ counted, double* __restrict__ partial, u32* __restrict__ counter, float* __restrict__ scale, double* __restrict__ norm, u32 count, double most) {
    __shared__ double shared[256];
    auto block_sum = [&](double own) {
        shared[threadIdx.x] = own;
        for (int half = 128; half; half >>= 1) {
            __syncthreads();
            if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        }
        __syncthreads();
        return shared[0];
    };
    double own = 0.0;
    for (u32 i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256)
        if (!counted || counted[i]) own += (double)grads[i] * (double)grads[i];
    own = block_sum(own);
    if (threadIdx.x == 0) partial[blockIdx.x] = own;
    if (!last_block(counter, gridDim.x)) return;
    own = 0.0;
    for (u32 i = threadIdx.x; i < gridDim.x; i += 256) own += __ldcg(partial + i);
    own = block_sum(own);
    if (threadIdx.x == 0) {
        double root = sqrt(own);
        *norm = root;
        *scale = root > most ? (float)(most / root) : 1.0f;
    }
}
