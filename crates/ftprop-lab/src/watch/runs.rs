//! What run folders say, as JSON.

use super::find::{MOST, check, runs_at};
use crate::Error;
use ftprop_train::changes::Changed;
use ftprop_train::diagnostics::{Record, Records};
use ftprop_train::recipe::Recipe;
use ftprop_train::run::{EpochMetrics, RunFolder};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The most epochs of a run in one answer: a longer run has its epochs thinned out.
const MOST_EPOCHS: usize = 2000;

/// The runs that are watched. One that was found keeps its number.
pub(super) struct Runs {
    paths: Vec<PathBuf>,
    found: Mutex<Vec<PathBuf>>,
}

/// A run in the list.
#[derive(Serialize)]
struct Line {
    number: usize,
    folder: String,
    name: Option<String>,
    epochs: Option<u32>,
    done: usize,
    last: Option<EpochMetrics>,
    /// Whether it is finished.
    finished: bool,
    error: Option<String>,
}

/// A run with everything.
#[derive(Serialize)]
struct Whole {
    number: usize,
    recipe: Option<Recipe>,
    metrics: Vec<EpochMetrics>,
    diagnostics: Vec<Record>,
    changes: Vec<Changed>,
    error: Option<String>,
}

impl Runs {
    pub(super) fn new(paths: Vec<PathBuf>) -> Result<Self, Error> {
        // What is no folder of a run, or of runs, is found out now.
        paths.iter().try_for_each(|path| check(path))?;
        Ok(Runs { paths, found: Mutex::default() })
    }

    /// Those that there are by now.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        for path in &self.paths {
            for folder in runs_at(path) {
                if found.len() < MOST && !found.contains(&folder) {
                    found.push(folder);
                }
            }
        }
        found.clone()
    }

    pub(super) fn folder(&self, number: usize) -> Option<PathBuf> {
        // One that was found keeps its number, and need not be looked for.
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(number).cloned();
        known.or_else(|| self.folders().into_iter().nth(number))
    }

    /// All runs, with the last epoch of each.
    pub(super) fn list(&self) -> String {
        let lines: Vec<Line> = self.folders().iter().enumerate().map(|(i, folder)| line(i, folder)).collect();
        json(&lines)
    }

    /// One run with everything.
    pub(super) fn one(&self, number: usize) -> Option<String> {
        let folder = RunFolder::open(&self.folder(number)?);
        let mut error = None;
        let mut keep = |e: ftprop_train::Error| error = Some(e.to_string());
        let (mut recipe, mut metrics, mut diagnostics, mut changes) = (None, Vec::new(), Vec::new(), Vec::new());
        match folder {
            Err(e) => keep(e),
            Ok(folder) => {
                folder.recipe().map_or_else(&mut keep, |found| recipe = Some(found));
                folder.metrics().map_or_else(&mut keep, |found| metrics = thinned(found));
                Records::read(folder.path()).map_or_else(&mut keep, |found| diagnostics = thinned(found.into_all()));
                folder.changes().map_or_else(&mut keep, |found| changes = found);
            }
        }
        Some(json(&Whole { number, recipe, metrics, diagnostics, changes, error }))
    }
}

fn line(number: usize, path: &Path) -> Line {
    let mut line = Line {
        number,
        folder: path.display().to_string(),
        name: None,
        epochs: None,
        done: 0,
        last: None,
        finished: false,
        error: None,
    };
    let read = || {
        let folder = RunFolder::open(path)?;
        let recipe = folder.recipe()?;
        let finished = folder.finished(&recipe)?.is_some();
        Ok::<_, ftprop_train::Error>((recipe, folder.metrics()?, finished))
    };
    match read() {
        Err(error) => line.error = Some(error.to_string()),
        Ok((recipe, metrics, finished)) => {
            (line.name, line.epochs) = (Some(recipe.name), Some(recipe.train.epochs));
            (line.done, line.last) = (metrics.len(), metrics.last().copied());
            line.finished = finished;
        }
    }
    line
}

/// Every so many, and the last.
fn thinned<T>(all: Vec<T>) -> Vec<T> {
    let (every, last) = (all.len().div_ceil(MOST_EPOCHS).max(1), all.len().saturating_sub(1));
    all.into_iter().enumerate().filter(|(i, _)| i % every == 0 || *i == last).map(|(_, value)| value).collect()
}

/// Numbers that are none become null, which the page shows as missing.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string())
}
