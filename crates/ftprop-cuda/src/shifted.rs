//! Convolutions whose windows move by one pixel, on GPUs whose matrix units read shared memory themselves: forward and slopes
//! (`shifted.cu`), gradients of filters (`shifted_gradient.cu`). How a product is cut is worth timing.

mod model;

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::{Device, DeviceLimits};
use crate::environment::tries;
use crate::gemm::{Gemm, Mode, Operands};
use crate::kernel::{Kernel, LaunchConfig};
use crate::precision::Precision;
use crate::stream::CudaStream;

pub(crate) const FILE: KernelFile = KernelFile { name: "shifted.cu", text: include_str!("../kernels/shifted.cu") };
pub(crate) const GRADIENT_FILE: KernelFile =
    KernelFile { name: "shifted_gradient.cu", text: include_str!("../kernels/shifted_gradient.cu") };

kernels! {
    /// A convolution, or the slopes by its input.
    ShiftedArgs = "shifted" in FILE {
        x: DevicePtr,
        w: DevicePtr,
        y: DevicePtr,
        addend: DevicePtr,
        n: i32,
    }

    /// Lays filters out for slopes in tf32.
    TurnedFiltersArgs = "turned_filters" in FILE {
        w: DevicePtr,
        turned: DevicePtr,
    }

    /// Sums of the gradient of filters.
    ShiftedGradientArgs = "shifted_gradient" in GRADIENT_FILE {
        dy: DevicePtr,
        x: DevicePtr,
        sums: DevicePtr,
        n: i32,
    }

    /// Adds them up.
    ShiftedGradientReduceArgs = "shifted_gradient_reduce" in GRADIENT_FILE {
        sums: DevicePtr,
        out: DevicePtr,
        count: i32,
    }
}

const THREADS: u32 = 256;
/// A gradient has about so many blocks, times how many of them fit on a multiprocessor of a large GPU.
const MULTIPROCESSORS: usize = 132;
/// Groups of four warps in a block.
const GROUPS: usize = 2;
/// Registers of a thread that hold sums, at most.
const MOST_SUMS: usize = 192;
/// What the units do in a clock, in numbers of bf16 multiplied and added.
const PER_CLOCK: usize = 1024;
/// Cuts of a product that are timed.
const WORTH_TIMING: usize = 3;

/// How the work is cut: sixty-fours of rows that a group of warps or, of a gradient, a block has, and columns of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) down: usize,
    pub(crate) columns: usize,
}

/// Widths that the kernels know.
const COLUMNS: [usize; 5] = [32, 48, 64, 96, 128];

/// A product as these kernels compute it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shifted {
    gemm: Gemm,
    cut: Cut,
}

impl Shifted {
    /// A product for which [`cuts`](Self::cuts) gives this one.
    pub(crate) fn of(gemm: &Gemm, cut: Cut) -> Self {
        Shifted { gemm: *gemm, cut }
    }

    /// The cuts that a product can have; none where it cannot be computed this way.
    pub(crate) fn cuts(gemm: &Gemm, limits: DeviceLimits) -> Vec<Cut> {
        let g = &gemm.geometry;
        let whole = if gemm.precision == Precision::Bf16 { 16 } else { 8 };
        let channels = [g.in_channels, g.out_channels].iter().all(|count| count.is_multiple_of(whole));
        let plain = g.groups == 1 && gemm.stored == g.in_channels && gemm.bias_offset.is_none() && !gemm.f32_output;
        let windows =
            g.stride == 1 && g.kernel_h * g.kernel_w >= 4 && g.kernel_w <= 9 && g.pad < g.kernel_h.min(g.kernel_w);
        let suits = limits.warpgroups && gemm.precision != Precision::F32 && gemm.weight_offset.is_multiple_of(8);
        if !(suits && channels && plain && windows) {
            return Vec::new();
        }
        let cuts = [1, 2].into_iter().flat_map(|down| COLUMNS.map(|columns| Cut { down, columns }));
        cuts.filter(|&cut| Shifted::of(gemm, cut).is_possible(limits)).collect()
    }

    /// Those that are worth timing for batches of n: the best by an estimate.
    pub(crate) fn candidates(gemm: &Gemm, n: usize, limits: DeviceLimits) -> Vec<Cut> {
        let mut cuts = Shifted::cuts(gemm, limits);
        let clocks = |cut: &Cut| model::clocks(&Shifted::of(gemm, *cut), n, limits.multiprocessors);
        cuts.sort_by(|a, b| clocks(a).total_cmp(&clocks(b)));
        cuts.truncate(WORTH_TIMING);
        cuts
    }

    fn is_possible(&self, limits: DeviceLimits) -> bool {
        let room = self.shared_bytes() + 1024 <= limits.shared;
        let columns = self.cut.columns < self.columns() + 32;
        let rows = self.gemm.mode != Mode::Weights || self.cut.down == 1 || self.gemm.geometry.out_channels > 64;
        let ahead = self.gemm.mode == Mode::Weights || self.parts() == 1 || self.steps() > self.stages() - 2;
        room && columns && rows && ahead && self.sums() <= MOST_SUMS
    }

    fn is_gradient(&self) -> bool {
        self.gemm.mode == Mode::Weights
    }

    /// Channels of what the windows look at.
    fn depth(&self) -> usize {
        let g = &self.gemm.geometry;
        if self.gemm.mode == Mode::Input { g.out_channels } else { g.in_channels }
    }

    /// Channels that are the columns of the product.
    fn columns(&self) -> usize {
        let g = &self.gemm.geometry;
        if self.gemm.mode == Mode::Forward { g.out_channels } else { g.in_channels }
    }

    /// Sums of a thread.
    fn sums(&self) -> usize {
        match self.is_gradient() {
            true => self.gemm.geometry.kernel_w * self.cut.columns / 2,
            false => self.cut.down * self.cut.columns / 2,
        }
    }

    fn bytes(&self) -> usize {
        self.gemm.precision.activation_bytes()
    }

    /// Channels that are in shared memory at a time: 128 bytes, or the most below that come out even.
    fn channels_at_once(&self) -> usize {
        let (whole, most) = (32 / self.bytes(), 128 / self.bytes());
        let even = |count: &usize| self.depth().is_multiple_of(*count);
        (1..=most / whole).rev().map(|times| times * whole).find(even).unwrap_or(whole)
    }

    fn parts(&self) -> usize {
        self.depth() / self.channels_at_once()
    }

    /// Taps of a step: one, or a row of them where one is over too soon.
    fn taps_at_once(&self) -> usize {
        let clocks =
            64 * GROUPS * self.cut.down * self.cut.columns * self.channels_at_once() * self.bytes() / 2 / PER_CLOCK;
        if clocks < 500 { self.gemm.geometry.kernel_w } else { 1 }
    }

    fn steps(&self) -> usize {
        let g = &self.gemm.geometry;
        g.kernel_h * g.kernel_w / self.taps_at_once()
    }

    /// Steps that have room in shared memory.
    fn stages(&self) -> usize {
        if self.is_gradient() && self.gemm.precision != Precision::Bf16 { 3 } else { 4 }
    }

    /// Places of a step of a gradient: where they are taken apart first, half as many have room.
    fn places_at_once(&self) -> usize {
        if self.gemm.precision == Precision::Bf16 { 64 } else { 32 }
    }

    /// Rows, columns and all places of maps with their padding on one side.
    fn space(&self) -> (usize, usize, usize) {
        let g = &self.gemm.geometry;
        let (high, wide) = match self.gemm.mode {
            Mode::Input => (g.out_height() + g.kernel_h - 1 - g.pad, g.out_width() + g.kernel_w - 1 - g.pad),
            _ => (g.height + g.pad, g.width + g.pad),
        };
        (high, wide, high * wide)
    }

    /// Places of a block.
    fn places(&self) -> usize {
        GROUPS * self.cut.down * 64
    }

    /// Rows of a block's patch.
    fn patch_rows(&self) -> usize {
        let g = &self.gemm.geometry;
        (self.places() + (g.kernel_h - 1) * self.space().1 + g.kernel_w - 1).next_multiple_of(8)
    }

    /// Numbers that a step of a gradient copies.
    fn numbers_of_step(&self) -> usize {
        let places = self.places_at_once();
        64 * self.cut.down * places + self.cut.columns * (places + 8)
    }

    /// Bytes that a step copies.
    fn bytes_of_step(&self) -> usize {
        let numbers = match self.is_gradient() {
            true => self.numbers_of_step(),
            false => {
                let rows = self.taps_at_once() * self.cut.columns + self.patch_rows() / self.steps();
                rows * self.channels_at_once()
            }
        };
        numbers * self.bytes()
    }

    /// Products of a step: of 64 rows, the cut's columns, 32 bytes deep.
    fn products_of_step(&self) -> usize {
        let g = &self.gemm.geometry;
        match self.is_gradient() {
            true => self.cut.down * self.places_at_once() / 16 * g.kernel_w,
            false => GROUPS * self.cut.down * self.taps_at_once() * self.channels_at_once() * self.bytes() / 32,
        }
    }

    /// Steps of a block, the longest if they are not all alike.
    fn steps_of_block(&self, n: usize) -> usize {
        match self.is_gradient() {
            true => (n * self.space().2).div_ceil(self.places_at_once()).div_ceil(self.grid(n).0),
            false => self.parts() * self.steps(),
        }
    }

    pub(crate) fn shared_bytes(&self) -> usize {
        if self.is_gradient() {
            let numbers = self.numbers_of_step();
            // What is taken apart is there as well, what is used and what comes next: twice in halves of the bytes.
            let apart = if self.gemm.precision == Precision::Bf16 { 0 } else { 2 * 4 * numbers };
            return self.stages() * numbers * self.bytes() + apart;
        }
        let filters = self.stages() * self.taps_at_once() * self.cut.columns;
        (filters + self.parts().min(2) * self.patch_rows()) * self.channels_at_once() * self.bytes()
    }

    /// Blocks of a multiprocessor, by their registers and their shared memory.
    fn resident(&self) -> usize {
        if self.sums() <= 64 && 2 * (self.shared_bytes() + 1024) <= 227 << 10 { 2 } else { 1 }
    }

    /// Blocks: of places, of channels, and of a filter's rows.
    fn grid(&self, n: usize) -> (usize, usize, usize) {
        let places = n * self.space().2;
        let across = self.columns().div_ceil(self.cut.columns);
        if !self.is_gradient() {
            return (places.div_ceil(self.places()), across, 1);
        }
        let (down, rows) = (self.gemm.geometry.out_channels.div_ceil(64 * self.cut.down), self.gemm.geometry.kernel_h);
        let shares = (MULTIPROCESSORS * self.resident() / (across * down * rows)).max(1);
        (shares.min(places.div_ceil(4 * self.places_at_once())), across * down, rows)
    }

    /// Sums of each weight that are put aside.
    fn shares(&self, n: usize) -> usize {
        self.grid(n).0 * if self.cut.down == 1 { GROUPS } else { 1 }
    }

    /// Floats that it needs beside its operands.
    pub(crate) fn workspace(&self, n: usize) -> usize {
        let weights = self.gemm.geometry.weight_len();
        match self.gemm.mode {
            Mode::Weights => self.shares(n) * weights,
            Mode::Input if self.gemm.precision == Precision::Tf32 => weights,
            _ => 0,
        }
    }

    pub(crate) fn source(&self) -> Source {
        let file = if self.is_gradient() { GRADIENT_FILE } else { FILE };
        let source = self.gemm.source_of(file).int("BN", self.cut.columns).int("STAGES", self.stages());
        let mut source = source.int("RESIDENT", self.resident());
        if tries("unfenced") {
            source = source.int("UNFENCED", 1);
        }
        match self.gemm.mode {
            Mode::Weights => source.int("SIXTY_FOURS", self.cut.down).int("PLACES_AT_ONCE", self.places_at_once()),
            mode => source
                .name("MODE", if mode == Mode::Forward { "MODE_FORWARD" } else { "MODE_INPUT" })
                .int("MT", self.cut.down)
                .int("KC", self.channels_at_once())
                .int("STEP", self.taps_at_once()),
        }
    }
}

/// Such a product ready to run.
pub(crate) struct ShiftedKernels {
    shifted: Shifted,
    kernels: Kernels,
}

enum Kernels {
    /// With what lays the filters out before, where that is needed.
    Pixels(Kernel<ShiftedArgs>, Option<Kernel<TurnedFiltersArgs>>),
    Weights(Kernel<ShiftedGradientArgs>, Kernel<ShiftedGradientReduceArgs>),
}

impl ShiftedKernels {
    pub(crate) fn new(device: &Device, gemm: &Gemm, cut: Cut) -> Result<Self, CudaError> {
        let shifted = Shifted::of(gemm, cut);
        let (module, shared) = (device.module(shifted.source())?, shifted.shared_bytes());
        let kernels = if shifted.is_gradient() {
            let gradient = Kernel::find(&module)?;
            gradient.allow_shared(shared)?;
            Kernels::Weights(gradient, Kernel::find(&module)?)
        } else {
            let kernel = Kernel::find(&module)?;
            kernel.allow_shared(shared)?;
            let turns = gemm.mode == Mode::Input && gemm.precision == Precision::Tf32;
            Kernels::Pixels(kernel, turns.then(|| Kernel::find(&module)).transpose()?)
        };
        Ok(ShiftedKernels { shifted, kernels })
    }

    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        n: usize,
        Operands { left, right, out, addend, .. }: Operands,
        workspace: DevicePtr,
    ) -> Result<(), CudaError> {
        let (across, down, rows) = self.shifted.grid(n);
        let grid = (across as u32, down as u32, rows as u32);
        let config = LaunchConfig { grid, threads: THREADS, shared: self.shifted.shared_bytes() as u32 };
        let g = &self.shifted.gemm.geometry;
        match &self.kernels {
            Kernels::Pixels(kernel, turn) => {
                let mut w = right;
                if let Some(turn) = turn {
                    let numbers = g.kernel_h * g.kernel_w * g.in_channels;
                    let grid = (numbers.div_ceil(32) as u32, g.out_channels.div_ceil(32) as u32, 1);
                    let args = TurnedFiltersArgs { w, turned: workspace };
                    // SAFETY: these are the product's filters; the workspace has room for as many.
                    unsafe { turn.launch(stream, LaunchConfig { grid, threads: THREADS, shared: 0 }, &args)? };
                    w = workspace;
                }
                let args = ShiftedArgs { x: left, w, y: out, addend, n: n as i32 };
                // SAFETY: the operands are this product's, sized for n examples.
                unsafe { kernel.launch(stream, config, &args) }
            }
            Kernels::Weights(gradient, reduce) => {
                let args = ShiftedGradientArgs { dy: left, x: right, sums: workspace, n: n as i32 };
                // SAFETY: the operands are this product's; the workspace has room for every block's sums.
                unsafe { gradient.launch(stream, config, &args)? };
                let count = self.shifted.shares(n) as i32;
                let args = ShiftedGradientReduceArgs { sums: workspace, out, count };
                let grid = (g.weight_len().div_ceil(256) as u32, 1, 1);
                // SAFETY: the sums are those of the blocks that were just launched.
                unsafe { reduce.launch(stream, LaunchConfig { grid, threads: THREADS, shared: 0 }, &args) }
            }
        }
    }

    /// In short.
    pub(crate) fn describe(&self) -> String {
        format!("shifted {}x{}", 64 * self.shifted.cut.down, self.shifted.cut.columns)
    }
}
