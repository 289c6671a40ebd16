//! Run folders: what a training run leaves behind.
//!
//! | file | what it is |
//! | --- | --- |
//! | `recipe.toml` | the resolved recipe, written before training starts |
//! | `metrics.jsonl` | one line an epoch |
//! | `metrics.csv` | the same as a table |
//! | `checkpoint.safetensors` | everything needed to go on |
//! | `previous.safetensors` | the checkpoint before it, should it be damaged |
//! | `best.safetensors` | the network to use: of the epoch that was best on the validation part, or of the last |
//! | `events.out.tfevents.*` | the metrics for TensorBoard |
//! | `summary.json` | the result, once it has ended and until it goes on |
//! | `diagnostics.jsonl` | how the hard layers fared, where the recipe asks for it |
//! | `failure.txt` | why it failed, where it was one of several and did |
//!
//! Whoever watches a run may draw pictures beside them. Nobody else writes over them: see [`refuse_own_file`].

mod failure;
mod summary;

pub use failure::failure;
pub(crate) use failure::keep_failure;
pub use summary::{PartSummary, Summary};

use crate::changes::Changed;
use crate::checkpoint::{Checkpoint, Note};
use crate::config::Layers;
use crate::error::Error;
use crate::files;
use crate::jsonl;
use crate::recipe::Recipe;
use ftprop_nn::Tally;
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
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
    /// Where several ranks trained together: the part of a single one in it, their mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_per_s_of_a_rank: Option<f64>,
    /// Where several ranks trained together: the share of training time that went by exchanging gradients and waiting for
    /// each other, the mean over the ranks. Between GPUs, which exchange beside other work, only what the host waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanged: Option<f64>,
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

/// What the files of a run are called, but for pictures, which are drawn anew, and TensorBoard's.
const OWN: [&str; 12] = [
    "recipe.toml",
    "metrics.jsonl",
    "metrics.csv",
    "checkpoint.safetensors",
    "previous.safetensors",
    "best.safetensors",
    "summary.json",
    "diagnostics.jsonl",
    "changes.jsonl",
    "failure.txt",
    "points.csv",
    "test.csv",
];

/// Refuses to write a result over one of a run's own files: whoever writes where a user says asks this first.
pub fn refuse_own_file(path: &Path) -> Result<(), Error> {
    // A link is written through.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let own = is_own_name(&real);
    let folder = real.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match own && folder.join("recipe.toml").exists() {
        true => Err(Error::RunsOwn { path: path.to_path_buf() }),
        false => Ok(()),
    }
}

/// Whether a file is called as one of a run's own.
pub fn is_own_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    OWN.contains(&name) || name.starts_with("events.out.tfevents.")
}

/// A run folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    made: Made,
}

/// How far a run folder is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// It holds a run.
    Already,
    /// Not yet, and its path is as it is.
    Here,
    /// Not yet, and where it is taken, the path gets a number.
    Numbered,
}

impl RunFolder {
    /// The folder of a run that has yet to be made: nothing is written, but what is there must not be a run.
    pub fn planned(path: &Path) -> Result<Self, Error> {
        let folder = RunFolder { path: path.to_path_buf(), made: Made::Here };
        if folder.holds_a_run() { Err(Error::RunExists { path: folder.path }) } else { Ok(folder) }
    }

    /// The folder of a run that has yet to be made, the first of `PATH`, `PATH-2`, … that nobody has when it is.
    pub fn numbered(path: &Path) -> Self {
        RunFolder { path: path.to_path_buf(), made: Made::Numbered }
    }

    /// Makes a new run folder and writes the recipe into it.
    pub fn create(path: &Path, recipe: &Recipe) -> Result<Self, Error> {
        let mut folder = RunFolder::planned(path)?;
        folder.claim(recipe)?;
        Ok(folder)
    }

    /// Makes the folder, unless it is made, and writes the recipe into it; gives its lock, where there are locks. Of several
    /// who claim one folder for a new run one gets it, and the others have written nothing.
    pub fn claim(&mut self, recipe: &Recipe) -> Result<Option<File>, Error> {
        match self.made {
            Made::Already => {}
            Made::Here => files::create_folder(&self.path)?,
            Made::Numbered => (self.path, self.made) = (first_unused(&self.path)?, Made::Here),
        }
        let lock = self.lock()?;
        self.write_recipe(recipe)?;
        Ok(lock)
    }

    /// Whether it has yet to be made.
    pub(crate) fn is_new(&self) -> bool {
        self.made != Made::Already
    }

    /// Writes the recipe into a folder that is locked, where there are locks.
    pub(crate) fn write_recipe(&mut self, recipe: &Recipe) -> Result<(), Error> {
        let (path, text) = (self.recipe_path(), recipe.to_toml()?);
        if self.made == Made::Already {
            // First, so that no recipe ever stands beside the result of another one.
            self.forget_ending()?;
            return Ok(files::write(&path, text.as_bytes())?);
        }
        let exists = || Error::RunExists { path: self.path.clone() };
        // Looked at again under the lock; and where there are no locks, one writer of the recipe wins.
        if self.holds_a_run() {
            return Err(exists());
        }
        files::write_new(&path, text.as_bytes())
            .map_err(|e| if e.kind() == ErrorKind::AlreadyExists { exists() } else { e.into() })?;
        self.made = Made::Already;
        Ok(())
    }

    fn holds_a_run(&self) -> bool {
        ["recipe.toml", "checkpoint.safetensors", "metrics.jsonl"].iter().any(|file| self.path.join(file).exists())
    }

    /// An existing run folder.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path.is_file() {
            return Err(Error::NotARun { path: path.to_path_buf(), why: "it is a file" });
        }
        if !path.is_dir() {
            let source = std::io::Error::from(ErrorKind::NotFound);
            return Err(files::FileError::new("open", path, source).into());
        }
        if !path.join("recipe.toml").exists() {
            return Err(Error::NotARun { path: path.to_path_buf(), why: "it has no recipe.toml" });
        }
        Ok(RunFolder { path: path.to_path_buf(), made: Made::Already })
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

    /// Where it is; before a numbered one is made, where it will be unless that is taken.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps other processes from training in this folder for as long as it is held; nothing where there is no folder
    /// yet, or where the file system has no locks.
    pub fn lock(&self) -> Result<Option<File>, Error> {
        if self.made == Made::Numbered {
            return Ok(None);
        }
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

    /// The checkpoint before that one.
    pub fn previous(&self) -> PathBuf {
        self.path.join("previous.safetensors")
    }

    /// What to go on from: the last checkpoint or, where that is damaged, gone or another file, the one before it, with a note that says
    /// so; nothing where there is none.
    pub fn last(&self) -> Result<Option<Checkpoint>, Error> {
        let (last, previous) = (self.checkpoint(), self.previous());
        let unusable = match Checkpoint::read(&last) {
            Err(Error::File(e)) if e.kind() == ErrorKind::NotFound => {
                if !previous.exists() {
                    return Ok(None);
                }
                Error::from(e)
            }
            Err(unusable @ (Error::Damaged { .. } | Error::NotACheckpoint { .. })) => unusable,
            Ok(last) if !last.can_go_on() && Checkpoint::read(&previous).is_ok_and(|c| c.can_go_on()) => {
                let why = "a network for use, without what training goes on from".into();
                Error::NotACheckpoint { path: last.path().to_path_buf(), why }
            }
            other => return other.map(Some),
        };
        let Ok(mut checkpoint) = Checkpoint::read(&previous) else { return Err(unusable) };
        checkpoint.notes.push(Note::FellBack { why: unusable.to_string(), used: previous });
        Ok(Some(checkpoint))
    }

    /// The file of the network to use: of the epoch that was best on the validation part, or of the last.
    pub fn best(&self) -> PathBuf {
        self.path.join("best.safetensors")
    }

    /// The recipe as it was resolved before training.
    pub fn recipe(&self) -> Result<Recipe, Error> {
        let path = self.recipe_path();
        Recipe::from_toml(&path.display().to_string(), &files::read_text(&path)?)
    }

    /// The recipe as the bottom of layers, for whoever wants to go on with other settings.
    pub fn recipe_layers(&self) -> Result<Layers, Error> {
        Ok(Recipe::defaults()?.file(&self.recipe_path())?)
    }

    /// The settings that changed on the way.
    pub fn changes(&self) -> Result<Vec<Changed>, Error> {
        jsonl::read(&self.changes_path(), "a change of a setting")
    }

    /// Records that a setting changes.
    pub(crate) fn append_change(&self, change: &Changed) -> Result<(), Error> {
        jsonl::append(&self.changes_path(), change)
    }

    fn changes_path(&self) -> PathBuf {
        self.path.join("changes.jsonl")
    }

    fn summary_path(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    fn recipe_path(&self) -> PathBuf {
        self.path.join("recipe.toml")
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

    /// The result, if the run is finished by this recipe: all of its epochs are done, or as many as its patience allows. One of
    /// an earlier ending, after which the run went on, is none.
    pub fn finished(&self, recipe: &Recipe) -> Result<Option<Summary>, Error> {
        let Some(summary) = self.summary()?.filter(|summary| summary.ends(recipe)) else { return Ok(None) };
        let went_on = self.metrics()?.last().is_some_and(|last| last.epoch > summary.epochs);
        Ok((!went_on).then_some(summary))
    }

    /// The result of a run that has ended.
    pub fn summary(&self) -> Result<Option<Summary>, Error> {
        let path = self.summary_path();
        if !path.exists() {
            return Ok(None);
        }
        serde_json::from_str(&files::read_text(&path)?)
            .map(Some)
            .map_err(|e| Error::NotASummary { path: path.clone(), why: e.to_string() })
    }

    /// Writes the result of a run that has ended.
    pub fn write_summary(&self, summary: &Summary) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(summary)
            .map_err(|e| Error::Unwritable { what: "the result".into(), why: e.to_string() })?;
        Ok(files::write(&self.summary_path(), format!("{text}\n").as_bytes())?)
    }
}

/// Makes the first of `PATH`, `PATH-2`, … that does not exist: nobody else can have made it.
fn first_unused(path: &Path) -> Result<PathBuf, Error> {
    if let Some(parent) = path.parent() {
        files::create_folder(parent)?;
    }
    for number in 1u32.. {
        let mut name = path.as_os_str().to_owned();
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let numbered = PathBuf::from(name);
        match std::fs::create_dir(&numbered) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(files::FileError::new("create the folder", &numbered, e).into()),
            Ok(()) => return Ok(numbered),
        }
    }
    Err(Error::RunExists { path: path.to_path_buf() })
}

/// What a run's folder is called: its name, without what file systems do not take.
pub fn folder_name(name: &str) -> String {
    let safe: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    Some(safe.trim_matches('.')).filter(|name| !name.is_empty()).unwrap_or("run").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// A folder that was claimed, the name in its recipe, and its lock.
    type Claimed = (PathBuf, String, Option<File>);

    /// Several threads claim at once, each with a recipe of its own; what each came to.
    fn claims(folders: Vec<RunFolder>) -> Vec<Result<Claimed, Error>> {
        let together = Barrier::new(folders.len());
        std::thread::scope(|scope| {
            let claim = |(i, mut folder): (usize, RunFolder)| {
                let together = &together;
                scope.spawn(move || {
                    let recipe = Recipe { name: format!("run {i}"), ..Recipe::default() };
                    together.wait();
                    folder.claim(&recipe).map(|lock| (folder.path.clone(), recipe.name, lock))
                })
            };
            let threads: Vec<_> = folders.into_iter().enumerate().map(claim).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn runs_begun_at_once_never_share_a_folder() {
        let temp = std::env::temp_dir().join(format!("ftprop-claims-{}", std::process::id()));
        for round in 0..100 {
            let path = temp.join(format!("same-{round}"));
            let same = claims(vec![RunFolder::planned(&path).unwrap(); 2]);
            let winners: Vec<&String> = same.iter().flatten().map(|(_, name, _)| name).collect();
            assert_eq!(winners.len(), 1, "round {round}: {same:?}");
            assert_eq!(&RunFolder::open(&path).unwrap().recipe().unwrap().name, winners[0]);
            let refused = same.iter().filter_map(|claim| claim.as_ref().err());
            assert!(refused.into_iter().all(|e| matches!(e, Error::RunExists { .. } | Error::Locked { .. })));
            let path = temp.join(format!("numbered-{round}"));
            let mut folders = Vec::new();
            for claim in claims(vec![RunFolder::numbered(&path); 3]) {
                let (folder, name, _lock) = claim.unwrap();
                assert_eq!(RunFolder::open(&folder).unwrap().recipe().unwrap().name, name);
                folders.push(folder);
            }
            folders.sort();
            let expected: Vec<PathBuf> =
                ["", "-2", "-3"].iter().map(|end| PathBuf::from(format!("{}{end}", path.display()))).collect();
            assert_eq!(folders, expected);
        }
        std::fs::remove_dir_all(&temp).unwrap();
    }
}
