//! Max and average pooling of NHWC images.
//!
//! Tasks are images: within one, a sum in a fixed order is deterministic even where windows overlap. Nothing is
//! remembered: on the way back the largest value is looked for again, which costs less than keeping where it was.

use super::simd::vectorised;
use super::{Cpu, Shared};
use crate::geometry::{PoolGeometry, size};

/// What a pooling takes of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest value.
    Max,
    /// The mean, padding counted in.
    Average,
}

impl PoolKind {
    /// How much a value that counts in a window of this side counts there. Padding counts in, so that it is the same for
    /// every window.
    pub fn share(self, side: usize) -> f32 {
        match self {
            PoolKind::Max => 1.0,
            PoolKind::Average => 1.0 / (side * side) as f32,
        }
    }
}

/// y = what the kind takes of each window.
pub fn forward(cpu: &Cpu, kind: PoolKind, g: &PoolGeometry, n: usize, x: &[f32], y: &mut [f32]) {
    match kind {
        PoolKind::Max => max_forward(cpu, g, n, x, y),
        PoolKind::Average => average_forward(cpu, g, n, x, y),
    }
}

/// dx, given x and dy.
pub fn backward(cpu: &Cpu, kind: PoolKind, g: &PoolGeometry, n: usize, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    match kind {
        PoolKind::Max => max_backward(cpu, g, n, x, dy, dx),
        PoolKind::Average => average_backward(cpu, g, n, dy, dx),
    }
}

/// y = the largest value of each window.
pub fn max_forward(cpu: &Cpu, g: &PoolGeometry, n: usize, x: &[f32], y: &mut [f32]) {
    g.expect_sound();
    let x = &x[..size(n, g.in_len())];
    cpu.each_chunk(&mut y[..size(n, g.out_len())], g.out_len(), |image, y| {
        max_forward_image(cpu.isa, g, &x[image * g.in_len()..][..g.in_len()], y);
    });
}

/// dx = dy where the largest value was (the first of equals), zero elsewhere.
pub fn max_backward(cpu: &Cpu, g: &PoolGeometry, n: usize, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    g.expect_sound();
    let (x, dy) = (&x[..size(n, g.in_len())], &dy[..size(n, g.out_len())]);
    let dx = Shared::new(&mut dx[..x.len()]);
    cpu.each(n, |image| {
        // SAFETY: each image belongs to one task.
        let dx = unsafe { dx.slice(image * g.in_len(), g.in_len()) };
        let (x, dy) = (&x[image * g.in_len()..][..g.in_len()], &dy[image * g.out_len()..][..g.out_len()]);
        max_backward_image(cpu.isa, g, x, dy, dx);
    });
}

/// y = the mean of each window; padding counts as zeros, as in PyTorch.
pub fn average_forward(cpu: &Cpu, g: &PoolGeometry, n: usize, x: &[f32], y: &mut [f32]) {
    g.expect_sound();
    let x = &x[..size(n, g.in_len())];
    cpu.each_chunk(&mut y[..size(n, g.out_len())], g.out_len(), |image, y| {
        average_forward_image(cpu.isa, g, &x[image * g.in_len()..][..g.in_len()], y);
    });
}

/// dx = each window's share of dy.
pub fn average_backward(cpu: &Cpu, g: &PoolGeometry, n: usize, dy: &[f32], dx: &mut [f32]) {
    g.expect_sound();
    let dy = &dy[..size(n, g.out_len())];
    cpu.each_chunk(&mut dx[..size(n, g.in_len())], g.in_len(), |image, dx| {
        average_backward_image(cpu.isa, g, &dy[image * g.out_len()..][..g.out_len()], dx);
    });
}

/// Channels that are handled together: their running largest values stay in registers.
const LANES: usize = 16;

/// The larger of two; a NaN wins, so that it is seen and not hidden.
#[inline(always)]
fn larger(x: f32, y: f32) -> f32 {
    if x > y || x.is_nan() { x } else { y }
}

vectorised! {
    fn max_forward_image(g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
        let c = g.channels;
        for oy in 0..g.out_height() {
            let rows = g.window(oy, g.height);
            for ox in 0..g.out_width() {
                let cols = g.window(ox, g.width);
                let y = &mut y[(oy * g.out_width() + ox) * c..][..c];
                let pixel = |r: usize, s: usize| {
                    &x[((oy * g.stride + r - g.pad) * g.width + ox * g.stride + s - g.pad) * c..][..c]
                };
                y.copy_from_slice(pixel(rows.start, cols.start));
                for r in rows.clone() {
                    for s in cols.clone() {
                        for (y, &x) in y.iter_mut().zip(pixel(r, s)) {
                            *y = larger(x, *y);
                        }
                    }
                }
            }
        }
    }
}

vectorised! {
    fn max_backward_image(g: &PoolGeometry, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let c = g.channels;
        // Windows that tile the image write each place once; others add up what they have to say.
        let tiles = |size: usize, out: usize| g.pad == 0 && g.stride == g.kernel && out * g.kernel == size;
        let apart = g.stride >= g.kernel;
        if !(tiles(g.height, g.out_height()) && tiles(g.width, g.out_width())) {
            dx.fill(0.0);
        }
        for oy in 0..g.out_height() {
            let rows = g.window(oy, g.height);
            for ox in 0..g.out_width() {
                let cols = g.window(ox, g.width);
                let dy = &dy[(oy * g.out_width() + ox) * c..][..c];
                let at = |r: usize, s: usize| {
                    ((oy * g.stride + r - g.pad) * g.width + ox * g.stride + s - g.pad) * c
                };
                for first in (0..c).step_by(LANES) {
                    let wide = LANES.min(c - first);
                    // Past the last channel the lanes hold zeros and are not written.
                    let (mut most, mut left) = ([0.0f32; LANES], [0.0f32; LANES]);
                    most[..wide].copy_from_slice(&x[at(rows.start, cols.start) + first..][..wide]);
                    left[..wide].copy_from_slice(&dy[first..first + wide]);
                    for r in rows.clone() {
                        for s in cols.clone() {
                            let x = &x[at(r, s) + first..][..wide];
                            for (most, &x) in most.iter_mut().zip(x) {
                                *most = larger(x, *most);
                            }
                        }
                    }
                    for r in rows.clone() {
                        for s in cols.clone() {
                            let x = &x[at(r, s) + first..][..wide];
                            let dx = &mut dx[at(r, s) + first..][..wide];
                            for (((dx, &x), left), &most) in dx.iter_mut().zip(x).zip(left.iter_mut()).zip(&most) {
                                // Whoever comes first takes all that is left.
                                let here = if x == most { *left } else { 0.0 };
                                *dx = if apart { here } else { *dx + here };
                                *left = if x == most { 0.0 } else { *left };
                            }
                        }
                    }
                }
            }
        }
    }
}

vectorised! {
    fn average_forward_image(g: &PoolGeometry, x: &[f32], y: &mut [f32]) {
        let c = g.channels;
        let scale = 1.0 / (g.kernel * g.kernel) as f32;
        each_window(g, |pixel, rows, cols, top, left| {
            let y = &mut y[pixel * c..][..c];
            y.fill(0.0);
            for r in rows {
                for s in cols.clone() {
                    let x = &x[((top + r - g.pad) * g.width + left + s - g.pad) * c..][..c];
                    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
                }
            }
            y.iter_mut().for_each(|y| *y *= scale);
        });
    }
}

vectorised! {
    fn average_backward_image(g: &PoolGeometry, dy: &[f32], dx: &mut [f32]) {
        let c = g.channels;
        let scale = 1.0 / (g.kernel * g.kernel) as f32;
        dx.fill(0.0);
        each_window(g, |pixel, rows, cols, top, left| {
            let dy = &dy[pixel * c..][..c];
            for r in rows {
                for s in cols.clone() {
                    let dx = &mut dx[((top + r - g.pad) * g.width + left + s - g.pad) * c..][..c];
                    dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * scale);
                }
            }
        });
    }
}

/// Calls `f(output pixel, rows on the image, columns on the image, window's top, window's left)`, the last
/// two in padded coordinates.
#[inline(always)]
fn each_window(
    g: &PoolGeometry,
    mut f: impl FnMut(usize, std::ops::Range<usize>, std::ops::Range<usize>, usize, usize),
) {
    for oy in 0..g.out_height() {
        for ox in 0..g.out_width() {
            let (rows, cols) = (g.window(oy, g.height), g.window(ox, g.width));
            f(oy * g.out_width() + ox, rows, cols, oy * g.stride, ox * g.stride);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    /// Every (input, output) pair of the pooling, for references that are plainly right.
    fn pairs(g: &PoolGeometry, n: usize) -> Vec<(usize, usize)> {
        let mut out = Vec::new();
        for image in 0..n {
            for o in 0..g.out_len() {
                let (pixel, c) = (o / g.channels, o % g.channels);
                let (oy, ox) = (pixel / g.out_width(), pixel % g.out_width());
                for y in 0..g.height {
                    for x in 0..g.width {
                        let inside = |p: usize, o: usize| {
                            let p = p + g.pad;
                            p >= o * g.stride && p < o * g.stride + g.kernel
                        };
                        if inside(y, oy) && inside(x, ox) {
                            let input = image * g.in_len() + (y * g.width + x) * g.channels + c;
                            out.push((input, image * g.out_len() + o));
                        }
                    }
                }
            }
        }
        out
    }

    #[test]
    fn both_poolings_and_their_gradients_equal_the_definition_for_overlapping_and_padded_windows() {
        let cpu = Cpu::new(2).unwrap();
        let mut tried = 0;
        for case in 0..80u64 {
            let s = Stream::numbered(case);
            let g = PoolGeometry {
                height: 1 + s.below(0, 8) as usize,
                width: 1 + s.below(1, 8) as usize,
                channels: 1 + s.below(2, 40) as usize,
                kernel: 1 + s.below(3, 4) as usize,
                stride: 1 + s.below(4, 3) as usize,
                pad: s.below(5, 3) as usize,
            };
            if g.checked().is_err() {
                continue;
            }
            tried += 1;
            let n = 2;
            let x: Vec<f32> = (0..n * g.in_len()).map(|i| s.uniform(100 + i as u64) - 0.5).collect();
            let dy: Vec<f32> = (0..n * g.out_len()).map(|i| s.uniform(9000 + i as u64) - 0.5).collect();
            let pairs = pairs(&g, n);

            let mut most = vec![f32::NEG_INFINITY; n * g.out_len()];
            let mut sums = vec![0.0f32; n * g.out_len()];
            for &(i, o) in &pairs {
                most[o] = most[o].max(x[i]);
                sums[o] += x[i] / (g.kernel * g.kernel) as f32;
            }
            let mut y = vec![f32::NAN; n * g.out_len()];
            max_forward(&cpu, &g, n, &x, &mut y);
            assert_eq!(y, most, "{g:?}");
            let mut dx = vec![f32::NAN; n * g.in_len()];
            max_backward(&cpu, &g, n, &x, &dy, &mut dx);
            let mut expected = vec![0.0f32; n * g.in_len()];
            pairs.iter().filter(|&&(i, o)| x[i] == most[o]).for_each(|&(i, o)| expected[i] += dy[o]);
            dx.iter().zip(&expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{g:?}"));

            average_forward(&cpu, &g, n, &x, &mut y);
            y.iter().zip(&sums).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{g:?}"));
            average_backward(&cpu, &g, n, &dy, &mut dx);
            expected.fill(0.0);
            pairs.iter().for_each(|&(i, o)| expected[i] += dy[o] / (g.kernel * g.kernel) as f32);
            dx.iter().zip(&expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{g:?}"));
        }
        assert!(tried > 30);
    }

    #[test]
    fn the_first_of_equal_values_is_chosen_and_a_nan_is_not_hidden() {
        let cpu = Cpu::new(1).unwrap();
        let g = PoolGeometry { height: 2, width: 2, channels: 1, kernel: 2, stride: 2, pad: 0 };
        let (mut y, mut dx) = ([0.0], [9.0; 4]);
        max_forward(&cpu, &g, 1, &[3.0, 3.0, 1.0, 3.0], &mut y);
        max_backward(&cpu, &g, 1, &[3.0, 3.0, 1.0, 3.0], &[7.0], &mut dx);
        assert_eq!((y, dx), ([3.0], [7.0, 0.0, 0.0, 0.0]));
        max_forward(&cpu, &g, 1, &[3.0, f32::NAN, 1.0, 3.0], &mut y);
        assert!(y[0].is_nan());
    }
}
