//! The weights' gradient: every window adds its slope times the inputs that its chosen place looks at.

// A register tile is indexed by constants; an iterator over it may not be unrolled.
#![allow(clippy::needless_range_loop)]

use super::{ConvPool, as_words, expect_places};
use crate::cpu::simd::{Kernel, Simd, dispatch, vectorised};
use crate::cpu::{Cpu, Shared};
use crate::geometry::size;

/// Parts of a batch that are summed by themselves and then added, and the most floats those sums may take together.
const PARTS: usize = 8;
const PARTS_LEN: usize = 1 << 22;

/// Into how many parts a batch is cut. It decides the order of summation, so it depends on shapes alone.
fn parts(g: &ConvPool, n: usize) -> usize {
    let most = (PARTS_LEN / g.conv.weight_len()).clamp(1, PARTS);
    n.div_ceil(n.div_ceil(most))
}

/// An image with its padding, then for each channel the places and slopes of its windows.
fn worker_len(cpu: &Cpu, g: &ConvPool) -> usize {
    g.padded_len(cpu) + 2 * g.windows() * g.conv.out_channels
}

pub(super) fn scratch_len(cpu: &Cpu, g: &ConvPool, n: usize) -> usize {
    // A smaller batch may be cut into more parts.
    let most = (1..=n.min(64)).chain([n]).map(|n| parts(g, n)).max().unwrap_or(1);
    most * g.conv.weight_len() + cpu.threads() * worker_len(cpu, g)
}

pub(super) fn gradient(
    cpu: &Cpu,
    g: &ConvPool,
    n: usize,
    x: &[f32],
    dy: &[f32],
    chosen: &[u8],
    dw: &mut [f32],
    scratch: &mut [f32],
) {
    let (weights, co, depth) = (g.conv.weight_len(), g.conv.out_channels, g.conv.fan_in());
    let (x, dw) = (&x[..size(n, g.in_len())], &mut dw[..weights]);
    let (dy, chosen) = (&dy[..size(n, g.out_len())], &chosen[..size(n, g.out_len())]);
    if n == 0 {
        return dw.fill(0.0);
    }
    let parts = parts(g, n);
    let images = n.div_ceil(parts);
    let (sums, rest) = scratch.split_at_mut(parts * weights);
    // More tasks for more threads: channels are independent of each other.
    let channels = co.div_ceil((4 * cpu.threads()).div_ceil(parts)).max(8);
    let blocks = co.div_ceil(channels);
    let shared = Shared::new(sums);
    let make_block = |task: usize, scratch: &mut [f32]| {
        let (part, block) = (task / blocks, task % blocks);
        let channels = block * channels..co.min((block + 1) * channels);
        // SAFETY: each part's channels belong to one task.
        let sums = unsafe { shared.slice(part * weights + channels.start * depth, channels.len() * depth) };
        sums.fill(0.0);
        let (frame, lists) = scratch.split_at_mut(g.padded_len(cpu));
        let (places, slopes) = lists.split_at_mut(g.windows() * co);
        let places = as_words(places);
        for image in part * images..n.min((part + 1) * images) {
            g.pad_rows(&x[image * g.in_len()..][..g.in_len()], 0..g.padded_height(), frame);
            let at = image * g.out_len();
            let (dy, chosen) = (&dy[at..][..g.out_len()], &chosen[at..][..g.out_len()]);
            expect_places(g, chosen);
            collect(g, dy, chosen, channels.clone(), places, slopes);
            dispatch(cpu.isa, Image { g, frame, places, slopes, sums });
        }
    };
    // SAFETY: a block is summed on one thread.
    unsafe { cpu.each_with_scratch(parts * blocks, rest, worker_len(cpu, g), make_block) };
    let sums = &*sums;
    const RUN: usize = 4096;
    cpu.each_chunk(dw, RUN, |i, dw| {
        dw.copy_from_slice(&sums[i * RUN..][..dw.len()]);
        for part in 1..parts {
            add(cpu.isa, dw, &sums[part * weights + i * RUN..][..dw.len()]);
        }
    });
}

vectorised! {
    fn add(to: &mut [f32], from: &[f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

/// Turns windows by channels into channels by windows.
fn collect(
    g: &ConvPool,
    dy: &[f32],
    chosen: &[u8],
    channels: std::ops::Range<usize>,
    places: &mut [u32],
    slopes: &mut [f32],
) {
    let (windows, co) = (g.windows(), g.conv.out_channels);
    let mut of_choice = [0u32; 256];
    for window in 0..windows {
        for (place, to) in of_choice[..g.pool.kernel * g.pool.kernel].iter_mut().enumerate() {
            *to = g.place(window, place as u8) as u32;
        }
        let from = window * co + channels.start..window * co + channels.end;
        for (c, (&slope, &chosen)) in dy[from.clone()].iter().zip(&chosen[from]).enumerate() {
            places[c * windows + window] = of_choice[usize::from(chosen)];
            slopes[c * windows + window] = slope;
        }
    }
}

/// What one image adds to the sums.
struct Image<'a> {
    g: &'a ConvPool,
    frame: &'a [f32],
    places: &'a [u32],
    slopes: &'a [f32],
    /// Whole channels of weights.
    sums: &'a mut [f32],
}

impl Kernel for Image<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let line = self.g.conv.kernel_w * self.g.conv.in_channels;
        let vectors = line.div_ceil(S::LANES);
        let mut row = 0;
        while row < self.g.conv.kernel_h {
            let rows = match self.g.conv.kernel_h - row {
                5.. => 5,
                3..=4 => 3,
                _ => 1,
            };
            let most = match (S::MANY_REGISTERS, rows) {
                (true, _) => 5,
                (false, 5) => 2,
                (false, 3) => 4,
                (false, _) => 5,
            };
            let mut first = 0;
            while first < vectors {
                let wide = tile_width(vectors - first, most);
                // SAFETY: the caller's, and what `tile` asks for is what this loop keeps to.
                unsafe {
                    match (rows, wide) {
                        (5, 5) => self.tile::<S, 5, 5>(row, first),
                        (5, 4) => self.tile::<S, 5, 4>(row, first),
                        (5, 2) => self.tile::<S, 5, 2>(row, first),
                        (5, _) => self.tile::<S, 5, 1>(row, first),
                        (3, 5) => self.tile::<S, 3, 5>(row, first),
                        (3, 4) => self.tile::<S, 3, 4>(row, first),
                        (3, 2) => self.tile::<S, 3, 2>(row, first),
                        (3, _) => self.tile::<S, 3, 1>(row, first),
                        (_, 5) => self.tile::<S, 1, 5>(row, first),
                        (_, 4) => self.tile::<S, 1, 4>(row, first),
                        (_, 2) => self.tile::<S, 1, 2>(row, first),
                        _ => self.tile::<S, 1, 1>(row, first),
                    }
                }
                first += wide;
            }
            row += rows;
        }
    }
}

/// How many of the vectors left the next tile takes: one of the widths that there are.
#[inline(always)]
fn tile_width(left: usize, most: usize) -> usize {
    match left.min(most) {
        5 => 5,
        4 => 4,
        2..=3 => 2,
        _ => 1,
    }
}

impl Image<'_> {
    /// Rows `row..row + NR` of the kernel, its vectors `first..first + NV`, for every channel.
    #[inline(always)]
    unsafe fn tile<S: Simd, const NR: usize, const NV: usize>(&mut self, row: usize, first: usize) {
        let c = &self.g.conv;
        let (windows, line) = (self.g.windows(), c.kernel_w * c.in_channels);
        let stride = self.g.padded_width() * c.in_channels;
        let start = row * stride + first * S::LANES;
        // The last vector may reach past the kernel's line; what it sums there is dropped.
        let valid = (NV * S::LANES).min(line - first * S::LANES);
        // The furthest window ends where the frame does, a vector before its buffer's end.
        assert!(self.frame.len() >= self.g.padded_height() * stride + S::LANES);
        let channels = self.sums.len() / c.fan_in();
        assert!(self.places.len() >= channels * windows && self.slopes.len() >= channels * windows);
        for channel in 0..channels {
            // SAFETY: the caller's.
            let mut sums = [[unsafe { S::zero() }; NV]; NR];
            // SAFETY: the assertions above.
            unsafe {
                let from = self.frame.as_ptr().add(start);
                let places = self.places.as_ptr().add(channel * windows);
                let slopes = self.slopes.as_ptr().add(channel * windows);
                for window in 0..windows {
                    let x = from.add(*places.add(window) as usize);
                    let slope = S::splat(slopes.add(window));
                    for r in 0..NR {
                        for v in 0..NV {
                            sums[r][v] = S::fma(S::load(x.add(r * stride + v * S::LANES)), slope, sums[r][v]);
                        }
                    }
                }
            }
            for r in 0..NR {
                let at = channel * c.fan_in() + (row + r) * line + first * S::LANES;
                let to = &mut self.sums[at..at + valid];
                if valid == NV * S::LANES {
                    for v in 0..NV {
                        // SAFETY: `to` has so many vectors.
                        unsafe {
                            let to = to.as_mut_ptr().add(v * S::LANES);
                            S::store(to, S::add(S::load(to), sums[r][v]));
                        }
                    }
                } else {
                    let mut spare = [0.0f32; 5 * 16];
                    for v in 0..NV {
                        // SAFETY: no vector has more than 16 floats, no tile more than 5 vectors.
                        unsafe { S::store(spare.as_mut_ptr().add(v * S::LANES), sums[r][v]) };
                    }
                    to.iter_mut().zip(spare).for_each(|(to, sum)| *to += sum);
                }
            }
        }
    }
}
