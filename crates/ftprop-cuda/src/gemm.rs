//! How a product is cut into tiles: the kernel `gemm.cu` is compiled for one geometry and one tile.

use crate::abi::DevicePtr;
use crate::compile::{KernelFile, Source};
use crate::device::DeviceLimits;
use crate::environment::tries;
use crate::joined::Joined;
use crate::precision::Precision;
use ftprop_tensor::geometry::ConvGeometry;

pub(crate) const FILE: KernelFile = KernelFile { name: "gemm.cu", text: include_str!("../kernels/gemm.cu") };

/// Which of a convolution's three products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// y from x and w.
    Forward,
    /// dx from dy and w.
    Input,
    /// dw from x and dy.
    Weights,
}

/// A block's tile and how its warps share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    warps_down: usize,
    warps_across: usize,
}

impl Tile {
    const fn new(rows: usize, cols: usize, warps_down: usize, warps_across: usize) -> Self {
        Tile { rows, cols, warps_down, warps_across }
    }

    /// Tiles of the depth that are in shared memory at a time: small ones leave room for more of them.
    fn stages(&self) -> usize {
        if self.rows * self.cols <= 64 * 64 { 4 } else { 3 }
    }

    /// Rows and columns of one warp.
    pub(crate) fn warp(&self) -> (usize, usize) {
        (self.rows / self.warps_down, self.cols / self.warps_across)
    }

    pub(crate) fn threads(&self) -> u32 {
        (self.warps_down * self.warps_across * 32) as u32
    }
}

/// Tiles for the matrix units, largest first.
pub(crate) const TILES: [Tile; 12] = [
    Tile::new(256, 64, 4, 1),
    Tile::new(128, 128, 2, 2),
    Tile::new(128, 128, 2, 4),
    Tile::new(128, 64, 2, 2),
    Tile::new(128, 64, 4, 2),
    Tile::new(64, 128, 1, 4),
    Tile::new(256, 32, 4, 1),
    Tile::new(64, 64, 2, 2),
    Tile::new(128, 32, 4, 1),
    Tile::new(32, 128, 1, 4),
    Tile::new(64, 32, 2, 2),
    Tile::new(32, 64, 1, 4),
];

/// The tile without matrix units.
const PLAIN: Tile = Tile::new(64, 64, 2, 4);

const DEPTH: usize = 32;
/// The most blocks that a depth is split over.
pub(crate) const MAX_SPLIT_K: usize = 128;

/// A product with everything that its kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gemm {
    pub(crate) mode: Mode,
    pub(crate) geometry: ConvGeometry,
    pub(crate) precision: Precision,
    /// Where the weights begin in the flat buffer, which decides how wide they can be read.
    pub(crate) weight_offset: usize,
    /// Channels that x is stored with.
    pub(crate) stored: usize,
    /// Whether the output is f32 whatever the activations are.
    pub(crate) f32_output: bool,
    /// Where the bias that is added to the output begins in the flat buffer.
    pub(crate) bias_offset: Option<usize>,
    /// Whether slopes are added to those that are there.
    pub(crate) adds: bool,
}

/// What computes a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Tiled(Tiling),
    /// Our own where channels are few, see [`Patch`](crate::patch::Patch).
    Patch,
    /// Our own where windows move by one pixel, see [`Shifted`](crate::shifted::Shifted).
    Shifted(Cut),
    /// The usual one of cuDNN's (0), or the number of one of its engines, from 1.
    Cudnn(usize),
    /// The number of one that cuBLASLt proposes.
    Cublas(usize),
}

/// How a product is run: a tile, and over how many blocks its depth is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiling {
    pub(crate) tile: Tile,
    pub(crate) split_k: usize,
}

/// How a product by shifts is cut: sixty-fours of rows that a group of warps has or, of a gradient, parts that the taps are in; and columns of
/// a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) down: usize,
    pub(crate) columns: usize,
    pub(crate) filters: Filters,
}

/// Where a product by shifts has its filters; a gradient has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filters {
    /// They come and go, a few taps at a time.
    Streamed,
    /// They stay in shared memory, for which they have to be few.
    Kept,
    /// Each thread holds its part of those of 64 channels, for which they have to be fewer still.
    Held,
}

impl Filters {
    /// All of them, in a word.
    pub(crate) const WORDS: [(Filters, &'static str); 3] =
        [(Filters::Streamed, "streamed"), (Filters::Kept, "kept"), (Filters::Held, "held")];

    pub(crate) fn word(self) -> &'static str {
        Filters::WORDS[self as usize].1
    }
}

/// The addresses of a product: out = left · right, plus what there is to add; null stands for nothing. What is added to
/// the slopes of an input are those that are there already.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) left: DevicePtr,
    pub(crate) right: DevicePtr,
    pub(crate) out: DevicePtr,
    pub(crate) bias: DevicePtr,
    pub(crate) addend: DevicePtr,
}

impl Operands {
    /// Of a product that nothing is added to.
    pub(crate) fn new(left: DevicePtr, right: DevicePtr, out: DevicePtr) -> Self {
        Operands { left, right, out, bias: DevicePtr::NULL, addend: DevicePtr::NULL }
    }
}

impl Gemm {
    /// Rows, columns and depth of one group's product for a batch of n.
    pub(crate) fn size(&self, n: usize) -> (usize, usize, usize) {
        let g = &self.geometry;
        let (pixels_in, pixels_out) = (n * g.height * g.width, n * g.out_height() * g.out_width());
        let (ci, co, taps) = (g.in_channels / g.groups, g.out_channels / g.groups, g.kernel_h * g.kernel_w);
        let read = if self.is_padded() { self.stored } else { ci };
        match self.mode {
            Mode::Forward => (pixels_out, co, taps * read),
            Mode::Input => (pixels_in, ci, taps * co),
            Mode::Weights => (co, taps * read, pixels_out),
        }
    }

    /// Products of two numbers each, in all.
    pub(crate) fn multiply_adds(&self, n: usize) -> usize {
        let (rows, cols, depth) = self.size(n);
        rows * cols * depth * self.geometry.groups
    }

    /// Whether cuDNN is worth asking: a convolution of some size, with nothing added to it.
    pub(crate) fn suits_cudnn(&self, n: usize) -> bool {
        let large = self.multiply_adds(n) > 1 << 28;
        let image = self.geometry.height * self.geometry.width > 1;
        let joins = || self.joined().is_some() && tries("joined");
        let plain = self.bias_offset.is_none() && !self.f32_output && (!self.is_padded() || joins());
        self.precision != Precision::F32 && large && image && plain && self.weight_offset.is_multiple_of(8)
    }

    /// Whether cuBLASLt can compute it: a fully connected layer. It reads a bias, which has the output's format, in
    /// pieces of 16 bytes.
    pub(crate) fn suits_cublas(&self) -> bool {
        let g = &self.geometry;
        let one_pixel = g.height * g.width * g.kernel_h * g.kernel_w == 1 && g.stride == 1 && g.pad == 0;
        let wide = self.f32_output || self.precision == Precision::Tf32;
        let bias = self.bias_offset.is_none_or(|at| wide && at.is_multiple_of(4));
        self.precision != Precision::F32 && one_pixel && g.groups == 1 && !self.is_padded() && bias
    }

    /// The same over joined pixels, where that is of use.
    pub(crate) fn joined(&self) -> Option<Joined> {
        Joined::of(&self.geometry, self.stored, self.precision).filter(|_| self.mode != Mode::Input)
    }

    fn is_padded(&self) -> bool {
        self.stored != self.geometry.in_channels
    }

    pub(crate) fn tiles(&self, n: usize, tile: Tile) -> (usize, usize) {
        let (rows, cols, _) = self.size(n);
        (rows.div_ceil(tile.rows), cols.div_ceil(tile.cols))
    }

    /// A good tiling without timing anything: small tiles and split depth where blocks would be too few.
    pub(crate) fn guess(&self, n: usize, limits: DeviceLimits) -> Tiling {
        let multiprocessors = limits.multiprocessors;
        let (rows, cols, depth) = self.size(n);
        let tile = if self.precision == Precision::F32 {
            PLAIN
        } else {
            let fits = |t: &&Tile| {
                self.fits(t, limits) && t.cols < 2 * cols.next_multiple_of(8) && t.rows < 2 * rows.next_multiple_of(16)
            };
            let blocks = |t: &Tile| rows.div_ceil(t.rows) * cols.div_ceil(t.cols) * self.geometry.groups;
            let wasted = |t: &Tile| {
                blocks(t) * t.rows * t.cols * 4 > rows * cols * self.geometry.groups * 5 + 4 * t.rows * t.cols
            };
            TILES
                .iter()
                .filter(fits)
                .find(|t| blocks(t) >= 2 * multiprocessors && !wasted(t))
                .or_else(|| TILES.iter().filter(fits).find(|t| t.rows * t.cols <= 64 * 64))
                .copied()
                .unwrap_or(TILES[10])
        };
        let (down, across) = self.tiles(n, tile);
        let blocks = down * across * self.geometry.groups;
        let most = depth.div_ceil(DEPTH).div_ceil(4).max(1);
        let split_k = (2 * multiprocessors).div_euclid(blocks.max(1)).clamp(1, most.min(MAX_SPLIT_K));
        Tiling { tile, split_k }
    }

    /// Cuts worth timing, where other work shares the GPU or not.
    pub(crate) fn candidates(&self, n: usize, limits: DeviceLimits, shared: bool) -> Vec<Tiling> {
        let multiprocessors = limits.multiprocessors;
        let guess = self.guess(n, limits);
        if self.precision == Precision::F32 {
            return vec![guess];
        }
        let (rows, cols, depth) = self.size(n);
        let mut tilings = vec![guess];
        for tile in TILES {
            let small = tile.cols < 2 * cols.next_multiple_of(32) && tile.rows < 2 * rows.next_multiple_of(32);
            if !small || !self.fits(&tile, limits) {
                continue;
            }
            let (down, across) = self.tiles(n, tile);
            let blocks = down * across * self.geometry.groups;
            // Where blocks are many anyway, the smallest tiles only read more.
            let area = tile.rows * tile.cols;
            if blocks > 16 * multiprocessors && area < 64 * 64 || blocks > 64 * multiprocessors && area < 128 * 64 {
                continue;
            }
            let most = depth.div_ceil(DEPTH).div_ceil(4).clamp(1, MAX_SPLIT_K);
            // In eighths of the GPU. Alone, a product should fill it; others would fill it as well.
            let fillings: &[usize] = if shared { &[1, 2, 4, 8] } else { &[8, 16, 32] };
            for eighths in fillings {
                let tiling = Tiling { tile, split_k: (eighths * multiprocessors / (8 * blocks.max(1))).clamp(1, most) };
                if !tilings.contains(&tiling) {
                    tilings.push(tiling);
                }
            }
        }
        tilings
    }

    /// Every tile that there is room for, with the depth whole, in parts that do not come out even, and in as many as there can
    /// be.
    pub(crate) fn all_tilings(&self, n: usize, limits: DeviceLimits) -> Vec<Tiling> {
        let tiles: Vec<Tile> = match self.precision {
            Precision::F32 => vec![PLAIN],
            _ => TILES.into_iter().filter(|tile| self.fits(tile, limits)).collect(),
        };
        let most = self.size(n).2.div_ceil(DEPTH).min(MAX_SPLIT_K);
        let mut splits = vec![1, 3.min(most), most];
        splits.dedup();
        tiles.iter().flat_map(|&tile| splits.iter().map(move |&split_k| Tiling { tile, split_k })).collect()
    }

    /// Elements that one copy takes of the left and of the right operand: the most, up to 16 bytes, that every
    /// row and every start allows.
    fn widths(&self) -> (usize, usize) {
        let g = &self.geometry;
        let (ci, co) = (g.in_channels / g.groups, g.out_channels / g.groups);
        let width = |lengths: &[usize]| {
            let most = 16 / self.bytes();
            (0..4).map(|s| most >> s).find(|w| *w > 0 && lengths.iter().all(|l| l % w == 0)).unwrap_or(1)
        };
        let read = if self.is_padded() { self.stored } else { ci };
        match self.mode {
            Mode::Forward if self.is_padded() => (width(&[read]), 1),
            Mode::Forward => (width(&[ci, g.in_channels]), width(&[g.fan_in(), self.weight_offset])),
            Mode::Input => (width(&[co, g.out_channels]), width(&[ci, self.weight_offset])),
            Mode::Weights => (width(&[co, g.out_channels]), width(&[read, self.stored])),
        }
    }

    /// Whether the tile fits the shared memory, and its threads can copy a row of each operand's tile at once.
    fn fits(&self, tile: &Tile, limits: DeviceLimits) -> bool {
        let (left, right) = self.widths();
        let threads = tile.threads() as usize;
        let left_row = if self.mode == Mode::Weights { tile.rows } else { DEPTH };
        let right_row = if self.mode == Mode::Forward { DEPTH } else { tile.cols };
        // The kernel has a little shared memory of its own beside the tiles.
        let shared = self.shared_bytes(*tile) + 6 * 1024 <= limits.shared;
        shared && left_row / left <= threads && right_row / right <= threads
    }

    /// Bytes of one element of the operands.
    fn bytes(&self) -> usize {
        self.precision.activation_bytes()
    }

    pub(crate) fn shared_bytes(&self, tile: Tile) -> usize {
        let pad = 16 / self.bytes();
        let left = if self.mode == Mode::Weights { DEPTH * (tile.rows + 8) } else { tile.rows * (DEPTH + pad) };
        let right = if self.mode == Mode::Forward { tile.cols * (DEPTH + pad) } else { DEPTH * (tile.cols + 8) };
        tile.stages() * (left + right) * self.bytes()
    }

    /// Floats that the split depth needs for a batch of n.
    pub(crate) fn workspace(&self, n: usize, tiling: Tiling) -> usize {
        let (down, across) = self.tiles(n, tiling.tile);
        if tiling.split_k == 1 {
            0
        } else {
            down * across * self.geometry.groups * tiling.split_k * tiling.tile.rows * tiling.tile.cols
        }
    }

    /// A file of kernels with the numbers of this product's geometry.
    pub(crate) fn source_of(&self, file: KernelFile) -> Source {
        let g = &self.geometry;
        Source::new(file, self.precision)
            .int("H", g.height)
            .int("W", g.width)
            .int("CI", g.in_channels)
            .int("XC", self.stored)
            .int("OC", g.out_channels)
            .int("KH", g.kernel_h)
            .int("KW", g.kernel_w)
            .int("STRIDE", g.stride)
            .int("PAD", g.pad)
            .int("OH", g.out_height())
            .int("OW", g.out_width())
    }

    pub(crate) fn source(&self, tile: Tile) -> Source {
        let (left, right) = self.widths();
        let mode = match self.mode {
            Mode::Forward => "MODE_FORWARD",
            Mode::Input => "MODE_INPUT",
            Mode::Weights => "MODE_WEIGHTS",
        };
        let paired = self.mode != Mode::Weights || self.weight_offset.is_multiple_of(2);
        self.source_of(FILE)
            .name("MODE", mode)
            .int("BM", tile.rows)
            .int("BN", tile.cols)
            .int("BK", DEPTH)
            .int("WARPS_M", tile.warps_down)
            .int("WARPS_N", tile.warps_across)
            .int("STAGES", tile.stages())
            .int("VA", left)
            .int("VB", right)
            .int("GROUPS", self.geometry.groups)
            .int("OUT_F32", usize::from(self.f32_output))
            .int("PAIRED", usize::from(paired))
    }

    /// What a timing is remembered under.
    pub(crate) fn key(&self, n: usize) -> String {
        let g = &self.geometry;
        format!(
            "{:?} {} n{n} {}x{}x{} to {} kernel {}x{} stride {} pad {} groups {} at {} stored {} wide {} bias {} adds {}",
            self.mode,
            self.precision,
            g.height,
            g.width,
            g.in_channels,
            g.out_channels,
            g.kernel_h,
            g.kernel_w,
            g.stride,
            g.pad,
            g.groups,
            self.weight_offset % 8,
            self.stored,
            u8::from(self.f32_output),
            self.bias_offset.map_or("none".into(), |at| format!("at {}", at % 4)),
            u8::from(self.adds),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemm(mode: Mode, precision: Precision) -> Gemm {
        let geometry = ConvGeometry {
            height: 17,
            width: 17,
            in_channels: 32,
            out_channels: 64,
            kernel_h: 5,
            kernel_w: 5,
            stride: 1,
            pad: 2,
            groups: 1,
        };
        Gemm {
            mode,
            geometry,
            precision,
            weight_offset: 2432,
            stored: 32,
            f32_output: false,
            bias_offset: None,
            adds: false,
        }
    }

    #[test]
    fn sizes_are_those_of_the_three_products() {
        assert_eq!(gemm(Mode::Forward, Precision::Tf32).size(2), (578, 64, 800));
        assert_eq!(gemm(Mode::Input, Precision::Tf32).size(2), (578, 32, 1600));
        assert_eq!(gemm(Mode::Weights, Precision::Tf32).size(2), (64, 800, 578));
    }

    #[test]
    fn libraries_are_asked_for_what_they_can_do() {
        let conv = gemm(Mode::Forward, Precision::Tf32);
        assert!(conv.suits_cudnn(64) && !conv.suits_cublas());
        let geometry = ConvGeometry { height: 1, width: 1, kernel_h: 1, kernel_w: 1, pad: 0, ..conv.geometry };
        let fc = Gemm { geometry, ..conv };
        assert!(fc.suits_cublas() && !fc.suits_cudnn(1 << 20));
        let bf16 = Gemm { precision: Precision::Bf16, ..fc };
        for (base, f32_output, bias, suits) in
            [(fc, false, 4, true), (fc, false, 6, false), (bf16, false, 4, false), (bf16, true, 4, true)]
        {
            let biased = Gemm { f32_output, bias_offset: Some(bias), ..base };
            assert_eq!(biased.suits_cublas(), suits, "{biased:?}");
        }
        let others = [
            Gemm { stored: 36, ..conv },
            Gemm { bias_offset: Some(0), ..conv },
            Gemm { f32_output: true, ..conv },
            Gemm { weight_offset: 2433, ..conv },
        ];
        assert!(Gemm { adds: true, ..conv }.key(64) != conv.key(64));
        // A choice for one of them is none for another.
        assert!(others.iter().all(|o| !o.suits_cudnn(64) && o.key(64) != conv.key(64)));
        assert!(!Gemm { stored: 36, ..fc }.suits_cublas());
    }

    #[test]
    fn guesses_fill_the_device_and_never_split_below_a_few_tiles() {
        for mode in [Mode::Forward, Mode::Input, Mode::Weights] {
            for precision in [Precision::F32, Precision::Tf32, Precision::Bf16] {
                for n in [1, 7, 64, 1024] {
                    let g = gemm(mode, precision);
                    let limits = DeviceLimits { multiprocessors: 132, shared: 227 * 1024, warpgroups: true };
                    let tiling = g.guess(n, limits);
                    assert!(tiling.split_k >= 1 && tiling.split_k <= g.size(n).2.div_ceil(DEPTH));
                    assert!([false, true].iter().all(|&shared| g.candidates(n, limits, shared).contains(&tiling)));
                    let small = DeviceLimits { multiprocessors: 30, shared: 99 * 1024, warpgroups: true };
                    assert!(g.candidates(n, small, n > 64).iter().all(|c| g.shared_bytes(c.tile) <= small.shared));
                }
            }
        }
        // A gradient of weights has few tiles and much depth, so it is split.
        let limits = DeviceLimits { multiprocessors: 132, shared: 227 * 1024, warpgroups: true };
        assert!(gemm(Mode::Weights, Precision::Tf32).guess(64, limits).split_k > 4);
    }
}
