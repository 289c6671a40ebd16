//! Where a run is kept while it trains: its folder, locked, with checkpoints, metrics and TensorBoard's events.

use crate::checkpoint::{self, Checkpoint, Contents, ModelInfo, Note, State};
use crate::diagnostics::Record;
use crate::error::Error;
use crate::files;
use crate::recipe::Recipe;
use crate::run::{EpochMetrics, RunFolder, Scores, Summary};
use crate::tensorboard::EventWriter;
use std::fs::File;
use std::path::PathBuf;
use std::time::SystemTime;

/// A run folder in use.
pub(crate) struct Storage {
    folder: RunFolder,
    /// Held from the making to the end of the run, so that no other process trains in its folder.
    lock: Option<File>,
    events: Option<EventWriter>,
    /// Whether the last checkpoint's file is known to be whole, and so worth keeping when the next one takes its place.
    last_is_whole: bool,
}

impl Storage {
    pub(crate) fn new(folder: RunFolder) -> Result<Self, Error> {
        let lock = folder.lock()?;
        Ok(Storage { folder, lock, events: None, last_is_whole: false })
    }

    pub(crate) fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Makes the folder, if it is a new run's, and writes the recipe. Until then nothing is written.
    pub(crate) fn claim(&mut self, recipe: &Recipe) -> Result<(), Error> {
        if self.lock.is_some() {
            return self.folder.write_recipe(recipe);
        }
        self.lock = self.folder.claim(recipe)?;
        Ok(())
    }

    /// Whether the folder is made and, where there are locks, locked.
    pub(crate) fn is_held(&self) -> bool {
        !self.folder.is_new() && self.lock.is_some()
    }

    /// The run begins, or goes on, with this epoch.
    pub(crate) fn begin(&mut self, epoch: u32) -> Result<(), Error> {
        if self.lock.is_some() {
            files::clear_leftovers(self.folder.path());
        }
        // Also where nothing but its result is left to be written.
        self.folder.forget_ending()?;
        let mut events = EventWriter::create(self.folder.path(), SystemTime::now())?;
        if epoch > 1 {
            events.restart_at(u64::from(epoch), SystemTime::now())?;
        }
        self.events = Some(events);
        Ok(())
    }

    /// Others may use the folder.
    pub(crate) fn end(&mut self) {
        (self.lock, self.events) = (None, None);
    }

    /// What to go on from, if anything.
    pub(crate) fn checkpoint(&mut self) -> Result<Option<Checkpoint>, Error> {
        let last = self.folder.last()?;
        let fell_back = |c: &Checkpoint| c.notes.iter().any(|note| matches!(note, Note::FellBack { .. }));
        self.last_is_whole = last.as_ref().is_some_and(|c| !fell_back(c));
        Ok(last)
    }

    /// The last checkpoint's file, if there is one.
    pub(crate) fn kept(&self) -> Option<PathBuf> {
        Some(self.folder.checkpoint()).filter(|path| path.exists())
    }

    /// The epochs before a checkpoint's; later ones are dropped from the file.
    pub(crate) fn metrics_before(&self, epoch: u32) -> Result<Vec<EpochMetrics>, Error> {
        let metrics = self.folder.cut_metrics(epoch - 1)?;
        if metrics.len() != epoch as usize - 1 {
            let path = self.folder.path().to_path_buf();
            return Err(Error::EpochsDiffer { path, metrics: metrics.len(), epoch });
        }
        Ok(metrics)
    }

    /// Records an epoch.
    pub(crate) fn add_metrics(&mut self, metrics: &EpochMetrics) -> Result<(), Error> {
        self.folder.append_metrics(metrics)
    }

    /// Shows an epoch to TensorBoard.
    pub(crate) fn show_metrics(&mut self, metrics: &EpochMetrics) -> Result<(), Error> {
        self.show(metrics.epoch, &scalars(metrics))
    }

    /// Shows what was seen of the hard layers to TensorBoard.
    pub(crate) fn show_record(&mut self, record: &Record) -> Result<(), Error> {
        let scalars = record.scalars();
        let scalars: Vec<(&str, f32)> = scalars.iter().map(|(tag, value)| (tag.as_str(), *value)).collect();
        self.show(record.epoch, &scalars)
    }

    fn show(&mut self, epoch: u32, scalars: &[(&str, f32)]) -> Result<(), Error> {
        match &mut self.events {
            Some(events) => Ok(events.scalars(u64::from(epoch), SystemTime::now(), scalars)?),
            None => Ok(()),
        }
    }

    /// Writes a network that was the best at its time.
    pub(crate) fn save_best(
        &self,
        recipe: &Recipe,
        model: &ModelInfo,
        state: &State,
        best: &Contents<'_>,
    ) -> Result<(), Error> {
        checkpoint::save(&self.folder.best(), recipe, model, state, best)
    }

    /// Writes what to go on from, and keeps the one before.
    pub(crate) fn save(
        &mut self,
        recipe: &Recipe,
        model: &ModelInfo,
        state: &State,
        contents: &Contents<'_>,
    ) -> Result<(), Error> {
        if self.last_is_whole {
            files::keep_previous(&self.folder.checkpoint(), &self.folder.previous())?;
        }
        checkpoint::save(&self.folder.checkpoint(), recipe, model, state, contents)?;
        self.last_is_whole = true;
        Ok(())
    }

    pub(crate) fn write_summary(&self, summary: &Summary) -> Result<(), Error> {
        self.folder.write_summary(summary)
    }
}

fn scalars(m: &EpochMetrics) -> Vec<(&'static str, f32)> {
    let part = |names: [&'static str; 3], s: Scores| names.into_iter().zip([s.loss, s.top1, s.top5]);
    let mut all: Vec<(&'static str, f64)> = part(["train/loss", "train/top1", "train/top5"], m.train).collect();
    all.extend(part(["test/loss", "test/top1", "test/top5"], m.test));
    all.extend([("learning_rate", m.learning_rate), ("images_per_s", m.images_per_s)]);
    if let Some(validation) = m.validation {
        all.extend(part(["validation/loss", "validation/top1", "validation/top5"], validation));
    }
    all.into_iter().map(|(name, value)| (name, value as f32)).collect()
}
