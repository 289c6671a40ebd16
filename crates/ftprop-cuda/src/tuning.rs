//! Which algorithm computes a product fastest: timed once per shape on this kind of GPU, then kept on disk.

use crate::CudaError;
use crate::arena::{Arena, ArenaLayout, Region};
use crate::compile::nvrtc_version;
use crate::compiled_gemm::CompiledGemm;
use crate::device::{Device, DeviceLimits};
use crate::gemm::{Algorithm, Gemm, Mode, Operands};
use crate::libraries::Libraries;
use crate::patch::Patch;
use crate::precision::Precision;
use crate::stream::{CudaEvent, CudaStream};
use crate::tuning_cache::{CachedAlgorithm, TuningCache};
use std::fmt;
use std::str::FromStr;

/// How a network's products are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// Nothing by timing, so that the same seed gives the same bytes on this kind of GPU.
    Fixed,
    /// What ends soonest on a GPU that does nothing else.
    Alone,
    /// What takes least of a GPU that other networks use at the same time: filling it with one small product, by
    /// splitting sums over many blocks, is work that the others would rather do themselves.
    Shared,
    /// Everything that cuDNN or cuBLASLt can compute is left to them, to compare with.
    Libraries,
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tuning::Fixed => "fixed",
            Tuning::Alone => "alone",
            Tuning::Shared => "shared",
            Tuning::Libraries => "libraries",
        })
    }
}

impl FromStr for Tuning {
    type Err = CudaError;

    fn from_str(text: &str) -> Result<Self, CudaError> {
        let all = [Tuning::Fixed, Tuning::Alone, Tuning::Shared, Tuning::Libraries];
        let known = "fixed, alone, shared and libraries";
        let unknown = || CudaError::UnknownName { what: "tuning", name: text.into(), known };
        all.into_iter().find(|tuning| tuning.to_string() == text).ok_or_else(unknown)
    }
}

/// The same product at once, where a share of the GPU counts.
pub(crate) const SHARED_NETWORKS: usize = 8;
/// Launches of one timing, one after another.
const TIMED: usize = 5;
/// Milliseconds that a launch outside of a graph may take on top.
const STARTING: f32 = 0.05;
/// What a library must save to be chosen: starting it costs something too.
const WORTH: f32 = 0.95;

/// What computes each product of a network for batches of n, with the libraries that are needed for it.
pub(crate) fn choose(
    device: &Device,
    gemms: &[Gemm],
    n: usize,
    tuning: Tuning,
) -> Result<(Vec<Algorithm>, Libraries), CudaError> {
    match tuning {
        Tuning::Fixed => {
            let limits = device.limits()?;
            Ok((gemms.iter().map(|g| Algorithm::Tiled(g.guess(n, limits))).collect(), Libraries::default()))
        }
        Tuning::Libraries => by_libraries(device, gemms, n),
        Tuning::Alone => fastest(device, gemms, n, 1),
        Tuning::Shared => fastest(device, gemms, n, SHARED_NETWORKS),
    }
}

/// Our own algorithms that are worth timing, where so many products run at once.
fn candidates(gemm: &Gemm, n: usize, limits: DeviceLimits, concurrent: usize) -> Vec<Algorithm> {
    let tiled = gemm.candidates(n, limits, concurrent > 1).into_iter().map(Algorithm::Tiled);
    tiled.chain(Patch::suits(gemm, limits).then_some(Algorithm::Patch)).collect()
}

/// The fastest algorithm for each product and batches of n where so many of the same run at once, with the libraries that
/// were chosen.
fn fastest(
    device: &Device,
    gemms: &[Gemm],
    n: usize,
    concurrent: usize,
) -> Result<(Vec<Algorithm>, Libraries), CudaError> {
    let mut cache = TuningCache::open(&device.info()?, nvrtc_version()?);
    let limits = device.limits()?;
    let key = |gemm: &Gemm| match concurrent {
        1 => gemm.key(n),
        _ => format!("{} shared", gemm.key(n)),
    };
    let several = |gemm: &Gemm| gemm.candidates(n, limits, concurrent > 1).len() > 1;
    let wanted = |is_its: fn(&Algorithm) -> bool, suits: &dyn Fn(&Gemm) -> bool| {
        let one = |gemm: &Gemm| match cache.get(&key(gemm)) {
            Some(known) => is_its(&known.algorithm),
            None => several(gemm) && suits(gemm),
        };
        gemms.iter().any(one)
    };
    let cudnn = wanted(|a| matches!(a, Algorithm::Cudnn(_)), &|gemm| gemm.suits_cudnn(n));
    let cublas = wanted(|a| matches!(a, Algorithm::Cublas(_)), &|gemm| gemm.suits_cublas());
    let mut libraries = Libraries::open(device, cudnn, cublas, concurrent);
    let holds = |known: CachedAlgorithm, gemm: &Gemm| match known.algorithm {
        Algorithm::Patch => Patch::suits(gemm, limits),
        algorithm => libraries.version(algorithm) == known.version && libraries.can(algorithm, gemm, n),
    };
    let mut unknown: Vec<&Gemm> = Vec::new();
    for gemm in gemms {
        let known = cache.get(&key(gemm)).is_some_and(|known| holds(known, gemm));
        if several(gemm) && !known && !unknown.iter().any(|g| key(g) == key(gemm)) {
            unknown.push(gemm);
        }
    }
    if !unknown.is_empty() {
        // All of them at once, so that the compiler has work for every core.
        let sources = |gemm: &Gemm| {
            let all = candidates(gemm, n, limits, concurrent);
            all.into_iter().filter_map(|algorithm| CompiledGemm::source(gemm, algorithm)).collect::<Vec<_>>()
        };
        device.modules(&unknown.iter().flat_map(|gemm| sources(gemm)).collect::<Vec<_>>())?;
        for gemm in unknown {
            if let Some(algorithm) = time(device, gemm, &libraries, n, concurrent)? {
                cache.insert(key(gemm), CachedAlgorithm { algorithm, version: libraries.version(algorithm) });
            }
        }
        cache.save();
    }
    let algorithm = |gemm: &Gemm| {
        let known = cache.get(&key(gemm)).filter(|&known| holds(known, gemm));
        known.map_or_else(|| Algorithm::Tiled(gemm.guess(n, limits)), |known| known.algorithm)
    };
    let algorithms: Vec<Algorithm> = gemms.iter().map(algorithm).collect();
    libraries.retain(&algorithms);
    Ok((algorithms, libraries))
}

/// Leaves to the libraries what they can compute.
fn by_libraries(device: &Device, gemms: &[Gemm], n: usize) -> Result<(Vec<Algorithm>, Libraries), CudaError> {
    let limits = device.limits()?;
    let libraries = Libraries::open(device, true, true, 1);
    let algorithm = |gemm: &Gemm| {
        let first = libraries.algorithms(gemm, n).first().copied();
        first.unwrap_or_else(|| Algorithm::Tiled(gemm.guess(n, limits)))
    };
    let algorithms = gemms.iter().map(algorithm).collect();
    Ok((algorithms, libraries))
}

/// The fastest algorithm for a product; none where there is no memory to find out.
fn time(
    device: &Device,
    gemm: &Gemm,
    libraries: &Libraries,
    n: usize,
    concurrent: usize,
) -> Result<Option<Algorithm>, CudaError> {
    let mut layout = ArenaLayout::default();
    let tensors = TimingTensors::new(gemm, n, &mut layout);
    let mut algorithms = candidates(gemm, n, device.limits()?, concurrent);
    algorithms.extend(libraries.algorithms(gemm, n));
    let mut bytes = 0;
    for &algorithm in &algorithms {
        bytes = bytes.max(CompiledGemm::workspace(gemm, algorithm, libraries, n)?);
    }
    let workspace = layout.take(bytes);
    let mut compiled = Vec::new();
    for algorithm in algorithms {
        let one = CompiledGemm::new(device, *gemm, algorithm, libraries, workspace, n, &mut layout)?;
        compiled.push((algorithm, one));
    }
    let mut streams = Vec::new();
    for _ in 0..concurrent {
        match TimingStream::new(device, layout.clone()) {
            Ok(stream) => streams.push(stream),
            // Fewer tell nearly as much.
            Err(error) if error.is_memory() => break,
            Err(error) => return Err(error),
        }
    }
    if streams.is_empty() {
        return Ok(None);
    }
    tensors.fill(&streams, gemm.precision)?;
    let own = |algorithm: &Algorithm| matches!(algorithm, Algorithm::Tiled(_) | Algorithm::Patch);
    let mut best: Option<(f32, Algorithm)> = None;
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
        if best.is_none_or(|(least, _)| ms < least) {
            best = Some((ms, *algorithm));
        }
    }
    Ok(best.map(|(_, algorithm)| algorithm))
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

/// The least milliseconds of a few rounds in which every stream does its work [`TIMED`] times, as one graph: started one by
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
    work(first)?;
    // Less what starting it by itself may cost.
    let roughly = TIMED as f32 * (first.stream.time(|| work(first))? - STARTING);
    if roughly > 3.0 * so_far {
        return Ok(roughly);
    }
    let graph = first.stream.capture(|| {
        first.stream.record(&fork)?;
        others.iter().try_for_each(|on| on.stream.wait_for(&fork))?;
        for _ in 0..TIMED {
            streams.iter().try_for_each(&work)?;
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
