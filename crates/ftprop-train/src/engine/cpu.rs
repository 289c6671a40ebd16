//! Training on the CPU.

use super::{Engine, Part, Stretch};
use crate::checkpoint::Contents;
use crate::error::Error;
use crate::recipe::{Recipe, input_shape};
use ftprop_data::{Dataset, Loader};
use ftprop_nn::parameter::{Parameter, Statistic};
use ftprop_nn::{Criterion, Network, Optimizer, Step, Tally};
use ftprop_tensor::Cpu;
use std::sync::Arc;

pub(super) struct CpuEngine {
    network: Network,
    optimizer: Optimizer,
    criterion: Criterion,
    clip: Option<f64>,
    stretch: Option<Stretch>,
    /// Steps of the stretch that are done.
    done: usize,
    tally: Tally,
}

impl CpuEngine {
    pub(super) fn new(recipe: &Recipe, dataset: &Dataset, cpu: Arc<Cpu>) -> Result<Self, Error> {
        let network = build_network(recipe, dataset, cpu, recipe.train.batch)?;
        let optimizer = Optimizer::new(&recipe.optimizer, network.values().len())?;
        let criterion = recipe.criterion()?;
        let tally = Tally::default();
        Ok(CpuEngine { network, optimizer, criterion, clip: recipe.train.clip, stretch: None, done: 0, tally })
    }
}

/// Compiles the recipe's network for a data set.
pub fn build_network(recipe: &Recipe, dataset: &Dataset, cpu: Arc<Cpu>, batch: usize) -> Result<Network, Error> {
    let input = input_shape(dataset.shape);
    let layers = recipe.layers(input)?;
    Ok(Network::new(cpu, &layers, recipe.layer_defaults(), input, dataset.classes.len(), batch)?)
}

impl Engine for CpuEngine {
    fn parameters(&self) -> &[Parameter] {
        self.network.parameters()
    }

    fn statistics(&self) -> &[Statistic] {
        self.network.statistics()
    }

    fn network(&self) -> Result<Contents<'_>, Error> {
        Ok(Contents::of(&self.network, None))
    }

    fn contents(&self) -> Result<Contents<'_>, Error> {
        Ok(Contents::of(&self.network, Some(&self.optimizer)))
    }

    fn restore(&mut self, contents: &Contents<'_>) -> Result<(), Error> {
        self.network.values_mut().copy_from_slice(&contents.values);
        self.network.stats_mut().copy_from_slice(&contents.stats);
        if let Some((steps, moments)) = &contents.optimizer {
            let moments: Vec<&[f32]> = moments.iter().map(|m| &m[..]).collect();
            self.optimizer.restore(*steps, &moments)?;
        }
        Ok(())
    }

    fn initialise(&mut self, seed: u64) -> Result<(), Error> {
        self.network.initialise(seed);
        Ok(())
    }

    fn has_training_data(&self) -> bool {
        false
    }

    fn runs_ahead(&self) -> bool {
        false
    }

    fn begin(&mut self, stretch: Stretch) -> Result<(), Error> {
        (self.stretch, self.done) = (Some(stretch), 0);
        Ok(())
    }

    fn learn(&mut self, images: &[f32], labels: &[u32]) -> Result<(), Error> {
        let announced = self.stretch.as_ref().and_then(|s| Some((s, *s.steps.get(self.done)?)));
        let Some((stretch, (factor, progress))) = announced else {
            return Err(Error::Engine("a step was taken that was not announced"));
        };
        let step = Step { seed: stretch.seed, number: stretch.first_step + self.done as u64, progress };
        let seen = self.network.learn(images, labels, &self.criterion, &step);
        self.tally.add(&seen);
        self.done += 1;
        // A loss that is no number would spoil every parameter: the step is not taken, and settling shows why.
        if seen.loss_sum.is_finite() {
            self.optimizer.step(&mut self.network, factor, self.clip);
        }
        Ok(())
    }

    fn learn_resident(&mut self, _stretch: &Stretch) -> Result<(), Error> {
        Err(Error::Engine("no data lives on the CPU; its batches come from a loader"))
    }

    fn settle(&mut self) -> Result<Tally, Error> {
        Ok(std::mem::take(&mut self.tally))
    }

    fn evaluate(&mut self, _part: Part, loader: &Loader) -> Result<Tally, Error> {
        let cpu = self.network.cpu().clone();
        let (network, criterion) = (&mut self.network, &self.criterion);
        cpu.enter(|| {
            let mut tally = Tally::default();
            let mut batches = loader.epoch(0, 0);
            while let Some(batch) = batches.next_batch()? {
                tally.add(&network.evaluate(batch.images, batch.labels, criterion));
            }
            Ok(tally)
        })
    }

    fn first_non_finite(&self) -> Option<String> {
        self.network.first_non_finite()
    }
}
