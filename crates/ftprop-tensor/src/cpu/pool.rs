//! Max and average pooling of NHWC images.
//!
//! Tasks are images: within one, a scatter in a fixed order is deterministic even where windows overlap.

use super::{Cpu, Shared};
use crate::geometry::PoolGeometry;

/// y = the largest value of each window. `choice` remembers where it was, as an index into the window
/// (row by row), one byte an output: that is all the backward pass needs.
pub fn max_forward(cpu: &Cpu, g: &PoolGeometry, n: usize, x: &[f32], y: &mut [f32], choice: &mut [u8]) {
    let c = g.channels;
    let (y, choice) = (Shared::new(&mut y[..n * g.out_len()]), Shared::new(&mut choice[..n * g.out_len()]));
    let x = &x[..n * g.in_len()];
    cpu.each(n, |image| {
        let x = &x[image * g.in_len()..][..g.in_len()];
        // SAFETY: each image belongs to one task.
        let (y, choice) =
            unsafe { (y.slice(image * g.out_len(), g.out_len()), choice.slice(image * g.out_len(), g.out_len())) };
        each_window(g, |pixel, rows, cols, top, left| {
            let y = &mut y[pixel * c..][..c];
            let choice = &mut choice[pixel * c..][..c];
            let mut first = true;
            for r in rows {
                for s in cols.clone() {
                    let x = &x[((top + r - g.pad) * g.width + left + s - g.pad) * c..][..c];
                    let here = (r * g.kernel + s) as u8;
                    if first {
                        y.copy_from_slice(x);
                        choice.fill(here);
                        first = false;
                    } else {
                        for ((y, choice), &x) in y.iter_mut().zip(choice.iter_mut()).zip(x) {
                            // The first of equals wins. A NaN wins too, so that it is seen and not hidden.
                            let wins = x > *y || x.is_nan();
                            *y = if wins { x } else { *y };
                            *choice = if wins { here } else { *choice };
                        }
                    }
                }
            }
        });
    });
}

/// dx = dy where the largest value was, zero elsewhere.
pub fn max_backward(cpu: &Cpu, g: &PoolGeometry, n: usize, dy: &[f32], choice: &[u8], dx: &mut [f32]) {
    let c = g.channels;
    let dy = &dy[..n * g.out_len()];
    cpu.each_chunk(&mut dx[..n * g.in_len()], g.in_len(), |image, dx| {
        dx.fill(0.0);
        let dy = &dy[image * g.out_len()..][..g.out_len()];
        let choice = &choice[image * g.out_len()..][..g.out_len()];
        each_window(g, |pixel, _, _, top, left| {
            for i in 0..c {
                let at = usize::from(choice[pixel * c + i]);
                let (y, x) = (top + at / g.kernel - g.pad, left + at % g.kernel - g.pad);
                dx[(y * g.width + x) * c + i] += dy[pixel * c + i];
            }
        });
    });
}

/// y = the mean of each window; padding counts as zeros, as in PyTorch.
pub fn average_forward(cpu: &Cpu, g: &PoolGeometry, n: usize, x: &[f32], y: &mut [f32]) {
    let c = g.channels;
    let scale = 1.0 / (g.kernel * g.kernel) as f32;
    cpu.each_chunk(&mut y[..n * g.out_len()], g.out_len(), |image, y| {
        let x = &x[image * g.in_len()..][..g.in_len()];
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
    });
}

/// dx = each window's share of dy.
pub fn average_backward(cpu: &Cpu, g: &PoolGeometry, n: usize, dy: &[f32], dx: &mut [f32]) {
    let c = g.channels;
    let scale = 1.0 / (g.kernel * g.kernel) as f32;
    cpu.each_chunk(&mut dx[..n * g.in_len()], g.in_len(), |image, dx| {
        dx.fill(0.0);
        let dy = &dy[image * g.out_len()..][..g.out_len()];
        each_window(g, |pixel, rows, cols, top, left| {
            let dy = &dy[pixel * c..][..c];
            for r in rows {
                for s in cols.clone() {
                    let dx = &mut dx[((top + r - g.pad) * g.width + left + s - g.pad) * c..][..c];
                    dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * scale);
                }
            }
        });
    });
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
                channels: 1 + s.below(2, 5) as usize,
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
            let (mut y, mut choice) = (vec![f32::NAN; n * g.out_len()], vec![255; n * g.out_len()]);
            max_forward(&cpu, &g, n, &x, &mut y, &mut choice);
            assert_eq!(y, most, "{g:?}");
            let mut dx = vec![f32::NAN; n * g.in_len()];
            max_backward(&cpu, &g, n, &dy, &choice, &mut dx);
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
        let (mut y, mut choice) = ([0.0], [9]);
        max_forward(&cpu, &g, 1, &[3.0, 3.0, 1.0, 3.0], &mut y, &mut choice);
        assert_eq!((y, choice), ([3.0], [0]));
        max_forward(&cpu, &g, 1, &[3.0, f32::NAN, 1.0, 3.0], &mut y, &mut choice);
        assert!(y[0].is_nan());
    }
}
