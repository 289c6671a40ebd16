//! The first convolution of a network that sees pictures: `patch.cu` reads windows from a patch of the picture in shared
//! memory. How the work is cut up follows from the geometry, so there is nothing to time but whether it is faster.

use crate::compile::{File, Source};
use crate::gemm::{Gemm, Limits, Mode};
use crate::precision::Precision;
use crate::stream::Spread;

const THREADS: usize = 256;
/// The most blocks of a forward product; each arranges the filters for itself.
const FORWARD_BLOCKS: usize = 1024;
/// A gradient has at most so many blocks, times how many of them fit on a multiprocessor of a large GPU. On a smaller one
/// the last of them wait, and there are more sums to add than need be, which is little.
const MULTIPROCESSORS: usize = 132;

/// A product as `patch.cu` computes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    gemm: Gemm,
}

impl Patch {
    /// For a product that [`suits`](Self::suits).
    pub(crate) fn of(gemm: &Gemm) -> Self {
        Patch { gemm: *gemm }
    }

    /// Whether it can be computed this way: a picture, not too many filters of a few taps, and a patch that fits.
    pub(crate) fn suits(gemm: &Gemm, limits: Limits) -> bool {
        let g = &gemm.geometry;
        let picture = gemm.stored == 4 && g.in_channels <= 4 && g.groups == 1;
        let plain = gemm.bias_offset.is_none() && !gemm.wide_output;
        let filters = g.out_channels.is_multiple_of(16) && g.out_channels <= 64 && g.fan_in() <= 160;
        let window = g.kernel_w * g.in_channels >= 4;
        let product = gemm.precision != Precision::F32 && gemm.mode != Mode::Input;
        // The kernels have a little shared memory of their own beside this.
        product && picture && plain && filters && window && Patch::of(gemm).shared_bytes() + 2048 <= limits.shared
    }

    /// Taps of a filter, eight at a time.
    fn steps(&self) -> usize {
        self.gemm.geometry.fan_in().div_ceil(8)
    }

    /// Pixels of one image that a block takes at a time.
    fn pixels(&self) -> usize {
        let g = &self.gemm.geometry;
        if self.gemm.mode == Mode::Forward {
            return THREADS;
        }
        let most = if g.out_channels <= 48 { 320 } else { 160 };
        let image = g.out_height() * g.out_width();
        // A sum has to fit where the slopes were.
        image.div_ceil(image.div_ceil(most)).max(8 * self.steps()).next_multiple_of(8)
    }

    fn tiles(&self, n: usize) -> usize {
        let g = &self.gemm.geometry;
        n * (g.out_height() * g.out_width()).div_ceil(self.pixels())
    }

    /// How many ways warps share a filter's taps, so that a thread has registers for its sums.
    fn warps_across(&self) -> usize {
        let sums = |across: usize| self.gemm.geometry.out_channels / 16 * self.steps().div_ceil(across) * 4;
        [2, 4].into_iter().find(|&across| sums(across) <= 96).unwrap_or(8)
    }

    /// A pixel's slopes in shared memory, so far apart that threads do not get in each other's way.
    fn slope_row(&self) -> usize {
        self.gemm.geometry.out_channels + 8
    }

    pub(crate) fn shared_bytes(&self) -> usize {
        let g = &self.gemm.geometry;
        let rows = ((self.pixels() + g.out_width() - 2) / g.out_width() + 1).min(g.out_height());
        let (height, width) = ((rows - 1) * g.stride + g.kernel_h, (g.out_width() - 1) * g.stride + g.kernel_w);
        let rest = match self.gemm.mode {
            Mode::Forward => self.steps() * g.out_channels / 8 * 64,
            _ => self.pixels() * (self.slope_row() + 1),
        };
        4 * (height * width * g.in_channels + rest)
    }

    fn blocks(&self, n: usize) -> usize {
        let most = match self.gemm.mode {
            Mode::Forward => FORWARD_BLOCKS,
            _ if self.gemm.geometry.out_channels <= 32 => 3 * MULTIPROCESSORS,
            _ => 2 * MULTIPROCESSORS,
        };
        self.tiles(n).min(most)
    }

    /// Floats that the sums of blocks need for a batch of n.
    pub(crate) fn workspace(&self, n: usize) -> usize {
        if self.gemm.mode == Mode::Forward { 0 } else { self.blocks(n) * self.gemm.geometry.weight_len() }
    }

    pub(crate) fn spread(&self, n: usize) -> Spread {
        let shared = self.shared_bytes() as u32;
        Spread { grid: (self.blocks(n) as u32, 1, 1), threads: THREADS as u32, shared }
    }

    pub(crate) fn source(&self) -> Source {
        // What only a gradient needs, from the gradient of the same convolution: both are then one source.
        let gradient = Patch { gemm: Gemm { mode: Mode::Weights, ..self.gemm } };
        self.gemm
            .source_of(File::Patch)
            .int("GRADIENT_PIXELS", gradient.pixels())
            .int("SLOPE_ROW", gradient.slope_row())
            .int("WARPS_N", gradient.warps_across())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Library;
    use ftprop_tensor::geometry::ConvGeometry;

    const LIMITS: Limits = Limits { multiprocessors: 132, shared: 227 << 10 };

    fn first(size: usize, out_channels: usize, kernel: usize, stride: usize, pad: usize) -> Gemm {
        let geometry = ConvGeometry {
            height: size,
            width: size,
            in_channels: 3,
            out_channels,
            kernel_h: kernel,
            kernel_w: kernel,
            stride,
            pad,
            groups: 1,
        };
        let (mode, precision) = (Mode::Forward, Precision::Tf32);
        Gemm { mode, geometry, precision, weight_offset: 0, stored: 4, wide_output: false, bias_offset: None }
    }

    #[test]
    fn first_convolutions_of_the_presets_suit_and_others_do_not() {
        for (size, out, kernel, stride, pad) in [(32, 32, 5, 1, 3), (32, 48, 5, 1, 2), (224, 64, 7, 2, 3)] {
            let forward = first(size, out, kernel, stride, pad);
            let weights = Gemm { mode: Mode::Weights, ..forward };
            assert!([forward, weights].iter().all(|gemm| Patch::suits(gemm, LIMITS)));
            let both = [forward, weights].map(|gemm| Patch::of(&gemm));
            assert_eq!(both[0].source(), both[1].source());
            // Two blocks a multiprocessor.
            assert!(both.iter().all(|p| 2 * (p.shared_bytes() + 2048) <= LIMITS.shared), "{size}");
            assert!(both[1].workspace(64) >= both[1].blocks(64) * forward.geometry.weight_len());
        }
        let forward = first(32, 32, 5, 1, 3);
        let geometry = |change: fn(&mut ConvGeometry)| {
            let mut gemm = forward;
            change(&mut gemm.geometry);
            gemm
        };
        let others = [
            first(224, 96, 12, 4, 0),
            Gemm { mode: Mode::Input, ..forward },
            Gemm { precision: Precision::F32, ..forward },
            Gemm { bias_offset: Some(0), ..forward },
            Gemm { stored: 3, ..forward },
            geometry(|g| g.out_channels = 40),
            geometry(|g| g.kernel_w = 1),
        ];
        assert!(!others.iter().any(|gemm| Patch::suits(gemm, LIMITS)));
        assert!(!Patch::suits(&forward, Limits { shared: 4096, ..LIMITS }));
    }

    /// The compiler needs no GPU, so its word is taken wherever it is installed.
    #[test]
    fn the_presets_first_convolutions_compile() {
        if let Err(why) = Library::Nvrtc.load() {
            println!("skipped: {why}");
            return;
        }
        for (gemm, precision) in [(first(32, 48, 5, 1, 2), Precision::Tf32), (first(224, 64, 7, 2, 3), Precision::Bf16)]
        {
            let image = Patch::of(&Gemm { precision, ..gemm }).source().compile("sm_80");
            assert!(image.unwrap_or_else(|error| panic!("{error}")).starts_with(b"\x7fELF"));
        }
    }

    #[test]
    fn a_blocks_pixels_share_an_image_evenly_and_leave_room_for_its_sum() {
        for size in [3, 5, 17, 32, 33, 112] {
            for out in [16, 48, 64] {
                let patch = Patch { gemm: Gemm { mode: Mode::Weights, ..first(size, out, 3, 1, 1) } };
                let pixels = patch.pixels();
                assert!(pixels.is_multiple_of(8) && pixels * patch.slope_row() >= out * 8 * patch.steps());
                assert!(patch.tiles(1) * pixels < size * size + 8 * patch.tiles(1) + 8 * patch.steps());
            }
        }
    }
}
