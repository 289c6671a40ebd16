//! How long algorithms take for a product, on numbers that are like real ones.

use crate::CudaError;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::compiled_gemm::CompiledGemm;
use crate::device::Device;
use crate::environment::tries;
use crate::gemm::{Algorithm, Gemm, Mode, Operands};
use crate::libraries::Libraries;
use crate::precision::Precision;
use crate::startup;
use crate::stream::{CudaEvent, CudaStream};

/// Launches of one timing, one after another.
pub(crate) const RUNS: usize = 5;
/// Milliseconds that a launch outside of a graph may take on top.
const STARTING: f32 = 0.05;
/// What a library must save to be chosen: starting it costs something too.
const WORTH: f32 = 0.95;

/// The fastest of some algorithms for a product, with its milliseconds, if it is faster than the best that is known; where
/// there is no memory to find out, what is known.
pub(crate) fn fastest_of(
    device: &Device,
    gemm: &Gemm,
    libraries: &Libraries,
    n: usize,
    concurrent: usize,
    algorithms: &[Algorithm],
    known: Option<(f32, Algorithm)>,
) -> Result<Option<(f32, Algorithm)>, CudaError> {
    if algorithms.is_empty() {
        return Ok(known);
    }
    let mut layout = ArenaLayout::default();
    let tensors = TimingTensors::new(gemm, n, &mut layout);
    let mut bytes = 0;
    for &algorithm in algorithms {
        bytes = bytes.max(CompiledGemm::workspace(gemm, algorithm, libraries, n)?);
    }
    let workspace = layout.take(bytes);
    let mut compiled = Vec::new();
    for &algorithm in algorithms {
        let one = CompiledGemm::new(device, *gemm, algorithm, libraries, workspace, n, &mut layout)?;
        compiled.push((algorithm, one));
    }
    let streams = startup::during("memory for timings", || {
        let mut streams = Vec::new();
        for _ in 0..concurrent {
            match TimingStream::new(device, layout.clone()) {
                Ok(stream) => streams.push(stream),
                // Fewer tell nearly as much.
                Err(error) if error.is_memory() => break,
                Err(error) => return Err(error),
            }
        }
        tensors.fill(&streams, gemm.precision)?;
        Ok(streams)
    })?;
    if streams.is_empty() {
        return Ok(known);
    }
    let own =
        |algorithm: &Algorithm| matches!(algorithm, Algorithm::Tiled(_) | Algorithm::Patch | Algorithm::Shifted(_));
    let mut best = known;
    for (algorithm, one) in &compiled {
        let so_far = best.map_or(f32::INFINITY, |(ms, _)| ms);
        let run = |on: &TimingStream| one.run(&on.stream, &on.arena, n, tensors.operands(gemm, &on.arena));
        let ms = match least_time(device, &streams, so_far, run) {
            Ok(ms) if own(algorithm) => ms,
            Ok(ms) => ms / WORTH,
            Err(error) if error.is_memory() => continue,
            Err(error) if own(algorithm) => return Err(error),
            // What a library cannot do, our own kernels can.
            Err(_) => continue,
        };
        if tries("tell") {
            eprintln!("{ms:.4} ms for {RUNS} times {} by {}", gemm.key(n), one.describe());
        }
        if best.is_none_or(|(least, _)| ms < least) {
            best = Some((ms, *algorithm));
        }
    }
    Ok(best)
}

/// What a product is timed with.
struct TimingTensors {
    x: Region,
    y: Region,
    w: Region,
    bias: Region,
}

impl TimingTensors {
    fn new(gemm: &Gemm, n: usize, layout: &mut ArenaLayout) -> Self {
        let g = &gemm.geometry;
        let lengths = [n * g.height * g.width * gemm.stored, n * g.out_len(), g.weight_len() + 8];
        let [x, y, w] = lengths.map(|len| layout.floats(len));
        TimingTensors { x, y, w, bias: layout.floats(g.out_channels + 4) }
    }

    /// Zeros can run faster than real numbers do. A few are copied over and over, since many would take the host longer than
    /// all that is timed.
    fn fill(&self, streams: &[TimingStream], precision: Precision) -> Result<(), CudaError> {
        let numbers = (0..101 * 512).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.01);
        let bits: Vec<u32> = match precision {
            Precision::Bf16 => numbers.map(|v| (v.to_bits() >> 16) * 0x1_0001).collect(),
            Precision::F32 | Precision::Tf32 => numbers.map(|v| v.to_bits() & !0x1fff).collect(),
        };
        for region in [self.x, self.y, self.w] {
            streams.iter().try_for_each(|on| on.arena.fill(&on.stream, region, &bits))?;
        }
        Ok(())
    }

    fn operands(&self, gemm: &Gemm, arena: &Arena) -> Operands {
        let (x, y) = (arena.at(self.x), arena.at(self.y));
        // As far from a round address as in the flat buffer; gradients are f32 whatever the factors are.
        let bytes = if gemm.mode == Mode::Weights { 4 } else { gemm.precision.activation_bytes() };
        let w = arena.inside(self.w, gemm.weight_offset % 8 * bytes);
        let mut operands = match gemm.mode {
            Mode::Forward => Operands::new(x, w, y),
            Mode::Input => Operands::new(y, w, x),
            Mode::Weights => Operands::new(y, x, w),
        };
        if let Some(at) = gemm.bias_offset {
            operands.bias = arena.inside(self.bias, 4 * (at % 4));
        }
        if gemm.adds {
            operands.addend = operands.out;
        }
        operands
    }
}

/// One of those that run at once: a stream with memory of its own.
struct TimingStream {
    stream: CudaStream,
    arena: Arena,
    done: CudaEvent,
}

impl TimingStream {
    fn new(device: &Device, layout: ArenaLayout) -> Result<Self, CudaError> {
        let arena = layout.build(device, "timing a product")?;
        Ok(TimingStream { stream: CudaStream::new(device)?, arena, done: CudaEvent::new(device)? })
    }
}

/// The least milliseconds of a few rounds in which every stream does its work [`RUNS`] times, as one graph: started one by
/// one, small products would wait for the host. What is hopelessly slower than the best so far is not measured closely.
fn least_time(
    device: &Device,
    streams: &[TimingStream],
    so_far: f32,
    work: impl Fn(&TimingStream) -> Result<(), CudaError>,
) -> Result<f32, CudaError> {
    let fork = CudaEvent::new(device)?;
    let (first, others) = streams.split_first().expect("at least one runs");
    // Twice outside of the graph, the first time for what is loaded or set up then.
    startup::during("first runs of candidates", || first.stream.time(|| work(first)))?;
    // Less what starting it by itself may cost.
    let roughly = RUNS as f32 * (startup::during("second runs", || first.stream.time(|| work(first)))? - STARTING);
    if roughly > if tries("thorough") { 3.0 } else { 1.1 } * so_far {
        return Ok(roughly);
    }
    startup::during("close timings", || replayed(first, others, &fork, &work))
}

/// The same, of streams that are replayed from a graph.
fn replayed(
    first: &TimingStream,
    others: &[TimingStream],
    fork: &CudaEvent,
    work: &impl Fn(&TimingStream) -> Result<(), CudaError>,
) -> Result<f32, CudaError> {
    let graph = first.stream.capture(|| {
        first.stream.record(fork)?;
        others.iter().try_for_each(|on| on.stream.wait_for(fork))?;
        for _ in 0..RUNS {
            work(first)?;
            others.iter().try_for_each(work)?;
        }
        others.iter().try_for_each(|on| {
            on.stream.record(&on.done)?;
            first.stream.wait_for(&on.done)
        })
    })?;
    let mut least = f32::INFINITY;
    for _ in 0..3 {
        least = least.min(first.stream.time(|| graph.launch(&first.stream))?);
    }
    Ok(least)
}
