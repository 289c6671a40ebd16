//! Networks on a GPU.

use super::{EngineConfig, Parts};
use crate::device::Gpu;
use crate::error::Error;
use crate::recipe::Recipe;
use crate::team::{Team, Way};
use ftprop_cuda::{
    Communicator, CudaNetwork, NetworkConfig, ResidentData, StreamedPictures, StreamedPixels, Tuning, nccl_id,
};
use ftprop_data::{Augment, Dataset, Split};
use ftprop_nn::engine::Part;

/// Device memory that data leaves free: for graphs, and for other programs' next requests.
const SPARE: usize = 512 << 20;

/// Compiles a network for a GPU.
pub(super) fn compile(config: EngineConfig, gpu: &Gpu) -> Result<CudaNetwork, Error> {
    let tuning = gpu.tuning(config.deterministic);
    compile_as(config, gpu, tuning)
}

fn compile_as(config: EngineConfig, gpu: &Gpu, tuning: Tuning) -> Result<CudaNetwork, Error> {
    let EngineConfig { graph, learning, batch, precision, .. } = config;
    Ok(CudaNetwork::new(&gpu.device, NetworkConfig { graph, learning, batch, precision, tuning })?)
}

/// The same with the parts of the data that the GPU has room for.
pub(super) fn open(
    config: EngineConfig,
    recipe: &Recipe,
    dataset: &Dataset,
    parts: &Parts<'_>,
    gpu: &Gpu,
    team: Option<&Team>,
) -> Result<CudaNetwork, Error> {
    let batch = config.batch;
    // Kernels whose blocks wait for each other need the GPU to themselves.
    let shared = team.map_or(Ok(false), |team| shares_gpu(team, gpu))?;
    let tuning = if shared { Tuning::Shared } else { gpu.tuning(config.deterministic) };
    let mut network = compile_as(config, gpu, tuning)?;
    let all = [
        (Part::Train, parts.train, recipe.data.augment(), true),
        (Part::Validation, parts.validation, Augment::default(), false),
        (Part::Test, parts.test, Augment::default(), false),
    ];
    let mut streamed = false;
    for (part, split, augment, shuffle) in all {
        let Some(split) = split else { continue };
        // The GPU has no kernels for TrivialAugment, so the host's workers make these batches.
        if augment.trivial {
            streamed = true;
            continue;
        }
        let data = gpu.resident(&name_of(recipe, part, split), || {
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
        let others = [parts.validation, parts.test];
        network.load(&batch_sizes(&[parts.train], batch), &batch_sizes(&others, batch))?;
    }
    Ok(network)
}

/// Whether another rank has the same GPU. All ranks get the same answer.
fn shares_gpu(team: &Team, gpu: &Gpu) -> Result<bool, Error> {
    let own = gpu.device.unique_name()?;
    let all = team.names(&own)?;
    Ok((1..all.len()).any(|i| all[..i].contains(&all[i])))
}

/// Has a network's gradients go to the other ranks' GPUs by NCCL; false where they go through the host's memory.
pub(super) fn join(network: &mut CudaNetwork, gpu: &Gpu, team: &Team) -> Result<bool, Error> {
    // Since 2.30 NCCL can have several ranks on a GPU, if it is told so.
    let several = std::env::var_os("NCCL_MULTI_RANK_GPU_ENABLE").is_some_and(|value| value == "1");
    let shared = !several && shares_gpu(team, gpu)?;
    let by_nccl = match team.way() {
        Way::Host | Way::Tcp => false,
        Way::Nccl => true,
        Way::Auto => !shared,
    };
    if !by_nccl {
        return Ok(false);
    }
    let id = if team.is_first() { nccl_id()? } else { Vec::new() };
    let id = team.share_first(id)?;
    let share = team.share();
    let communicator = Communicator::new(&gpu.device, &id, share.rank, share.ranks)?;
    let breaker = communicator.breaker();
    team.on_loss(Box::new(move || breaker.end()));
    network.set_communicator(communicator)?;
    Ok(true)
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
fn name_of(recipe: &Recipe, part: Part, split: &Split) -> String {
    // Which examples are held out depends on the seed.
    let seed = if recipe.data.validation == 0.0 { 0 } else { recipe.train.seed };
    format!("{part:?} {seed} {:?} {:?}", split.shape(), recipe.data)
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
