//! Convolutions whose windows move by one pixel, on GPUs whose matrix units read shared memory themselves: forward and slopes
//! (`shifted.cu`), gradients of filters (`shifted_gradient.cu`). How a product is cut is worth timing.

mod model;

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::{Device, DeviceLimits};
use crate::environment::tries;
use crate::gemm::{Cut, Filters, Gemm, Mode, Operands};
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

/// Groups of four warps in a block, forward and for slopes.
const GROUPS: usize = 2;
/// Shared memory of a block, at most, on the GPUs that this is for.
const ROOM: usize = 227 << 10;
/// Of a gradient: groups of four warps, among which a block's taps are dealt out; registers that hold sums, at most; rows, which are
/// channels out.
const GRADIENT_GROUPS: usize = 3;
const GRADIENT_MOST_SUMS: usize = 96;
const GRADIENT_ROWS: usize = 64;
/// Steps of it that are asked for before they are used: the first that have room.
const GRADIENT_AHEAD: [usize; 2] = [3, 2];
/// Its blocks are as many as multiprocessors of a large GPU, or less.
const MULTIPROCESSORS: usize = 132;
/// Threads of the kernels that lay filters out and add sums up.
const OTHER_THREADS: u32 = 256;
/// Cuts of a product that are timed.
const WORTH_TIMING: usize = 3;

/// Widths that the kernels know.
const COLUMNS: [usize; 5] = [32, 48, 64, 96, 128];
const GRADIENT_COLUMNS: [usize; 3] = [32, 48, 64];
/// Where filters stay in shared memory, rows come from registers, for which there are only these.
const KEPT_MOST_COLUMNS: usize = 64;
/// Channels whose filters a group of warps holds, and registers of a thread that they may take.
const HELD_CHANNELS: usize = 64;
const HELD_MOST: usize = 144;

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
        let gradient = gemm.mode == Mode::Weights;
        let (downs, columns): (&[usize], &[usize]) =
            if gradient { (&[1, 2, 3], &GRADIENT_COLUMNS) } else { (&[1, 2], &COLUMNS) };
        let mut cuts = Vec::new();
        for (filters, _) in Filters::WORDS {
            for &down in downs {
                cuts.extend(columns.iter().map(|&columns| Cut { down, columns, filters }));
            }
        }
        cuts.retain(|&cut| Shifted::of(gemm, cut).is_possible(limits));
        cuts
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
        let room = self.shared_bytes() + self.own_bytes() <= limits.shared;
        let columns = self.cut.columns < self.columns() + 32;
        let rest = match self.is_gradient() {
            true => self.sets() <= self.taps() && self.sums() <= GRADIENT_MOST_SUMS,
            false => match self.cut.filters {
                Filters::Streamed => self.parts() == 1 || self.steps() > self.stages() - 2,
                Filters::Kept => self.cut.columns <= KEPT_MOST_COLUMNS,
                Filters::Held => self.cut.columns == HELD_CHANNELS && self.held().is_some_and(|held| held <= HELD_MOST),
            },
        } && !(self.stay() && self.is_gradient());
        room && columns && rest
    }

    /// Whether filters are read once, and blocks go through tiles.
    fn stay(&self) -> bool {
        self.cut.filters != Filters::Streamed
    }

    /// Registers of a thread that all filters of a group take, of numbers that can be held.
    fn held(&self) -> Option<usize> {
        (self.gemm.precision == Precision::Bf16).then(|| self.taps() * self.depth() / 16 * 4)
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
            true => self.taps().div_ceil(self.sets()) * self.cut.columns / 2,
            false => self.cut.down * self.cut.columns / 2,
        }
    }

    fn bytes(&self) -> usize {
        self.gemm.precision.activation_bytes()
    }

    /// Channels that are in shared memory at a time: 128 bytes, or the most below that come out even.
    fn channels_at_once(&self) -> usize {
        if self.stay() {
            return self.depth();
        }
        let (whole, most) = (32 / self.bytes(), 128 / self.bytes());
        let even = |count: &usize| self.depth().is_multiple_of(*count);
        (1..=most / whole).rev().map(|times| times * whole).find(even).unwrap_or(whole)
    }

    fn parts(&self) -> usize {
        self.depth() / self.channels_at_once()
    }

    fn taps(&self) -> usize {
        self.gemm.geometry.kernel_h * self.gemm.geometry.kernel_w
    }

    /// Of a gradient: sets that the taps are dealt out to.
    fn sets(&self) -> usize {
        self.cut.down * GRADIENT_GROUPS
    }

    /// Taps of a step: one, or a row of them where one is over too soon.
    fn taps_at_once(&self) -> usize {
        if self.stay() {
            return self.taps();
        }
        let clocks =
            model::clocks_of_rows(GROUPS * self.cut.down, self.cut.columns, self.channels_at_once() * self.bytes());
        if clocks < 256 { self.gemm.geometry.kernel_w } else { 1 }
    }

    fn steps(&self) -> usize {
        self.taps() / self.taps_at_once()
    }

    /// Steps that have room in shared memory: four, or three where a second block then has room beside the first.
    fn stages(&self) -> usize {
        match self.is_gradient() {
            true => self.ahead() + 1,
            false if !self.leaves_room(4) && self.leaves_room(3) => 3,
            false => 4,
        }
    }

    /// Places of a step of a gradient: where they are taken apart first, half as many have room.
    fn places_at_once(&self) -> usize {
        if self.gemm.precision == Precision::Bf16 { 128 } else { 64 }
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

    /// Places of a patch: of a block or, where filters stay, of each of its groups.
    fn places(&self) -> usize {
        if self.stay() { self.cut.down * 64 } else { GROUPS * self.cut.down * 64 }
    }

    /// Rows of a patch, as shifted_kept.cuh and the others have them.
    fn patch_rows(&self) -> usize {
        let g = &self.gemm.geometry;
        let least = self.places() + (g.kernel_h - 1) * self.space().1 + g.kernel_w - 1;
        if self.cut.filters == Filters::Kept { (least + 3) / 8 * 8 + 4 } else { least.next_multiple_of(8) }
    }

    /// Of a gradient: steps that are asked for before they are used.
    fn ahead(&self) -> usize {
        let fits = |ahead: &usize| self.shared_bytes_of_gradient(*ahead) + self.own_bytes() <= ROOM;
        GRADIENT_AHEAD.into_iter().find(fits).unwrap_or(GRADIENT_AHEAD[1])
    }

    /// Of a gradient: pieces of so many rows of pixels that a step looks at beside its own.
    fn further(&self) -> usize {
        let g = &self.gemm.geometry;
        ((g.kernel_h - 1) * self.space().1 + g.kernel_w - 1).div_ceil(self.places_at_once())
    }

    /// Bytes that a step copies.
    fn bytes_of_step(&self) -> usize {
        let numbers = match self.is_gradient() {
            true => (GRADIENT_ROWS + self.cut.columns) * self.places_at_once(),
            false => {
                let rows = self.taps_at_once() * self.cut.columns + self.patch_rows() / self.steps();
                rows * self.channels_at_once()
            }
        };
        numbers * self.bytes()
    }

    /// Products of a step: of 64 rows, the cut's columns, 32 bytes deep.
    fn products_of_step(&self) -> usize {
        match self.is_gradient() {
            true => self.places_at_once() / 16 * self.taps().div_ceil(self.cut.down),
            false => GROUPS * self.cut.down * self.taps_at_once() * self.channels_at_once() * self.bytes() / 32,
        }
    }

    /// Of a gradient: steps of all blocks with the same channels and taps.
    fn steps_of_gradient(&self, n: usize) -> usize {
        (n * self.space().2).div_ceil(self.places_at_once())
    }

    /// Steps of a block, the longest if they are not all alike.
    fn steps_of_block(&self, n: usize) -> usize {
        match self.is_gradient() {
            true => self.steps_of_gradient(n).div_ceil(self.grid(n, MULTIPROCESSORS).0),
            false => self.parts() * self.steps(),
        }
    }

    pub(crate) fn shared_bytes(&self) -> usize {
        if self.is_gradient() {
            return self.shared_bytes_of_gradient(self.ahead());
        }
        self.shared_bytes_with(self.stages())
    }

    /// Where filters stay: patches that each group has room for.
    fn patches(&self) -> usize {
        if self.shared_bytes_kept(2) + self.own_bytes() <= ROOM { 2 } else { 1 }
    }

    fn shared_bytes_kept(&self, patches: usize) -> usize {
        let rows = self.taps() * self.cut.columns + patches * GROUPS * self.patch_rows();
        rows * self.depth() * self.bytes()
    }

    /// Forward and for slopes, with room for so many steps.
    fn shared_bytes_with(&self, stages: usize) -> usize {
        if self.stay() {
            return self.shared_bytes_kept(self.patches());
        }
        let filters = stages * self.taps_at_once() * self.cut.columns;
        (filters + self.parts().min(2) * self.patch_rows()) * self.channels_at_once() * self.bytes()
    }

    /// Shared memory that the kernels have of their own beside this: where rows lie, and a little.
    fn own_bytes(&self) -> usize {
        let rows = match self.is_gradient() {
            true => 4 * self.places_at_once(),
            false if self.stay() => 0,
            false => self.patch_rows(),
        };
        4 * rows + 128
    }

    /// Whether two blocks fit on a multiprocessor so, by their registers and their shared memory.
    fn leaves_room(&self, stages: usize) -> bool {
        !self.stay()
            && self.sums() <= 64
            && 2 * (self.shared_bytes_with(stages) + self.own_bytes() + 1024) <= ROOM + 1024
    }

    /// The ring of pixels, of which the first rows are there twice, and what steps copy.
    fn shared_bytes_of_gradient(&self, ahead: usize) -> usize {
        let (places, columns, bytes) = (self.places_at_once(), self.cut.columns, self.bytes());
        let slopes = |pitch| GRADIENT_ROWS * bytes / 16 * pitch;
        let (pieces, twice, copies) = match self.gemm.precision {
            Precision::Bf16 => (ahead + self.further() + 2, 1, slopes(places * 16)),
            // What is taken apart has two halves.
            _ => (self.further() + 3, 2, slopes(places * 16 + 16) + columns * places * bytes),
        };
        twice * columns / 8 * (pieces * places + 16) * 16 + (ahead + 1) * copies
    }

    /// Blocks of a multiprocessor.
    fn resident(&self) -> usize {
        if !self.is_gradient() && self.leaves_room(self.stages()) { 2 } else { 1 }
    }

    fn threads(&self) -> u32 {
        128 * if self.is_gradient() { GRADIENT_GROUPS as u32 } else { GROUPS as u32 }
    }

    /// Tiles of places where filters stay, a group of warps one after another.
    fn tiles(&self, n: usize) -> usize {
        (n * self.space().2).div_ceil(self.places())
    }

    /// Blocks on a GPU of so many multiprocessors: of places, of channels, and of taps. Of a gradient they do not go by the GPU,
    /// since each has sums of its own.
    fn grid(&self, n: usize, multiprocessors: usize) -> (usize, usize, usize) {
        let across = self.columns().div_ceil(self.cut.columns);
        if self.stay() {
            return (self.tiles(n).div_ceil(GROUPS).min((multiprocessors / across).max(1)), across, 1);
        }
        if !self.is_gradient() {
            return ((n * self.space().2).div_ceil(self.places()), across, 1);
        }
        let channels = across * self.gemm.geometry.out_channels.div_ceil(GRADIENT_ROWS);
        let most = (MULTIPROCESSORS / (channels * self.cut.down)).max(1);
        (model::shares(self, n).min(self.steps_of_gradient(n)).clamp(1, most), channels, self.cut.down)
    }

    /// Floats that it needs beside its operands.
    pub(crate) fn workspace(&self, n: usize) -> usize {
        let weights = self.gemm.geometry.weight_len();
        match self.gemm.mode {
            Mode::Weights => self.grid(n, MULTIPROCESSORS).0 * weights,
            Mode::Input if self.gemm.precision == Precision::Tf32 => weights,
            _ => 0,
        }
    }

    pub(crate) fn source(&self) -> Source {
        let file = if self.is_gradient() { GRADIENT_FILE } else { FILE };
        let mut source = self.gemm.source_of(file).int("BN", self.cut.columns);
        if tries("unfenced") {
            source = source.int("UNFENCED", 1);
        }
        match self.gemm.mode {
            Mode::Weights => source
                .int("PARTS_OF_TAPS", self.cut.down)
                .int("PLACES_AT_ONCE", self.places_at_once())
                .int("STEPS_AHEAD", self.ahead()),
            mode => source
                .name("MODE", if mode == Mode::Forward { "MODE_FORWARD" } else { "MODE_INPUT" })
                .int("FILTERS_STAY", usize::from(self.cut.filters == Filters::Kept))
                .int("FILTERS_HELD", usize::from(self.cut.filters == Filters::Held))
                .int("PATCHES", if self.stay() { self.patches() } else { 1 })
                .int("RESIDENT", self.resident())
                .int("STAGES", self.stages())
                .int("MT", self.cut.down)
                .int("KC", self.channels_at_once())
                .int("STEP", self.taps_at_once()),
        }
    }
}

/// Such a product ready to run.
pub(crate) struct ShiftedKernels {
    shifted: Shifted,
    multiprocessors: usize,
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
        let multiprocessors = device.limits()?.multiprocessors;
        Ok(ShiftedKernels { shifted, multiprocessors, kernels })
    }

    pub(crate) fn run(
        &self,
        stream: &CudaStream,
        n: usize,
        Operands { left, right, out, addend, .. }: Operands,
        workspace: DevicePtr,
    ) -> Result<(), CudaError> {
        let (places, channels, taps) = self.shifted.grid(n, self.multiprocessors);
        let grid = (places as u32, channels as u32, taps as u32);
        let config = LaunchConfig { grid, threads: self.shifted.threads(), shared: self.shifted.shared_bytes() as u32 };
        let g = &self.shifted.gemm.geometry;
        match &self.kernels {
            Kernels::Pixels(kernel, turn) => {
                let mut w = right;
                if let Some(turn) = turn {
                    let numbers = g.kernel_h * g.kernel_w * g.in_channels;
                    let grid = (numbers.div_ceil(32) as u32, g.out_channels.div_ceil(32) as u32, 1);
                    let args = TurnedFiltersArgs { w, turned: workspace };
                    // SAFETY: these are the product's filters; the workspace has room for as many.
                    unsafe { turn.launch(stream, LaunchConfig { grid, threads: OTHER_THREADS, shared: 0 }, &args)? };
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
                let args = ShiftedGradientReduceArgs { sums: workspace, out, count: places as i32 };
                let grid = (g.weight_len().div_ceil(256) as u32, 1, 1);
                // SAFETY: the sums are those of the blocks that were just launched.
                unsafe { reduce.launch(stream, LaunchConfig { grid, threads: OTHER_THREADS, shared: 0 }, &args) }
            }
        }
    }

    /// In short.
    pub(crate) fn describe(&self) -> String {
        let Cut { down, columns, filters } = self.shifted.cut;
        match self.shifted.is_gradient() {
            true => format!("shifted {GRADIENT_ROWS}x{columns}, taps in {down}"),
            false if self.shifted.stay() => format!("shifted {}x{columns}, filters {}", 64 * down, filters.word()),
            false => format!("shifted {}x{columns}", 64 * GROUPS * down),
        }
    }
}
