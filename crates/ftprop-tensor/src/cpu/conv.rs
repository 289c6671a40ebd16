//! Convolution of NHWC images with OHWI weights.
//!
//! The image is copied once with its padding, and the product reads windows straight from that copy. The
//! input's gradient is a convolution again: for stride s the input's pixels fall into s·s phases, each of
//! which sees its own part of the kernel, so that nothing is scattered and nothing is summed twice.

mod padded;
mod phases;
mod positions;
pub mod reference;

use super::gemm::{Grid, Nest, Product, Right, Start, pack, packed_len, product, products};
use super::{Cpu, linear};
use crate::geometry::{ConvGeometry, size};
use padded::{Extent, Padded};
use phases::Phases;
use positions::{Taps, mostly_border, position_product};

/// Rows of output pixels that one task computes.
const TASK_ROWS: usize = 192;
/// Steps of the sum that go through one tile at a time, so that a panel of weights stays in the first cache.
pub(super) const BLOCK_DEPTH: usize = 160;
/// The same for the weights' gradient, where the sum runs over pixels.
const PIXEL_BLOCK_DEPTH: usize = 128;

/// Floats of scratch that the three passes need for a batch of `n`.
pub fn scratch_len(cpu: &Cpu, g: &ConvGeometry, n: usize) -> usize {
    g.expect_sound();
    if is_linear(g) {
        return linear::scratch_len(cpu, g.in_len(), g.out_channels, n);
    }
    let x = padded_len(g, n);
    let (ci, co) = (g.in_channels / g.groups, g.out_channels / g.groups);
    let forward = x.saturating_add(packed_len(cpu, g.fan_in(), co));
    let slopes = Phases::new(g).padded_len(g, n);
    let input = slopes.saturating_add(packed_len(cpu, g.kernel_h * g.kernel_w * co, ci));
    let rows = size(n, g.out_height() * g.out_width() * co.next_multiple_of(cpu.isa.lanes()));
    let weights = x.saturating_add(g.fan_in() * co).saturating_add(rows);
    forward.max(input).max(weights)
}

/// y = x * w + bias. x is `[n, height, width, in]`, y `[n, out_height, out_width, out]`.
pub fn forward(
    cpu: &Cpu,
    g: &ConvGeometry,
    n: usize,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    scratch: &mut [f32],
) {
    let (x, w, y) = (&x[..in_len(g, n)], &w[..g.weight_len()], &mut y[..out_len(g, n)]);
    if n == 0 {
        return;
    }
    if is_linear(g) {
        return linear::forward(cpu, n, g.in_len(), g.out_channels, x, w, bias, y, scratch);
    }
    let (ci, co, depth) = (g.in_channels / g.groups, g.out_channels / g.groups, g.fan_in());
    if mostly_border(g, n) {
        pack(cpu, depth, co, scratch, |k, j| w[j * depth + k]);
        let b = Right::Panels { data: scratch, depth };
        let position = |pixel: usize| {
            let (oy, ox) = (pixel / g.out_width(), pixel % g.out_width());
            let (v, h) = (Taps::of_output(oy, g.height, g.kernel_h, g), Taps::of_output(ox, g.width, g.kernel_w, g));
            let image = Extent { height: g.height, width: g.width, channels: ci };
            let start = bias.map_or(Start::Zero, Start::Bias);
            position_product(n, x, image, v, h, g.kernel_w, b, co, pixel, g.out_len(), start)
        };
        // SAFETY: a position is written by its own product, an image by its own row of it.
        return unsafe { products(cpu, g.out_height() * g.out_width(), position, y) };
    }
    let (pad_scratch, pack_scratch) = scratch.split_at_mut(padded_len(g, n));
    for group in 0..g.groups {
        let image = Padded::input(cpu, g, n, x, group, pad_scratch);
        let w = &w[group * co * depth..][..co * depth];
        pack(cpu, depth, co, pack_scratch, |k, j| w[j * depth + k]);
        let p = Product {
            rows: n * g.out_height() * g.out_width(),
            cols: co,
            a: image.data,
            a_rows: Grid {
                base: 0,
                height: g.out_height(),
                width: g.out_width(),
                image_stride: image.image_stride(),
                row_stride: g.stride * image.row_stride(),
                pixel_stride: g.stride * ci,
            },
            nest: Nest::new([1, g.kernel_h, g.kernel_w * ci], [0, image.row_stride(), 1]),
            b: Right::Panels { data: pack_scratch, depth },
            b_first: 0,
            c_rows: Grid { base: group * co, ..Grid::rows(g.out_channels) },
            start: bias.map_or(Start::Zero, |b| Start::Bias(&b[group * co..])),
            task_rows: TASK_ROWS,
            block_depth: BLOCK_DEPTH,
        };
        product(cpu, &p, y);
    }
}

/// dx = the gradient of the loss by the input, given that by the output.
pub fn backward_input(
    cpu: &Cpu,
    g: &ConvGeometry,
    n: usize,
    dy: &[f32],
    w: &[f32],
    dx: &mut [f32],
    scratch: &mut [f32],
) {
    let (dy, w, dx) = (&dy[..out_len(g, n)], &w[..g.weight_len()], &mut dx[..in_len(g, n)]);
    if n == 0 {
        return;
    }
    if is_linear(g) {
        return linear::backward_input(cpu, n, g.in_len(), g.out_channels, dy, w, dx, scratch);
    }
    let (ci, co, depth) = (g.in_channels / g.groups, g.out_channels / g.groups, g.fan_in());
    if mostly_border(g, n) {
        let depth_here = g.kernel_h * g.kernel_w * co;
        // The kernel turned around, so that the outputs that see a pixel come in their own order.
        pack(cpu, depth_here, ci, scratch, |k, j| {
            let (tap, o) = (k / co, k % co);
            w[o * depth + (g.kernel_h * g.kernel_w - 1 - tap) * ci + j]
        });
        let b = Right::Panels { data: scratch, depth: depth_here };
        let position = |pixel: usize| {
            let (y, x) = (pixel / g.width, pixel % g.width);
            let v = Taps::of_input(y, g.out_height(), g.kernel_h, g);
            let h = Taps::of_input(x, g.out_width(), g.kernel_w, g);
            let image = Extent { height: g.out_height(), width: g.out_width(), channels: co };
            position_product(n, dy, image, v, h, g.kernel_w, b, ci, pixel, g.in_len(), Start::Zero)
        };
        // SAFETY: as in `forward`.
        return unsafe { products(cpu, g.height * g.width, position, dx) };
    }
    let phases = Phases::new(g);
    let (pad_scratch, pack_scratch) = scratch.split_at_mut(phases.padded_len(g, n));
    for group in 0..g.groups {
        let slope = Padded::copy(
            cpu,
            n,
            dy,
            Extent { height: g.out_height(), width: g.out_width(), channels: g.out_channels },
            group * co..(group + 1) * co,
            (phases.taps_h - 1, phases.taps_w - 1),
            (phases.padded_h, phases.padded_w),
            pad_scratch,
        );
        let w = &w[group * co * depth..][..co * depth];
        for (v, h) in phases.pairs(g) {
            let c_rows = Grid {
                base: (v.first * g.width + h.first) * g.in_channels + group * ci,
                height: v.count,
                width: h.count,
                image_stride: g.in_len(),
                row_stride: g.stride * g.width * g.in_channels,
                pixel_stride: g.stride * g.in_channels,
            };
            if v.taps == 0 || h.taps == 0 {
                // No output looks at these pixels.
                clear(n, &c_rows, ci, dx);
                continue;
            }
            pack(cpu, v.taps * h.taps * co, ci, pack_scratch, |k, j| {
                let (tap, o) = (k / co, k % co);
                let r = v.phase + g.stride * (v.taps - 1 - tap / h.taps);
                let s = h.phase + g.stride * (h.taps - 1 - tap % h.taps);
                w[o * depth + (r * g.kernel_w + s) * ci + j]
            });
            let row = v.first_output + phases.taps_h - v.taps;
            let column = h.first_output + phases.taps_w - h.taps;
            let p = Product {
                rows: n * v.count * h.count,
                cols: ci,
                a: slope.data,
                a_rows: Grid {
                    base: row * slope.row_stride() + column * co,
                    height: v.count,
                    width: h.count,
                    image_stride: slope.image_stride(),
                    row_stride: slope.row_stride(),
                    pixel_stride: co,
                },
                nest: Nest::new([1, v.taps, h.taps * co], [0, slope.row_stride(), 1]),
                b: Right::Panels { data: pack_scratch, depth: v.taps * h.taps * co },
                b_first: 0,
                c_rows,
                start: Start::Zero,
                task_rows: TASK_ROWS,
                block_depth: BLOCK_DEPTH,
            };
            product(cpu, &p, dx);
        }
    }
}

/// dw = the gradient of the loss by the weights, summed over the batch.
pub fn backward_weights(
    cpu: &Cpu,
    g: &ConvGeometry,
    n: usize,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    scratch: &mut [f32],
) {
    let (x, dy, dw) = (&x[..in_len(g, n)], &dy[..out_len(g, n)], &mut dw[..g.weight_len()]);
    if n == 0 {
        return dw.fill(0.0);
    }
    if is_linear(g) {
        return linear::backward_weights(cpu, n, g.in_len(), g.out_channels, x, dy, dw, scratch);
    }
    let (ci, co, depth) = (g.in_channels / g.groups, g.out_channels / g.groups, g.fan_in());
    let pixels = n * g.out_height() * g.out_width();
    let wide = co.next_multiple_of(cpu.isa.lanes());
    let (pad_scratch, rest) = scratch.split_at_mut(padded_len(g, n));
    let (transposed, dy_scratch) = rest.split_at_mut(depth * co);
    for group in 0..g.groups {
        let image = Padded::input(cpu, g, n, x, group, pad_scratch);
        // Whole vectors of dy are read where it lies; otherwise a copy has room for the last one.
        let right = if wide == co {
            Right::Rows { data: &dy[group * co..], stride: g.out_channels }
        } else {
            cpu.each_chunk(&mut dy_scratch[..pixels * wide], 256 * wide, |i, out| {
                for (row, to) in out.chunks_exact_mut(wide).enumerate() {
                    let from = &dy[(i * 256 + row) * g.out_channels + group * co..][..co];
                    to[..co].copy_from_slice(from);
                    to[co..].fill(0.0);
                }
            });
            Right::Rows { data: &dy_scratch[..pixels * wide], stride: wide }
        };
        let p = Product {
            rows: depth,
            cols: co,
            a: image.data,
            a_rows: Grid {
                base: 0,
                height: g.kernel_h,
                width: g.kernel_w * ci,
                image_stride: 0,
                row_stride: image.row_stride(),
                pixel_stride: 1,
            },
            nest: Nest::new(
                [n, g.out_height(), g.out_width()],
                [image.image_stride(), g.stride * image.row_stride(), g.stride * ci],
            ),
            b: right,
            b_first: 0,
            c_rows: Grid::rows(co),
            start: Start::Zero,
            // Every task reads all pixels, so there are no more tasks than threads need.
            task_rows: depth.div_ceil(cpu.threads()).next_multiple_of(24),
            block_depth: PIXEL_BLOCK_DEPTH,
        };
        product(cpu, &p, transposed);
        let transposed = &*transposed;
        cpu.each_chunk(&mut dw[group * co * depth..][..co * depth], depth, |o, row| {
            row.iter_mut().enumerate().for_each(|(k, x)| *x = transposed[k * co + o]);
        });
    }
}

/// Input values of a batch, whose geometry is checked on the way.
fn in_len(g: &ConvGeometry, n: usize) -> usize {
    g.expect_sound();
    size(n, g.in_len())
}

/// Output values of a batch.
fn out_len(g: &ConvGeometry, n: usize) -> usize {
    g.expect_sound();
    size(n, g.out_len())
}

fn padded_len(g: &ConvGeometry, n: usize) -> usize {
    if g.pad == 0 && g.groups == 1 {
        0
    } else {
        size(n, (g.height + 2 * g.pad) * (g.width + 2 * g.pad) * (g.in_channels / g.groups))
    }
}

/// A kernel that covers the whole image sees it once: that is a fully connected layer.
fn is_linear(g: &ConvGeometry) -> bool {
    g.pad == 0 && g.groups == 1 && (g.kernel_h, g.kernel_w) == (g.height, g.width)
}

fn clear(n: usize, rows: &Grid, cols: usize, out: &mut [f32]) {
    for image in 0..n {
        for y in 0..rows.height {
            for x in 0..rows.width {
                let at = rows.base + image * rows.image_stride + y * rows.row_stride + x * rows.pixel_stride;
                out[at..at + cols].fill(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;
    use crate::random::Stream;

    fn numbers(stream: u64, n: usize) -> Vec<f32> {
        let s = Stream::numbered(stream);
        (0..n as u64).map(|i| 2.0 * s.uniform(i) - 1.0).collect()
    }

    fn close(what: &str, g: &ConvGeometry, got: &[f32], expected: &[f32]) {
        let scale = expected.iter().fold(1.0f32, |m, e| m.max(e.abs()));
        for (i, (x, e)) in got.iter().zip(expected).enumerate() {
            assert!((x - e).abs() < 2e-5 * scale, "{what} of {g:?} at {i}: {x} for {e}");
        }
    }

    fn check(cpu: &Cpu, g: &ConvGeometry, n: usize, seed: u64) {
        let (x, w) = (numbers(seed, n * g.in_len()), numbers(seed + 1, g.weight_len()));
        let (dy, bias) = (numbers(seed + 2, n * g.out_len()), numbers(seed + 3, g.out_channels));
        let mut scratch = vec![f32::NAN; scratch_len(cpu, g, n)];
        let mut y = vec![f32::NAN; n * g.out_len()];
        forward(cpu, g, n, &x, &w, Some(&bias), &mut y, &mut scratch);
        close("forward", g, &y, &reference::forward(g, n, &x, &w, Some(&bias)));
        scratch.fill(f32::NAN);
        let mut dx = vec![f32::NAN; n * g.in_len()];
        backward_input(cpu, g, n, &dy, &w, &mut dx, &mut scratch);
        close("backward_input", g, &dx, &reference::backward_input(g, n, &dy, &w));
        scratch.fill(f32::NAN);
        let mut dw = vec![f32::NAN; g.weight_len()];
        backward_weights(cpu, g, n, &x, &dy, &mut dw, &mut scratch);
        close("backward_weights", g, &dw, &reference::backward_weights(g, n, &x, &dy));
    }

    #[test]
    fn equals_the_reference_on_random_shapes_strides_pads_and_groups() {
        for isa in Isa::all_available() {
            let cpu = Cpu::with_isa(2, isa).unwrap();
            let mut tried = 0;
            for case in 0..200u64 {
                let s = Stream::numbered(500 + case);
                let groups = if s.below(0, 4) == 0 { 2 } else { 1 };
                let g = ConvGeometry {
                    height: 1 + s.below(1, 9) as usize,
                    width: 1 + s.below(2, 9) as usize,
                    in_channels: groups * (1 + s.below(3, 9) as usize),
                    out_channels: groups * (1 + s.below(4, 36) as usize),
                    kernel_h: 1 + s.below(5, 5) as usize,
                    kernel_w: 1 + s.below(6, 5) as usize,
                    stride: 1 + s.below(7, 4) as usize,
                    pad: s.below(8, 4) as usize,
                    groups,
                };
                if g.checked().is_ok() {
                    tried += 1;
                    check(&cpu, &g, 1 + s.below(9, 20) as usize, 10_000 + case);
                }
            }
            assert!(tried > 100, "only {tried} shapes were possible");
        }
    }

    #[test]
    fn equals_the_reference_on_the_networks_own_kinds_of_shape() {
        let cpu = Cpu::new(2).unwrap();
        let base = ConvGeometry {
            height: 10,
            width: 10,
            in_channels: 3,
            out_channels: 32,
            kernel_h: 5,
            kernel_w: 5,
            stride: 1,
            pad: 3,
            groups: 1,
        };
        check(&cpu, &base, 2, 1);
        check(
            &cpu,
            &ConvGeometry { in_channels: 48, out_channels: 64, kernel_h: 3, kernel_w: 3, pad: 1, ..base },
            2,
            2,
        );
        check(
            &cpu,
            &ConvGeometry {
                height: 4,
                width: 4,
                in_channels: 128,
                out_channels: 96,
                kernel_h: 4,
                kernel_w: 4,
                pad: 0,
                ..base
            },
            7,
            3,
        );
        check(
            &cpu,
            &ConvGeometry { height: 15, width: 15, out_channels: 64, kernel_h: 7, kernel_w: 7, stride: 2, ..base },
            2,
            4,
        );
        check(&cpu, &ConvGeometry { height: 6, width: 6, kernel_h: 3, kernel_w: 3, pad: 1, ..base }, 13, 7);
        check(&cpu, &ConvGeometry { height: 6, width: 5, kernel_h: 3, kernel_w: 2, pad: 0, ..base }, 13, 8);
        check(&cpu, &ConvGeometry { in_channels: 20, kernel_h: 1, kernel_w: 1, stride: 2, pad: 0, ..base }, 2, 5);
        check(
            &cpu,
            &ConvGeometry { height: 28, width: 28, kernel_h: 12, kernel_w: 12, stride: 4, pad: 0, ..base },
            1,
            6,
        );
    }
}
