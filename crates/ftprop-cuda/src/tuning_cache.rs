//! Which algorithm was the fastest for a product, kept on disk for each kind of GPU.

use crate::cache::{cache_folder, hash, keep};
use crate::device::DeviceInfo;
use crate::gemm::{Algorithm, Cut, Filters, MAX_SPLIT_K, TILES, Tiling};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

/// An algorithm that was the fastest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CachedAlgorithm {
    pub(crate) algorithm: Algorithm,
    /// Of the library, whose numbers mean something else in another version; 0 where the algorithm is ours.
    pub(crate) version: usize,
}

/// Algorithms by the product's key.
pub(crate) struct TuningCache {
    path: Option<PathBuf>,
    known: BTreeMap<String, CachedAlgorithm>,
    /// What was found out here and is not saved yet.
    new: BTreeMap<String, CachedAlgorithm>,
}

impl TuningCache {
    /// For GPUs of this kind. One name has been given to several: what counts beside it is the compute capability, the
    /// multiprocessors and the memory; and which kernels NVRTC makes of the text, its version.
    pub(crate) fn open(device: &DeviceInfo, compiler: (i32, i32)) -> Self {
        // Another kernel text may make another choice the best; the number counts how choices were made.
        let kernels = concat!(
            include_str!("../kernels/gemm.cu"),
            include_str!("../kernels/patch_forward.cu"),
            include_str!("../kernels/patch_gradient.cu"),
            include_str!("../kernels/patch_backward.cu"),
            include_str!("../kernels/shifted.cu"),
            include_str!("../kernels/shifted.cuh"),
            include_str!("../kernels/shifted_streamed.cuh"),
            include_str!("../kernels/shifted_tiles.cuh"),
            include_str!("../kernels/shifted_kept.cuh"),
            include_str!("../kernels/shifted_held.cuh"),
            include_str!("../kernels/shifted_gradient.cu"),
            include_str!("../kernels/warpgroup.cuh")
        );
        let version = hash(kernels, 14);
        let file = format!("{}-{version:016x}.txt", kind(device, compiler));
        let path = cache_folder().map(|folder| folder.join("tuning").join(file));
        TuningCache::at(path)
    }

    fn at(path: Option<PathBuf>) -> Self {
        TuningCache { known: path.as_deref().map(read).unwrap_or_default(), new: BTreeMap::new(), path }
    }

    pub(crate) fn get(&self, key: &str) -> Option<CachedAlgorithm> {
        self.known.get(key).copied()
    }

    /// Keeps what was found out, to be known from the next [`save`](TuningCache::save) on.
    pub(crate) fn insert(&mut self, key: String, known: CachedAlgorithm) {
        self.new.insert(key, known);
    }

    /// Writes what was found out to what others have written since: under a lock, where there are locks, so that nothing of
    /// theirs is lost. Of two that timed the same product at once the first one's choice holds for both, so that all
    /// ranks of a run, and the next run, compute alike.
    pub(crate) fn save(&mut self) {
        let new = std::mem::take(&mut self.new);
        let Some(path) = &self.path else { return self.known.extend(new) };
        let Some(folder) = path.parent() else { return self.known.extend(new) };
        let _ = ftprop_files::create_folder(folder);
        let lock = File::open(folder).ok();
        if let Some(folder) = &lock {
            let _ = folder.lock();
        }
        let written = read(path);
        let is_theirs = |key: &str| written.get(key).is_some_and(|there| Some(there) != self.known.get(key));
        let ours: Vec<_> = new.into_iter().filter(|(key, _)| !is_theirs(key)).collect();
        self.known.extend(written);
        self.known.extend(ours);
        keep(path, write(&self.known).as_bytes());
    }
}

/// What a kind of GPU is called in a file's name.
fn kind(device: &DeviceInfo, compiler: (i32, i32)) -> String {
    let name = device.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let (major, minor) = device.compute_capability;
    // The driver keeps some of the memory, and not always as much.
    let gigabytes = (device.memory_total as f64 / f64::from(1 << 30)).round();
    let multiprocessors = device.multiprocessors;
    format!("{name}-sm{major}{minor}-{multiprocessors}-{gigabytes}GB-nvrtc{}.{}", compiler.0, compiler.1)
}

fn read(path: &Path) -> BTreeMap<String, CachedAlgorithm> {
    parse(&std::fs::read_to_string(path).unwrap_or_default())
}

/// A line each: a tile's number and the split of its depth, the name of another of our kernels with how it is cut, or a library's
/// name, the number of its algorithm and its version.
fn write(known: &BTreeMap<String, CachedAlgorithm>) -> String {
    let line = |(key, known): (&String, &CachedAlgorithm)| match known.algorithm {
        Algorithm::Patch => format!("{key} = patch\n"),
        Algorithm::Shifted(Cut { down, columns, filters }) => {
            format!("{key} = shifted {down} {columns} {}\n", filters.word())
        }
        Algorithm::Cudnn(number) => format!("{key} = cudnn {number} {}\n", known.version),
        Algorithm::Cublas(number) => format!("{key} = cublas {number} {}\n", known.version),
        Algorithm::Tiled(tiling) => {
            let tile = TILES.iter().position(|t| *t == tiling.tile).unwrap_or_default();
            format!("{key} = {tile} {}\n", tiling.split_k)
        }
    };
    known.iter().map(line).collect()
}

fn parse(text: &str) -> BTreeMap<String, CachedAlgorithm> {
    let line = |line: &str| {
        let (key, words) = line.split_once(" = ")?;
        let number = |word: &str| word.parse::<usize>().ok();
        let (algorithm, version) = match *words.split(' ').collect::<Vec<_>>() {
            ["patch"] => (Algorithm::Patch, 0),
            ["shifted", down, columns, word] => {
                let (filters, _) = *Filters::WORDS.iter().find(|(_, known)| *known == word)?;
                (Algorithm::Shifted(Cut { down: number(down)?, columns: number(columns)?, filters }), 0)
            }
            ["cudnn", which, version] => (Algorithm::Cudnn(number(which)?), number(version)?),
            ["cublas", which, version] => (Algorithm::Cublas(number(which)?), number(version)?),
            [tile, split_k] => {
                let (tile, split_k) = (*TILES.get(number(tile)?)?, number(split_k)?);
                if !(1..=MAX_SPLIT_K).contains(&split_k) {
                    return None;
                }
                (Algorithm::Tiled(Tiling { tile, split_k }), 0)
            }
            _ => return None,
        };
        Some((key.to_string(), CachedAlgorithm { algorithm, version }))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> BTreeMap<String, CachedAlgorithm> {
        let own = Algorithm::Tiled(Tiling { tile: TILES[3], split_k: 4 });
        let all = [
            ("a b", own, 0),
            ("e", Algorithm::Cudnn(1), 91400),
            ("f", Algorithm::Cublas(7), 130100),
            ("g", Algorithm::Patch, 0),
            ("h", Algorithm::Shifted(Cut { down: 2, columns: 64, filters: Filters::Streamed }), 0),
            ("i", Algorithm::Shifted(Cut { down: 1, columns: 48, filters: Filters::Kept }), 0),
        ];
        all.into_iter()
            .map(|(key, algorithm, version)| (key.to_string(), CachedAlgorithm { algorithm, version }))
            .collect()
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(parse(&write(&some())), some());
    }

    #[test]
    fn one_name_can_be_of_several_kinds() {
        let device = DeviceInfo {
            ordinal: 0,
            name: "NVIDIA A100/x".into(),
            compute_capability: (8, 0),
            multiprocessors: 108,
            memory_total: 42_000_000_000,
            memory_free: 0,
        };
        assert_eq!(kind(&device, (13, 0)), "NVIDIA-A100-x-sm80-108-39GB-nvrtc13.0");
        let larger = DeviceInfo { memory_total: 84_000_000_000, ..device.clone() };
        assert_ne!(kind(&device, (13, 0)), kind(&larger, (13, 0)));
        assert_ne!(kind(&device, (13, 0)), kind(&device, (12, 9)));
    }

    #[test]
    fn processes_that_tune_at_once_lose_nothing() {
        let folder = std::env::temp_dir().join(format!("ftprop-tuning-{}", std::process::id()));
        let path = folder.join("gpu.txt");
        let one = CachedAlgorithm { algorithm: Algorithm::Patch, version: 0 };
        std::thread::scope(|scope| {
            for process in 0..8 {
                let path = path.clone();
                scope.spawn(move || {
                    for product in 0..10 {
                        let mut cache = TuningCache::at(Some(path.clone()));
                        cache.insert(format!("{process} {product}"), one);
                        cache.save();
                    }
                });
            }
        });
        assert_eq!(read(&path).len(), 80);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn who_chooses_first_chooses_for_all() {
        let folder = std::env::temp_dir().join(format!("ftprop-tuning-first-{}", std::process::id()));
        let path = Some(folder.join("gpu.txt"));
        let [early, late, stale] =
            [7, 8, 9].map(|number| CachedAlgorithm { algorithm: Algorithm::Cudnn(number), version: 1 });
        let (mut first, mut second) = (TuningCache::at(path.clone()), TuningCache::at(path.clone()));
        first.insert("product".into(), early);
        second.insert("product".into(), late);
        first.save();
        second.save();
        assert_eq!([first, second].map(|cache| cache.get("product")), [Some(early); 2]);

        // What was known before and no longer holds gives way.
        let mut again = TuningCache::at(path.clone());
        again.insert("product".into(), stale);
        again.save();
        assert_eq!(TuningCache::at(path).get("product"), Some(stale));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn damaged_lines_are_passed_over() {
        let text = "a b = 3 4\nnonsense\nc = 99 1\nd = 1 0\ne = cudnn 1 91400\nf = cublas 7 130100\ng = patch\n\
                    h = shifted 2 64 streamed\ni = shifted 1 48 kept\nj = cudnn 1\nk = cudnn x 91400\nl = shifted 1 48 lost\n";
        assert_eq!(parse(text), some());
    }
}
