//! Which algorithm computes a product fastest: timed once per shape on this kind of GPU, then kept on disk.

use crate::CudaError;
use crate::compile::{Source, nvrtc_version};
use crate::compiled_gemm::CompiledGemm;
use crate::device::{Device, DeviceLimits};
use crate::environment::tries;
use crate::gemm::{Algorithm, Gemm};
use crate::libraries::Libraries;
use crate::patch::Patch;
use crate::startup;
use crate::tile_model::worth_timing;
use crate::timing::fastest_of;
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

/// What computes each product of a network for batches of n, with the libraries that are needed for it. `others` are the
/// network's other kernels, which are compiled beside those that are timed.
pub(crate) fn choose(
    device: &Device,
    gemms: &[Gemm],
    n: usize,
    tuning: Tuning,
    others: impl FnOnce() -> Vec<Source>,
) -> Result<(Vec<Algorithm>, Libraries), CudaError> {
    match tuning {
        Tuning::Fixed => {
            let limits = device.limits()?;
            Ok((gemms.iter().map(|g| Algorithm::Tiled(g.guess(n, limits))).collect(), Libraries::default()))
        }
        Tuning::Libraries => by_libraries(device, gemms, n),
        Tuning::Alone => fastest(device, gemms, n, 1, others),
        Tuning::Shared => fastest(device, gemms, n, SHARED_NETWORKS, others),
    }
}

/// Our own algorithms that are worth timing, where so many products run at once.
fn candidates(gemm: &Gemm, n: usize, limits: DeviceLimits, concurrent: usize) -> Vec<Algorithm> {
    let mut tilings = gemm.candidates(n, limits, concurrent > 1);
    if !tries("thorough") {
        // Where a library is asked as well, it mostly wins.
        let keep = if gemm.suits_cudnn(n) || gemm.suits_cublas() { 2 } else { 4 };
        tilings = worth_timing(gemm, n, limits, tilings, keep);
    }
    let tiled = tilings.into_iter().map(Algorithm::Tiled);
    tiled.chain(Patch::suits(gemm, limits).then_some(Algorithm::Patch)).collect()
}

/// The fastest algorithm for each product and batches of n where so many of the same run at once, with the libraries that
/// were chosen.
fn fastest(
    device: &Device,
    gemms: &[Gemm],
    n: usize,
    concurrent: usize,
    others: impl FnOnce() -> Vec<Source>,
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
    let mut libraries = startup::during("opening libraries", || Libraries::open(device, cudnn, cublas, concurrent));
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
        // All of them at once, with what else the network needs, so that the compiler has work for every core; what
        // libraries take is found out meanwhile.
        let own: Vec<Vec<Algorithm>> = unknown.iter().map(|gemm| candidates(gemm, n, limits, concurrent)).collect();
        let compiled = |(gemm, all): (&&Gemm, &Vec<Algorithm>)| {
            all.iter().filter_map(|&algorithm| CompiledGemm::source(gemm, algorithm)).collect::<Vec<_>>()
        };
        let sources: Vec<Source> = unknown.iter().zip(&own).flat_map(compiled).chain(others()).collect();
        let theirs = device.modules_while(&sources, || {
            let time = |gemm: &&Gemm| {
                fastest_of(device, gemm, &libraries, n, concurrent, &libraries.algorithms(gemm, n), None)
            };
            unknown.iter().map(time).collect::<Result<Vec<_>, _>>()
        })??;
        for ((gemm, own), best) in unknown.into_iter().zip(own).zip(theirs) {
            if let Some((_, algorithm)) = fastest_of(device, gemm, &libraries, n, concurrent, &own, best)? {
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
