//! Who computes a product fastest, and in which tiles: timed once per shape on this kind of GPU, then kept on
//! disk.

use crate::CudaError;
use crate::arena::{Arena, ArenaLayout};
use crate::compile::{File, Source};
use crate::cublas::{self, Cublas, WORKSPACE};
use crate::cudnn::Cudnn;
use crate::device::Device;
use crate::gemm::{Algorithm, Gemm, Mode, Tiling};
use crate::passes::CompiledGemm;
use crate::patch::Patch;
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
        let unknown = || CudaError::Setting(format!("unknown '{text}'; known are fixed, alone, shared and libraries"));
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

fn by_cudnn(choice: &Algorithm) -> bool {
    matches!(choice, Algorithm::Cudnn(_))
}

fn by_cublas(choice: &Algorithm) -> bool {
    matches!(choice, Algorithm::Cublas(_))
}

/// NVIDIA's libraries, those that a network's products use.
#[derive(Default)]
pub(crate) struct Libraries {
    cudnn: Option<Cudnn>,
    cublas: Option<Cublas>,
}

impl Libraries {
    pub(crate) fn cudnn(&self) -> Result<&Cudnn, CudaError> {
        self.cudnn.as_ref().ok_or_else(|| CudaError::Setting("cuDNN was chosen but is not loaded".into()))
    }

    pub(crate) fn cublas(&self) -> Result<&Cublas, CudaError> {
        self.cublas.as_ref().ok_or_else(|| CudaError::Setting("cuBLASLt was chosen but is not loaded".into()))
    }

    /// The ways in which they can compute a product.
    fn ways(&self, gemm: &Gemm, n: usize) -> Vec<Algorithm> {
        let cudnn = self.cudnn.as_ref().filter(|_| gemm.suits_cudnn(n)).map_or(0, |cudnn| cudnn.ways(gemm, n));
        let cudnn = (0..cudnn).map(Algorithm::Cudnn);
        let cublas = (0..cublas::PROPOSALS).map(Algorithm::Cublas);
        cublas.chain(cudnn).filter(|&choice| self.can(choice, gemm, n)).collect()
    }

    /// Of the library that computes a product this way, 0 where it is not installed or none does.
    fn version(&self, choice: Algorithm) -> usize {
        match choice {
            Algorithm::Tiled(_) | Algorithm::Patch => 0,
            Algorithm::Cudnn(_) => self.cudnn.as_ref().map_or(0, Cudnn::version),
            Algorithm::Cublas(_) => self.cublas.as_ref().map_or(0, Cublas::version),
        }
    }

    /// Whether they can compute a product that way, where it is left to them.
    fn can(&self, choice: Algorithm, gemm: &Gemm, n: usize) -> bool {
        match choice {
            Algorithm::Tiled(_) | Algorithm::Patch => true,
            Algorithm::Cudnn(a) => {
                gemm.suits_cudnn(n)
                    && self.cudnn.as_ref().is_some_and(|c| CompiledGemm::cudnn_bytes(gemm, c, a, n).is_ok())
            }
            Algorithm::Cublas(a) => {
                let known = |c: &Cublas| c.prepare(gemm, n).is_ok_and(|count| a < count);
                gemm.suits_cublas() && self.cublas.as_ref().is_some_and(known)
            }
        }
    }
}

/// The fastest choice for each product and batches of n where so many of the same run at once, with the libraries that
/// were chosen.
pub(crate) fn fastest(
    device: &Device,
    gemms: &[Gemm],
    n: usize,
    concurrent: usize,
) -> Result<(Vec<Algorithm>, Libraries), CudaError> {
    let mut remembered = TuningCache::open(&device.info()?.name);
    let limits = device.limits()?;
    let candidates = |gemm: &Gemm| gemm.candidates(n, limits, concurrent > 1);
    let key = |gemm: &Gemm| match concurrent {
        1 => gemm.key(n),
        _ => format!("{} shared", gemm.key(n)),
    };
    let several = |gemm: &Gemm| candidates(gemm).len() > 1;
    let wanted = |by: fn(&Algorithm) -> bool, suits: &dyn Fn(&Gemm) -> bool| {
        let one = |gemm: &Gemm| match remembered.get(&key(gemm)) {
            Some(known) => by(&known.choice),
            None => several(gemm) && suits(gemm),
        };
        gemms.iter().any(one)
    };
    // Without a library our own kernels do everything.
    let mut libraries = Libraries::default();
    if wanted(by_cudnn, &|gemm| gemm.suits_cudnn(n)) {
        libraries.cudnn = Cudnn::new(device, concurrent).ok();
    }
    if wanted(by_cublas, &|gemm| gemm.suits_cublas()) {
        libraries.cublas = Cublas::new(device).ok();
    }
    let holds = |known: CachedAlgorithm, gemm: &Gemm| match known.choice {
        Algorithm::Patch => Patch::suits(gemm, limits),
        choice => libraries.version(choice) == known.version && libraries.can(choice, gemm, n),
    };
    let mut unknown: Vec<&Gemm> = Vec::new();
    for gemm in gemms {
        let known = remembered.get(&key(gemm)).is_some_and(|known| holds(known, gemm));
        if several(gemm) && !known && !unknown.iter().any(|g| key(g) == key(gemm)) {
            unknown.push(gemm);
        }
    }
    if !unknown.is_empty() {
        // All of them at once, so that the compiler has work for every core.
        let mut sources: Vec<_> =
            unknown.iter().flat_map(|g| candidates(g).into_iter().map(|c| g.source(c.tile))).collect();
        sources.extend(unknown.iter().filter(|g| Patch::suits(g, limits)).map(|g| Patch::of(g).source()));
        device.kernels(&sources)?;
        for gemm in unknown {
            if let Some(choice) = time(device, gemm, &candidates(gemm), &libraries, n, concurrent)? {
                remembered.insert(key(gemm), CachedAlgorithm { choice, version: libraries.version(choice) });
            }
        }
        remembered.save();
    }
    let choice = |gemm: &Gemm| {
        let known = remembered.get(&key(gemm)).filter(|&known| holds(known, gemm));
        known.map_or_else(|| Algorithm::Tiled(gemm.guess(n, limits)), |known| known.choice)
    };
    let choices: Vec<Algorithm> = gemms.iter().map(choice).collect();
    libraries.cudnn = libraries.cudnn.filter(|_| choices.iter().any(by_cudnn));
    libraries.cublas = libraries.cublas.filter(|_| choices.iter().any(by_cublas));
    Ok((choices, libraries))
}

/// Leaves to the libraries what they can compute.
pub(crate) fn by_libraries(
    device: &Device,
    gemms: &[Gemm],
    n: usize,
) -> Result<(Vec<Algorithm>, Libraries), CudaError> {
    let limits = device.limits()?;
    let libraries = Libraries { cudnn: Cudnn::new(device, 1).ok(), cublas: Cublas::new(device).ok() };
    let choice = |gemm: &Gemm| {
        let first = libraries.ways(gemm, n).first().copied();
        first.unwrap_or_else(|| Algorithm::Tiled(gemm.guess(n, limits)))
    };
    let choices = gemms.iter().map(choice).collect();
    Ok((choices, libraries))
}

/// The fastest way to compute a product; none where there is no memory to find out.
fn time(
    device: &Device,
    gemm: &Gemm,
    tilings: &[Tiling],
    libraries: &Libraries,
    n: usize,
    concurrent: usize,
) -> Result<Option<Algorithm>, CudaError> {
    let sources: Vec<_> = tilings.iter().map(|c| gemm.source(c.tile)).collect();
    let kernels = device.kernels(&sources)?;
    let limits = device.limits()?;
    let basic = device.kernel(Source::new(File::Basic, gemm.precision))?;
    let g = &gemm.geometry;
    let mut layout = ArenaLayout::default();
    let lengths = [n * g.height * g.width * gemm.stored, n * g.out_len(), g.weight_len() + 8];
    let places = lengths.map(|len| layout.floats(len));
    let patch = Patch::suits(gemm, limits).then(|| Patch::of(gemm));
    let tiled_bytes = tilings.iter().map(|c| 4 * gemm.workspace(n, *c)).max().unwrap_or(0);
    let own_bytes = tiled_bytes.max(patch.map_or(0, |p| 4 * p.workspace(n)));
    let bias = layout.floats(g.out_channels + 4);
    let ways = libraries.ways(gemm, n);
    let mut bytes = own_bytes;
    for way in &ways {
        bytes = bytes.max(match way {
            Algorithm::Cudnn(a) => CompiledGemm::cudnn_bytes(gemm, libraries.cudnn()?, *a, n)?,
            _ => WORKSPACE,
        });
    }
    let workspace = layout.take(bytes);
    let mut runs = Vec::new();
    for (tiling, kernels) in tilings.iter().zip(kernels) {
        runs.push((Algorithm::Tiled(*tiling), CompiledGemm::own(*gemm, *tiling, kernels, workspace, n, &mut layout)?));
    }
    if let Some(patch) = patch {
        let kernels = device.kernel(patch.source())?;
        runs.push((Algorithm::Patch, CompiledGemm::patch(*gemm, kernels, workspace)?));
    }
    for way in ways {
        let run = match way {
            Algorithm::Cudnn(a) => {
                CompiledGemm::cudnn(*gemm, libraries.cudnn()?, a, &basic, workspace, n, &mut layout)?
            }
            Algorithm::Cublas(a) => CompiledGemm::cublas(*gemm, libraries.cublas()?, a, workspace),
            Algorithm::Tiled(_) | Algorithm::Patch => continue,
        };
        runs.push((way, run));
    }
    let mut lanes = Vec::new();
    for _ in 0..concurrent {
        match TimingStream::new(device, layout.clone()) {
            Ok(lane) => lanes.push(lane),
            // Fewer tell nearly as much.
            Err(error) if error.is_memory() => break,
            Err(error) => return Err(error),
        }
    }
    if lanes.is_empty() {
        return Ok(None);
    }
    for (place, len) in places.iter().zip(lengths) {
        // Zeros can run faster than real numbers do.
        let values: Vec<f32> = (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.01).collect();
        for lane in &lanes {
            lane.arena.buffer.write(&lane.stream, lane.arena.offset(*place), &values)?;
        }
    }
    let once = |run: &CompiledGemm, lane: &TimingStream| {
        let [x, y, w] = places.map(|p| lane.arena.at(p));
        // As far from a round address as in the flat buffer; gradients are f32 whatever the factors are.
        let bytes = if gemm.mode == Mode::Weights { 4 } else { gemm.precision.activation_bytes() };
        let w = w + (gemm.weight_offset % 8 * bytes) as u64;
        let bias = gemm.bias_offset.map_or(0, |at| lane.arena.at(bias) + 4 * (at % 4) as u64);
        let operands = match gemm.mode {
            Mode::Forward => [x, w, y],
            Mode::Input => [y, w, x],
            Mode::Weights => [y, x, w],
        };
        run.run(&lane.stream, &lane.arena, n, operands, bias, 0)
    };
    let own = |choice: &Algorithm| matches!(choice, Algorithm::Tiled(_) | Algorithm::Patch);
    let mut best: Option<(f32, Algorithm)> = None;
    for (choice, run) in &runs {
        let so_far = best.map_or(f32::INFINITY, |(ms, _)| ms);
        let ms = match least(device, &lanes, so_far, |lane| once(run, lane)) {
            Ok(ms) if own(choice) => ms,
            Ok(ms) => ms / WORTH,
            Err(error) if error.is_memory() => continue,
            Err(error) if own(choice) => return Err(error),
            // What a library cannot do, our own kernels can.
            Err(_) => continue,
        };
        if best.is_none_or(|(least, _)| ms < least) {
            best = Some((ms, *choice));
        }
    }
    Ok(best.map(|(_, choice)| choice))
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

/// The least time of a few rounds in which every lane does its work [`TIMED`] times, as one graph: started one by
/// one, small products would wait for the host. What is hopelessly slower than the best so far is not measured closely.
fn least(
    device: &Device,
    lanes: &[TimingStream],
    so_far: f32,
    work: impl Fn(&TimingStream) -> Result<(), CudaError>,
) -> Result<f32, CudaError> {
    let fork = CudaEvent::new(device)?;
    let (first, others) = lanes.split_first().expect("at least one runs");
    // Twice outside of the graph, the first time for what is loaded or set up then.
    work(first)?;
    // Less what starting it by itself may cost.
    let roughly = TIMED as f32 * (first.stream.time(|| work(first))? - STARTING);
    if roughly > 3.0 * so_far {
        return Ok(roughly);
    }
    let graph = first.stream.capture(|| {
        first.stream.record(&fork)?;
        others.iter().try_for_each(|lane| lane.stream.wait_for(&fork))?;
        for _ in 0..TIMED {
            lanes.iter().try_for_each(&work)?;
        }
        others.iter().try_for_each(|lane| {
            lane.stream.record(&lane.done)?;
            first.stream.wait_for(&lane.done)
        })
    })?;
    let mut least = f32::INFINITY;
    for _ in 0..3 {
        least = least.min(first.stream.time(|| graph.launch(&first.stream))?);
    }
    Ok(least)
}
