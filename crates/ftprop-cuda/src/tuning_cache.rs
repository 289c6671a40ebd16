//! Which algorithm was the fastest for a product, kept on disk for each kind of GPU.

use crate::cache::{cache_folder, hash, keep};
use crate::gemm::{Algorithm, MAX_SPLIT_K, TILES, Tiling};
use std::collections::BTreeMap;
use std::path::PathBuf;

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
}

impl TuningCache {
    /// For a GPU of that name.
    pub(crate) fn open(name: &str) -> Self {
        // Another kernel text may make another choice the best; the number counts how choices were made.
        let kernels = concat!(
            include_str!("../kernels/gemm.cu"),
            include_str!("../kernels/patch_forward.cu"),
            include_str!("../kernels/patch_gradient.cu"),
            include_str!("../kernels/patch_backward.cu")
        );
        let version = hash(kernels, 8);
        let file = format!("{}-{version:016x}.txt", name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let path = cache_folder().map(|folder| folder.join("tuning").join(file));
        let text = path.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
        TuningCache { path, known: parse(&text) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<CachedAlgorithm> {
        self.known.get(key).copied()
    }

    pub(crate) fn insert(&mut self, key: String, known: CachedAlgorithm) {
        self.known.insert(key, known);
    }

    pub(crate) fn save(&self) {
        if let Some(path) = &self.path {
            keep(path, write(&self.known).as_bytes());
        }
    }
}

/// A line each: a tile's number and the split of its depth, or a library's name, the number of its algorithm and its version.
fn write(known: &BTreeMap<String, CachedAlgorithm>) -> String {
    let line = |(key, known): (&String, &CachedAlgorithm)| match known.algorithm {
        Algorithm::Patch => format!("{key} = patch\n"),
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
    fn damaged_lines_are_passed_over() {
        let text = "a b = 3 4\nnonsense\nc = 99 1\nd = 1 0\ne = cudnn 1 91400\nf = cublas 7 130100\ng = patch\n\
                    h = cudnn 1\ni = cudnn x 91400\n";
        assert_eq!(parse(text), some());
    }
}
