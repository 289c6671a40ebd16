//! Images with their padding in memory.

use crate::cpu::Cpu;
use crate::geometry::ConvGeometry;

/// The height, width and channels of images.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

/// Images with their padding in memory.
pub(super) struct Padded<'a> {
    pub(super) data: &'a [f32],
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
}

impl<'a> Padded<'a> {
    pub(super) fn row_stride(&self) -> usize {
        self.width * self.channels
    }

    pub(super) fn image_stride(&self) -> usize {
        self.height * self.row_stride()
    }

    /// One group's channels of a convolution's input; without padding and groups that is the input itself.
    pub(super) fn input(
        cpu: &Cpu,
        g: &ConvGeometry,
        n: usize,
        x: &'a [f32],
        group: usize,
        scratch: &'a mut [f32],
    ) -> Self {
        let from = Extent { height: g.height, width: g.width, channels: g.in_channels };
        if g.pad == 0 && g.groups == 1 {
            return Padded { data: x, height: g.height, width: g.width, channels: g.in_channels };
        }
        let ci = g.in_channels / g.groups;
        let to = (g.height + 2 * g.pad, g.width + 2 * g.pad);
        Padded::copy(cpu, n, x, from, group * ci..(group + 1) * ci, (g.pad, g.pad), to, scratch)
    }

    /// Copies some channels of `x` into a larger frame of zeros, `margin` from its top and left.
    pub(super) fn copy(
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
