//! The training loop: recipe and data in, metrics and networks out.
//!
//! A run is a pure function of its recipe and data. [`Trainer::new`] keeps everything in memory;
//! [`Trainer::in_folder`] keeps a run folder. Killed at any moment and resumed, a run in a folder ends with the same
//! bytes: the checkpoint holds everything that the next step depends on, and whatever was written after it is
//! written again.

mod advance;
mod epoch;
mod resume;
mod sizes;
mod spread;
mod start;
mod whitening;

use crate::changes::{self, Change, Changed};
use crate::checked::CheckedRecipe;
use crate::checkpoint::{self, Checkpoint, Contents, ModelInfo, State};
use crate::device::Place;
use crate::diagnostics::{Diagnostics, Records};
use crate::engine::{self, Parts};
use crate::error::Error;
use crate::evaluate::shared_loader;
use crate::gate::Gate;
use crate::model::{Model, Which};
use crate::observe::{Answer, Ending, Learned, Notice, Observer, RunView};
use crate::recipe::Recipe;
use crate::run::{EpochMetrics, RunFolder, Summary};
use crate::storage::Storage;
use crate::team::Team;
use ftprop_data::{Dataset, Loader, LoaderConfig, Split};
use ftprop_nn::Engine;
use ftprop_nn::engine::NetworkState;
use ftprop_tensor::bytes::all_finite;
use ftprop_tensor::{Cpu, Share};
use sizes::Sizes;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use whitening::whiten;

/// A run under way.
pub struct Trainer {
    recipe: CheckedRecipe,
    /// The recipe as it was given; a batch may be larger there than the data.
    asked: CheckedRecipe,
    /// Where it is kept; without it everything is in memory only.
    storage: Option<Storage>,
    model: ModelInfo,
    engine: Box<dyn Engine>,
    cpu: Arc<Cpu>,
    /// Whether a GPU computes, and not the CPU's threads.
    on_gpu: bool,
    /// How it takes turns with other runs on a GPU.
    gate: Option<Arc<Gate>>,
    train: Loader,
    validation: Option<Loader>,
    test: Loader,
    state: State,
    metrics: Vec<EpochMetrics>,
    diagnostics: Option<(Diagnostics, Records)>,
    /// Whether TensorBoard has been shown already what the next look at the hard layers will see.
    shown: bool,
    /// The best network, unless it is in the storage.
    best: Option<BestNetwork>,
    /// The statistics that belong to the moving average of the weights, as of the last epoch's end.
    averaged: Option<Vec<f32>>,
    /// What is to be said about the checkpoint that it goes on from.
    notes: Vec<Notice>,
    /// Settings that it goes on with in place of others, until they are recorded and told.
    changes: Vec<Change>,
    saved: Instant,
    /// When the epoch began in this process, and how long it had taken before.
    began: Instant,
    before: f64,
    saving_took: Duration,
    /// Steps that are asked for at once of data that lives on the device, and after which ranks bring together what they
    /// have come to.
    span: usize,
    /// For epochs of another size than is measured at.
    sizes: Option<Sizes>,
    /// The ranks that train this network together, where there are any.
    team: Option<Team>,
}

/// A network that was the best at its time.
struct BestNetwork {
    state: State,
    network: NetworkState<'static>,
}

impl Trainer {
    /// Prepares a run that writes nothing.
    ///
    /// ```
    /// use ftprop_train::choice::DeviceChoice;
    /// use ftprop_train::device::Place;
    /// use ftprop_train::model::Which;
    /// use ftprop_train::recipe::Recipe;
    /// use ftprop_train::trainer::Trainer;
    ///
    /// let mut recipe = Recipe::built_in("digits")?.into_recipe();
    /// recipe.train.epochs = 1;
    /// let (dataset, place) = (recipe.data.open()?, Place::open(DeviceChoice::Cpu, 1)?);
    /// let mut trainer = Trainer::new(recipe.checked()?, &dataset, &place)?;
    /// trainer.run(&mut ())?;
    /// assert!(trainer.metrics()[0].test.top1 > 0.5);
    /// let model = trainer.model(Which::Best, 1)?;
    /// assert_eq!(model.info.classes.len(), 10);
    /// # Ok::<(), ftprop_train::Error>(())
    /// ```
    pub fn new(recipe: CheckedRecipe, dataset: &Dataset, place: &Place) -> Result<Self, Error> {
        Trainer::made(recipe, None, dataset, place, None)
    }

    /// Prepares a run in its folder; goes on from the folder's checkpoint if it has one.
    pub fn in_folder(
        recipe: CheckedRecipe,
        folder: RunFolder,
        dataset: &Dataset,
        place: &Place,
    ) -> Result<Self, Error> {
        Trainer::made(recipe, Some(folder), dataset, place, None)
    }

    /// Prepares to go on with a run by another recipe than the one in its folder. What changes is told and recorded; what
    /// would make another run of it is refused.
    pub fn with_changes(
        recipe: CheckedRecipe,
        folder: RunFolder,
        dataset: &Dataset,
        place: &Place,
    ) -> Result<Self, Error> {
        let before = folder.recipe()?.checked()?;
        Trainer::made(recipe, Some(folder), dataset, place, Some(before))
    }

    /// `before` is the recipe that a run's folder has, where this one is meant to be another.
    fn made(
        recipe: CheckedRecipe,
        folder: Option<RunFolder>,
        dataset: &Dataset,
        place: &Place,
        before: Option<CheckedRecipe>,
    ) -> Result<Self, Error> {
        if let [only] = &dataset.classes[..] {
            return Err(Error::SingleClass { class: only.clone() });
        }
        let storage = folder.map(Storage::new).transpose()?;
        let (train, validation) = recipe.data.hold_out(&dataset.train, recipe.train.seed)?;
        let asked = recipe.clone();
        let recipe = recipe.with_batch_of_at_most(train.len());
        let (team, batch) = (place.team.clone(), recipe.train.batch);
        let share = team.as_ref().map_or(Share::WHOLE, Team::share);
        check_share(&recipe, share)?;
        let first = share.rank == 0;
        let config = LoaderConfig {
            workers: recipe.data.workers,
            augment: recipe.data.augment(),
            bad_image: recipe.data.bad_image(),
            share,
            ..LoaderConfig::training(recipe.train.batch, recipe.train.seed, dataset.normalize.clone())
        };
        // Before the network, whose buffers grow with the batch.
        let train_loader = Loader::new(&train, config)?;
        // Where every epoch has another size than is measured at, this engine does not learn.
        let elsewhere = recipe.data.sizes.first().is_some_and(|&(first, _)| first == 1)
            && recipe.data.sizes.iter().all(|&(_, side)| side != dataset.shape.height);
        let learned_from = (!elsewhere).then_some(&train);
        let parts = Parts { train: learned_from, validation: validation.as_ref(), test: Some(&dataset.test) };
        let teacher = engine::teacher::load(&recipe, dataset, place)?;
        let mut model = ModelInfo::of(dataset);
        model.origin.teacher = teacher.as_deref().map(|teacher| checkpoint::mark_of(&teacher.network));
        let engine = engine::open(&recipe, dataset, &parts, place, teacher)?;
        let sizes = Sizes::new(&recipe, dataset, &train, place, engine.graph())?;
        let mut notes: Vec<Notice> = recipe.check_batches(engine.graph(), train.len(), share)?.into_iter().collect();
        notes.extend(Notice::of_number(dataset));
        notes.extend(asked.idle(engine.graph()));
        let pixels = engine.takes_pixels() && recipe.train.accumulate == 1;
        let train_loader = if pixels { train_loader.delivering(true)? } else { train_loader };
        let evaluation = |split: &Split| shared_loader(split, &recipe, dataset, batch, share);
        let mut trainer = Trainer {
            train: train_loader,
            validation: validation.as_ref().map(evaluation).transpose()?,
            test: evaluation(&dataset.test)?,
            model,
            cpu: place.cpu.clone(),
            on_gpu: place.gpu.is_some(),
            gate: place.gpu.as_ref().and_then(|gpu| gpu.gate().cloned()),
            state: State::start(),
            metrics: Vec::new(),
            diagnostics: None,
            shown: false,
            best: None,
            averaged: None,
            notes,
            changes: Vec::new(),
            saved: Instant::now(),
            began: Instant::now(),
            before: 0.0,
            saving_took: Duration::ZERO,
            span: if team.is_some() && place.gpu.is_none() { 1 } else { 64 },
            team,
            recipe,
            asked,
            storage,
            engine,
            sizes,
        };
        if let Some(before) = before {
            trainer.changes = changes::between(&before, &trainer.asked)?;
        }
        // What lies where a new run's folder will be is not this run's.
        let begun = trainer.storage.as_mut().filter(|storage| !storage.folder().is_new());
        match begun.map(Storage::checkpoint).transpose()?.flatten() {
            Some(checkpoint) => trainer.take_up(&checkpoint)?,
            None => {
                let seed = trainer.recipe.train.seed;
                trainer.engine.initialise(seed)?;
                // The others are given it.
                if first {
                    whiten(&mut *trainer.engine, &train, &dataset.normalize, seed)?;
                    trainer.begin_with_another()?;
                }
            }
        }
        if let Some(storage) = trainer.storage.as_ref().filter(|storage| !storage.folder().is_new()) {
            trainer.metrics = storage.metrics_before(trainer.state.epoch)?;
        }
        if trainer.recipe.train.diagnostics && first && trainer.result()?.is_none() {
            trainer.open_diagnostics(dataset)?;
        }
        Ok(trainer)
    }

    /// Gets ready to look into the hard layers, with what was seen of them before.
    fn open_diagnostics(&mut self, dataset: &Dataset) -> Result<(), Error> {
        // Between epochs the next look is due now; within one it was when the epoch began.
        let next = self.state.epoch - u32::from(self.state.batch == 0);
        let records = match &self.storage {
            Some(storage) if !storage.folder().is_new() => {
                let folder = storage.folder().path();
                // Within an epoch, what came after its start is shown anew.
                self.shown = self.state.batch == 0
                    && Records::before(folder, next + 1)?.all().last().is_some_and(|r| r.epoch == next);
                Records::before(folder, next)?
            }
            _ => Records::default(),
        };
        self.diagnostics = Some((Diagnostics::new(&self.recipe, dataset, self.cpu.clone())?, records));
        Ok(())
    }

    /// Makes a new run's folder, unless it is made, and writes the recipe into it: until this is called, or the run
    /// begins, nothing is written. Gives the folder, where there is one.
    pub fn claim(&mut self) -> Result<Option<&RunFolder>, Error> {
        let over = self.is_over();
        let Some(storage) = &mut self.storage else { return Ok(None) };
        let new = storage.folder().is_new();
        // Where nothing is left to train, nothing is trained by another recipe.
        if over && !new {
            return Ok(Some(storage.folder()));
        }
        // Before the recipe, so that a run that was killed in between knows where the recipe comes from.
        for change in &self.changes {
            let (epoch, step) = (self.state.epoch, self.state.step);
            storage.folder().append_change(&Changed { epoch, step, change: change.clone() })?;
        }
        storage.claim(&self.asked)?;
        if let Some((_, records)) = self.diagnostics.as_mut().filter(|_| new) {
            *records = Records::before(storage.folder().path(), 0)?;
        }
        Ok(Some(storage.folder()))
    }

    /// How many numbers the network learns.
    pub fn parameters(&self) -> usize {
        self.engine.graph().parameter_count()
    }

    /// Where training stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// What is trained.
    pub fn recipe(&self) -> &CheckedRecipe {
        &self.recipe
    }

    /// What the network needs to be used without its data.
    pub fn info(&self) -> &ModelInfo {
        &self.model
    }

    /// The epochs so far.
    pub fn metrics(&self) -> &[EpochMetrics] {
        &self.metrics
    }

    /// The network as it is now, or the best so far, on the CPU and ready for batches of at most `batch`.
    pub fn model(&self, which: Which, batch: usize) -> Result<Model, Error> {
        let folder = self.storage.as_ref().map(Storage::folder);
        let network = match (which, &self.best, folder) {
            (Which::Best, Some(best), _) => best.network.clone(),
            (Which::Best, None, Some(folder)) if self.state.best.is_some() => {
                return Model::load(folder.path(), which, self.cpu.clone(), batch);
            }
            _ => self.used_network()?,
        };
        Model::new(Recipe::clone(&self.recipe), self.model.clone(), &network, self.cpu.clone(), batch)
    }

    /// The same network's numbers alone, which take no room for computing.
    pub fn network(&self, which: Which) -> Result<NetworkState<'static>, Error> {
        match (which, &self.best, self.storage.as_ref().map(Storage::folder)) {
            (Which::Best, Some(best), _) => Ok(best.network.clone()),
            (Which::Best, None, Some(folder)) if self.state.best.is_some() => {
                let graph = self.engine.graph().clone();
                let used = Checkpoint::read(&folder.best())?.contents(&graph)?.used();
                Ok(owned(used))
            }
            _ => self.used_network(),
        }
    }

    /// The network that is measured and kept: the averaged one where the recipe asks for an average.
    fn used_network(&self) -> Result<NetworkState<'static>, Error> {
        let state = self.engine.state()?;
        let (values, statistics) = match (state.average, &self.averaged) {
            (Some(average), Some(statistics)) => (average, statistics.clone()),
            _ => (state.network.values, state.network.statistics.into_owned()),
        };
        Ok(NetworkState { values: values.into_owned().into(), statistics: statistics.into() })
    }

    /// Examples that are held out of the training part.
    pub fn validation_examples(&self) -> usize {
        self.validation.as_ref().map_or(0, Loader::examples)
    }

    /// Examples that are learned from.
    pub fn train_examples(&self) -> usize {
        self.train.examples()
    }

    /// Steps of a whole epoch.
    pub fn steps_per_epoch(&self) -> usize {
        self.train.batches_per_epoch()
    }

    /// What an observer sees.
    pub fn view(&self) -> RunView<'_> {
        RunView {
            recipe: &self.recipe,
            folder: self.storage.as_ref().map(|storage| storage.folder().path()),
            state: &self.state,
            steps_per_epoch: self.train.batches_per_epoch(),
            metrics: &self.metrics,
            diagnostics: self.diagnostics.as_ref().map_or(&[], |(_, records)| records.all()),
            learned: Learned(&*self.engine),
        }
    }

    /// Trains until the last epoch is done or the observer has had enough.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Ending, Error> {
        let ending = self.spread().and_then(|()| self.run_alone(observer));
        if let (Err(why), Some(team)) = (&ending, &self.team) {
            team.abandon(&why.to_string());
        }
        ending
    }

    fn run_alone(&mut self, observer: &mut dyn Observer) -> Result<Ending, Error> {
        if self.storage.as_ref().is_some_and(|storage| !storage.is_held()) {
            self.claim()?;
        }
        for note in std::mem::take(&mut self.notes) {
            observer.notice(&self.view(), &note);
        }
        if let Some(summary) = self.result()? {
            return Ok(Ending::Finished(summary));
        }
        if let Some(storage) = &mut self.storage {
            storage.begin(self.state.epoch)?;
        }
        let changes = std::mem::take(&mut self.changes);
        if !changes.is_empty() && !self.is_over() {
            observer.notice(&self.view(), &Notice::Changed(changes));
        }
        let ending = self.run_epochs(observer);
        if let Some(storage) = &mut self.storage {
            storage.end();
        }
        ending
    }

    fn run_epochs(&mut self, observer: &mut dyn Observer) -> Result<Ending, Error> {
        if self.state.batch == 0 {
            self.look()?;
        }
        let mut enough = stops(observer.begin(&self.view()))?;
        while !self.is_over() {
            if let Some(team) = &self.team {
                enough = team.any(enough)?;
            }
            self.began = Instant::now();
            let cpu = self.cpu.clone();
            let learned = match self.on_gpu {
                _ if enough => Ok(None),
                true => self.learn_at_size(observer),
                false => cpu.enter(|| self.learn_at_size(observer)),
            };
            if !matches!(learned, Ok(Some(_))) {
                self.pause();
            }
            let Some(epoch) = learned? else {
                self.save()?;
                let ending = Ending::Interrupted { epoch: self.state.epoch, step: self.state.batch };
                observer.end(&self.view(), &ending).map_err(Error::Outside)?;
                return Ok(ending);
            };
            let metrics = self.finish_epoch(&epoch)?;
            if let Some(storage) = &mut self.storage {
                storage.show_metrics(&metrics)?;
            }
            self.look()?;
            enough = stops(observer.epoch(&self.view()))? || epoch.enough;
        }
        let best = self.state.best.map_or(self.state.epoch - 1, |b| b.epoch);
        let summary = Summary::new(&self.recipe.name, &self.metrics, best, self.parameters())
            .expect("a checked recipe has at least one epoch, and all are done");
        let examples = self.model.origin.data.as_ref().map(|data| [data.train.examples, data.test.examples]);
        let summary = Summary { classes: Some(self.model.classes.len()), examples, ..summary };
        let ending = Ending::Finished(summary.clone());
        observer.end(&self.view(), &ending).map_err(Error::Outside)?;
        if let Some(storage) = &self.storage {
            storage.write_summary(&summary)?;
        }
        Ok(ending)
    }

    /// Whether all epochs are done, or as many as the recipe's patience allows.
    pub fn is_over(&self) -> bool {
        self.state.epoch > self.recipe.train.epochs || self.has_lost_patience(&self.state)
    }

    /// The result, where all is done and written, so that nothing is left to do.
    fn result(&self) -> Result<Option<Summary>, Error> {
        let folder = self.storage.as_ref().map(Storage::folder).filter(|folder| self.is_over() && !folder.is_new());
        let summary = folder.map(RunFolder::summary).transpose()?.flatten();
        // One that was written by the time it ended before is not that of this ending.
        Ok(summary.filter(|summary| summary.epochs == self.state.epoch - 1))
    }

    /// Whether the last epochs were none better on the validation part.
    fn has_lost_patience(&self, state: &State) -> bool {
        let since_best = state.best.map_or(0, |best| state.epoch - 1 - best.epoch);
        state.batch == 0 && self.recipe.train.patience.is_some_and(|patience| since_best >= patience)
    }

    /// Looks at the step about to be taken, if the recipe asks for it.
    fn look(&mut self) -> Result<(), Error> {
        let cut = self.cut();
        let Some((twin, records)) = &mut self.diagnostics else { return Ok(()) };
        if let Some(record) = twin.look(self.state.epoch - 1, self.state.step, cut, &self.engine.state()?)? {
            if let Some(storage) = self.storage.as_mut().filter(|_| !self.shown) {
                storage.show_record(&record)?;
            }
            self.shown = false;
            records.add(record)?;
        }
        Ok(())
    }

    /// Writes the best network, if it is a new one, and a checkpoint, where there is a place for them.
    fn save(&mut self) -> Result<(), Error> {
        if self.storage.is_none() {
            return Ok(());
        }
        let started = Instant::now();
        if self.state.batch > 0 {
            self.state.seconds = self.epoch_seconds();
        }
        let (graph, state) = (self.engine.graph().clone(), self.engine.state()?);
        self.ensure_finite(&state.network)?;
        if !state.moments.iter().all(|moment| all_finite(moment)) {
            return Err(self.diverged(self.state.batch));
        }
        let Some(storage) = &mut self.storage else { return Ok(()) };
        if let Some(BestNetwork { state, network }) = self.best.take() {
            storage.save_best(&self.recipe, &self.model, &state, &Contents::for_use(&graph, network))?;
        }
        let contents = Contents::for_training(&graph, state, self.averaged.as_deref());
        storage.save(&self.recipe, &self.model, &self.state, &contents)?;
        (self.saved, self.saving_took) = (Instant::now(), started.elapsed());
        Ok(())
    }

    /// Keeps what blew up out of the run folder: a step can spoil the network although its own loss was fine.
    fn ensure_finite(&self, network: &NetworkState<'_>) -> Result<(), Error> {
        if all_finite(&network.values) && all_finite(&network.statistics) {
            Ok(())
        } else {
            Err(self.diverged(self.state.batch))
        }
    }

    /// `step` is counted from 1.
    fn diverged(&self, step: usize) -> Error {
        let checkpoint = self.storage.as_ref().and_then(Storage::kept);
        let culprit = self.engine.first_non_finite().unwrap_or_else(|| "the loss".into());
        Error::Diverged { epoch: self.state.epoch, step, culprit, checkpoint }
    }
}

/// A network's numbers, apart from its engine.
fn owned(network: NetworkState<'_>) -> NetworkState<'static> {
    NetworkState { values: network.values.into_owned().into(), statistics: network.statistics.into_owned().into() }
}

/// Whether an observer wants the run to stop.
fn stops(answer: Answer) -> Result<bool, Error> {
    Ok(answer.map_err(Error::Outside)? == ControlFlow::Break(()))
}

/// Refuses what cannot be divided among so many ranks.
fn check_share(recipe: &CheckedRecipe, share: Share) -> Result<(), Error> {
    // Partners of a batch would lie on several ranks.
    if !share.is_whole() && recipe.mixing()?.is_some() {
        let must = "goes with a single rank";
        return Err(Error::Setting { key: "train.mixup and train.cutmix", must });
    }
    match recipe.train.batch {
        batch if share.ranks > batch => Err(Error::ManyRanks { batch, ranks: share.ranks }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
