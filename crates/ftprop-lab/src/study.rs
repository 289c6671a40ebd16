//! Many runs in one folder, made to be compared: what `ftprop reproduce` and `ftprop sweep` have in common.
//!
//! ```text
//! OUT/runs/…/            run folders
//! OUT/history.jsonl      a line for each call that trained: when, how long, on what, by which command
//! OUT/report.md, .html   what came out, and figures/ with its pictures
//! ```
//!
//! A study can be ended at any moment; the same call goes on with what is not finished. Whatever is finished is read
//! back from the run folders, so a report can be made anew at any time.

mod apart;
mod trained;

pub(crate) use apart::{seeds, write_apart};

use crate::error::Error;
use crate::plot::{Curves, EpochPoint};
use crate::report::document::Document;
use crate::report::machine::{Machine, utc};
use crate::report::statistics::{Sample, difference};
use ftprop_train::changes::Changed;
use ftprop_train::choice::DeviceChoice;
use ftprop_train::device::{self, Place};
use ftprop_train::files;
use ftprop_train::fleet::{self, FleetObserver, Job};
use ftprop_train::jsonl;
use ftprop_train::observe::Ending;
use ftprop_train::recipe::TrainRecipe;
use ftprop_train::run::{self, EpochMetrics, RunFolder, Summary};
use ftprop_train::words::seconds;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};
use trained::Trained;

/// What a study's runs came to, as far as they are there.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The run's folder.
    pub folder: PathBuf,
    /// The run's seed.
    pub seed: u64,
    /// Of a finished run.
    pub summary: Option<Summary>,
    /// The epochs so far.
    pub metrics: Vec<EpochMetrics>,
    /// Why it failed when it was last trained, where it did.
    pub failure: Option<String>,
    /// Settings that were changed on the way.
    pub changes: Vec<Changed>,
}

/// One call that trained, a line of `history.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stint {
    /// When it began.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// Runs that it brought to their end.
    pub finished: usize,
    /// Epochs that it brought to their end.
    pub epochs: u64,
    /// What was typed.
    pub command: String,
    /// What it trained on.
    pub device: String,
    /// The driver's and the libraries' versions, for a GPU.
    pub versions: Vec<String>,
    /// The machine around it.
    pub machine: Machine,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endings {
    /// Runs that are done.
    pub finished: usize,
    /// Runs that were stopped.
    pub interrupted: usize,
    /// Runs that an error ended.
    pub failed: usize,
}

/// Trains what is not finished of these jobs, so many at once, on these devices or where their recipes say, and writes into the history of the study in `out` that it did.
pub fn train(
    out: &Path,
    jobs: &[Job],
    (devices, at_once): (&[DeviceChoice], usize),
    command: &str,
    observer: &dyn FleetObserver,
) -> Result<Endings, Error> {
    let done = |jobs: &[Job]| -> Result<Vec<(bool, u64)>, Error> {
        jobs.iter().map(|job| outcome(job).map(|o| (o.summary.is_some(), o.metrics.len() as u64))).collect()
    };
    let before = done(jobs)?;
    let (started, clock) = (SystemTime::now(), Instant::now());
    let mut counted = Endings::default();
    let observer = Trained::new(observer);
    for ending in fleet::train_on(jobs, devices, at_once, &observer)? {
        match ending {
            Ok(Ending::Finished(_)) => counted.finished += 1,
            Ok(Ending::Interrupted { .. }) => counted.interrupted += 1,
            Err(_) => counted.failed += 1,
        }
    }
    // Also where it was ended within the first epoch: that took time, which a run's own times have as well.
    if observer.anything() {
        let after = done(jobs)?;
        let train = &jobs[0].recipe.train;
        let stint = Stint {
            started: utc(started),
            seconds: clock.elapsed().as_secs_f64(),
            finished: after.iter().zip(&before).filter(|(a, b)| a.0 && !b.0).count(),
            epochs: after.iter().zip(&before).map(|(a, b)| a.1.saturating_sub(b.1)).sum(),
            command: command.to_string(),
            device: described(devices, train)?,
            versions: versions(devices.first().copied().unwrap_or(train.device)),
            machine: Machine::here(),
        };
        files::create_folder(out)?;
        jsonl::append(&history_file(out), &stint)?;
    }
    Ok(counted)
}

/// The devices in words.
fn described(devices: &[DeviceChoice], train: &TrainRecipe) -> Result<String, Error> {
    let devices = if devices.is_empty() { &[train.device] } else { devices };
    let words = |device: &DeviceChoice| Ok(Place::open(*device, train.threads)?.describe());
    Ok(devices.iter().map(words).collect::<Result<Vec<_>, Error>>()?.join(", "))
}

fn versions(choice: DeviceChoice) -> Vec<String> {
    if choice == DeviceChoice::Cpu { Vec::new() } else { device::versions() }
}

fn history_file(out: &Path) -> PathBuf {
    out.join("history.jsonl")
}

/// The calls that trained in a study's folder, the first one first.
pub fn history(out: &Path) -> Result<Vec<Stint>, Error> {
    Ok(jsonl::read(&history_file(out), "a line of a study's history")?)
}

/// The last call that trained in `out`, if it can be told.
fn last_command(out: &Path) -> Option<String> {
    history(out).ok()?.pop().map(|stint| stint.command)
}

/// That `run` is in the way of a study in `out`.
pub(crate) fn other_study(out: &Path, run: PathBuf) -> Error {
    Error::OtherStudy { out: out.to_path_buf(), run, last: last_command(out) }
}

/// Refuses to report on these jobs if they are not what was trained in `out`: the report would replace a good one.
pub fn check_trained(out: &Path, jobs: &[Job]) -> Result<(), Error> {
    let refused = |what: String| Err(Error::NotTrained { what, last: last_command(out) });
    let mut found = false;
    for job in jobs {
        if job.folder.join("recipe.toml").exists() {
            found = true;
            if !job.may_show(&RunFolder::open(&job.folder)?)? {
                return refused(format!("{} holds a run of another recipe", job.folder.display()));
            }
        }
    }
    if found { Ok(()) } else { refused(format!("{} has none of these runs", out.display())) }
}

/// Refuses to train these jobs in `out`, or to report on them, where it holds runs that are not among them: their report
/// would be replaced by one that leaves them out.
pub fn check_alone(out: &Path, jobs: &[Job]) -> Result<(), Error> {
    let mut folders = vec![out.join("runs")];
    while let Some(folder) = folders.pop() {
        if folder.join("recipe.toml").exists() {
            if jobs.iter().all(|job| job.folder != folder) {
                return Err(other_study(out, folder));
            }
            continue;
        }
        let inside = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
        folders.extend(inside.filter(|path| path.is_dir() && !path.is_symlink()));
    }
    Ok(())
}

/// What a job came to; nothing of it need be there.
pub fn outcome(job: &Job) -> Result<Outcome, Error> {
    let mut outcome = Outcome {
        folder: job.folder.clone(),
        seed: job.recipe.train.seed,
        summary: None,
        metrics: Vec::new(),
        failure: run::failure(&job.folder)?,
        changes: Vec::new(),
    };
    if job.folder.join("recipe.toml").exists() {
        let folder = RunFolder::open(&job.folder)?;
        outcome.summary = folder.finished(&job.recipe)?;
        (outcome.metrics, outcome.changes) = (folder.metrics()?, folder.changes()?);
    }
    Ok(outcome)
}

/// The three figures that every report gives side by side, in percent, over the finished runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accuracy {
    /// The best of all epochs on the test part, which flatters; the paper gives it.
    pub best: Sample,
    /// At the last epoch, on the test part.
    pub last: Sample,
    /// At the best epoch on the held-out validation part, on that part; empty where there is none.
    pub validation: Sample,
    /// At the epoch that was best on the held-out validation part; empty where there is none.
    pub chosen: Sample,
    /// At the last epoch, on the test part: the class is among the five that are thought likeliest.
    pub top5: Sample,
    /// At the last epoch, on the training part.
    pub train: Sample,
}

impl Accuracy {
    /// Of these runs, as far as they are finished.
    pub fn of(runs: &[Outcome]) -> Self {
        let sample = |value: &dyn Fn(&Summary) -> Option<f64>| {
            Sample::new(runs.iter().filter_map(|run| run.summary.as_ref()).filter_map(value).map(|share| 100.0 * share))
        };
        Accuracy {
            best: sample(&|s| Some(s.test.top1_best)),
            last: sample(&|s| Some(s.test.top1_last)),
            validation: sample(&|s| s.validation.map(|v| v.top1_best)),
            chosen: sample(&|s| s.validation.map(|_| s.test_top1_at_best)),
            top5: sample(&|s| Some(s.test.top5_last)),
            train: sample(&|s| Some(s.train.top1_last)),
        }
    }
}

/// `81.32 ± 0.15`, without the deviation for a single run, and a dash for none.
pub fn written(sample: &Sample) -> String {
    match (sample.count, sample.deviation) {
        (0, _) => "–".into(),
        (_, Some(deviation)) => format!("{:.2} ± {deviation:.2}", sample.mean),
        (_, None) => format!("{:.2}", sample.mean),
    }
}

/// The confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// `a − b` with Welch's interval, without it where a sample has fewer than two runs, and a dash where one has none.
pub fn between(a: &Sample, b: &Sample) -> String {
    match (difference(a, b, CONFIDENCE), a.count * b.count) {
        (Some(d), _) => format!("{:+.2} ({:+.2} to {:+.2})", d.mean, d.low, d.high),
        (None, 0) => "–".into(),
        (None, _) => format!("{:+.2}", a.mean - b.mean),
    }
}

/// The mean curves of the same recipe with several seeds: of the finished runs if there are any, else of all, as far as
/// the shortest goes. A finished run that its patience ended before others holds its last epoch, so that the curve is of the
/// same runs all along and ends at their mean.
pub fn mean_curves(name: &str, runs: &[Outcome]) -> Curves {
    let finished: Vec<&Outcome> = runs.iter().filter(|run| run.summary.is_some()).collect();
    let over = !finished.is_empty();
    let shown = if over { finished } else { runs.iter().filter(|run| !run.metrics.is_empty()).collect() };
    let (shortest, longest) = extent(shown.iter().map(|run| run.metrics.len()));
    let length = if over && shortest > 0 { longest } else { shortest };
    let point = |i: usize| {
        let mean = |value: fn(&EpochMetrics) -> f64| {
            let at = |run: &&Outcome| value(&run.metrics[i.min(run.metrics.len() - 1)]);
            shown.iter().map(at).sum::<f64>() / shown.len() as f64
        };
        EpochPoint {
            epoch: i as u32 + 1,
            train_accuracy: mean(|m| m.train.top1),
            train_loss: mean(|m| m.train.loss),
            test_accuracy: Some(mean(|m| m.test.top1)),
            test_loss: Some(mean(|m| m.test.loss)),
        }
    };
    Curves { name: name.to_string(), epochs: (0..length).map(point).collect() }
}

/// The least and the most of these lengths; both 0 where there are none.
pub(crate) fn extent(lengths: impl Iterator<Item = usize> + Clone) -> (usize, usize) {
    (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0))
}

/// Whether patience ended any of these runs before so many epochs.
pub(crate) fn ended_early<'a>(mut runs: impl Iterator<Item = &'a Outcome>, epochs: u32) -> bool {
    runs.any(|run| run.summary.as_ref().is_some_and(|summary| summary.epochs < epochs))
}

/// What a report says where patience ended some of its runs.
pub(crate) const ENDED_EARLY: &str = "Some runs were ended early, by `train.patience`; their last epoch is the last one that they \
     had, and curves go on with it.";

/// The part of a report that a person wrote, into NOTES.md in the study's folder.
pub fn write_notes(out: &Path, page: &mut Document) {
    let Ok(text) = std::fs::read_to_string(out.join("NOTES.md")) else { return };
    page.heading("Notes");
    let mut paragraph = String::new();
    for line in text.lines().chain([""]).map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            if !paragraph.is_empty() {
                page.text(&std::mem::take(&mut paragraph));
            }
        } else {
            paragraph.push_str(if paragraph.is_empty() { "" } else { " " });
            paragraph.push_str(line);
        }
    }
}

/// The part of a report that says how its figures came about.
pub fn write_history(page: &mut Document, history: &[Stint]) {
    page.heading("Time, hardware, versions, commands");
    if history.is_empty() {
        page.text(
            "history.jsonl names no call. Runs that are here were trained elsewhere, or by calls that were killed before they \
             could write it.",
        );
        return;
    }
    let rows = history.iter().map(|stint| {
        vec![
            stint.started.clone(),
            stint.device.clone(),
            seconds(stint.seconds),
            stint.epochs.to_string(),
            stint.finished.to_string(),
        ]
    });
    page.table(&["started", "device", "time", "epochs", "runs finished"], rows.collect());
    let mut facts: Vec<String> = Vec::new();
    for stint in history {
        let Machine { processor, cores, system, ftprop } = &stint.machine;
        let libraries: String = stint.versions.iter().map(|version| format!("; {version}")).collect();
        let fact = format!("{}: ftprop {ftprop}; {processor}, {cores} cores, {system}{libraries}", stint.device);
        if !facts.contains(&fact) {
            facts.push(fact);
        }
    }
    page.list(facts);
    let mut commands: Vec<String> = Vec::new();
    for stint in history {
        if !commands.contains(&stint.command) {
            commands.push(stint.command.clone());
        }
    }
    page.code(commands);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_train::run::Scores;

    fn run(seed: u64, accuracies: &[f64], finished: bool) -> Outcome {
        let scores = |top1| Scores { loss: 1.0 - top1, top1, top5: 1.0 };
        let metrics: Vec<EpochMetrics> = accuracies
            .iter()
            .zip(1..)
            .map(|(&top1, epoch)| EpochMetrics {
                epoch,
                train: scores(top1 + 0.1),
                validation: None,
                test: scores(top1),
                learning_rate: 0.1,
                images_per_s: 1.0,
                waited: 0.0,
                exchanged: None,
                images_per_s_of_a_rank: None,
                seconds: 1.0,
            })
            .collect();
        let summary = if finished { Summary::new("run", &metrics, 1, 1) } else { None };
        Outcome { folder: PathBuf::new(), seed, summary, metrics, failure: None, changes: Vec::new() }
    }

    #[test]
    fn figures_are_of_finished_runs() {
        let runs = [run(1, &[0.5, 0.75, 0.625], true), run(2, &[0.5, 0.25], false), run(3, &[0.5, 0.5, 0.375], true)];
        let accuracy = Accuracy::of(&runs);
        assert_eq!(accuracy.best, Sample::new([75.0, 50.0]));
        assert_eq!(accuracy.last, Sample::new([62.5, 37.5]));
        assert_eq!((accuracy.chosen.count, written(&accuracy.chosen)), (0, "–".into()));
        assert_eq!(written(&accuracy.last), "50.00 ± 17.68");
        assert_eq!(written(&Sample::new([50.0])), "50.00");

        let tests = |runs: &[Outcome]| -> Vec<f64> {
            mean_curves("a", runs).epochs.iter().map(|point| point.test_accuracy.unwrap()).collect()
        };
        assert_eq!(tests(&runs), [0.5, 0.625, 0.5]);
        assert_eq!(tests(&runs[1..2]), [0.5, 0.25]);
        assert_eq!(tests(&[]), [0.0; 0]);
    }

    /// A run that patience ended cut the curves of all others off where it ended.
    #[test]
    fn curves_go_on_with_the_last_epoch_of_a_run_that_ended_early() {
        let runs = [run(1, &[0.5, 0.75], true), run(2, &[0.5, 0.25, 1.0], true), run(3, &[0.5], false)];
        let curve: Vec<(u32, f64)> =
            mean_curves("a", &runs).epochs.iter().map(|point| (point.epoch, point.test_accuracy.unwrap())).collect();
        assert_eq!(curve, [(1, 0.5), (2, 0.5), (3, 0.875)]);
        assert_eq!(Accuracy::of(&runs).last.mean, 87.5);
        assert!(ended_early(runs.iter(), 3) && !ended_early(runs.iter(), 2));
    }
}
