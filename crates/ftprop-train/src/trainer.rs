//! The training loop: recipe in, run folder out.
//!
//! A run is a pure function of its recipe and data. Killed at any moment and resumed, it ends with the same
//! bytes: the checkpoint holds everything that the next step depends on, and whatever was written after it is
//! written again.

use crate::checkpoint::{self, Best, Checkpoint, Contents, ModelInfo, State};
use crate::device::Place;
use crate::diagnostics::{Diagnostics, Records};
use crate::engine::{self, Engine, Part, Parts, StepSpan};
use crate::error::Error;
use crate::gate::Gate;
use crate::observe::{Answer, Ending, Notice, Observer, RunView, StepReport};
use crate::recipe::Recipe;
use crate::run::{EpochMetrics, RunFolder, Scores, Summary};
use crate::tensorboard::EventWriter;
use ftprop_data::{Dataset, Loader, LoaderConfig, Split};
use ftprop_nn::Tally;
use ftprop_tensor::Cpu;
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How often a device that runs ahead is asked for results: waiting for them leaves it idle for a moment.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// Steps that are announced at once, at most.
const ANNOUNCED: usize = 4096;
/// What saving may cost: an epoch that ends sooner than this many times the last saving took is not saved.
const SAVING_SHARE: u32 = 20;

/// A run under way.
pub struct Trainer {
    recipe: Recipe,
    folder: RunFolder,
    /// Held from the making to the end of the run, so that no other process trains in its folder.
    lock: Option<File>,
    model: ModelInfo,
    engine: Box<dyn Engine>,
    /// Whose threads compute; none where a GPU does.
    cpu: Option<Arc<Cpu>>,
    /// How it takes turns with other runs on a GPU.
    gate: Option<Arc<Gate>>,
    train: Loader,
    validation: Option<Loader>,
    test: Loader,
    state: State,
    metrics: Vec<EpochMetrics>,
    diagnostics: Option<(Diagnostics, Records)>,
    /// The best network, where it is better than the one on disk.
    unsaved_best: Option<BestNetwork>,
    saved: Instant,
    /// When the epoch began in this process, and how long it had taken before.
    began: Instant,
    before: f64,
    saving_took: Duration,
    /// Steps that are asked for at once of data that lives on the device.
    span: usize,
}

/// A network that was the best at its time.
struct BestNetwork {
    state: State,
    values: Vec<f32>,
    stats: Vec<f32>,
}

impl Trainer {
    /// Prepares a run in its folder; goes on from the folder's checkpoint if it has one.
    pub fn new(recipe: Recipe, folder: RunFolder, dataset: &Dataset, place: &Place) -> Result<Self, Error> {
        recipe.check()?;
        if let [only] = &dataset.classes[..] {
            return Err(Error::Other(format!("the data has a single class, {only}: there is nothing to tell apart")));
        }
        let lock = folder.lock()?;
        let (train, validation) = recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
        let config = LoaderConfig {
            workers: recipe.data.workers,
            augment: recipe.data.augment(),
            bad_image: recipe.data.bad_image(),
            ..LoaderConfig::training(recipe.train.batch, recipe.train.seed, dataset.normalize.clone())
        };
        // Before the network, whose buffers grow with the batch.
        let train_loader = Loader::new(&train, config)?;
        let parts = Parts { train: &train, validation: validation.as_ref(), test: &dataset.test };
        let engine = engine::open(&recipe, dataset, &parts, place)?;
        let evaluation = |split: &Split| evaluation_loader(split, &recipe, dataset, recipe.train.batch);
        let mut trainer = Trainer {
            train: train_loader,
            validation: validation.as_ref().map(evaluation).transpose()?,
            test: evaluation(&dataset.test)?,
            model: ModelInfo::of(dataset),
            cpu: place.gpu.is_none().then(|| place.cpu.clone()),
            gate: place.gpu.as_ref().and_then(|gpu| gpu.gate.clone()),
            state: State::start(),
            metrics: Vec::new(),
            diagnostics: None,
            unsaved_best: None,
            saved: Instant::now(),
            began: Instant::now(),
            before: 0.0,
            saving_took: Duration::ZERO,
            span: 64,
            recipe,
            folder,
            lock,
            engine,
        };
        if trainer.folder.checkpoint().exists() {
            trainer.take_up()?;
        } else {
            trainer.engine.initialise(trainer.recipe.train.seed)?;
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
        if trainer.recipe.train.diagnostics {
            // Between epochs the next look is due now; within one it was when the epoch began.
            let next = trainer.state.epoch - u32::from(trainer.state.batch == 0);
            let twin = Diagnostics::new(&trainer.recipe, dataset, place.cpu.clone())?;
            trainer.diagnostics = Some((twin, Records::before(trainer.folder.path(), next)?));
        }
        Ok(trainer)
    }

    /// Goes on where the folder's checkpoint stands.
    fn take_up(&mut self) -> Result<(), Error> {
        let saved = Checkpoint::read(&self.folder.checkpoint())?;
        let (parameters, statistics) = (self.engine.parameters().to_vec(), self.engine.statistics().to_vec());
        let contents = saved.contents(&parameters, &statistics)?;
        if contents.optimizer.is_none() {
            return Err(
                saved.other("it was saved for use, without the optimizer, so training cannot go on".to_string())
            );
        }
        if saved.header.model.classes != self.model.classes {
            return Err(saved.other("its classes are not those of the data".into()));
        }
        self.engine.restore(&contents).map_err(|e| saved.other(e.to_string()))?;
        self.state = saved.header.state;
        self.before = self.state.seconds;
        Ok(())
    }

    /// How many numbers the network learns.
    pub fn parameters(&self) -> usize {
        self.engine.parameters().last().map_or(0, |p| p.range.end)
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Examples that are held out of the training part.
    pub fn validation_examples(&self) -> usize {
        self.validation.as_ref().map_or(0, Loader::examples)
    }

    pub fn train_examples(&self) -> usize {
        self.train.examples()
    }

    pub fn steps_per_epoch(&self) -> usize {
        self.train.batches_per_epoch()
    }

    /// What an observer sees.
    pub fn view(&self) -> RunView<'_> {
        RunView {
            recipe: &self.recipe,
            folder: self.folder.path(),
            state: &self.state,
            steps_per_epoch: self.train.batches_per_epoch(),
            metrics: &self.metrics,
            diagnostics: self.diagnostics.as_ref().map_or(&[], |(_, records)| records.all()),
        }
    }

    /// Trains until the last epoch is done or the observer has had enough.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Ending, Error> {
        if self.lock.is_none() {
            self.lock = self.folder.lock()?;
        }
        let ending = self.run_locked(observer);
        self.lock = None;
        ending
    }

    fn run_locked(&mut self, observer: &mut dyn Observer) -> Result<Ending, Error> {
        let mut events = EventWriter::create(self.folder.path(), SystemTime::now())?;
        if self.state.epoch > 1 {
            events.restart_at(u64::from(self.state.epoch), SystemTime::now())?;
        }
        if self.state.batch == 0 {
            self.look(&mut events)?;
        }
        let mut enough = stops(observer.begin(&self.view()))?;
        while self.state.epoch <= self.recipe.train.epochs {
            self.began = Instant::now();
            let learned = match self.cpu.clone() {
                _ if enough => None,
                Some(cpu) => cpu.enter(|| self.learn_epoch(observer))?,
                None => self.learn_epoch(observer)?,
            };
            let Some(epoch) = learned else {
                self.save()?;
                let ending = Ending::Interrupted { epoch: self.state.epoch, step: self.state.batch };
                observer.end(&self.view(), &ending).map_err(Error::Observer)?;
                return Ok(ending);
            };
            let metrics = self.finish_epoch(&epoch)?;
            events.scalars(u64::from(metrics.epoch), SystemTime::now(), &scalars(&metrics))?;
            self.look(&mut events)?;
            enough = stops(observer.epoch(&self.view()))? || epoch.enough;
        }
        let best = self.state.best.map_or(self.state.epoch - 1, |b| b.epoch);
        let summary = Summary::new(&self.recipe.name, &self.metrics, best, self.parameters())
            .ok_or_else(|| Error::Other("the run has no epochs".into()))?;
        let ending = Ending::Finished(summary.clone());
        observer.end(&self.view(), &ending).map_err(Error::Observer)?;
        self.folder.write_summary(&summary)?;
        Ok(ending)
    }

    /// Looks at the step about to be taken, if the recipe asks for it.
    fn look(&mut self, events: &mut EventWriter) -> Result<(), Error> {
        let Some((twin, records)) = &mut self.diagnostics else { return Ok(()) };
        if let Some(record) = twin.look(self.state.epoch - 1, self.state.step, &self.engine.contents()?)? {
            let scalars = record.scalars();
            let scalars: Vec<(&str, f32)> = scalars.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
            events.scalars(u64::from(record.epoch), SystemTime::now(), &scalars)?;
            records.add(record)?;
        }
        Ok(())
    }

    /// The steps of one epoch; none if the observer had enough before its end.
    fn learn_epoch(&mut self, observer: &mut dyn Observer) -> Result<Option<EpochTimes>, Error> {
        let steps = self.train.batches_per_epoch();
        let resident = self.engine.has_training_data();
        let mut batches = (!resident).then(|| self.train.epoch(u64::from(self.state.epoch), self.state.batch));
        let mut tally = Tally::from(self.state.tally);
        let (started, mut settled) = (Instant::now(), Instant::now());
        // The end of what is announced, and the first batch whose outcome is not known yet.
        let (mut announced, mut open) = (self.state.batch, self.state.batch);
        let (mut images, mut enough) = (0, false);
        let gate = self.gate.clone();
        let mut turn = None;
        while self.state.batch < steps {
            if let (None, Some(gate)) = (&turn, &gate) {
                turn = Some(gate.enter());
                settled = Instant::now();
            }
            match &mut batches {
                None => {
                    let span = self.announce(self.state.batch, self.span);
                    self.engine.learn_resident(&span)?;
                    self.state.batch += span.steps.len();
                    self.state.step += span.steps.len() as u64;
                }
                Some(batches) => {
                    let Some(batch) = batches.next_batch()? else { break };
                    // A batch whose pictures were all skipped leaves a gap.
                    if announced <= batch.index || self.state.batch != batch.index {
                        let span = self.announce(batch.index, ANNOUNCED);
                        announced = batch.index + span.steps.len();
                        self.engine.begin(span)?;
                    }
                    self.engine.learn(batch.images, batch.labels)?;
                    self.state.batch = batch.index + 1;
                    self.state.step += 1;
                }
            }
            let last = self.state.batch >= steps;
            let due = self.saved.elapsed().as_secs_f64() >= self.recipe.train.checkpoint_seconds;
            let ahead = self.engine.runs_ahead() && !resident && settled.elapsed() < SETTLE_EVERY;
            if ahead && !last && !due {
                continue;
            }
            let seen = self.engine.settle()?;
            turn = None;
            if !seen.loss_sum.is_finite() {
                return Err(self.diverged(self.state.batch));
            }
            if resident {
                self.fit_span(self.state.batch - open, settled.elapsed());
            }
            (settled, open) = (Instant::now(), self.state.batch);
            tally.add(&seen);
            images += seen.examples;
            self.state.tally = tally.into();
            let report = StepReport {
                step: self.state.batch,
                steps,
                loss: tally.loss(),
                top1: tally.top1_share(),
                images_per_s: images as f64 / started.elapsed().as_secs_f64(),
            };
            enough = stops(observer.step(&self.view(), &report))?;
            if !last {
                if enough {
                    return Ok(None);
                }
                if due {
                    self.save()?;
                    settled = Instant::now();
                }
            }
        }
        // Pictures at the end that were skipped leave steps that are done but not settled.
        tally.add(&self.engine.settle()?);
        drop(turn);
        if resident && tally.examples != self.train_examples() as u64 {
            return Err(Error::Other(format!(
                "the GPU counted {} of {} training examples in epoch {}; ftprop selftest --device cuda:0 may tell why",
                tally.examples,
                self.train_examples(),
                self.state.epoch
            )));
        }
        self.state.tally = tally.into();
        let mut waited = Duration::ZERO;
        if let Some(batches) = batches {
            waited = batches.waited();
            if batches.skipped() > 0 {
                let (count, first) = (batches.skipped(), batches.first_skipped().map(ToString::to_string));
                observer.notice(&self.view(), &Notice::PicturesSkipped { count, first });
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(Some(EpochTimes {
            rate: self.factor(steps - 1) * self.recipe.optimizer.lr(),
            images_per_s: images as f64 / seconds,
            waited: waited.as_secs_f64() / seconds,
            enough,
        }))
    }

    /// What the learning rate is multiplied by at a step of the present epoch.
    fn factor(&self, batch: usize) -> f64 {
        let steps = self.train.batches_per_epoch();
        self.recipe.schedule.factor_at(self.state.epoch, batch, steps, self.recipe.train.epochs)
    }

    /// The next steps of the epoch, `most` of them at most.
    fn announce(&self, first_batch: usize, most: usize) -> StepSpan {
        let per_epoch = self.train.batches_per_epoch();
        let total = f64::from(self.recipe.train.epochs) * per_epoch as f64;
        let count = most.min(per_epoch - first_batch);
        let step = |i: usize| {
            let progress = ((self.state.step + i as u64) as f64 / total) as f32;
            (self.factor(first_batch + i), progress)
        };
        StepSpan {
            seed: self.recipe.train.seed,
            epoch: u64::from(self.state.epoch),
            first_batch,
            first_step: self.state.step,
            steps: (0..count).map(step).collect(),
        }
    }

    /// Asks for as many steps next time as take about as long as results may be waited for.
    fn fit_span(&mut self, steps: usize, took: Duration) {
        let wanted = SETTLE_EVERY.as_secs_f64() / took.as_secs_f64().max(1e-6) * steps as f64;
        self.span = (wanted as usize).clamp(self.span / 2, 4 * self.span).clamp(16, ANNOUNCED);
    }

    /// Evaluates, records the epoch, and saves.
    fn finish_epoch(&mut self, times: &EpochTimes) -> Result<EpochMetrics, Error> {
        let epoch = self.state.epoch;
        let gate = self.gate.clone();
        let turn = || gate.as_deref().map(Gate::enter);
        let validation = match &self.validation {
            Some(loader) => {
                let _turn = turn();
                Some(self.engine.evaluate(Part::Validation, loader)?)
            }
            None => None,
        };
        let test = {
            let _turn = turn();
            self.engine.evaluate(Part::Test, &self.test)?
        };
        let metrics = EpochMetrics {
            epoch,
            train: Scores::from(&Tally::from(self.state.tally)),
            validation: validation.as_ref().map(Scores::from),
            test: Scores::from(&test),
            learning_rate: times.rate,
            images_per_s: times.images_per_s,
            waited: times.waited,
            seconds: self.epoch_seconds(),
        };
        if !(test.loss() + validation.map_or(0.0, |v| v.loss())).is_finite() {
            return Err(self.diverged(self.state.batch));
        }
        let score = metrics.validation.unwrap_or(metrics.test).top1;
        let better = self.state.best.is_none_or(|best| score > best.top1());
        let best = if better { Some(Best::new(epoch, score)) } else { self.state.best };
        let next = State { epoch: epoch + 1, step: self.state.step, best, ..State::start() };
        let over = epoch >= self.recipe.train.epochs;
        let waited = self.saved.elapsed();
        let due =
            waited >= SAVING_SHARE * self.saving_took || waited.as_secs_f64() >= self.recipe.train.checkpoint_seconds;
        if better || over || due {
            let network = self.engine.network()?;
            self.ensure_finite(&network)?;
            if better {
                let (values, stats) = (network.values.into_owned(), network.stats.into_owned());
                self.unsaved_best = Some(BestNetwork { state: next, values, stats });
            }
        }
        self.folder.append_metrics(&metrics)?;
        self.metrics.push(metrics);
        (self.state, self.before) = (next, 0.0);
        if over || due {
            self.save()?;
        }
        Ok(metrics)
    }

    /// How long the present epoch has taken, in all processes that it ran in.
    fn epoch_seconds(&self) -> f64 {
        self.before + self.began.elapsed().as_secs_f64()
    }

    /// Writes the best network, if it is a new one, and a checkpoint.
    fn save(&mut self) -> Result<(), Error> {
        let started = Instant::now();
        if self.state.batch > 0 {
            self.state.seconds = self.epoch_seconds();
        }
        let contents = self.engine.contents()?;
        self.ensure_finite(&contents)?;
        if let Some(BestNetwork { state, values, stats }) = self.unsaved_best.take() {
            let Contents { parameters, statistics, .. } = contents;
            let (values, stats) = (values.into(), stats.into());
            let best = Contents { parameters, statistics, values, stats, optimizer: None };
            checkpoint::save(&self.folder.best(), &self.recipe, &self.model, &state, &best)?;
        }
        checkpoint::save(&self.folder.checkpoint(), &self.recipe, &self.model, &self.state, &contents)?;
        (self.saved, self.saving_took) = (Instant::now(), started.elapsed());
        Ok(())
    }

    /// Keeps what blew up out of the run folder: a step can spoil the network although its own loss was fine.
    fn ensure_finite(&self, contents: &Contents<'_>) -> Result<(), Error> {
        let sound = |values: &[f32]| values.iter().all(|v| v.is_finite());
        if sound(&contents.values) && sound(&contents.stats) { Ok(()) } else { Err(self.diverged(self.state.batch)) }
    }

    /// `step` is counted from 1.
    fn diverged(&self, step: usize) -> Error {
        let path = self.folder.checkpoint();
        let saved = if path.exists() {
            format!("the last good checkpoint is kept in {}", path.display())
        } else {
            "there was no checkpoint yet".into()
        };
        let culprit = self.engine.first_non_finite().unwrap_or_else(|| "the loss".into());
        Error::Diverged { epoch: self.state.epoch, step, culprit, saved }
    }
}

/// What is known of an epoch when its steps are done.
struct EpochTimes {
    rate: f64,
    images_per_s: f64,
    waited: f64,
    /// Whether it is to be the last for now.
    enough: bool,
}

/// Whether an observer wants the run to stop.
fn stops(answer: Answer) -> Result<bool, Error> {
    Ok(answer.map_err(Error::Observer)? == ControlFlow::Break(()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in::DIGITS;

    #[test]
    fn runs_pause_for_one_who_wants_to_be_alone() {
        let temp = std::env::temp_dir().join(format!("ftprop-pause-{}", std::process::id()));
        let gate = Arc::new(Gate::default());
        let train = |name: &str, seed: u64, gate: Option<Arc<Gate>>| {
            let mut recipe = Recipe::from_toml("digits", DIGITS).unwrap();
            (recipe.train.epochs, recipe.train.seed) = (1, seed);
            // Each with threads of its own, as runs on a GPU have.
            let (place, dataset) = (Place::open("cpu", 1).unwrap(), recipe.data.open().unwrap());
            let folder = RunFolder::planned(&temp.join(name)).unwrap();
            let mut trainer = Trainer::new(recipe.clone(), folder.clone(), &dataset, &place).unwrap();
            trainer.gate = gate;
            folder.write_recipe(&recipe).unwrap();
            let ending = trainer.run(&mut ()).unwrap();
            assert!(matches!(ending, Ending::Finished(_)), "{ending:?}");
            std::fs::read(folder.checkpoint()).unwrap()
        };
        let turns = || Some(gate.clone());
        let mut alone = 0;
        let paused = std::thread::scope(|scope| {
            let runs = [scope.spawn(|| train("a", 1, turns())), scope.spawn(|| train("b", 2, turns()))];
            while !runs.iter().any(|run| run.is_finished()) {
                let _alone = gate.alone();
                std::thread::sleep(Duration::from_millis(5));
                alone += 1;
            }
            runs.map(|run| run.join().unwrap())
        });
        assert!(alone > 3, "alone {alone} times while two runs went on");
        assert!(paused == [train("c", 1, None), train("d", 2, None)], "pausing changed what was learned");
        std::fs::remove_dir_all(&temp).unwrap();
    }
}
