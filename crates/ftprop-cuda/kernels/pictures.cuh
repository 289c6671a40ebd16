// What of a picture is shown, and in which colours: the arithmetic of ftprop-data's patch.rs, resize.rs and colours.rs,
// operation by operation, each rounded once, so that both find the same bits. A test compiles this file for the host.

DEVICE float fadd(float a, float b) { return ROUND_FADD(a, b); }
DEVICE float fmul(float a, float b) { return ROUND_FMUL(a, b); }
DEVICE double plus_rounded(double a, double b) { return ROUND_DADD(a, b); }
DEVICE double times_rounded(double a, double b) { return ROUND_DMUL(a, b); }

// A picture of a data set: where its pixels begin, its size, and the size that it is resized to before a window is cut.
struct PictureEntry {
    u64 offset;
    u32 height;
    u32 width;
    u32 new_height;
    u32 new_width;
};
static_assert(sizeof(PictureEntry) == PICTURE_ENTRY_BYTES, "the host's struct has another size");

// Places from `start` on of what the `from` places after the first `origin` become at `to` places.
struct Axis {
    int origin;
    int from;
    int to;
    int start;
};

DEVICE u32 below(u64 key, u64 index, u64 n) { return (u32)(((mix(key + index) >> 32) * n) >> 32); }

// A random part of a picture: origin, from and nothing else of both axes.
DEVICE void draw_patch(u64 own, double least, double most, int height, int width, Axis& rows, Axis& columns) {
    const double pixels = times_rounded((double)height, (double)width);
    const long long tall = (long long)width * 4 / 3, wide = (long long)height * 4 / 3;
    int h = (int)(height < tall ? height : tall), w = (int)(width < wide ? width : wide);
    if (h < 1) h = 1;
    if (w < 1) w = 1;
    for (u64 number = 8; number < 28; number += 2) {
        const double area = times_rounded(plus_rounded(least, times_rounded(plus_rounded(most, -least), (double)uniform(own, number))), pixels);
        const u64 bits = mix(own + number + 1);
        const double ratio = plus_rounded(1.0, (double)((bits << 1) >> 40) / 50331648.0);
        const double longer = floor(plus_rounded(sqrt(times_rounded(area, ratio)), 0.5)), shorter = floor(plus_rounded(sqrt(area / ratio), 0.5));
        const double upright = bits >> 63 ? longer : shorter, across = bits >> 63 ? shorter : longer;
        if (upright >= 1.0 && upright <= (double)height && across >= 1.0 && across <= (double)width) {
            h = (int)upright;
            w = (int)across;
            break;
        }
    }
    rows.from = h;
    columns.from = w;
    rows.origin = (int)below(own, 0, (u64)(height - h) + 1);
    columns.origin = (int)below(own, 1, (u64)(width - w) + 1);
}

DEVICE int taps_of(const Axis& axis) {
    const double scale = (double)axis.from / (double)axis.to;
    const int taps = (int)ceil(2.0 * (scale > 1.0 ? scale : 1.0));
    return taps < axis.from ? taps : axis.from;
}

// The weights of a place along an axis, and the first place that it draws from.
DEVICE int weigh(const Axis& axis, int taps, int place, float* weights) {
    const double scale = (double)axis.from / (double)axis.to, reach = scale > 1.0 ? scale : 1.0;
    const double centre = times_rounded(plus_rounded((double)(axis.start + place), 0.5), scale);
    const double begin = plus_rounded(plus_rounded(centre, -reach), 0.5);
    int first = begin > 0.0 ? (int)begin : 0;
    if (first > axis.from - taps) first = axis.from - taps;
    auto weight = [&](int tap) {
        const double w = plus_rounded(1.0, -(fabs(plus_rounded(plus_rounded((double)(first + tap), 0.5), -centre)) / reach));
        return w > 0.0 ? w : 0.0;
    };
    double sum = 0.0;
    for (int tap = 0; tap < taps; tap++) sum = plus_rounded(sum, weight(tap));
    for (int tap = 0; tap < taps; tap++) weights[tap] = (float)(weight(tap) / sum);
    return first;
}

// A pixel of the window: three bytes.
DEVICE void resample(const u8* pixels, int width, int first_row, const float* row_weights, int row_taps, int first_column,
                     const float* column_weights, int column_taps, int (&bytes)[3]) {
    float sums[3] = {0.5f, 0.5f, 0.5f};
    for (int x = 0; x < column_taps; x++) {
        const u8* from = pixels + ((size_t)first_row * width + first_column + x) * 3;
        float column[3] = {0.0f, 0.0f, 0.0f};
        for (int y = 0; y < row_taps; y++, from += (size_t)width * 3)
            for (int c = 0; c < 3; c++) column[c] = fadd(column[c], fmul(row_weights[y], (float)from[c]));
        for (int c = 0; c < 3; c++) sums[c] = fadd(sums[c], fmul(column_weights[x], column[c]));
    }
    for (int c = 0; c < 3; c++) bytes[c] = sums[c] <= 0.0f ? 0 : sums[c] >= 255.0f ? 255 : (int)sums[c];
}

// How the colours of an example change.
struct Colours {
    float brightness;
    float contrast;
    float saturation;
};

DEVICE Colours draw_colours(u64 own, float brightness, float contrast, float saturation) {
    auto factor = [&](u64 number, float reach) {
        return fadd(1.0f, fmul(reach, fadd(fmul(2.0f, uniform(own, number)), -1.0f)));
    };
    return {factor(5, brightness), factor(6, contrast), factor(7, saturation)};
}

// A pixel's bytes as a network's input; `normalize` is full, three means, three deviations.
DEVICE void colour(const Colours& colours, const int (&bytes)[3], const float* normalize, float (&out)[3]) {
    const float r = (float)bytes[0], g = (float)bytes[1], b = (float)bytes[2], full = normalize[0];
    const float grey = fadd(fadd(fmul(0.299f, r), fmul(0.587f, g)), fmul(0.114f, b));
    for (int c = 0; c < 3; c++) {
        const float mean = fmul(normalize[1 + c], full);
        float x = fadd(grey, fmul(colours.saturation, fadd((float)bytes[c], -grey)));
        x = fmul(colours.brightness, x);
        x = fadd(mean, fmul(colours.contrast, fadd(x, -mean)));
        x = x > 0.0f ? x : 0.0f;
        x = x < full ? x : full;
        out[c] = fadd(x / full, -normalize[1 + c]) / normalize[4 + c];
    }
}
