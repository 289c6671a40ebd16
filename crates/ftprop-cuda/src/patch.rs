//! Products that read windows from a patch in shared memory, where channels are not too many: the first convolution of a
//! network that sees pictures (`patch_forward.cu`), gradients of filters (`patch_gradient.cu`), and slopes by a convolution's input
//! (`patch_backward.cu`). How the work is cut up follows from the geometry, so there is nothing to time but whether it is
//! faster.

use crate::compile::{KernelFile, Source};
use crate::device::DeviceLimits;
use crate::gemm::{Gemm, Mode};
use crate::kernel::LaunchConfig;
use crate::precision::Precision;

pub(crate) const FORWARD_FILE: KernelFile =
    KernelFile { name: "patch_forward.cu", text: include_str!("../kernels/patch_forward.cu") };
pub(crate) const BACKWARD_FILE: KernelFile =
    KernelFile { name: "patch_backward.cu", text: include_str!("../kernels/patch_backward.cu") };
pub(crate) const GRADIENT_FILE: KernelFile =
    KernelFile { name: "patch_gradient.cu", text: include_str!("../kernels/patch_gradient.cu") };

const THREADS: usize = 256;
/// How many ways the warps of a block share the output's channels on the way back; they share its pixels two ways.
const PARTIES: usize = 4;
/// A product has at most so many blocks, times how many of them fit on a multiprocessor of a large GPU. On a smaller one
/// the last of them wait; a gradient then has more sums to add than need be, which is little.
const MULTIPROCESSORS: usize = 132;

/// A product as these kernels compute it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    gemm: Gemm,
}

impl Patch {
    /// For a product that [`suits`](Self::suits).
    pub(crate) fn of(gemm: &Gemm) -> Self {
        Patch { gemm: *gemm }
    }

    /// Whether it can be computed this way, on a GPU on which a patch has to fit.
    pub(crate) fn suits(gemm: &Gemm, limits: DeviceLimits) -> bool {
        let (g, patch) = (&gemm.geometry, Patch::of(gemm));
        let (ci, co) = (g.in_channels, g.out_channels);
        let window = g.kernel_w * ci >= 4 && g.fan_in() <= 160;
        let narrow = ci.is_multiple_of(8) && ci <= 64 && gemm.stored == ci && g.stride == 1;
        let few = match gemm.mode {
            Mode::Forward => patch.is_picture() && window && co.is_multiple_of(16) && co <= 64,
            Mode::Weights => (patch.is_picture() && window || narrow) && co.is_multiple_of(16) && co <= 64,
            Mode::Input => narrow && co.is_multiple_of(8 * PARTIES) && co <= 128 && g.pad < g.kernel_h.min(g.kernel_w),
        };
        let plain = g.groups == 1 && gemm.bias_offset.is_none() && !gemm.f32_output;
        // The kernels have a little shared memory of their own beside this.
        let fits = || patch.shared_bytes() + 2048 <= limits.shared;
        gemm.precision != Precision::F32 && few && plain && fits()
    }

    fn is_picture(&self) -> bool {
        self.gemm.stored == 4 && self.gemm.geometry.in_channels <= 4
    }

    /// Whether numbers stay in bf16, two to a register: worth it where few of them are zeros that fill up a pixel.
    fn halves(&self) -> bool {
        let full = !self.is_picture() || self.gemm.geometry.in_channels >= 3;
        self.gemm.precision == Precision::Bf16 && self.gemm.mode != Mode::Input && full
    }

    /// Bytes of a number in a gradient's shared memory.
    fn number_bytes(&self) -> usize {
        if self.halves() { 2 } else { 4 }
    }

    /// Rows of a filter that a block takes: all of a picture's.
    fn window_rows(&self) -> usize {
        if self.is_picture() { self.gemm.geometry.kernel_h } else { 1 }
    }

    /// Taps of a filter that a block takes, eight at a time.
    fn steps(&self) -> usize {
        let g = &self.gemm.geometry;
        (self.window_rows() * g.kernel_w * g.in_channels).div_ceil(8)
    }

    /// Numbers of a pixel in a gradient's patch: of a picture those that it has, else so many that threads do not get in
    /// each other's way.
    fn pixel(&self) -> usize {
        let channels = self.gemm.geometry.in_channels;
        match self.is_picture() {
            true if self.halves() => self.gemm.stored,
            true => channels,
            false => channels + 8,
        }
    }

    /// A pixel's slopes in a gradient's shared memory, likewise.
    fn slope_row(&self) -> usize {
        self.gemm.geometry.out_channels + 8
    }

    /// How much a gradient's block has in its shared memory at once: what it works on, and what it will work on next. Of a
    /// picture so many blocks find room that they need not look ahead; and the halves of what wide windows look at have
    /// more in common than is gained.
    fn stages(&self) -> usize {
        match self.is_picture() {
            // Half as large, two find room.
            true => 1 + usize::from(self.halves()),
            false => 2 - usize::from(self.gemm.geometry.kernel_w > 3),
        }
    }

    /// Blocks that a multiprocessor has room for. With more, a product of halves would have too few registers for the matrix
    /// units to go on while others are waited for.
    fn resident(&self) -> usize {
        let most = if self.gemm.mode == Mode::Forward && !self.halves() { 48 } else { 32 };
        if self.is_picture() && self.gemm.geometry.out_channels <= most { 3 } else { 2 }
    }

    /// Pixels of one image that is written, or of a gradient's slopes.
    fn image(&self) -> usize {
        let g = &self.gemm.geometry;
        if self.gemm.mode == Mode::Input { g.height * g.width } else { g.out_height() * g.out_width() }
    }

    /// Pixels of one image that a block takes at a time.
    fn pixels(&self) -> usize {
        let g = &self.gemm.geometry;
        let even = |most: usize| self.image().div_ceil(self.image().div_ceil(most));
        match self.gemm.mode {
            Mode::Forward => THREADS,
            // As many as threads have registers for.
            Mode::Input => even(32 * (192 / g.in_channels).min(5)).next_multiple_of(32),
            Mode::Weights => {
                let most = match self.stages() {
                    2 if !self.is_picture() => 80,
                    _ if self.is_picture() && g.out_channels <= 48 => 320,
                    _ => 160,
                };
                even(most).next_multiple_of(if self.halves() { 16 } else { 8 })
            }
        }
    }

    fn tiles(&self, n: usize) -> usize {
        n * self.image().div_ceil(self.pixels())
    }

    /// How many ways a gradient's warps share taps, so that a thread has registers for its sums.
    fn warps_across(&self) -> usize {
        let sums = |across: usize| self.gemm.geometry.out_channels / 16 * self.steps().div_ceil(across) * 4;
        [2, 4].into_iter().find(|&across| sums(across) <= 80).unwrap_or(8)
    }

    /// Numbers of a filter that a thread can read at once on the way back, where its share of them begins.
    fn filter_width(&self) -> usize {
        let (share, start) = (self.gemm.geometry.in_channels / 8, self.gemm.weight_offset);
        [4, 2].into_iter().find(|width| share.is_multiple_of(*width) && start.is_multiple_of(*width)).unwrap_or(1)
    }

    pub(crate) fn shared_bytes(&self) -> usize {
        let g = &self.gemm.geometry;
        let spanned = |height: usize, width: usize| ((self.pixels() + width - 2) / width + 1).min(height);
        let patch = |window_rows: usize| {
            let rows = (spanned(g.out_height(), g.out_width()) - 1) * g.stride + window_rows;
            rows * ((g.out_width() - 1) * g.stride + g.kernel_w)
        };
        4 * match self.gemm.mode {
            Mode::Forward => {
                // A pixel, and a window, in pieces of four bytes.
                let pixel = if self.halves() { 2 } else { g.in_channels };
                let steps = (g.kernel_h * g.kernel_w * pixel).div_ceil(8);
                // The patch that is worked on, and the next.
                2 * patch(g.kernel_h) * pixel + steps * g.out_channels * 8
            }
            Mode::Weights => {
                let bytes = self.number_bytes();
                let operands =
                    patch(self.window_rows()) * self.pixel() * bytes + self.pixels() * (self.slope_row() * bytes + 4);
                (self.stages() * operands.next_multiple_of(16) / 4).max(g.out_channels * self.steps() * 8)
            }
            Mode::Input => {
                let (rows, columns) = (spanned(g.height, g.width) + g.kernel_h - 1, g.width + g.kernel_w - 1);
                (rows * columns * (g.out_channels + 4)).max(PARTIES * self.pixels() * g.in_channels)
            }
        }
    }

    /// Blocks that share the pixels, and those that share a filter's rows.
    fn blocks(&self, n: usize) -> (usize, usize) {
        match self.gemm.mode {
            // Each arranges the filters for itself, so they stay as long as there is something to do.
            Mode::Forward => (self.tiles(n).min(self.resident() * MULTIPROCESSORS), 1),
            Mode::Input => (self.tiles(n), 1),
            Mode::Weights => {
                let across = self.gemm.geometry.kernel_h / self.window_rows();
                (self.tiles(n).min((self.resident() * MULTIPROCESSORS / across).max(1)), across)
            }
        }
    }

    /// Floats that the sums of blocks need for a batch of n.
    pub(crate) fn workspace(&self, n: usize) -> usize {
        if self.gemm.mode == Mode::Weights { self.blocks(n).0 * self.gemm.geometry.weight_len() } else { 0 }
    }

    /// Numbers of all filters.
    pub(crate) fn weights(&self) -> usize {
        self.gemm.geometry.weight_len()
    }

    pub(crate) fn launch_config(&self, n: usize) -> LaunchConfig {
        let (down, across) = self.blocks(n);
        LaunchConfig {
            grid: (down as u32, across as u32, 1),
            threads: THREADS as u32,
            shared: self.shared_bytes() as u32,
        }
    }

    pub(crate) fn source(&self) -> Source {
        let file = match self.gemm.mode {
            Mode::Forward => FORWARD_FILE,
            Mode::Weights => GRADIENT_FILE,
            Mode::Input => BACKWARD_FILE,
        };
        let source = self.gemm.source_of(file).int("HALVES", usize::from(self.halves()));
        match self.gemm.mode {
            Mode::Forward => source.int("RESIDENT", self.resident()),
            Mode::Input => source.int("PIXELS", self.pixels()).int("FILTER_WIDTH", self.filter_width()),
            Mode::Weights => source
                .int("PIXELS", self.pixels())
                .int("PIXEL", self.pixel())
                .int("SLOPE_ROW", self.slope_row())
                .int("WINDOW_ROWS", self.window_rows())
                .int("STAGES", self.stages())
                .int("WARPS_N", self.warps_across())
                .int("RESIDENT", self.resident()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::TILES;
    use crate::library::Library;
    use ftprop_tensor::geometry::ConvGeometry;

    const LIMITS: DeviceLimits = DeviceLimits { multiprocessors: 132, shared: 227 << 10, warpgroups: true };

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
        Gemm {
            mode,
            geometry,
            precision,
            weight_offset: 0,
            stored: 4,
            f32_output: false,
            bias_offset: None,
            adds: false,
        }
    }

    /// A later convolution of that many channels in and out.
    fn second(in_channels: usize, out_channels: usize) -> Gemm {
        let gemm = first(17, out_channels, 5, 1, 2);
        let geometry = ConvGeometry { in_channels, ..gemm.geometry };
        Gemm { geometry, stored: in_channels, ..gemm }
    }

    #[test]
    fn slopes_go_through_small_convolutions_this_way() {
        for (inside, out, pixels) in [(32, 64, 160), (48, 64, 128), (64, 128, 96), (8, 32, 160)] {
            let gemm = Gemm { mode: Mode::Input, ..second(inside, out) };
            assert!(Patch::suits(&gemm, LIMITS));
            assert_eq!(Patch::of(&gemm).pixels(), pixels);
            let tiles = 3 * 289usize.div_ceil(pixels);
            assert_eq!((Patch::of(&gemm).blocks(3), Patch::of(&gemm).workspace(3)), ((tiles, 1), 0));
        }
    }

    #[test]
    fn first_convolutions_of_the_presets_suit_and_others_do_not() {
        for (size, out, kernel, stride, pad) in [(32, 32, 5, 1, 3), (32, 48, 5, 1, 2), (224, 64, 7, 2, 3)] {
            let forward = first(size, out, kernel, stride, pad);
            let weights = Gemm { mode: Mode::Weights, ..forward };
            assert!([forward, weights].iter().all(|gemm| Patch::suits(gemm, LIMITS)));
            let both = [forward, weights].map(|gemm| Patch::of(&gemm));
            // Two blocks a multiprocessor.
            assert!(both.iter().all(|p| 2 * (p.shared_bytes() + 2048) <= LIMITS.shared), "{size}");
            assert_eq!(both[1].workspace(64), both[1].blocks(64).0 * forward.geometry.weight_len());
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
            Gemm { mode: Mode::Input, ..second(32, 48) },
            Gemm { mode: Mode::Input, ..second(72, 64) },
            second(32, 64),
            Gemm { precision: Precision::F32, ..forward },
            Gemm { bias_offset: Some(0), ..forward },
            Gemm { stored: 3, ..forward },
            geometry(|g| g.out_channels = 40),
            geometry(|g| g.kernel_w = 1),
        ];
        assert!(!others.iter().any(|gemm| Patch::suits(gemm, LIMITS)));
        assert!(!Patch::suits(&forward, DeviceLimits { shared: 4096, ..LIMITS }));
    }

    /// The compiler needs no GPU, so its word is taken wherever it is installed.
    #[test]
    fn they_compile_for_the_presets_convolutions() {
        if let Err(why) = Library::Nvrtc.load() {
            println!("skipped: {why}");
            return;
        }
        let back = Gemm { mode: Mode::Input, ..second(48, 64) };
        for (gemm, precision) in [
            (first(32, 48, 5, 1, 2), Precision::Tf32),
            (first(224, 64, 7, 2, 3), Precision::Bf16),
            (Gemm { mode: Mode::Weights, ..first(32, 32, 5, 1, 3) }, Precision::Tf32),
            (Gemm { mode: Mode::Weights, ..second(32, 64) }, Precision::Bf16),
            (back, Precision::Tf32),
            (back, Precision::Bf16),
        ] {
            let image = Patch::of(&Gemm { precision, ..gemm }).source().compile((8, 0));
            assert!(image.unwrap_or_else(|error| panic!("{error}")).starts_with(b"\x7fELF"));
        }
    }

    /// Compilers had taken pairs of numbers apart, and memory keeps up with few stores of four bytes.
    #[test]
    fn neighbouring_numbers_are_written_by_one_instruction() {
        if let Err(why) = Library::Nvrtc.load() {
            println!("skipped: {why}");
            return;
        }
        // For a GPU that no compiler knows it writes text.
        let unknown = (99, 0);
        let holds = |source: Source, wide: &str| {
            let text = source.compile(unknown).unwrap_or_else(|error| panic!("{error}"));
            let text = String::from_utf8_lossy(&text).into_owned();
            let stores = text.split_whitespace().filter(|word| word.starts_with("st.global"));
            // Beside sums that are put aside for other blocks there is the count of those, which begins anew.
            let (wide, others): (Vec<_>, Vec<_>) =
                stores.filter(|store| !store.starts_with("st.global.cg")).partition(|store| *store == wide);
            assert!(!wide.is_empty() && others.len() <= 1, "{wide:?}, {others:?}");
        };
        for precision in [Precision::Tf32, Precision::Bf16] {
            for gemm in [first(32, 32, 5, 1, 3), first(224, 64, 7, 2, 3)] {
                holds(Patch::of(&Gemm { precision, ..gemm }).source(), "st.global.v4.b32");
            }
            for mode in [Mode::Forward, Mode::Input] {
                let gemm = Gemm { mode, precision, ..second(64, 64) };
                let tile = TILES.into_iter().find(|tile| tile.cols == 64).unwrap();
                holds(gemm.source(tile), "st.global.v2.b32");
            }
        }
    }

    #[test]
    fn a_gradients_blocks_share_an_image_evenly_and_have_room_for_their_sums() {
        for size in [3, 5, 17, 32, 33, 112] {
            for (out, inside) in [(16, 3), (48, 3), (64, 3), (16, 64), (64, 48), (48, 8)] {
                let gemm = first(size, out, 3, 1, 1);
                let geometry = ConvGeometry { in_channels: inside, ..gemm.geometry };
                let patch = Patch { gemm: Gemm { mode: Mode::Weights, geometry, stored: inside.max(4), ..gemm } };
                let (pixels, tiles) = (patch.pixels(), patch.tiles(1));
                assert!(pixels.is_multiple_of(8) && tiles * pixels < size * size + 8 * tiles);
                assert!(patch.shared_bytes() >= 4 * out * 8 * patch.steps());
                assert_eq!(patch.blocks(1).1, if inside == 3 { 1 } else { 3 });
            }
        }
    }
}
