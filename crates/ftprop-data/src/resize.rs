//! Resizing with a triangle filter.
//!
//! An output pixel is the average of the input pixels around its centre, weighted by a triangle as wide as two
//! output pixels where the picture shrinks and two input pixels where it grows. Rows are combined first, then
//! columns, in f32 and in a fixed order, so the result is the same on every machine.

/// One axis of a picture at another size: `count` places from `start` on of what the `from` places after the first
/// `origin` become at `to` places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) origin: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) start: usize,
    pub(crate) count: usize,
}

impl Axis {
    /// `count` places from `start` on of a whole axis at another length.
    pub(crate) fn whole(from: usize, to: usize, start: usize, count: usize) -> Self {
        Axis { origin: 0, from, to, start, count }
    }

    /// Whether nothing changes its size.
    pub(crate) fn is_plain(&self) -> bool {
        self.from == self.to
    }
}

/// One row of the picture at its new height and old width.
#[derive(Default)]
pub(crate) struct Rows {
    row: Vec<f32>,
    /// The same, with four numbers a pixel: what a vector instruction takes at once.
    wide: Vec<[f32; 4]>,
}

/// Writes what a part of a picture of this width would be at another size to `out`; pixels have `C` bytes.
pub(crate) fn resize<const C: usize>(
    pixels: &[u8],
    width: usize,
    rows: Axis,
    columns: Axis,
    Rows { row, wide }: &mut Rows,
    out: &mut Vec<u8>,
) {
    let (vertical, horizontal) = (Weights::new(rows), Weights::new(columns));
    // Only the columns that something draws from.
    let (left, right) = horizontal.reach();
    row.resize((right - left) * C, 0.0);
    wide.resize(right - left, [0.0; 4]);
    out.resize(rows.count * columns.count * C, 0);
    let left_byte = (columns.origin + left) * C;
    for (y, out) in out.chunks_exact_mut(columns.count * C).enumerate() {
        row.fill(0.0);
        let (first, weights) = vertical.of(y);
        let lines = pixels[(rows.origin + first) * width * C..].chunks(width * C);
        for (weight, line) in weights.iter().zip(lines) {
            let line = &line[left_byte..left_byte + row.len()];
            row.iter_mut().zip(line).for_each(|(sum, &p)| *sum += weight * f32::from(p));
        }
        for (wide, pixel) in wide.iter_mut().zip(row.as_chunks::<C>().0) {
            wide[..C].copy_from_slice(pixel);
        }
        for (x, out) in out.as_chunks_mut::<C>().0.iter_mut().enumerate() {
            let (first, weights) = horizontal.of(x);
            let mut sums = [0.5; 4];
            for (weight, pixel) in weights.iter().zip(&wide[first - left..first - left + weights.len()]) {
                for c in 0..4 {
                    sums[c] += weight * pixel[c];
                }
            }
            // The cast cuts off at 0 and 255.
            *out = std::array::from_fn(|c| sums[c] as u8);
        }
    }
}

/// For each output place along one axis, the first input place it draws from and the weights from there on.
struct Weights {
    taps: usize,
    firsts: Vec<usize>,
    weights: Vec<f32>,
}

impl Weights {
    fn new(Axis { from, to, start, count, .. }: Axis) -> Self {
        let scale = from as f64 / to as f64;
        let reach = scale.max(1.0);
        // So many centres at most lie less than `reach` from a point.
        let taps = ((2.0 * reach).ceil() as usize).min(from);
        let (mut firsts, mut weights) = (Vec::with_capacity(count), Vec::with_capacity(count * taps));
        for i in start..start + count {
            let centre = (i as f64 + 0.5) * scale;
            let first = ((centre - reach + 0.5).max(0.0) as usize).min(from - taps);
            let weight = |tap: usize| (1.0 - ((first + tap) as f64 + 0.5 - centre).abs() / reach).max(0.0);
            let sum: f64 = (0..taps).map(weight).sum();
            firsts.push(first);
            weights.extend((0..taps).map(|tap| (weight(tap) / sum) as f32));
        }
        Weights { taps, firsts, weights }
    }

    /// The first place that is drawn from, and the one after the last.
    fn reach(&self) -> (usize, usize) {
        let first = self.firsts.iter().copied().min().unwrap_or(0);
        (first, self.firsts.iter().map(|first| first + self.taps).max().unwrap_or(0))
    }

    fn of(&self, place: usize) -> (usize, &[f32]) {
        (self.firsts[place], &self.weights[place * self.taps..(place + 1) * self.taps])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::random::Stream;

    type Size = (usize, usize);

    /// Both axes at once over the whole picture, in f64.
    fn slow(pixels: &[u8], from: Size, to: Size, channels: usize) -> Vec<f64> {
        let weight = |from: usize, to: usize, input: usize, output: usize| {
            let scale = from as f64 / to as f64;
            let distance = (input as f64 + 0.5) - (output as f64 + 0.5) * scale;
            (1.0 - distance.abs() / scale.max(1.0)).max(0.0)
        };
        let mut out = Vec::new();
        for i in 0..to.0 * to.1 * channels {
            let (y, x, c) = (i / channels / to.1, i / channels % to.1, i % channels);
            let (mut sum, mut total) = (0.0, 0.0);
            for (v, u) in (0..from.0).flat_map(|v| (0..from.1).map(move |u| (v, u))) {
                let w = weight(from.0, to.0, v, y) * weight(from.1, to.1, u, x);
                sum += w * f64::from(pixels[(v * from.1 + u) * channels + c]);
                total += w;
            }
            out.push(sum / total);
        }
        out
    }

    fn check<const C: usize>(from: Size, to: Size) {
        let random = Stream::numbered(17);
        let pixels: Vec<u8> = (0..from.0 * from.1 * C).map(|i| random.below(i as u64, 256) as u8).collect();
        let cut = |(y, x): Size, (height, width): Size| {
            let (rows, columns) = (Axis::whole(from.0, to.0, y, height), Axis::whole(from.1, to.1, x, width));
            let mut out = Vec::new();
            resize::<C>(&pixels, from.1, rows, columns, &mut Rows::default(), &mut out);
            out
        };
        let whole = cut((0, 0), to);
        assert_eq!(whole.len(), to.0 * to.1 * C);
        if from == to {
            assert_eq!(whole, pixels);
        }
        for (fast, slow) in whole.iter().zip(slow(&pixels, from, to, C)) {
            assert!((f64::from(*fast) - slow).abs() < 0.501, "{from:?} to {to:?}: {fast} {slow}");
        }
        // A region is exactly that part of the whole.
        let (y, x) = (to.0 / 2, to.1 / 3);
        let (height, width) = (to.0 - y, to.1 - x);
        let rows = (y..to.0).flat_map(|v| &whole[(v * to.1 + x) * C..(v * to.1 + x + width) * C]);
        assert!(cut((y, x), (height, width)).iter().eq(rows), "{from:?} to {to:?}");
        // A part at another size is what the part by itself would be.
        let (y, x) = (from.0 / 3, from.1 / 2);
        let part = (from.0 - y, from.1 - x);
        let rows = (y..from.0).flat_map(|v| &pixels[(v * from.1 + x) * C..(v + 1) * from.1 * C]);
        let alone: Vec<u8> = rows.copied().collect();
        let axes = |y: usize, x: usize| {
            let axis = |origin, from, to| Axis { origin, from, to, start: 0, count: to };
            (axis(y, part.0, to.0), axis(x, part.1, to.1))
        };
        let resized = |pixels: &[u8], width: usize, (rows, columns): (Axis, Axis)| {
            let mut out = Vec::new();
            resize::<C>(pixels, width, rows, columns, &mut Rows::default(), &mut out);
            out
        };
        assert_eq!(resized(&pixels, from.1, axes(y, x)), resized(&alone, part.1, axes(0, 0)), "{from:?} to {to:?}");
    }

    #[test]
    fn sizes_up_and_down_equal_the_slow_resize() {
        for (from, to) in [
            ((1, 1), (3, 2)),
            ((5, 7), (5, 7)),
            ((5, 7), (8, 11)),
            ((13, 9), (4, 3)),
            ((2, 30), (3, 4)),
            ((16, 16), (8, 8)),
            ((7, 7), (1, 1)),
        ] {
            check::<1>(from, to);
            check::<3>(from, to);
        }
    }
}
