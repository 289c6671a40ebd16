//! The training loop: recipe in, run folder out.
//!
//! A run is a pure function of its recipe and data. Killed at any moment and resumed, it ends with the same
//! bytes: the checkpoint holds everything that the next step depends on, and whatever was written after it is
//! written again.

use crate::checkpoint::{self, Best, Checkpoint, ModelInfo, State};
use crate::error::Error;
use crate::progress::{EpochLine, Progress, Score};
use crate::recipe::{Recipe, input_shape};
use crate::run::{EpochMetrics, RunFolder, Scores, Summary};
use crate::tensorboard::EventWriter;
use ftprop_data::{Dataset, Loader, LoaderConfig, Split};
use ftprop_nn::{Criterion, Network, Optimizer, Step, Tally};
use ftprop_tensor::Cpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    /// All epochs are done.
    Finished(Summary),
    /// Somebody asked it to stop; everything is saved.
    Interrupted { epoch: u32, step: usize },
}

/// Pictures are drawn at the end, and in long runs now and then.
const DRAW_EVERY: Duration = Duration::from_secs(60);

/// A run under way.
pub struct Trainer {
    recipe: Recipe,
    folder: RunFolder,
    model: ModelInfo,
    network: Network,
    optimizer: Optimizer,
    criterion: Criterion,
    train: Loader,
    validation: Option<Loader>,
    test: Loader,
    state: State,
    metrics: Vec<EpochMetrics>,
}

impl Trainer {
    /// Prepares a run in its folder; goes on from the folder's checkpoint if it has one.
    pub fn new(recipe: Recipe, folder: RunFolder, dataset: &Dataset, cpu: Arc<Cpu>) -> Result<Self, Error> {
        recipe.check()?;
        let (train, validation) = recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
        let config = LoaderConfig {
            workers: recipe.data.workers,
            augment: recipe.data.augment(),
            bad_image: recipe.data.bad_image(),
            ..LoaderConfig::training(recipe.train.batch, recipe.train.seed, dataset.normalize.clone())
        };
        // Before the network, whose buffers grow with the batch.
        let train = Loader::new(&train, config)?;
        let network = build_network(&recipe, dataset, cpu, recipe.train.batch)?;
        let optimizer = Optimizer::new(&recipe.optimizer, network.values().len())?;
        let evaluation = |split: &Split| evaluation_loader(split, &recipe, dataset, network.batch());
        let mut trainer = Trainer {
            criterion: recipe.criterion()?,
            train,
            validation: validation.as_ref().map(evaluation).transpose()?,
            test: evaluation(&dataset.test)?,
            model: ModelInfo::of(dataset),
            state: State::start(),
            metrics: Vec::new(),
            recipe,
            folder,
            network,
            optimizer,
        };
        if trainer.folder.checkpoint().exists() {
            let saved = Checkpoint::read(&trainer.folder.checkpoint())?;
            saved.restore(&mut trainer.network, Some(&mut trainer.optimizer))?;
            if saved.header.model.classes != trainer.model.classes {
                let (path, difference) = (trainer.folder.checkpoint(), "its classes are not those of the data".into());
                return Err(Error::OtherNetwork { path, difference });
            }
            trainer.state = saved.header.state;
        } else {
            trainer.network.initialise(trainer.recipe.train.seed);
        }
        trainer.metrics = trainer.folder.cut_metrics(trainer.state.epoch - 1)?;
        if trainer.metrics.len() != trainer.state.epoch as usize - 1 {
            return Err(Error::Other(format!(
                "{}: metrics.jsonl has {} epochs but the checkpoint is in epoch {}; the folder was changed by hand",
                trainer.folder.path().display(),
                trainer.metrics.len(),
                trainer.state.epoch
            )));
        }
        Ok(trainer)
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn train_examples(&self) -> usize {
        self.train.examples()
    }

    /// Trains until the last epoch is done or `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool, quiet: bool) -> Result<Ending, Error> {
        let cpu = self.network.cpu().clone();
        let steps = self.train.batches_per_epoch();
        let mut progress =
            Progress::new(self.recipe.train.epochs, steps, quiet).resumed(self.state.epoch - 1, self.state.batch);
        let mut events = EventWriter::create(self.folder.path(), SystemTime::now())?;
        if self.state.epoch > 1 {
            events.restart_at(u64::from(self.state.epoch), SystemTime::now())?;
        }
        let mut drawn = Instant::now();
        while self.state.epoch <= self.recipe.train.epochs {
            let started = Instant::now();
            let Some(epoch) = cpu.enter(|| self.learn_epoch(stop, &mut progress))? else {
                self.save_checkpoint()?;
                self.folder.draw(&self.recipe.name, &self.metrics)?;
                return Ok(Ending::Interrupted { epoch: self.state.epoch, step: self.state.batch });
            };
            let metrics = self.finish_epoch(epoch, started)?;
            progress.epoch_done(&line(&metrics));
            events.scalars(u64::from(metrics.epoch), SystemTime::now(), &scalars(&metrics))?;
            if drawn.elapsed() > DRAW_EVERY {
                self.folder.draw(&self.recipe.name, &self.metrics)?;
                drawn = Instant::now();
            }
        }
        drop(progress);
        self.folder.draw(&self.recipe.name, &self.metrics)?;
        let best = self.state.best.map_or(self.state.epoch - 1, |b| b.epoch);
        let parameters = self.network.values().len();
        let summary = Summary::new(&self.recipe.name, &self.metrics, best, parameters)
            .ok_or_else(|| Error::Other("the run has no epochs".into()))?;
        self.folder.write_summary(&summary)?;
        Ok(Ending::Finished(summary))
    }

    /// The steps of one epoch; none if `stop` was set before its end.
    fn learn_epoch(&mut self, stop: &AtomicBool, progress: &mut Progress) -> Result<Option<EpochTimes>, Error> {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let steps = self.train.batches_per_epoch();
        let total = f64::from(self.recipe.train.epochs) * steps as f64;
        let mut batches = self.train.epoch(u64::from(self.state.epoch), self.state.batch);
        let mut tally = Tally::from(self.state.tally);
        let (started, mut saved) = (Instant::now(), Instant::now());
        let mut images = 0;
        let mut rate = 0.0;
        while let Some(batch) = batches.next_batch()? {
            let factor = self.recipe.schedule.factor_at(self.state.epoch, batch.index, steps, self.recipe.train.epochs);
            rate = factor * self.recipe.optimizer.lr();
            let step = Step {
                seed: self.recipe.train.seed,
                number: self.state.step,
                progress: (self.state.step as f64 / total) as f32,
            };
            let seen = self.network.learn(batch.images, batch.labels, &self.criterion, &step);
            if !seen.loss_sum.is_finite() {
                return Err(self.diverged(batch.index + 1));
            }
            self.optimizer.step(&mut self.network, factor, self.recipe.train.clip);
            tally.add(&seen);
            images += batch.len();
            self.state.step += 1;
            self.state.batch = batch.index + 1;
            self.state.tally = tally.into();
            let speed = images as f64 / started.elapsed().as_secs_f64();
            progress.step(self.state.batch, tally.loss(), tally.top1_share(), speed);
            if self.state.batch < steps {
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                if saved.elapsed().as_secs_f64() >= self.recipe.train.checkpoint_seconds {
                    self.save_checkpoint()?;
                    saved = Instant::now();
                }
            }
        }
        if batches.skipped() > 0 {
            let first = batches.first_skipped().map(ToString::to_string).unwrap_or_default();
            progress.message(&format!("{} pictures were skipped; the first: {first}", batches.skipped()));
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(Some(EpochTimes {
            rate,
            images_per_s: images as f64 / seconds,
            waited: batches.waited().as_secs_f64() / seconds,
        }))
    }

    /// Evaluates, records the epoch, and saves.
    fn finish_epoch(&mut self, times: EpochTimes, started: Instant) -> Result<EpochMetrics, Error> {
        let epoch = self.state.epoch;
        let cpu = self.network.cpu().clone();
        let (network, criterion) = (&mut self.network, &self.criterion);
        let (validation, test) = cpu.enter(|| -> Result<_, Error> {
            let validation = self.validation.as_ref().map(|v| evaluate(network, v, criterion)).transpose()?;
            Ok((validation, evaluate(network, &self.test, criterion)?))
        })?;
        let metrics = EpochMetrics {
            epoch,
            train: Scores::from(&Tally::from(self.state.tally)),
            validation: validation.as_ref().map(Scores::from),
            test: Scores::from(&test),
            learning_rate: times.rate,
            images_per_s: times.images_per_s,
            waited: times.waited,
            seconds: started.elapsed().as_secs_f64(),
        };
        self.ensure_finite(test.loss() + validation.map_or(0.0, |v| v.loss()))?;
        self.folder.append_metrics(&metrics)?;
        self.metrics.push(metrics);
        self.state =
            State { epoch: epoch + 1, batch: 0, step: self.state.step, tally: Tally::default().into(), ..self.state };
        let score = metrics.validation.unwrap_or(metrics.test).top1;
        if self.state.best.is_none_or(|best| score > best.top1()) {
            self.state.best = Some(Best::new(epoch, score));
            let best = self.folder.best();
            checkpoint::save(&best, &self.recipe, &self.model, &self.state, &self.network, None)?;
        }
        self.save_checkpoint()?;
        Ok(metrics)
    }

    fn save_checkpoint(&self) -> Result<(), Error> {
        self.ensure_finite(0.0)?;
        let path = self.folder.checkpoint();
        checkpoint::save(&path, &self.recipe, &self.model, &self.state, &self.network, Some(&self.optimizer))
    }

    /// Keeps what blew up out of the run folder: a step can spoil the network although its own loss was fine.
    fn ensure_finite(&self, loss: f64) -> Result<(), Error> {
        let sound = |values: &[f32]| values.iter().all(|v| v.is_finite());
        if loss.is_finite() && sound(self.network.values()) && sound(self.network.stats()) {
            return Ok(());
        }
        Err(self.diverged(self.state.batch))
    }

    /// `step` is counted from 1.
    fn diverged(&self, step: usize) -> Error {
        let path = self.folder.checkpoint();
        let saved = if path.exists() {
            format!("the last good checkpoint is kept in {}", path.display())
        } else {
            "there was no checkpoint yet".into()
        };
        let culprit = self.network.first_non_finite().unwrap_or_else(|| "the loss".into());
        Error::Diverged { epoch: self.state.epoch, step, culprit, saved }
    }
}

struct EpochTimes {
    rate: f64,
    images_per_s: f64,
    waited: f64,
}

/// Compiles the recipe's network for a data set.
pub fn build_network(recipe: &Recipe, dataset: &Dataset, cpu: Arc<Cpu>, batch: usize) -> Result<Network, Error> {
    let input = input_shape(dataset.shape);
    let layers = recipe.layers(input)?;
    Ok(Network::new(cpu, &layers, recipe.layer_defaults(), input, dataset.classes.len(), batch)?)
}

/// A loader of a part of the data as it is, in batches that the network can take.
pub fn evaluation_loader(split: &Split, recipe: &Recipe, dataset: &Dataset, batch: usize) -> Result<Loader, Error> {
    let config = LoaderConfig {
        workers: recipe.data.workers,
        bad_image: recipe.data.bad_image(),
        ..LoaderConfig::evaluation(batch.min(split.len()), dataset.normalize.clone())
    };
    Ok(Loader::new(split, config)?)
}

/// Tallies all that a loader delivers.
pub fn evaluate(network: &mut Network, loader: &Loader, criterion: &Criterion) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    let mut batches = loader.epoch(0, 0);
    while let Some(batch) = batches.next_batch()? {
        tally.add(&network.evaluate(batch.images, batch.labels, criterion));
    }
    Ok(tally)
}

fn line(m: &EpochMetrics) -> EpochLine {
    let score = |s: &Scores| Score { loss: s.loss, accuracy: s.top1 };
    EpochLine {
        epoch: m.epoch,
        train: score(&m.train),
        validation: m.validation.as_ref().map(score),
        test: Some(score(&m.test)),
        learning_rate: m.learning_rate,
        images_per_s: m.images_per_s,
        seconds: m.seconds,
    }
}

fn scalars(m: &EpochMetrics) -> Vec<(&'static str, f32)> {
    let mut all = vec![
        ("train/loss", m.train.loss),
        ("train/top1", m.train.top1),
        ("train/top5", m.train.top5),
        ("test/loss", m.test.loss),
        ("test/top1", m.test.top1),
        ("test/top5", m.test.top5),
        ("learning_rate", m.learning_rate),
        ("images_per_s", m.images_per_s),
    ];
    if let Some(v) = m.validation {
        all.extend([("validation/loss", v.loss), ("validation/top1", v.top1), ("validation/top5", v.top5)]);
    }
    all.into_iter().map(|(name, value)| (name, value as f32)).collect()
}
