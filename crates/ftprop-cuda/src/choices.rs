//! Which way to compute a product was the fastest, kept on disk for each kind of GPU.

use crate::compile::{cache_folder, hash, keep};
use crate::gemm::{Choice, Cut, MOST_SPLITS, TILES};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A choice that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) choice: Choice,
    /// Of the library, whose numbers mean something else in another version; 0 where the choice is ours.
    pub(crate) version: usize,
}

/// Choices by the product's key.
pub(crate) struct Remembered {
    path: Option<PathBuf>,
    known: BTreeMap<String, Known>,
}

impl Remembered {
    /// For a GPU of that name.
    pub(crate) fn open(name: &str) -> Self {
        // Another kernel text may make another choice the best; the number counts how choices were made.
        let kernels = concat!(
            include_str!("../kernels/gemm.cu"),
            include_str!("../kernels/patch.cu"),
            include_str!("../kernels/patch_gradient.cu"),
            include_str!("../kernels/patch_back.cu")
        );
        let version = hash(kernels, 8);
        let file = format!("{}-{version:016x}.txt", name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let path = cache_folder().map(|folder| folder.join("tuning").join(file));
        let text = path.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
        Remembered { path, known: parse(&text) }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Known> {
        self.known.get(key).copied()
    }

    pub(crate) fn insert(&mut self, key: String, known: Known) {
        self.known.insert(key, known);
    }

    pub(crate) fn save(&self) {
        if let Some(path) = &self.path {
            keep(path, write(&self.known).as_bytes());
        }
    }
}

/// A line each: a tile's number and splits, or a library's name, the number of its way and its version.
fn write(known: &BTreeMap<String, Known>) -> String {
    let line = |(key, known): (&String, &Known)| match known.choice {
        Choice::Patch => format!("{key} = patch\n"),
        Choice::Cudnn(number) => format!("{key} = cudnn {number} {}\n", known.version),
        Choice::Cublas(number) => format!("{key} = cublas {number} {}\n", known.version),
        Choice::Own(cut) => {
            let tile = TILES.iter().position(|t| *t == cut.tile).unwrap_or_default();
            format!("{key} = {tile} {}\n", cut.splits)
        }
    };
    known.iter().map(line).collect()
}

fn parse(text: &str) -> BTreeMap<String, Known> {
    let line = |line: &str| {
        let (key, choice) = line.split_once(" = ")?;
        let number = |word: &str| word.parse::<usize>().ok();
        let (choice, version) = match *choice.split(' ').collect::<Vec<_>>() {
            ["patch"] => (Choice::Patch, 0),
            ["cudnn", way, version] => (Choice::Cudnn(number(way)?), number(version)?),
            ["cublas", way, version] => (Choice::Cublas(number(way)?), number(version)?),
            [tile, splits] => {
                let (tile, splits) = (*TILES.get(number(tile)?)?, number(splits)?);
                if !(1..=MOST_SPLITS).contains(&splits) {
                    return None;
                }
                (Choice::Own(Cut { tile, splits }), 0)
            }
            _ => return None,
        };
        Some((key.to_string(), Known { choice, version }))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> BTreeMap<String, Known> {
        let own = Choice::Own(Cut { tile: TILES[3], splits: 4 });
        let all = [
            ("a b", own, 0),
            ("e", Choice::Cudnn(1), 91400),
            ("f", Choice::Cublas(7), 130100),
            ("g", Choice::Patch, 0),
        ];
        all.into_iter().map(|(key, choice, version)| (key.to_string(), Known { choice, version })).collect()
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
