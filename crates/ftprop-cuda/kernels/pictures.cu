// A batch of pictures of different sizes: a random part or a window of each, resized, coloured and normalised. The pictures
// lie in device memory for good, in the epoch's order or not, and are the step's batch or one so many batches ahead, or were brought by
// the host into one of some slots.
#include "order.cuh"
#include "formulas.cuh"
#include "pictures.cuh"

struct Shown {
    PictureEntry entry;
    Axis rows;
    Axis columns;
    Colours colours;
    int flip;
    int blank_y;
    int blank_x;
    int row_taps;
    int column_taps;
};

// One block row an example, one block column `band` rows of its window. Shared memory has the weights of every column and
// of the band's rows.
extern "C" __global__ void __launch_bounds__(256)
gather_pictures(const u8* __restrict__ pixels, const PictureEntry* __restrict__ entries, const u32* __restrict__ all_labels,
                const u32* __restrict__ numbers, const float* __restrict__ tables, const float* __restrict__ normalize,
                act_t* __restrict__ images, u32* __restrict__ labels, const DeviceStep* __restrict__ step, u32 ahead, u32 examples, u32 batch,
                u32 slots, u64 slot_bytes, int stored, int window_h, int window_w, int band, int taps, int shuffle, int crop,
                int flip, int alternate, int cutout, int random_part, double least, double most, int jitter,
                double brightness, double contrast, double saturation) {
    extern __shared__ float weights[];
    int* firsts = reinterpret_cast<int*>(weights + (size_t)(window_w + band) * taps);
    __shared__ Shown shown;
    const u32 slot = slots ? step->batch % slots : 0;
    if (threadIdx.x == 0) {
        u64 x = slots ? (u64)slot * batch + blockIdx.x : (u64)(step->batch + ahead) * batch + step->first + blockIdx.x;
        if (shuffle) x = shuffled(x, examples, step);
        const u32 number = numbers ? numbers[x] : (u32)x;
        // What the host brought lies in the slot's order, what lives here in that of the numbers.
        const u64 place = slots ? x : (u64)number;
        const u64 own = fork(step->augment_key, number);
        const PictureEntry entry = entries[place];
        Axis rows = {0, (int)entry.height, (int)entry.new_height, 0}, columns = {0, (int)entry.width, (int)entry.new_width, 0};
        if (random_part) {
            draw_patch(own, least, most, (int)entry.height, (int)entry.width, rows, columns);
            rows.to = window_h;
            columns.to = window_w;
        } else {
            const u64 room_y = (u64)(rows.to - window_h), room_x = (u64)(columns.to - window_w);
            rows.start = crop ? (int)below(own, 0, room_y + 1) : (int)(room_y / 2);
            columns.start = crop ? (int)below(own, 1, room_x + 1) : (int)(room_x / 2);
        }
        const u64 side = alternate ? mix(fork(step->flip_key, number) + 2) ^ (step->epoch << 63) : mix(own + 2);
        shown.entry = entry;
        shown.rows = rows;
        shown.columns = columns;
        shown.colours = draw_colours(own, (float)brightness, (float)contrast, (float)saturation);
        shown.flip = flip && (side >> 63);
        shown.blank_y = (int)below(own, 3, (u64)window_h) - cutout / 2;
        shown.blank_x = (int)below(own, 4, (u64)window_w) - cutout / 2;
        shown.row_taps = min(taps_of(rows), taps);
        shown.column_taps = min(taps_of(columns), taps);
        if (blockIdx.y == 0) labels[blockIdx.x] = all_labels[place];
    }
    __syncthreads();
    const int first_row = blockIdx.y * band, count = min(band, window_h - first_row);
    for (int i = threadIdx.x; i < window_w + count; i += blockDim.x) {
        const bool is_column = i < window_w;
        const int place = is_column ? i : first_row + i - window_w;
        const Axis& axis = is_column ? shown.columns : shown.rows;
        firsts[i] = axis.origin + weigh(axis, is_column ? shown.column_taps : shown.row_taps, place, weights + (size_t)i * taps);
    }
    __syncthreads();
    const u8* from = pixels + (size_t)slot * slot_bytes + shown.entry.offset;
    act_t* to = images + (size_t)blockIdx.x * window_h * window_w * stored;
    for (int i = threadIdx.x; i < count * window_w; i += blockDim.x) {
        const int band_row = i / window_w, row = first_row + band_row, col = i % window_w;
        const bool blank = (u32)(row - shown.blank_y) < (u32)cutout && (u32)(col - shown.blank_x) < (u32)cutout;
        const int x = shown.flip ? window_w - 1 - col : col, y = window_w + band_row;
        int bytes[3];
        float values[3];
        resample(from, (int)shown.entry.width, firsts[y], weights + (size_t)y * taps, shown.row_taps, firsts[x],
                 weights + (size_t)x * taps, shown.column_taps, bytes);
        if (jitter) {
            colour(shown.colours, bytes, normalize, values);
        } else {
            for (int c = 0; c < 3; c++) values[c] = tables[c * 256 + bytes[c]];
        }
        for (int c = 0; c < 3; c++) {
            FloatVec<1> v;
            v.v[0] = blank ? 0.0f : operand(values[c]);
            store<1>(to + (size_t)(row * window_w + col) * stored + c, v);
        }
    }
}
