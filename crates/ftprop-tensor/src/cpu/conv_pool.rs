//! A convolution and the max pooling right after it, as one.
//!
//! Forward, the convolution's outputs never leave the cache: a task makes some rows of them, pools them and remembers
//! for each window which of its places was the largest. Rows and columns that no window covers are not computed.
//!
//! Backward, a window hands its slope to that one place. Of the slopes by the convolution's outputs at most one in
//! `kernel · kernel` is therefore not zero, and both gradients sum over those alone: a quarter of the products of a
//! convolution, for windows of 2×2. Where they lie differs from channel to channel, so the vectors run over the input's
//! channels and the kernel's columns, which lie side by side in memory.

mod input;
mod weights;

use super::gemm::{Grid, Nest, Product, Right, Start, pack, packed_len, product_here};
use super::simd::vectorised;
use super::{Cpu, Shared, conv};
use crate::geometry::{ConvGeometry, PoolGeometry, size};

/// A convolution and the pooling of its outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvPool {
    conv: ConvGeometry,
    pool: PoolGeometry,
}

impl ConvPool {
    /// Both as one, if they are sound and of the kind that this module knows: one group, and windows side by side.
    pub fn new(conv: ConvGeometry, pool: PoolGeometry) -> Option<Self> {
        let (conv, pool) = (conv.checked().ok()?, pool.checked().ok()?);
        let follows =
            (pool.height, pool.width, pool.channels) == (conv.out_height(), conv.out_width(), conv.out_channels);
        let side_by_side = pool.pad == 0 && pool.stride == pool.kernel && (2..=16).contains(&pool.kernel);
        let both = ConvPool { conv, pool };
        // Places in a padded image and windows of all channels are kept as words.
        let counts = [both.padded_height() * both.padded_width() * conv.in_channels, conv.out_len()];
        let countable = counts.iter().all(|&count| count <= u32::MAX as usize);
        (follows && side_by_side && countable && conv.groups == 1).then_some(both)
    }

    /// Input values of one image.
    pub fn in_len(&self) -> usize {
        self.conv.in_len()
    }

    /// Output values of one image, which are those of the pooling.
    pub fn out_len(&self) -> usize {
        self.pool.out_len()
    }

    /// Windows of one image and channel.
    pub fn windows(&self) -> usize {
        self.pool.out_height() * self.pool.out_width()
    }

    /// Channels of the output.
    pub fn out_channels(&self) -> usize {
        self.conv.out_channels
    }

    fn padded_width(&self) -> usize {
        self.conv.width + 2 * self.conv.pad
    }

    fn padded_height(&self) -> usize {
        self.conv.height + 2 * self.conv.pad
    }

    /// Floats of one image with its padding, and a vector more, because the last row is read in whole vectors.
    fn padded_len(&self, cpu: &Cpu) -> usize {
        self.padded_height() * self.padded_width() * self.conv.in_channels + cpu.isa.lanes()
    }

    /// Where in a padded image the convolution's window begins whose output is place `chosen` of a pooling window.
    #[inline(always)]
    fn place(&self, window: usize, chosen: u8) -> usize {
        let (k, chosen) = (self.pool.kernel, usize::from(chosen));
        let (y, x) = (window / self.pool.out_width(), window % self.pool.out_width());
        let (y, x) = (y * k + chosen / k, x * k + chosen % k);
        self.conv.stride * (y * self.padded_width() + x) * self.conv.in_channels
    }

    /// Copies some rows of an image into a frame of zeros.
    fn pad_rows(&self, x: &[f32], rows: std::ops::Range<usize>, out: &mut [f32]) {
        let g = &self.conv;
        let (side, line) = (g.pad * g.in_channels, g.width * g.in_channels);
        for (row, out) in rows.zip(out.chunks_exact_mut(line + 2 * side)) {
            if row < g.pad || row >= g.pad + g.height {
                out.fill(0.0);
                continue;
            }
            out[..side].fill(0.0);
            out[side..side + line].copy_from_slice(&x[(row - g.pad) * line..][..line]);
            out[side + line..].fill(0.0);
        }
    }
}

/// Floats of scratch that the three passes need for a batch of `n`.
pub fn scratch_len(cpu: &Cpu, g: &ConvPool, n: usize) -> usize {
    let forward = packed_len(cpu, g.conv.fan_in(), g.conv.out_channels) + cpu.threads() * forward_worker_len(cpu, g);
    forward.max(weights::scratch_len(cpu, g, n)).max(input::scratch_len(cpu, g))
}

fn forward_worker_len(cpu: &Cpu, g: &ConvPool) -> usize {
    g.padded_len(cpu) + g.windows() * g.pool.kernel * g.pool.kernel * g.conv.out_channels
}

/// y = the largest values of the windows of x * w + bias; `chosen` tells which place of each window it was, counted
/// row by row, the first of equals.
pub fn forward(
    cpu: &Cpu,
    g: &ConvPool,
    n: usize,
    x: &[f32],
    w: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    chosen: &mut [u8],
    scratch: &mut [f32],
) {
    let (c, k) = (&g.conv, g.pool.kernel);
    let (depth, co) = (c.fan_in(), c.out_channels);
    let (x, w) = (&x[..size(n, g.in_len())], &w[..c.weight_len()]);
    let (y, chosen) = (&mut y[..size(n, g.out_len())], &mut chosen[..size(n, g.out_len())]);
    if n == 0 {
        return;
    }
    let (packed, rest) = scratch.split_at_mut(packed_len(cpu, depth, co));
    pack(cpu, depth, co, packed, |k, j| w[j * depth + k]);
    let packed = &*packed;
    // An image is a task; a small batch is cut further, for the threads.
    let bands = (4 * cpu.threads()).div_ceil(n).min(g.pool.out_height());
    let band = g.pool.out_height().div_ceil(bands);
    let bands = g.pool.out_height().div_ceil(band);
    let pooled_row = g.pool.out_width() * co;
    let (row_stride, columns) = (g.padded_width() * c.in_channels, k * g.pool.out_width());
    let (y, chosen) = (Shared::new(y), Shared::new(chosen));
    let make_band = |task: usize, scratch: &mut [f32]| {
        let (image, first) = (task / bands, task % bands * band);
        let count = band.min(g.pool.out_height() - first);
        let (frame, map) = scratch.split_at_mut(g.padded_len(cpu));
        let top = first * k * c.stride;
        let rows = top..top + (count * k - 1) * c.stride + c.kernel_h;
        g.pad_rows(&x[image * c.in_len()..][..c.in_len()], rows, frame);
        let p = Product {
            rows: count * k * columns,
            cols: co,
            a: frame,
            a_rows: Grid {
                base: 0,
                height: count * k,
                width: columns,
                image_stride: 0,
                row_stride: c.stride * row_stride,
                pixel_stride: c.stride * c.in_channels,
            },
            nest: Nest::new([1, c.kernel_h, c.kernel_w * c.in_channels], [0, row_stride, 1]),
            b: Right::Panels { data: packed, depth },
            b_first: 0,
            c_rows: Grid::rows(co),
            start: bias.map_or(Start::Zero, Start::Bias),
            task_rows: count * k * columns,
            block_depth: conv::BLOCK_DEPTH,
        };
        product_here(cpu, &p, map);
        let at = image * g.out_len() + first * pooled_row;
        // SAFETY: each band of an image belongs to one task.
        let (y, chosen) = unsafe { (y.slice(at, count * pooled_row), chosen.slice(at, count * pooled_row)) };
        pool_rows(cpu.isa, k, g.pool.out_width(), co, map, y, chosen);
    };
    // SAFETY: a band is made on one thread.
    unsafe { cpu.each_with_scratch(n * bands, rest, forward_worker_len(cpu, g), make_band) };
}

vectorised! {
    /// Pools whole rows of windows.
    fn pool_rows(k: usize, width: usize, c: usize, map: &[f32], y: &mut [f32], chosen: &mut [u8]) {
        for (window, (y, chosen)) in y.chunks_exact_mut(c).zip(chosen.chunks_exact_mut(c)).enumerate() {
            let corner = (window / width * k * width + window % width) * k;
            y.copy_from_slice(&map[corner * c..][..c]);
            chosen.fill(0);
            for place in 1..k * k {
                let pixel = corner + place / k * k * width + place % k;
                take_larger(y, chosen, &map[pixel * c..][..c], place as u8);
            }
        }
    }
}

// A function of its own because only as arguments are buffers known not to overlap, without which the compiler would not
// use vectors.
#[inline(always)]
fn take_larger(most: &mut [f32], chosen: &mut [u8], x: &[f32], place: u8) {
    for ((most, chosen), &x) in most.iter_mut().zip(chosen).zip(x) {
        // A NaN wins, so that it is seen and not hidden.
        let larger = x > *most || x.is_nan();
        *chosen = if larger { place } else { *chosen };
        *most = if larger { x } else { *most };
    }
}

/// dx = the gradient of the loss by the input, given that by the pooled output.
pub fn backward_input(
    cpu: &Cpu,
    g: &ConvPool,
    n: usize,
    dy: &[f32],
    chosen: &[u8],
    w: &[f32],
    dx: &mut [f32],
    scratch: &mut [f32],
) {
    input::gradient(cpu, g, n, dy, chosen, w, dx, scratch);
}

/// dw = the gradient of the loss by the weights, summed over the batch. That by the bias is the sum of dy over windows.
pub fn backward_weights(
    cpu: &Cpu,
    g: &ConvPool,
    n: usize,
    x: &[f32],
    dy: &[f32],
    chosen: &[u8],
    dw: &mut [f32],
    scratch: &mut [f32],
) {
    weights::gradient(cpu, g, n, x, dy, chosen, dw, scratch);
}

/// Checks that every window chose one of its places: a kernel counts and reads by them unchecked.
fn expect_places(g: &ConvPool, chosen: &[u8]) {
    let places = g.pool.kernel * g.pool.kernel;
    // Without an early end the compiler uses vectors.
    let furthest = chosen.iter().fold(0, |most, &place| most.max(place));
    assert!(usize::from(furthest) < places, "a window of {places} places chose place {furthest}");
}

/// Floats as words of the same size, for numbers that count.
fn as_words(floats: &mut [f32]) -> &mut [u32] {
    // SAFETY: both have the same size and alignment, and any bits are a value of either.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast(), floats.len()) }
}

#[cfg(test)]
mod tests;
