//! Learning diagnostics: how the hard layers of a run fare over time.
//!
//! Before the first epoch and after each, a twin of the network under training makes the step that is about to be
//! taken and looks at it from within every hard layer (see [`ftprop_nn::probe`]). The twin lives on the CPU whatever
//! the device that trains, and nothing it does reaches the run. `docs/reproduce.md` says what the figures mean.

use crate::engine::teacher;
use crate::error::Error;
use crate::jsonl;
use crate::recipe::{Recipe, input_shape};
use ftprop_data::{Dataset, Loader, LoaderConfig};
use ftprop_nn::engine::TrainingState;
use ftprop_nn::{Criterion, Diagnosis, LayerDiagnosis, Optimizer, Probe, Step};
use ftprop_tensor::Cpu;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One look at a run, a line of `diagnostics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Epochs done.
    pub epoch: u32,
    /// Steps done: the number of the step that was looked at, counted from 0.
    pub step: u64,
    /// What the step looked like.
    #[serde(flatten)]
    pub diagnosis: Diagnosis,
}

/// The twin of a network under training.
pub struct Diagnostics {
    recipe: Recipe,
    probe: Probe,
    optimizer: Optimizer,
    criterion: Criterion,
    train: Loader,
}

impl Diagnostics {
    /// The twin of a recipe's network, which computes on this CPU.
    pub fn new(recipe: &Recipe, dataset: &Dataset, cpu: Arc<Cpu>) -> Result<Self, Error> {
        let (train, _) = recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
        let config = LoaderConfig {
            // One batch is made at a time, when it is asked for.
            workers: 0,
            augment: recipe.data.augment(),
            bad_image: recipe.data.bad_image(),
            ..LoaderConfig::training(recipe.train.batch, recipe.train.seed, dataset.normalize.clone())
        };
        let input = input_shape(dataset.shape);
        let graph = recipe.graph(input, dataset.classes.len())?;
        let criterion = recipe.training_criterion(&graph, &train)?;
        let train = Loader::new(&train, config)?;
        let optimizer = Optimizer::for_groups(recipe.learning(&graph)?.groups);
        let mut probe = Probe::new(cpu.clone(), graph, recipe.train.batch)?;
        if let Some(teacher) = teacher::load_by(recipe, dataset, cpu)? {
            probe.set_teacher(&teacher)?;
        }
        Ok(Diagnostics { recipe: recipe.clone(), probe, optimizer, criterion, train })
    }

    /// After so many epochs and steps, looks at the next step, on the first batch of the next epoch. After the last epoch
    /// there is none, and the step is made at the rate that this epoch began with: the last rate of a schedule that ends at 0
    /// would leave nothing to see. `state` is that of the network under training, and `cut` what its learning rate is
    /// multiplied by beside the schedule's curve. None if a number blew up on the way, which training is about to find
    /// out, too.
    pub fn look(
        &mut self,
        epoch: u32,
        step: u64,
        cut: f64,
        state: &TrainingState<'_>,
    ) -> Result<Option<Record>, Error> {
        let network = self.probe.network_mut();
        copy(&state.network.values, network.values_mut())?;
        copy(&state.network.statistics, network.stats_mut())?;
        self.optimizer.restore(state.steps, &state.moments.iter().map(|m| &m[..]).collect::<Vec<_>>())?;
        let (epochs, steps) = (self.recipe.train.epochs, self.train.batches_per_epoch());
        let mut batches = self.train.epoch(u64::from(epoch) + 1, 0);
        let Some(batch) = batches.next_batch()? else { return Ok(None) };
        let rate_of = (epoch + 1).min(epochs);
        let factor = cut * self.recipe.schedule.factor_at(rate_of, batch.index, steps, epochs);
        let progress = (step as f64 / (f64::from(epochs) * steps as f64)).min(1.0) as f32;
        let next = Step { seed: self.recipe.train.seed, number: step, progress };
        let cpu = self.probe.network().cpu().clone();
        let clip = self.recipe.train.clip;
        let (probe, optimizer, criterion) = (&mut self.probe, &mut self.optimizer, &self.criterion);
        let diagnosis =
            cpu.enter(|| probe.step(optimizer, (batch.images, batch.labels), criterion, &next, (factor, clip)));
        Ok(diagnosis.map(|diagnosis| Record { epoch, step, diagnosis }))
    }
}

fn copy(from: &[f32], to: &mut [f32]) -> Result<(), Error> {
    if from.len() != to.len() {
        return Err(Error::NotATwin { network: from.len(), twin: to.len() });
    }
    to.copy_from_slice(from);
    Ok(())
}

impl Record {
    /// What TensorBoard is shown: a group for each figure, a tag for each layer.
    pub fn scalars(&self) -> Vec<(String, f32)> {
        let mut all = vec![
            ("diagnostics.loss/before_the_step".to_string(), self.diagnosis.loss as f32),
            ("diagnostics.loss/after_the_step".to_string(), self.diagnosis.loss_after as f32),
        ];
        for layer in &self.diagnosis.layers {
            let figures = figures(layer).into_iter().filter_map(|(name, value)| Some((name, value?)));
            all.extend(figures.map(|(name, value)| (format!("diagnostics.{name}/{}", layer.layer), value as f32)));
        }
        all
    }
}

fn figures(layer: &LayerDiagnosis) -> [(&'static str, Option<f64>); 12] {
    [
        ("beyond", Some(layer.beyond)),
        ("untargeted", Some(layer.untargeted)),
        ("faint", layer.faint),
        ("disagree", layer.disagree),
        ("came_true", layer.came_true),
        ("lost", layer.lost),
        ("disagree_by_weight", layer.disagree_by_weight),
        ("came_true_by_weight", layer.came_true_by_weight),
        ("lost_by_weight", layer.lost_by_weight),
        ("gradient", Some(layer.gradient)),
        ("slope", Some(layer.slope)),
        ("weight_gradient", Some(layer.weight_gradient)),
    ]
}

/// The records of a run, in its folder's `diagnostics.jsonl` where it has one.
#[derive(Clone, Debug, Default)]
pub struct Records {
    folder: Option<PathBuf>,
    all: Vec<Record>,
}

impl Records {
    /// All that a run folder has.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        Ok(Records { folder: Some(folder.to_path_buf()), all: jsonl::read(&file(folder), "a line of diagnostics")? })
    }

    /// Those from before the next look, which is due after so many epochs; later ones are dropped from the file.
    pub fn before(folder: &Path, next: u32) -> Result<Self, Error> {
        Ok(Records { folder: Some(folder.to_path_buf()), all: jsonl::cut(&file(folder), |r: &Record| r.epoch < next)? })
    }

    /// In the order of the epochs.
    pub fn all(&self) -> &[Record] {
        &self.all
    }

    /// The records themselves.
    pub fn into_all(self) -> Vec<Record> {
        self.all
    }

    /// Keeps one more.
    pub fn add(&mut self, record: Record) -> Result<(), Error> {
        if let Some(folder) = &self.folder {
            jsonl::append(&file(folder), &record)?;
        }
        self.all.push(record);
        Ok(())
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("diagnostics.jsonl")
}

#[cfg(test)]
mod tests;
