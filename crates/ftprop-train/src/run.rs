//! Run folders: what a training run leaves behind.
//!
//! | file | what it is |
//! | --- | --- |
//! | `recipe.toml` | the resolved recipe, written before training starts |
//! | `metrics.jsonl` | one line an epoch |
//! | `metrics.csv` | the same as a table |
//! | `checkpoint.safetensors` | everything needed to go on |
//! | `best.safetensors` | the network to use: of the epoch that was best on the validation part, or of the last |
//! | `events.out.tfevents.*` | the metrics for TensorBoard |
//! | `summary.json` | the result |
//! | `diagnostics.jsonl` | how the hard layers fared, where the recipe asks for it |
//!
//! Whoever watches a run may draw pictures beside them.

use crate::error::Error;
use crate::files;
use crate::jsonl;
use crate::recipe::Recipe;
use ftprop_nn::Tally;
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

/// Loss and accuracies over one part of the data; accuracies are fractions of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// The mean loss.
    pub loss: f64,
    /// The share whose most likely class is right.
    pub top1: f64,
    /// The share whose class is among the five most likely.
    pub top5: f64,
}

impl From<&Tally> for Scores {
    fn from(t: &Tally) -> Self {
        Scores { loss: t.loss(), top1: t.top1_share(), top5: t.top5_share() }
    }
}

/// One epoch, a line of `metrics.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochMetrics {
    /// Counted from 1.
    pub epoch: u32,
    /// The training part, as it was learned from.
    pub train: Scores,
    /// The validation part, where there is one.
    pub validation: Option<Scores>,
    /// The test part.
    pub test: Scores,
    /// At the epoch's last step.
    pub learning_rate: f64,
    /// Training images a second, evaluation left out.
    pub images_per_s: f64,
    /// The share of training time that went by waiting for data.
    pub waited: f64,
    /// How long the epoch took, evaluation included.
    pub seconds: f64,
}

impl EpochMetrics {
    /// The columns of `metrics.csv`.
    const COLUMNS: &str = "epoch,train_loss,train_top1,train_top5,validation_loss,validation_top1,validation_top5,\
                           test_loss,test_top1,test_top5,learning_rate,images_per_s,waited,seconds";

    /// Its line there; what was not measured is empty.
    fn row(&self) -> String {
        let part = |scores: Option<Scores>| match scores {
            Some(Scores { loss, top1, top5 }) => format!("{loss},{top1},{top5}"),
            None => ",,".into(),
        };
        let parts = [Some(self.train), self.validation, Some(self.test)].map(part).join(",");
        let EpochMetrics { epoch, learning_rate, images_per_s, waited, seconds, .. } = self;
        format!("{epoch},{parts},{learning_rate},{images_per_s},{waited},{seconds}")
    }
}

/// The result of a run, `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The recipe's name.
    pub name: String,
    /// The training part.
    pub train: PartSummary,
    /// The validation part, where there is one.
    pub validation: Option<PartSummary>,
    /// The test part.
    pub test: PartSummary,
    /// The epoch kept in `best.safetensors`: best on the validation part if there is one, else the last.
    pub best_epoch: u32,
    /// The test part's top-1 at that epoch.
    pub test_top1_at_best: f64,
    /// Epochs in all.
    pub epochs: u32,
    /// How many numbers the network learned.
    pub parameters: usize,
    /// How long all epochs took.
    pub seconds: f64,
    /// Training images a second, the mean over the epochs.
    pub images_per_s: f64,
}

/// One part of the data over the whole run, as fractions of 1. The best over all epochs flatters: it is
/// given because the paper reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartSummary {
    /// The best of all epochs.
    pub top1_best: f64,
    /// Top-1 at the last epoch.
    pub top1_last: f64,
    /// Top-5 at the last epoch.
    pub top5_last: f64,
    /// The loss at the last epoch.
    pub loss_last: f64,
}

/// A run folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// The folder of a run that has yet to be made: nothing is written, but what is there must not be a run.
    pub fn planned(path: &Path) -> Result<Self, Error> {
        if ["recipe.toml", "checkpoint.safetensors", "metrics.jsonl"].iter().any(|file| path.join(file).exists()) {
            return Err(Error::RunExists { path: path.to_path_buf() });
        }
        Ok(RunFolder { path: path.to_path_buf() })
    }

    /// Makes a new run folder and writes the recipe into it.
    pub fn create(path: &Path, recipe: &Recipe) -> Result<Self, Error> {
        let folder = RunFolder::planned(path)?;
        folder.write_recipe(recipe)?;
        Ok(folder)
    }

    /// An existing run folder.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.is_file() {
            return Err(Error::NotARun { path: path.to_path_buf(), why: "it is a file" });
        }
        if !path.is_dir() {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(files::FileError::new("open", path, source).into());
        }
        if !path.join("recipe.toml").exists() {
            return Err(Error::NotARun { path: path.to_path_buf(), why: "it has no recipe.toml" });
        }
        Ok(RunFolder { path: path.to_path_buf() })
    }

    /// The first of `runs/NAME`, `runs/NAME-2`, … that does not exist.
    pub fn unused(name: &str) -> PathBuf {
        let base = Path::new("runs").join(folder_name(name));
        let numbered = (2..).map(|i| PathBuf::from(format!("{}-{i}", base.display())));
        std::iter::once(base.clone()).chain(numbered).find(|p| !p.exists()).expect("there is always a next number")
    }

    /// Takes back what a run wrote that failed before it had learned anything, so that its place is free again. The
    /// folder itself is left where it was there before (`existed`).
    pub fn take_back(&self, existed: bool) {
        if self.checkpoint().exists() || self.metrics_path().exists() {
            return;
        }
        let written = |name: &str| name == "recipe.toml" || name.starts_with("events.out.tfevents.");
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(written) {
                // What cannot be removed is in the way later, and is named then.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        if !existed {
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps other processes from training in this folder for as long as it is held; nothing where there is no folder
    /// yet, or where the file system has no locks.
    pub fn lock(&self) -> Result<Option<File>, Error> {
        // The folder itself is locked, so no file is left behind, and a killed process holds nothing.
        let Ok(folder) = File::open(&self.path) else { return Ok(None) };
        match folder.try_lock() {
            Ok(()) => Ok(Some(folder)),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { path: self.path.clone() }),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }

    /// The file to go on from.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint.safetensors")
    }

    /// The file of the network to use: of the epoch that was best on the validation part, or of the last.
    pub fn best(&self) -> PathBuf {
        self.path.join("best.safetensors")
    }

    /// The recipe as it was resolved before training.
    pub fn recipe(&self) -> Result<Recipe, Error> {
        let path = self.path.join("recipe.toml");
        Recipe::from_toml(&path.display().to_string(), &files::read_text(&path)?)
    }

    /// Writes the recipe, into a folder that is made if need be.
    pub fn write_recipe(&self, recipe: &Recipe) -> Result<(), Error> {
        files::create_folder(&self.path)?;
        Ok(files::write(&self.path.join("recipe.toml"), recipe.to_toml()?.as_bytes())?)
    }

    fn metrics_path(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// The epochs so far. A last line without its end is one that a killed run, or one still at work, was
    /// writing; it does not count.
    pub fn metrics(&self) -> Result<Vec<EpochMetrics>, Error> {
        jsonl::read(&self.metrics_path(), "a line of metrics")
    }

    /// Adds an epoch.
    pub fn append_metrics(&self, metrics: &EpochMetrics) -> Result<(), Error> {
        jsonl::append(&self.metrics_path(), metrics)?;
        let table = self.table_path();
        if !table.exists() {
            files::append_line(&table, EpochMetrics::COLUMNS)?;
        }
        Ok(files::append_line(&table, &metrics.row())?)
    }

    /// The same metrics as a table, for spreadsheets and scripts.
    fn table_path(&self) -> PathBuf {
        self.path.join("metrics.csv")
    }

    /// Drops what was written after the checkpoint: a killed run may have recorded an epoch, or half a line
    /// of it, that it will now go through again.
    pub fn cut_metrics(&self, epochs: u32) -> Result<Vec<EpochMetrics>, Error> {
        let kept = jsonl::cut(&self.metrics_path(), |m: &EpochMetrics| m.epoch <= epochs)?;
        let lines = [EpochMetrics::COLUMNS.to_string()].into_iter().chain(kept.iter().map(EpochMetrics::row));
        let text: String = lines.flat_map(|line| [line, "\n".into()]).collect();
        let table = self.table_path();
        if kept.is_empty() {
            // The first epoch makes it.
            if table.exists() {
                std::fs::remove_file(&table).map_err(|why| files::FileError::new("remove", &table, why))?;
            }
        } else if !table.exists() || files::read(&table)? != text.as_bytes() {
            files::write(&table, text.as_bytes())?;
        }
        Ok(kept)
    }

    /// The result of a run that is finished.
    pub fn summary(&self) -> Result<Option<Summary>, Error> {
        let path = self.path.join("summary.json");
        if !path.exists() {
            return Ok(None);
        }
        serde_json::from_str(&files::read_text(&path)?)
            .map(Some)
            .map_err(|e| Error::NotASummary { path: path.clone(), why: e.to_string() })
    }

    /// Writes the result of a run that is finished.
    pub fn write_summary(&self, summary: &Summary) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(summary)
            .map_err(|e| Error::Unwritable { what: "the result".into(), why: e.to_string() })?;
        Ok(files::write(&self.path.join("summary.json"), format!("{text}\n").as_bytes())?)
    }
}

/// What a run's folder is called: its name, without what file systems do not take.
pub fn folder_name(name: &str) -> String {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    Some(safe.trim_matches('.')).filter(|name| !name.is_empty()).unwrap_or("run").to_string()
}

impl Summary {
    /// The result of a run with these epochs, of which there is at least one.
    pub fn new(name: &str, metrics: &[EpochMetrics], best_epoch: u32, parameters: usize) -> Option<Self> {
        let last = metrics.last()?;
        let part = |scores: &dyn Fn(&EpochMetrics) -> Option<Scores>| {
            let last = scores(last)?;
            let top1_best = metrics.iter().filter_map(scores).map(|s| s.top1).fold(0.0, f64::max);
            Some(PartSummary { top1_best, top1_last: last.top1, top5_last: last.top5, loss_last: last.loss })
        };
        let seconds: f64 = metrics.iter().map(|m| m.seconds).sum();
        let images_per_s = metrics.iter().map(|m| m.images_per_s).sum::<f64>() / metrics.len() as f64;
        Some(Summary {
            name: name.to_string(),
            train: part(&|m| Some(m.train))?,
            validation: part(&|m| m.validation),
            test: part(&|m| Some(m.test))?,
            best_epoch,
            test_top1_at_best: metrics.iter().find(|m| m.epoch == best_epoch).unwrap_or(last).test.top1,
            epochs: last.epoch,
            parameters,
            seconds,
            images_per_s,
        })
    }
}
