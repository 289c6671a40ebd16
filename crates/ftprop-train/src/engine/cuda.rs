//! Training on a GPU.

use super::{Engine, Part, Parts, Stretch};
use crate::checkpoint::Contents;
use crate::device::Gpu;
use crate::error::Error;
use crate::recipe::{Recipe, input_shape};
use ftprop_cuda::{CudaNetwork, NetworkConfig, ResidentData};
use ftprop_data::{Augment, Dataset, Loader, Split};
use ftprop_nn::parameter::{Parameter, Statistic};
use ftprop_nn::{Shape, Tally};

/// Device memory that data leaves free: for graphs, and for other programs' next requests.
const SPARE: usize = 512 << 20;

pub(super) struct CudaEngine {
    network: CudaNetwork,
    train: Option<ResidentData>,
    validation: Option<ResidentData>,
    test: Option<ResidentData>,
}

impl CudaEngine {
    pub(super) fn new(recipe: &Recipe, dataset: &Dataset, parts: &Parts<'_>, gpu: &Gpu) -> Result<Self, Error> {
        let batch = recipe.train.batch;
        let mut network = build_cuda_network(recipe, input_shape(dataset.shape), dataset.classes.len(), gpu, batch)?;
        let resident = |part: &str, split: &Split, augment: Augment, shuffle: bool| {
            let name = name_of(recipe, part);
            gpu.resident(&name, || {
                let (free, _) = gpu.device.memory()?;
                match ResidentData::bytes_needed(split) {
                    Some(bytes) if bytes + SPARE <= free => {
                        ResidentData::new(&gpu.device, split, &dataset.normalize, augment, shuffle)
                    }
                    _ => Ok(None),
                }
            })
        };
        let plain = |part: &str, split: &Split| resident(part, split, Augment::default(), false);
        let train = resident("train", parts.train, recipe.data.augment(), true)?;
        let validation = parts.validation.map(|split| plain("validation", split)).transpose()?.flatten();
        let test = plain("test", parts.test)?;
        let streamed = train.is_none() || test.is_none() || parts.validation.is_some() && validation.is_none();
        if streamed {
            network.reserve_streaming()?;
        }
        if gpu.gate().is_some() {
            let others = [parts.validation, Some(parts.test)];
            network.load(&batch_sizes(&[Some(parts.train)], batch), &batch_sizes(&others, batch))?;
        }
        Ok(CudaEngine { network, train, validation, test })
    }
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
fn name_of(recipe: &Recipe, part: &str) -> String {
    // Which examples are held out depends on the seed.
    let seed = if recipe.data.validation == 0.0 { 0 } else { recipe.train.seed };
    format!("{part} {seed} {:?}", recipe.data)
}

/// Compiles the recipe's network for a GPU.
pub fn build_cuda_network(
    recipe: &Recipe,
    input: Shape,
    classes: usize,
    gpu: &Gpu,
    batch: usize,
) -> Result<CudaNetwork, Error> {
    let config = NetworkConfig {
        layers: recipe.layers(input)?,
        defaults: recipe.layer_defaults(),
        input,
        classes,
        batch,
        precision: recipe.train.precision,
        tuning: gpu.tuning(recipe.train.deterministic),
        loss: recipe.train.loss,
        label_smoothing: recipe.train.label_smoothing,
        optimizer: recipe.optimizer,
        clip: recipe.train.clip,
    };
    Ok(CudaNetwork::new(&gpu.device, config)?)
}

impl Engine for CudaEngine {
    fn parameters(&self) -> &[Parameter] {
        self.network.parameters()
    }

    fn statistics(&self) -> &[Statistic] {
        self.network.statistics()
    }

    fn network(&self) -> Result<Contents<'_>, Error> {
        Ok(Contents {
            parameters: self.network.parameters(),
            statistics: self.network.statistics(),
            values: self.network.values()?.into(),
            stats: self.network.stats()?.into(),
            optimizer: None,
        })
    }

    fn contents(&self) -> Result<Contents<'_>, Error> {
        let (steps, moments) = self.network.optimizer_state()?;
        let optimizer = Some((steps, moments.into_iter().map(Into::into).collect()));
        Ok(Contents { optimizer, ..self.network()? })
    }

    fn restore(&mut self, contents: &Contents<'_>) -> Result<(), Error> {
        self.network.set_values(&contents.values)?;
        self.network.set_stats(&contents.stats)?;
        if let Some((steps, moments)) = &contents.optimizer {
            let moments: Vec<&[f32]> = moments.iter().map(|m| &m[..]).collect();
            self.network.restore_optimizer(*steps, &moments)?;
        }
        Ok(())
    }

    fn initialise(&mut self, seed: u64) -> Result<(), Error> {
        Ok(self.network.initialise(seed)?)
    }

    fn has_training_data(&self) -> bool {
        self.train.is_some()
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn begin(&mut self, stretch: Stretch) -> Result<(), Error> {
        Ok(self.network.begin_streaming(&stretch)?)
    }

    fn learn(&mut self, images: &[f32], labels: &[u32]) -> Result<(), Error> {
        Ok(self.network.stream_batch(images, labels)?)
    }

    fn learn_resident(&mut self, stretch: &Stretch) -> Result<(), Error> {
        match &self.train {
            Some(data) => Ok(self.network.train(data, stretch)?),
            None => Err(Error::Engine("the training part does not live on the GPU")),
        }
    }

    fn settle(&mut self) -> Result<Tally, Error> {
        Ok(self.network.take_tally()?)
    }

    fn evaluate(&mut self, part: Part, loader: &Loader) -> Result<Tally, Error> {
        let resident = match part {
            Part::Validation => &self.validation,
            Part::Test => &self.test,
        };
        if let Some(data) = resident {
            return Ok(self.network.evaluate_data(data)?);
        }
        let mut tally = Tally::default();
        let mut batches = loader.epoch(0, 0);
        while let Some(batch) = batches.next_batch()? {
            tally.add(&self.network.evaluate(batch.images, batch.labels)?);
        }
        Ok(tally)
    }

    fn first_non_finite(&self) -> Option<String> {
        // A GPU that does not answer any more has no culprit to name.
        self.network.first_non_finite(self.network.config().batch).ok().flatten()
    }
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
