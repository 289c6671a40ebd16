//! How the input of a convolution with stride s falls into s·s phases.

use crate::geometry::{ConvGeometry, size};

/// Along one axis, the input positions `first, first + stride, …` (`count` of them), which see the kernel
/// positions `phase, phase + stride, …` (`taps` of them); the last of these belongs to output `first_output`
/// for the first input, and to one output further for each next.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    pub(super) phase: usize,
    pub(super) taps: usize,
    pub(super) first: usize,
    pub(super) first_output: usize,
    pub(super) count: usize,
}

/// How a convolution's input falls into phases, and the frame of output slopes that all of them read.
pub(super) struct Phases {
    pub(super) taps_h: usize,
    pub(super) taps_w: usize,
    pub(super) padded_h: usize,
    pub(super) padded_w: usize,
}

impl Phases {
    pub(super) fn new(g: &ConvGeometry) -> Self {
        let taps_h = g.kernel_h.div_ceil(g.stride);
        let taps_w = g.kernel_w.div_ceil(g.stride);
        Phases {
            taps_h,
            taps_w,
            padded_h: taps_h + (g.height - 1 + g.pad) / g.stride,
            padded_w: taps_w + (g.width - 1 + g.pad) / g.stride,
        }
    }

    pub(super) fn padded_len(&self, g: &ConvGeometry, n: usize) -> usize {
        size(size(n, size(self.padded_h, self.padded_w)), g.out_channels / g.groups)
    }

    pub(super) fn pairs(&self, g: &ConvGeometry) -> impl Iterator<Item = (Phase, Phase)> {
        let (stride, pad) = (g.stride, g.pad);
        // Each phase has a first input position; a stride beyond the image leaves a phase a position.
        let axis = move |size: usize, kernel: usize| {
            (0..stride.min(size)).map(move |first| {
                let phase = (first + pad) % stride;
                Phase {
                    phase,
                    taps: kernel.saturating_sub(phase).div_ceil(stride),
                    first,
                    first_output: (first + pad) / stride,
                    count: (size - first).div_ceil(stride),
                }
            })
        };
        let g = *g;
        axis(g.height, g.kernel_h).flat_map(move |v| axis(g.width, g.kernel_w).map(move |h| (v, h)))
    }
}
