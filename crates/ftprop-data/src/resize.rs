//! Resizing with a triangle filter.
//!
//! An output pixel is the average of the input pixels around its centre, weighted by a triangle as wide as two
//! output pixels where the picture shrinks and two input pixels where it grows. Rows are combined first, then
//! columns, in f32 and in a fixed order, so the result is the same on every machine.

/// A part of a resized picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) y: usize,
    pub(crate) x: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

/// One row of the picture at its new height and old width.
#[derive(Default)]
pub(crate) struct Rows {
    row: Vec<f32>,
    /// The same, with four numbers a pixel: what a vector instruction takes at once.
    wide: Vec<[f32; 4]>,
}

/// Writes a region of what a picture would be at another size to `out`; sizes are height and width, pixels have
/// `C` bytes.
pub(crate) fn resize<const C: usize>(
    pixels: &[u8],
    from: (usize, usize),
    to: (usize, usize),
    region: Region,
    Rows { row, wide }: &mut Rows,
    out: &mut Vec<u8>,
) {
    let vertical = Weights::new(from.0, to.0, region.y, region.height);
    let horizontal = Weights::new(from.1, to.1, region.x, region.width);
    row.resize(from.1 * C, 0.0);
    wide.resize(from.1, [0.0; 4]);
    out.resize(region.height * region.width * C, 0);
    for (y, out) in out.chunks_exact_mut(region.width * C).enumerate() {
        row.fill(0.0);
        let (first, weights) = vertical.of(y);
        for (weight, pixels) in weights.iter().zip(pixels[first * from.1 * C..].chunks_exact(from.1 * C)) {
            row.iter_mut().zip(pixels).for_each(|(sum, &p)| *sum += weight * f32::from(p));
        }
        for (wide, pixel) in wide.iter_mut().zip(row.as_chunks::<C>().0) {
            wide[..C].copy_from_slice(pixel);
        }
        for (x, out) in out.as_chunks_mut::<C>().0.iter_mut().enumerate() {
            let (first, weights) = horizontal.of(x);
            let mut sums = [0.5; 4];
            for (weight, pixel) in weights.iter().zip(&wide[first..first + weights.len()]) {
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
    /// For `count` output places from `start` on.
    fn new(from: usize, to: usize, start: usize, count: usize) -> Self {
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
        let cut = |region: Region| {
            let mut out = Vec::new();
            resize::<C>(&pixels, from, to, region, &mut Rows::default(), &mut out);
            out
        };
        let whole = cut(Region { y: 0, x: 0, height: to.0, width: to.1 });
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
        assert!(cut(Region { y, x, height, width }).iter().eq(rows), "{from:?} to {to:?}");
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
