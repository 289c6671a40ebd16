//! Convolution of NHWC images with OHWI weights.
//!
//! The image is copied once with its padding, and the product reads windows straight from that copy. The
//! input's gradient is a convolution again: for stride s the input's pixels fall into s·s phases, each of
//! which sees its own part of the kernel, so that nothing is scattered and nothing is summed twice.

use super::gemm::{Grid, Nest, Product, Right, Start, pack, packed_len, product, products};
use super::{Cpu, linear};
use crate::geometry::ConvGeometry;

/// Rows of output pixels that one task computes.
const TASK_ROWS: usize = 192;
/// Steps of the sum that go through one tile at a time, so that a panel of weights stays in the first cache.
const BLOCK_DEPTH: usize = 160;
/// The same for the weights' gradient, where the sum runs over pixels.
const PIXEL_BLOCK_DEPTH: usize = 320;

/// Floats of scratch that the three passes need for a batch of `n`.
pub fn scratch_len(cpu: &Cpu, g: &ConvGeometry, n: usize) -> usize {
    if is_linear(g) {
        return linear::scratch_len(cpu, g.in_len(), g.out_channels, n);
    }
    let x = padded_len(g, n);
    let (ci, co) = (g.in_channels / g.groups, g.out_channels / g.groups);
    let forward = x + packed_len(cpu, g.fan_in(), co);
    let input = Phases::new(g).padded_len(g, n) + packed_len(cpu, g.kernel_h * g.kernel_w * co, ci);
    let weights = x + g.fan_in() * co + n * g.out_height() * g.out_width() * co.next_multiple_of(cpu.isa.lanes());
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
        return products(cpu, g.out_height() * g.out_width(), position, y);
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
        return products(cpu, g.height * g.width, position, dx);
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

fn padded_len(g: &ConvGeometry, n: usize) -> usize {
    if g.pad == 0 && g.groups == 1 {
        0
    } else {
        n * (g.height + 2 * g.pad) * (g.width + 2 * g.pad) * (g.in_channels / g.groups)
    }
}

/// A kernel that covers the whole image sees it once: that is a fully connected layer.
fn is_linear(g: &ConvGeometry) -> bool {
    g.pad == 0 && g.groups == 1 && (g.kernel_h, g.kernel_w) == (g.height, g.width)
}

/// Whether so much of the work would fall on padding that it pays to leave it out, position by position, with the
/// images of a batch as rows. That wants a batch that fills tiles and images that fit the cache together.
fn mostly_border(g: &ConvGeometry, n: usize) -> bool {
    let pairs = |size: usize, out: usize, kernel: usize| -> usize {
        (0..out).map(|o| Taps::of_output(o, size, kernel, g).count).sum()
    };
    let needed = pairs(g.height, g.out_height(), g.kernel_h) * pairs(g.width, g.out_width(), g.kernel_w);
    // The forward pass goes over output positions, the input's gradient over input positions.
    let swept = g.kernel_h * g.kernel_w * (g.height * g.width).max(g.out_height() * g.out_width());
    // With so much padding an output may see nothing else.
    let all_see = g.pad < g.kernel_h && g.pad < g.kernel_w;
    let fits = n * g.in_len().max(g.out_len()) <= 1 << 20;
    g.stride == 1 && g.groups == 1 && n >= 12 && all_see && fits && 5 * swept > 6 * needed
}

/// Along one axis: the places of an image that one position of the other side touches, and the kernel's part in it.
#[derive(Clone, Copy)]
struct Taps {
    first: usize,
    count: usize,
    kernel_first: usize,
}

impl Taps {
    /// The inputs that output `o` looks at (stride 1).
    fn of_output(o: usize, size: usize, kernel: usize, g: &ConvGeometry) -> Self {
        let kernel_first = g.pad.saturating_sub(o);
        let end = kernel.min((size + g.pad).saturating_sub(o));
        Taps {
            first: o + kernel_first - g.pad.min(o + kernel_first),
            count: end.saturating_sub(kernel_first),
            kernel_first,
        }
    }

    /// The outputs that look at input `i` (stride 1); the kernel is turned around.
    fn of_input(i: usize, out: usize, kernel: usize, g: &ConvGeometry) -> Self {
        let last = (i + g.pad).min(out - 1);
        let first = (i + g.pad + 1).saturating_sub(kernel);
        let kernel_first = first + kernel - 1 - (i + g.pad).min(first + kernel - 1);
        Taps { first, count: (last + 1).saturating_sub(first), kernel_first }
    }
}

/// The product of all images at one position: a row an image, the sum over the taps that lie on it.
fn position_product<'a>(
    n: usize,
    x: &'a [f32],
    image: Extent,
    v: Taps,
    h: Taps,
    kernel_w: usize,
    b: Right<'a>,
    cols: usize,
    pixel: usize,
    out_len: usize,
    start: Start<'a>,
) -> Product<'a> {
    let c = image.channels;
    let rows = |base: usize, stride: usize| Grid { base, ..Grid::rows(stride) };
    Product {
        rows: n,
        cols,
        a: x,
        a_rows: rows((v.first * image.width + h.first) * c, image.height * image.width * c),
        nest: Nest { counts: [1, v.count, h.count * c], strides: [0, image.width * c, 1], b_rows: [0, kernel_w * c] },
        b,
        b_first: (v.kernel_first * kernel_w + h.kernel_first) * c,
        c_rows: rows(pixel * cols, out_len),
        start,
        task_rows: n,
        block_depth: BLOCK_DEPTH,
    }
}

/// The height, width and channels of images.
#[derive(Clone, Copy)]
struct Extent {
    height: usize,
    width: usize,
    channels: usize,
}

/// Images with their padding in memory.
struct Padded<'a> {
    data: &'a [f32],
    height: usize,
    width: usize,
    channels: usize,
}

impl<'a> Padded<'a> {
    fn row_stride(&self) -> usize {
        self.width * self.channels
    }

    fn image_stride(&self) -> usize {
        self.height * self.row_stride()
    }

    /// One group's channels of a convolution's input; without padding and groups that is the input itself.
    fn input(cpu: &Cpu, g: &ConvGeometry, n: usize, x: &'a [f32], group: usize, scratch: &'a mut [f32]) -> Self {
        let from = Extent { height: g.height, width: g.width, channels: g.in_channels };
        if g.pad == 0 && g.groups == 1 {
            return Padded { data: x, height: g.height, width: g.width, channels: g.in_channels };
        }
        let ci = g.in_channels / g.groups;
        let to = (g.height + 2 * g.pad, g.width + 2 * g.pad);
        Padded::copy(cpu, n, x, from, group * ci..(group + 1) * ci, (g.pad, g.pad), to, scratch)
    }

    /// Copies some channels of `x` into a larger frame of zeros, `margin` from its top and left.
    fn copy(
        cpu: &Cpu,
        n: usize,
        x: &[f32],
        from: Extent,
        channels: std::ops::Range<usize>,
        margin: (usize, usize),
        (height, width): (usize, usize),
        scratch: &'a mut [f32],
    ) -> Self {
        let wide = channels.len();
        let row_len = width * wide;
        let scratch = &mut scratch[..n * height * row_len];
        // Rows and columns past the frame are never read: a stride may leave the last ones out.
        let copied_w = from.width.min(width - margin.1);
        let copied_h = from.height.min(height - margin.0);
        cpu.each_chunk(scratch, height * row_len, |image, frame| {
            let x = &x[image * from.height * from.width * from.channels..];
            for (row, line) in frame.chunks_exact_mut(row_len).enumerate() {
                if row < margin.0 || row >= margin.0 + copied_h {
                    line.fill(0.0);
                    continue;
                }
                let (left, rest) = line.split_at_mut(margin.1 * wide);
                let (middle, right) = rest.split_at_mut(copied_w * wide);
                left.fill(0.0);
                right.fill(0.0);
                let x = &x[(row - margin.0) * from.width * from.channels..];
                if wide == from.channels {
                    middle.copy_from_slice(&x[..copied_w * wide]);
                } else {
                    for (pixel, to) in middle.chunks_exact_mut(wide).enumerate() {
                        to.copy_from_slice(&x[pixel * from.channels + channels.start..][..wide]);
                    }
                }
            }
        });
        Padded { data: scratch, height, width, channels: wide }
    }
}

/// Along one axis, the input positions `first, first + stride, …` (`count` of them), which see the kernel
/// positions `phase, phase + stride, …` (`taps` of them); the last of these belongs to output `first_output`
/// for the first input, and to one output further for each next.
#[derive(Clone, Copy)]
struct Phase {
    phase: usize,
    taps: usize,
    first: usize,
    first_output: usize,
    count: usize,
}

/// How a convolution's input falls into phases, and the frame of output slopes that all of them read.
struct Phases {
    taps_h: usize,
    taps_w: usize,
    padded_h: usize,
    padded_w: usize,
}

impl Phases {
    fn new(g: &ConvGeometry) -> Self {
        let taps_h = g.kernel_h.div_ceil(g.stride);
        let taps_w = g.kernel_w.div_ceil(g.stride);
        Phases {
            taps_h,
            taps_w,
            padded_h: taps_h + (g.height - 1 + g.pad) / g.stride,
            padded_w: taps_w + (g.width - 1 + g.pad) / g.stride,
        }
    }

    fn padded_len(&self, g: &ConvGeometry, n: usize) -> usize {
        n * self.padded_h * self.padded_w * (g.out_channels / g.groups)
    }

    fn pairs(&self, g: &ConvGeometry) -> impl Iterator<Item = (Phase, Phase)> {
        let (stride, pad) = (g.stride, g.pad);
        let axis = move |phase: usize, size: usize, kernel: usize| {
            // The first input position p with (p + pad) ≡ phase.
            let first = (phase + stride - pad % stride) % stride;
            (first < size).then(|| Phase {
                phase,
                taps: kernel.saturating_sub(phase).div_ceil(stride),
                first,
                first_output: (first + pad) / stride,
                count: (size - first).div_ceil(stride),
            })
        };
        let g = *g;
        (0..stride).filter_map(move |phase| axis(phase, g.height, g.kernel_h)).flat_map(move |v| {
            (0..stride).filter_map(move |phase| axis(phase, g.width, g.kernel_w)).map(move |h| (v, h))
        })
    }
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

/// The three passes as their definition reads, one number at a time: what the fast ones must equal.
pub mod reference {
    use crate::geometry::ConvGeometry;

    /// Calls `f(input index, weight index, output index)` for every product in the convolution.
    fn each_product(g: &ConvGeometry, n: usize, mut f: impl FnMut(usize, usize, usize)) {
        let (ci, co) = (g.in_channels / g.groups, g.out_channels / g.groups);
        for image in 0..n {
            for oy in 0..g.out_height() {
                for ox in 0..g.out_width() {
                    for o in 0..g.out_channels {
                        let out = ((image * g.out_height() + oy) * g.out_width() + ox) * g.out_channels + o;
                        for r in 0..g.kernel_h {
                            for s in 0..g.kernel_w {
                                let (y, x) = (oy * g.stride + r, ox * g.stride + s);
                                if y < g.pad || y >= g.height + g.pad || x < g.pad || x >= g.width + g.pad {
                                    continue;
                                }
                                for c in 0..ci {
                                    let pixel = (image * g.height + y - g.pad) * g.width + x - g.pad;
                                    let input = pixel * g.in_channels + o / co * ci + c;
                                    f(input, ((o * g.kernel_h + r) * g.kernel_w + s) * ci + c, out);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    pub fn forward(g: &ConvGeometry, n: usize, x: &[f32], w: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
        let mut y: Vec<f64> =
            (0..n * g.out_len()).map(|i| bias.map_or(0.0, |b| f64::from(b[i % g.out_channels]))).collect();
        each_product(g, n, |i, k, o| y[o] += f64::from(x[i]) * f64::from(w[k]));
        y.into_iter().map(|v| v as f32).collect()
    }

    pub fn backward_input(g: &ConvGeometry, n: usize, dy: &[f32], w: &[f32]) -> Vec<f32> {
        let mut dx = vec![0.0; n * g.in_len()];
        each_product(g, n, |i, k, o| dx[i] += f64::from(dy[o]) * f64::from(w[k]));
        dx.into_iter().map(|v| v as f32).collect()
    }

    pub fn backward_weights(g: &ConvGeometry, n: usize, x: &[f32], dy: &[f32]) -> Vec<f32> {
        let mut dw = vec![0.0; g.weight_len()];
        each_product(g, n, |i, k, o| dw[k] += f64::from(x[i]) * f64::from(dy[o]));
        dw.into_iter().map(|v| v as f32).collect()
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
