//! The input's gradient: every window adds its slope times the weights of its channel to the inputs that its chosen
//! place looks at.
//!
//! The channels of a window that chose the same place share those inputs: their weights are summed in registers, a part
//! of the kernel's row at a time, and then added once. A part of all channels' weights fits the first cache.
//!
//! How a row is cut into parts depends on the vectors, the order of additions must not. An input gets its summands for
//! one row of the kernel from the kernel's last column to its first: parts are taken from right to left, and within a
//! part the windows and their places from left to right.

// A register tile is indexed by constants; an iterator over it may not be unrolled.
#![allow(clippy::needless_range_loop)]

use super::{ConvPool, as_words, expect_places};
use crate::cpu::simd::{Kernel, Simd, dispatch};
use crate::cpu::{Cpu, Shared};
use crate::geometry::size;

/// The part of a kernel's row that goes through registers at once: `wide` vectors from the `first` on.
#[derive(Clone, Copy)]
struct Part {
    row: usize,
    first: usize,
    wide: usize,
}

/// The next part of a kernel's row of which so many vectors are left, the last first.
#[inline(always)]
fn next_part(row: usize, left: usize) -> Part {
    let wide = match left {
        1 => 1,
        2..10 => left - left % 2,
        _ => 10,
    };
    Part { row, first: left - wide, wide }
}

/// Floats of all parts of all channels' weights, each in whole vectors.
fn packed_len(g: &ConvPool, lanes: usize) -> usize {
    g.conv.out_channels * g.conv.kernel_h * (g.conv.kernel_w * g.conv.in_channels).next_multiple_of(lanes)
}

/// An image's slopes with padding, then its windows' channels and slopes in the order of places, and where in them each
/// place of each window begins.
fn worker_len(cpu: &Cpu, g: &ConvPool) -> usize {
    let places = g.pool.kernel * g.pool.kernel;
    g.padded_len(cpu) + 2 * g.out_len() + g.windows() * places + 1
}

pub(super) fn scratch_len(cpu: &Cpu, g: &ConvPool) -> usize {
    packed_len(g, cpu.isa.lanes()) + cpu.threads() * worker_len(cpu, g)
}

pub(super) fn gradient(
    cpu: &Cpu,
    g: &ConvPool,
    n: usize,
    dy: &[f32],
    chosen: &[u8],
    w: &[f32],
    dx: &mut [f32],
    scratch: &mut [f32],
) {
    let (c, lanes) = (&g.conv, cpu.isa.lanes());
    let (packed, rest) = scratch.split_at_mut(packed_len(g, lanes));
    pack(g, lanes, w, packed);
    let packed = &*packed;
    let (dy, chosen) = (&dy[..size(n, g.out_len())], &chosen[..size(n, g.out_len())]);
    let dx = Shared::new(&mut dx[..size(n, g.in_len())]);
    let make_image = |image: usize, scratch: &mut [f32]| {
        let (frame, rest) = scratch.split_at_mut(g.padded_len(cpu));
        let (channels, rest) = rest.split_at_mut(g.out_len());
        let (slopes, starts) = rest.split_at_mut(g.out_len());
        let (channels, starts) = (as_words(channels), as_words(starts));
        let at = image * g.out_len();
        sort(g, &dy[at..][..g.out_len()], &chosen[at..][..g.out_len()], channels, slopes, starts);
        frame.fill(0.0);
        dispatch(cpu.isa, Image { g, packed, channels, slopes, starts, frame });
        // SAFETY: each image belongs to one task.
        let dx = unsafe { dx.slice(image * g.in_len(), g.in_len()) };
        let line = c.width * c.in_channels;
        for (row, dx) in dx.chunks_exact_mut(line).enumerate() {
            let at = ((row + c.pad) * g.padded_width() + c.pad) * c.in_channels;
            dx.copy_from_slice(&frame[at..at + line]);
        }
    };
    // SAFETY: an image is made on one thread.
    unsafe { cpu.each_with_scratch(n, rest, worker_len(cpu, g), make_image) };
}

/// Part by part, the weights of all channels; zeros past the kernel's row.
fn pack(g: &ConvPool, lanes: usize, w: &[f32], packed: &mut [f32]) {
    let (line, co) = (g.conv.kernel_w * g.conv.in_channels, g.conv.out_channels);
    let mut rest = packed;
    for row in 0..g.conv.kernel_h {
        let mut left = line.div_ceil(lanes);
        while left > 0 {
            let Part { first, wide, .. } = next_part(row, left);
            let (out, after) = rest.split_at_mut(co * wide * lanes);
            rest = after;
            let valid = (wide * lanes).min(line - first * lanes);
            for (channel, out) in out.chunks_exact_mut(wide * lanes).enumerate() {
                let at = channel * g.conv.fan_in() + row * line + first * lanes;
                out[..valid].copy_from_slice(&w[at..at + valid]);
                out[valid..].fill(0.0);
            }
            left = first;
        }
    }
}

/// Sorts each window's channels by the place that they chose.
fn sort(g: &ConvPool, dy: &[f32], chosen: &[u8], channels: &mut [u32], slopes: &mut [f32], starts: &mut [u32]) {
    expect_places(g, chosen);
    let (co, places) = (g.conv.out_channels, g.pool.kernel * g.pool.kernel);
    let mut next = [0u32; 256];
    for (window, (dy, chosen)) in dy.chunks_exact(co).zip(chosen.chunks_exact(co)).enumerate() {
        next[..places].fill(0);
        chosen.iter().for_each(|&place| next[usize::from(place)] += 1);
        let mut start = (window * co) as u32;
        for (next, to) in next.iter_mut().zip(&mut starts[window * places..][..places]) {
            *to = start;
            start += std::mem::replace(next, start);
        }
        for (channel, (&slope, &place)) in dy.iter().zip(chosen).enumerate() {
            let at = &mut next[usize::from(place)];
            channels[*at as usize] = channel as u32;
            slopes[*at as usize] = slope;
            *at += 1;
        }
    }
    starts[g.windows() * places] = g.out_len() as u32;
}

/// One image's slopes.
struct Image<'a> {
    g: &'a ConvPool,
    packed: &'a [f32],
    channels: &'a [u32],
    slopes: &'a [f32],
    starts: &'a [u32],
    frame: &'a mut [f32],
}

impl Kernel for Image<'_> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let mut weights = self.packed;
        let vectors = (self.g.conv.kernel_w * self.g.conv.in_channels).div_ceil(S::LANES);
        // Plain loops: a closure here would be compiled without the instruction set's features.
        for row in 0..self.g.conv.kernel_h {
            let mut left = vectors;
            while left > 0 {
                let part = next_part(row, left);
                // SAFETY: the caller's.
                unsafe {
                    match part.wide {
                        10 => self.part::<S, 10>(part, weights),
                        8 => self.part::<S, 8>(part, weights),
                        6 => self.part::<S, 6>(part, weights),
                        4 => self.part::<S, 4>(part, weights),
                        2 => self.part::<S, 2>(part, weights),
                        _ => self.part::<S, 1>(part, weights),
                    }
                }
                weights = &weights[self.g.conv.out_channels * part.wide * S::LANES..];
                left = part.first;
            }
        }
    }
}

impl Image<'_> {
    #[inline(always)]
    unsafe fn part<S: Simd, const NV: usize>(&mut self, part: Part, weights: &[f32]) {
        let g = self.g;
        let (windows, places) = (g.windows(), g.pool.kernel * g.pool.kernel);
        let stride = g.padded_width() * g.conv.in_channels;
        let offset = part.row * stride + part.first * S::LANES;
        assert!(weights.len() >= g.conv.out_channels * NV * S::LANES);
        // The furthest window ends where the frame does, a vector before its buffer's end.
        assert!(self.frame.len() >= g.padded_height() * stride + S::LANES);
        assert!(self.starts.len() > windows * places && self.slopes.len() >= g.out_len());
        let (k, step) = (g.pool.kernel, g.conv.stride * g.conv.in_channels);
        let mut starts = self.starts.iter().map(|&start| start as usize);
        let mut from = starts.next().unwrap_or(0);
        // Windows row by row, and the places of each: in the order of `sort`, without dividing.
        for (y, x) in (0..g.pool.out_height()).flat_map(|y| (0..g.pool.out_width()).map(move |x| (y * k, x * k))) {
            for (place_y, place_x) in (y..y + k).flat_map(|y| (x..x + k).map(move |x| (y, x))) {
                let Some(to) = starts.next() else { return };
                let (channels, slopes) = (&self.channels[from..to], &self.slopes[from..to]);
                from = to;
                if channels.is_empty() {
                    continue;
                }
                // SAFETY: `sort` gives channels below `out_channels`; the assertions above.
                unsafe {
                    let mut sums = [S::zero(); NV];
                    for i in 0..channels.len() {
                        let w = weights.as_ptr().add(*channels.get_unchecked(i) as usize * NV * S::LANES);
                        let slope = S::splat(slopes.as_ptr().add(i));
                        for v in 0..NV {
                            sums[v] = S::fma(S::load(w.add(v * S::LANES)), slope, sums[v]);
                        }
                    }
                    let place = (place_y * g.padded_width() + place_x) * step;
                    let to = self.frame.as_mut_ptr().add(place + offset);
                    for v in 0..NV {
                        let to = to.add(v * S::LANES);
                        S::store(to, S::add(S::load(to), sums[v]));
                    }
                }
            }
        }
    }
}
