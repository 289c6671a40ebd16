//! What `reproduce` and `sweep` ask of the command line alike.

use super::{quoted, ranks::named_devices, say, say_json, train::stop_on_ctrl_c};
use crate::board::Board;
use crate::error::Error;
use crate::progress::{counted, tell};
use crate::terminal::Stream;
use clap::Args;
use ftprop_lab::report::document::Document;
use ftprop_lab::study::{self, Outcome};
use ftprop_train::fleet::Job;
use ftprop_train::run::Summary;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Args)]
pub(super) struct StudyArgs {
    /// How often to go through the training data, instead of the recipe's number; the schedule is scaled to it
    #[arg(long)]
    pub(super) epochs: Option<u32>,
    /// Set a key in every recipe, such as train.precision=bf16; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// auto (a GPU if there is one), cpu, or cuda:0 and so on
    #[arg(long, default_value = "auto")]
    pub(super) device: String,
    /// Spread the runs over several devices: cuda:0,cuda:1, or all for every GPU; --at-once then counts for each
    #[arg(long, value_name = "LIST", conflicts_with = "device", value_delimiter = ',')]
    devices: Vec<String>,
    /// Runs at the same time; 0 for as many as pays: 12 on a GPU, 1 on the CPU, 1 on each of several devices
    #[arg(long, value_name = "N", default_value_t = 0)]
    at_once: usize,
    /// Worker threads, 0 for one a core
    #[arg(long, default_value_t = 0)]
    pub(super) threads: usize,
    /// Look into the hard layers after each epoch
    #[arg(long)]
    pub(super) diagnostics: bool,
    /// Stop after so many minutes with everything saved; the same command goes on
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// Train nothing, only write the report of what is there
    #[arg(long)]
    pub(super) report_only: bool,
    /// Print nothing but errors and the result
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print the result as JSON: where the report is, and how each run ended
    #[arg(long)]
    json: bool,
}

/// Settings that studies make for every run, and the flags that say them.
const STUDIES_OWN: &[(&str, &str)] =
    &[("train.seed", "--seeds"), ("train.device", "--device"), ("train.threads", "--threads")];

fn refuse<'a>(option: &str, mut keys: impl Iterator<Item = &'a str>, own: &[(&str, &str)]) -> Result<(), Error> {
    match keys.find_map(|key| own.iter().find(|(name, _)| *name == key)) {
        None => Ok(()),
        Some((key, flag)) => {
            Err(Error::Usage(format!("{option} {key}: {flag} says it for every run, so leave one of them out")))
        }
    }
}

#[derive(Serialize)]
struct Report {
    report: String,
    runs: Vec<Run>,
    failed: usize,
    interrupted: usize,
}

#[derive(Serialize)]
struct Run {
    run: String,
    recipe: String,
    seed: u64,
    /// Null where the run is not finished.
    summary: Option<Summary>,
    /// Why it failed when it was last trained, where it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl StudyArgs {
    /// Refuses settings that the study makes itself: they would be overruled in every run, and a report would name
    /// values that nothing was trained with. `own` are those of one command, with the flags that say them.
    pub(super) fn refuse_overruled(&self, own: &[(&str, &str)]) -> Result<(), Error> {
        refuse("--set", self.set_keys(), &[STUDIES_OWN, own].concat())
    }

    /// The keys that --set names.
    pub(super) fn set_keys(&self) -> impl Iterator<Item = &str> {
        self.set.iter().filter_map(|setting| Some(setting.split_once('=')?.0.trim()))
    }

    /// The same for the axes of a grid, which a flag overrules too.
    pub(super) fn refuse_overruled_axes<'a>(
        &self,
        keys: impl Iterator<Item = &'a str>,
        data: Option<&Path>,
    ) -> Result<(), Error> {
        let epochs = self.epochs.map(|_| ("train.epochs", "--epochs"));
        let data = data.map(|_| ("data.path", "--data"));
        refuse("--grid", keys, &[STUDIES_OWN, epochs.as_slice(), data.as_slice()].concat())
    }

    /// Trains the jobs in the folder `out` and writes the report, which `page` makes after the training; it may have `others` of
    /// the same study that are there already.
    pub(super) fn run(
        &self,
        out: &Path,
        jobs: &[Job],
        others: &[Job],
        page: impl FnOnce() -> Result<Document, ftprop_lab::Error>,
    ) -> Result<ExitCode, Error> {
        let mut ended = study::Endings::default();
        if self.report_only {
            study::check_trained(out, &[jobs, others].concat())?;
        } else {
            let stop = stop_on_ctrl_c();
            self.stop_in_time(&stop)?;
            let board = Board::new(self.quiet, &stop);
            let devices = named_devices(&self.devices)?;
            ended = study::train(out, jobs, (&devices, self.at_once), &command_line(), &board)?;
        }
        let mut page = page()?;
        study::write_notes(out, &mut page);
        page.save(out, "report")?;
        if self.json {
            say_json(&self.report(out, jobs, &ended)?)?;
        } else {
            if !self.quiet {
                say(&page.tables(Stream::Out.columns()))?;
            }
            say(&format!("report in {0}/report.html and {0}/report.md", out.display()))?;
        }
        if ended.interrupted > 0 {
            tell(&format!(
                "{} not finished, all saved; the same command goes on",
                counted(ended.interrupted as u64, "run")
            ));
            return Ok(ExitCode::from(130));
        }
        Ok(if ended.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn report(&self, out: &Path, jobs: &[Job], ended: &study::Endings) -> Result<Report, Error> {
        let run = |job: &Job| {
            let Outcome { summary, failure, .. } = study::outcome(job)?;
            Ok(Run {
                run: job.folder.display().to_string(),
                recipe: job.recipe.name.clone(),
                seed: job.recipe.train.seed,
                failure: failure.filter(|_| summary.is_none()),
                summary,
            })
        };
        Ok(Report {
            report: out.join("report.html").display().to_string(),
            runs: jobs.iter().map(run).collect::<Result<_, Error>>()?,
            failed: ended.failed,
            interrupted: ended.interrupted,
        })
    }

    fn stop_in_time(&self, stop: &Arc<AtomicBool>) -> Result<(), Error> {
        let Some(minutes) = self.minutes else { return Ok(()) };
        let time =
            Duration::try_from_secs_f64(60.0 * minutes).ok().filter(|time| !time.is_zero()).ok_or_else(|| {
                Error::Usage(format!("--minutes {minutes}: expected a number of minutes above 0, such as 30"))
            })?;
        let stop = stop.clone();
        std::thread::spawn(move || {
            std::thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
        });
        Ok(())
    }
}

/// This call as a line for a shell.
fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| quoted(&argument.to_string_lossy()));
    std::iter::once("ftprop".to_string()).chain(arguments).collect::<Vec<_>>().join(" ")
}
