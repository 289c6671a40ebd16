//! Which cut of a product is fastest: timed once per shape on this kind of GPU, then kept on disk.

use crate::CudaError;
use crate::arena::Layout;
use crate::compile::{cache_folder, hash, keep};
use crate::device::Device;
use crate::gemm::{Cut, Gemm, TILES};
use crate::passes::GemmRun;
use crate::stream::{Event, Stream};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Launches of one timing.
const TIMED: usize = 8;

/// Remembered choices: tile number and splits by the product's key.
struct Memory {
    path: Option<PathBuf>,
    known: BTreeMap<String, (usize, usize)>,
}

impl Memory {
    fn open(device: &Device) -> Result<Self, CudaError> {
        let name = device.info()?.name;
        // Another kernel text may make another tile the best.
        let version = hash(include_str!("../kernels/gemm.cu"), 3);
        let file = format!("{}-{version:016x}.txt", name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let path = cache_folder().map(|folder| folder.join("tuning").join(file));
        let text = path.as_ref().and_then(|p| std::fs::read_to_string(p).ok()).unwrap_or_default();
        Ok(Memory { path, known: parse(&text) })
    }

    fn save(&self) {
        if let Some(path) = &self.path {
            let lines: Vec<String> =
                self.known.iter().map(|(k, (tile, splits))| format!("{k} = {tile} {splits}\n")).collect();
            keep(path, lines.concat().as_bytes());
        }
    }
}

fn parse(text: &str) -> BTreeMap<String, (usize, usize)> {
    let line = |line: &str| {
        let (key, choice) = line.split_once(" = ")?;
        let (tile, splits) = choice.split_once(' ')?;
        let (tile, splits) = (tile.parse().ok()?, splits.parse().ok()?);
        (tile < TILES.len() && (1..=64).contains(&splits)).then(|| (key.to_string(), (tile, splits)))
    };
    text.lines().filter_map(line).collect()
}

/// The fastest cut of each product for batches of n.
pub(crate) fn fastest(device: &Device, gemms: &[Gemm], n: usize) -> Result<Vec<Cut>, CudaError> {
    let mut memory = Memory::open(device)?;
    let multiprocessors = device.multiprocessors()? as usize;
    let mut unknown: Vec<&Gemm> = Vec::new();
    for gemm in gemms {
        let several = gemm.candidates(n, multiprocessors).len() > 1;
        if several && !memory.known.contains_key(&gemm.key(n)) && !unknown.iter().any(|g| g.key(n) == gemm.key(n)) {
            unknown.push(gemm);
        }
    }
    if !unknown.is_empty() {
        for gemm in unknown {
            let cut = time(device, gemm, &gemm.candidates(n, multiprocessors), n)?;
            let tile = TILES.iter().position(|t| *t == cut.tile).expect("candidates are made of the tiles");
            memory.known.insert(gemm.key(n), (tile, cut.splits));
        }
        memory.save();
    }
    let cut = |gemm: &Gemm| match memory.known.get(&gemm.key(n)) {
        Some(&(tile, splits)) => Cut { tile: TILES[tile], splits },
        None => gemm.guess(n, multiprocessors),
    };
    Ok(gemms.iter().map(cut).collect())
}

fn time(device: &Device, gemm: &Gemm, cuts: &[Cut], n: usize) -> Result<Cut, CudaError> {
    let sources: Vec<_> = cuts.iter().map(|c| gemm.source(c.tile)).collect();
    let kernels = device.kernels(&sources)?;
    let g = &gemm.geometry;
    let mut layout = Layout::default();
    let lengths = [n * g.in_len(), n * g.out_len(), g.weight_len() + 8];
    let places = lengths.map(|len| layout.floats(len));
    let workspace = layout.floats(cuts.iter().map(|c| gemm.workspace(n, *c)).max().unwrap_or(0));
    let runs = cuts
        .iter()
        .zip(kernels)
        .map(|(cut, kernels)| GemmRun::new(*gemm, *cut, kernels, workspace, n, &mut layout))
        .collect::<Result<Vec<_>, _>>()?;
    let arena = layout.build(device, "timing a product")?;
    let stream = Stream::new(device)?;
    for (place, len) in places.iter().zip(lengths) {
        // Zeros can run faster than real numbers do.
        let values: Vec<f32> = (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.01).collect();
        arena.buffer.write(arena.offset(*place), &values)?;
    }
    let [x, y, w] = places.map(|p| arena.at(p));
    let w = w + (gemm.weight_offset % 8 * gemm.precision.activation_bytes()) as u64;
    let operands = match gemm.mode {
        crate::gemm::Mode::Forward => [x, w, y],
        crate::gemm::Mode::Input => [y, w, x],
        crate::gemm::Mode::Weights => [y, x, w],
    };
    let (start, end) = (Event::new(device)?, Event::new(device)?);
    let mut best: Option<(f32, Cut)> = None;
    for (run, cut) in runs.iter().zip(cuts) {
        let mut least = f32::INFINITY;
        for _ in 0..3 {
            stream.record(&start)?;
            for _ in 0..TIMED {
                run.run(&stream, &arena, n, operands, 0, 0)?;
            }
            stream.record(&end)?;
            end.wait()?;
            least = least.min(end.since(&start)?);
        }
        if best.is_none_or(|(ms, _)| least < ms) {
            best = Some((least, *cut));
        }
    }
    let (_, cut) = best.expect("there is a candidate");
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_lines_are_passed_over() {
        let known = parse("a b = 3 4\nnonsense\nc = 99 1\nd = 1 0\n");
        assert_eq!(known.into_iter().collect::<Vec<_>>(), [("a b".to_string(), (3, 4))]);
    }
}
