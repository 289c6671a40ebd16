//! Networks on a GPU.

use super::{EngineConfig, Parts};
use crate::device::Gpu;
use crate::error::Error;
use crate::recipe::Recipe;
use ftprop_cuda::{CudaNetwork, NetworkConfig, ResidentData, StreamedPictures, StreamedPixels};
use ftprop_data::{Augment, Dataset, Split};
use ftprop_nn::engine::Part;

/// Device memory that data leaves free: for graphs, and for other programs' next requests.
const SPARE: usize = 512 << 20;

/// Compiles a network for a GPU.
pub(super) fn compile(config: EngineConfig, gpu: &Gpu) -> Result<CudaNetwork, Error> {
    let EngineConfig { graph, learning, batch, precision, deterministic } = config;
    let tuning = gpu.tuning(deterministic);
    Ok(CudaNetwork::new(&gpu.device, NetworkConfig { graph, learning, batch, precision, tuning })?)
}

/// The same with the parts of the data that the GPU has room for.
pub(super) fn open(
    config: EngineConfig,
    recipe: &Recipe,
    dataset: &Dataset,
    parts: &Parts<'_>,
    gpu: &Gpu,
) -> Result<CudaNetwork, Error> {
    let batch = config.batch;
    let mut network = compile(config, gpu)?;
    let all = [
        (Part::Train, Some(parts.train), recipe.data.augment(), true),
        (Part::Validation, parts.validation, Augment::default(), false),
        (Part::Test, Some(parts.test), Augment::default(), false),
    ];
    let mut streamed = false;
    for (part, split, augment, shuffle) in all {
        let Some(split) = split else { continue };
        // The GPU has no kernels for TrivialAugment, so the host's workers make these batches.
        if augment.trivial {
            streamed = true;
            continue;
        }
        let data = gpu.resident(&name_of(recipe, part), || {
            let (free, _) = gpu.device.memory()?;
            match ResidentData::bytes_needed(split) {
                Some(bytes) if recipe.data.on_device && bytes + SPARE <= free => {
                    ResidentData::new(&gpu.device, split, &dataset.normalize, augment, shuffle)
                }
                _ => Ok(None),
            }
        })?;
        if part == Part::Train && split.is_encoded() {
            network.attach_pixels(StreamedPixels::new(&gpu.device, split.shape(), &dataset.normalize, augment, batch)?);
            continue;
        }
        match data {
            Some(data) => network.attach(part, data),
            None => {
                let normalize = &dataset.normalize;
                match StreamedPictures::new(&gpu.device, split, normalize, augment, shuffle, batch)? {
                    Some(pictures) => network.attach_streamed(part, pictures),
                    None => streamed = true,
                }
            }
        }
    }
    if streamed {
        network.reserve_streaming()?;
    }
    if gpu.gate().is_some() {
        let others = [parts.validation, Some(parts.test)];
        network.load(&batch_sizes(&[Some(parts.train)], batch), &batch_sizes(&others, batch))?;
    }
    Ok(network)
}

/// The sizes of the batches that parts have: full ones, and each part's last.
fn batch_sizes(parts: &[Option<&Split>], batch: usize) -> Vec<usize> {
    let sizes = |part: &&Split| [part.len().min(batch), part.len() % batch];
    let mut sizes: Vec<usize> = parts.iter().flatten().flat_map(sizes).filter(|&n| n > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// What the examples of a part depend on: runs that agree in it share them.
fn name_of(recipe: &Recipe, part: Part) -> String {
    // Which examples are held out depends on the seed.
    let seed = if recipe.data.validation == 0.0 { 0 } else { recipe.train.seed };
    format!("{part:?} {seed} {:?}", recipe.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_that_a_batch_can_have() {
        let split = |n: usize| {
            let shape = ftprop_data::Shape::new(1, 1, 1);
            Split::from_pixels(shape, vec![0; n], vec![0; n]).unwrap()
        };
        let (long, short) = (split(100), split(7));
        assert_eq!(batch_sizes(&[Some(&long), None, Some(&short)], 32), [4, 7, 32]);
        assert_eq!(batch_sizes(&[Some(&long)], 50), [50]);
        assert_eq!(batch_sizes(&[Some(&long), Some(&short)], 128), [7, 100]);
        assert_eq!(batch_sizes(&[Some(&short)], 1), [1]);
        assert!(batch_sizes(&[None], 8).is_empty());
    }
}
