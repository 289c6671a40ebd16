//! Which algorithm computes a product fastest: timed once per shape on this kind of GPU, then kept on disk.

use crate::CudaError;
use crate::compile::{Source, nvrtc_version};
use crate::compiled_gemm::CompiledGemm;
use crate::cudnn_engines::FEW_ENGINES;
use crate::device::{Device, DeviceLimits};
use crate::environment::tries;
use crate::gemm::{Algorithm, Gemm};
use crate::libraries::Libraries;
use crate::patch::Patch;
use crate::precision::Precision;
use crate::shifted::Shifted;
use crate::startup;
use crate::tile_model::{least_ms, worth_timing};
use crate::timing::{RUNS, fastest_of};
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
            Ok((gemms.iter().map(|gemm| fixed(gemm, n, limits)).collect(), Libraries::default()))
        }
        Tuning::Libraries => by_libraries(device, gemms, n),
        Tuning::Alone => fastest(device, gemms, n, 1, others),
        Tuning::Shared => fastest(device, gemms, n, SHARED_NETWORKS, others),
    }
}

/// What computes a product where nothing is timed: a tile, or where tests ask for it and it can be, a product by shifts, cut in
/// one way or another.
fn fixed(gemm: &Gemm, n: usize, limits: DeviceLimits) -> Algorithm {
    let cuts = if tries("shifts") { Shifted::cuts(gemm, limits) } else { Vec::new() };
    match cuts.len() {
        0 => Algorithm::Tiled(gemm.guess(n, limits)),
        many => Algorithm::Shifted(cuts[gemm.weight_offset / 8 % many]),
    }
}

/// Products up to which there is time for every tile of ours that may be the best.
const FEW_PRODUCTS: usize = 16;
/// Products from which on a library mostly leaves our own kernels no chance, so that these are not compiled before that is known.
const LARGE: usize = 1 << 32;

/// What is timed for a product.
struct Search<'a> {
    n: usize,
    limits: DeviceLimits,
    concurrent: usize,
    libraries: &'a Libraries,
    /// Whether there is time for all that may be the best.
    ample: bool,
}

impl Search<'_> {
    /// Whether a library is likely to leave our own algorithms no chance.
    fn has_rivals(&self, gemm: &Gemm) -> bool {
        let cudnn = gemm.suits_cudnn(self.n) && self.libraries.cudnn().is_ok();
        cudnn && gemm.multiply_adds(self.n) >= LARGE
    }

    /// The libraries' algorithms: those that the self test compares, see [`FEW_ENGINES`].
    fn theirs(&self, gemm: &Gemm) -> Vec<Algorithm> {
        let all = tries("thorough") && !gemm.adds;
        let mut algorithms = self.libraries.algorithms(gemm, self.n);
        algorithms.retain(|algorithm| all || !matches!(algorithm, Algorithm::Cudnn(number) if *number > FEW_ENGINES));
        algorithms
    }

    /// Our own that use the matrix units as fully as a library can.
    fn shifted(&self, gemm: &Gemm) -> Vec<Algorithm> {
        let cuts = match () {
            () if tries("unshifted") => Vec::new(),
            () if tries("thorough") || tries("cuts") => Shifted::cuts(gemm, self.limits),
            () => Shifted::candidates(gemm, self.n, self.limits),
        };
        cuts.into_iter().map(Algorithm::Shifted).collect()
    }

    /// Our other algorithms.
    fn own(&self, gemm: &Gemm) -> Vec<Algorithm> {
        let mut tilings = gemm.candidates(self.n, self.limits, self.concurrent > 1);
        if !tries("thorough") {
            // Where a library is asked as well, it mostly wins.
            let keep = match gemm.suits_cudnn(self.n) || gemm.suits_cublas() {
                _ if self.ample => 8,
                true => 2,
                false => 4,
            };
            tilings = worth_timing(gemm, self.n, self.limits, tilings, keep);
        }
        let tiled = tilings.into_iter().map(Algorithm::Tiled);
        tiled.chain(Patch::suits(gemm, self.limits).then_some(Algorithm::Patch)).collect()
    }

    /// Whether our other kernels, which multiply by `mma.sync`, may be faster than what is known, in milliseconds.
    fn own_may_win(&self, gemm: &Gemm, best: Option<(f32, Algorithm)>) -> bool {
        let hopeless = |(ms, _): (f32, Algorithm)| {
            f64::from(ms) < RUNS as f64 * self.concurrent as f64 * least_ms(gemm, self.n, self.limits)
        };
        tries("thorough") || !best.is_some_and(hopeless)
    }

    /// The kernels that algorithms of ours need.
    fn sources(gemm: &Gemm, algorithms: Vec<Algorithm>) -> Vec<Source> {
        algorithms.into_iter().filter_map(|algorithm| CompiledGemm::source(gemm, algorithm)).collect()
    }

    fn fastest(
        &self,
        device: &Device,
        gemm: &Gemm,
        algorithms: &[Algorithm],
        best: Option<(f32, Algorithm)>,
    ) -> Result<Option<(f32, Algorithm)>, CudaError> {
        fastest_of(device, gemm, self.libraries, self.n, self.concurrent, algorithms, best)
    }
}

/// Whether there is more than one way to compute a product that may be chosen by timing. Large batches often leave one tile.
fn has_choice(gemm: &Gemm, n: usize, limits: DeviceLimits, concurrent: usize) -> bool {
    let ours = || Patch::suits(gemm, limits) || !Shifted::cuts(gemm, limits).is_empty();
    let theirs = || gemm.suits_cudnn(n) || gemm.suits_cublas();
    gemm.precision != Precision::F32 && (gemm.candidates(n, limits, concurrent > 1).len() > 1 || ours() || theirs())
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
    let several = |gemm: &Gemm| has_choice(gemm, n, limits, concurrent);
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
        Algorithm::Shifted(cut) => Shifted::cuts(gemm, limits).contains(&cut),
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
        let ample = tries("thorough") || unknown.len() <= FEW_PRODUCTS;
        let search = Search { n, limits, concurrent, libraries: &libraries, ample };
        // While the libraries' algorithms are timed, all kernels are compiled that will be needed or timed in any case; others of
        // ours afterwards, where the libraries leave them a chance. Many at once, so that the compiler has work for every core.
        let equals = unknown.iter().filter(|gemm| !search.has_rivals(gemm));
        let needed = equals.flat_map(|gemm| Search::sources(gemm, search.own(gemm)));
        let needed = needed.chain(unknown.iter().flat_map(|gemm| Search::sources(gemm, search.shifted(gemm))));
        let needed: Vec<Source> = needed.chain(others()).collect();
        let theirs = device.modules_while(&needed, || {
            let time = |gemm: &&Gemm| search.fastest(device, gemm, &search.theirs(gemm), None);
            unknown.iter().map(time).collect::<Result<Vec<_>, _>>()
        })??;
        let mut best = Vec::new();
        for (gemm, theirs) in unknown.iter().zip(theirs) {
            best.push(search.fastest(device, gemm, &search.shifted(gemm), theirs)?);
        }
        let open: Vec<bool> = unknown.iter().zip(&best).map(|(gemm, best)| search.own_may_win(gemm, *best)).collect();
        let left = unknown.iter().zip(&open).filter(|(_, open)| **open);
        device.modules(&left.flat_map(|(gemm, _)| Search::sources(gemm, search.own(gemm))).collect::<Vec<_>>())?;
        for ((gemm, best), open) in unknown.into_iter().zip(best).zip(open) {
            let own = if open { search.own(gemm) } else { Vec::new() };
            if let Some((_, algorithm)) = search.fastest(device, gemm, &own, best)? {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::Mode;
    use ftprop_tensor::geometry::ConvGeometry;

    /// The first convolution of convnet4 in batches of 1024, for which only one tile of `gemm.cu` comes into question.
    #[test]
    fn a_product_with_one_tile_has_a_choice_where_there_are_other_kernels() {
        let limits = DeviceLimits { multiprocessors: 132, shared: 227 << 10, warpgroups: true };
        let geometry = ConvGeometry {
            height: 32,
            width: 32,
            in_channels: 3,
            out_channels: 32,
            kernel_h: 5,
            kernel_w: 5,
            stride: 1,
            pad: 3,
            groups: 1,
        };
        let mut gemm = Gemm {
            mode: Mode::Forward,
            geometry,
            precision: Precision::Bf16,
            weight_offset: 0,
            stored: 4,
            f32_output: false,
            bias_offset: None,
            adds: false,
        };
        assert_eq!(gemm.candidates(1024, limits, false).len(), 1);
        assert!(has_choice(&gemm, 1024, limits, 1));
        gemm.precision = Precision::F32;
        assert!(!has_choice(&gemm, 1024, limits, 1));
    }
}
