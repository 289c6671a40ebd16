//! `ftprop reproduce`

use super::study::StudyArgs;
use crate::error::Error;
use crate::progress::{counted, tell};
use clap::{Args, ValueEnum};
use ftprop_lab::reproduce::report::{CellRuns, report};
use ftprop_lab::reproduce::{Cell, Plan, Rows, covered};
use ftprop_lab::study;
use ftprop_train::fleet::Job;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run the paper's Table 1 and learning curves again, and report them beside the paper's
#[derive(Args)]
#[command(after_help = "\
Trains the cells of a data set, each from its recipe, once for each seed; a GPU trains twelve at a time. It can
be ended at any moment: the same command goes on, and what is finished is not run again. The report, OUT/report.html and
OUT/report.md, has the table, FTP-SH − SSTE with confidence intervals, the figures, times, versions and commands. It covers
all that was run in OUT, also by calls that named other cells or more seeds.

Examples:
  ftprop reproduce --data cifar-10-batches-bin --seeds 3 --out results/table1
  ftprop reproduce --data cifar-10-batches-bin --epochs 10 --out quick
  ftprop reproduce --data cifar-10-batches-bin --cells convnet4-sign-sste,convnet4-sign-ftpsh --out sign
  ftprop reproduce --data imagenet.ftpictures --table imagenet --seeds 1 --out results/imagenet
  ftprop reproduce --report-only --seeds 3 --out results/table1")]
pub(super) struct Reproduce {
    /// The data: CIFAR-10's binary version, or ImageNet's folders train and val, or a file that ftprop prepare made of them
    #[arg(long, value_name = "PATH", required_unless_present = "report_only")]
    data: Option<PathBuf>,
    /// Which of the table's rows; --table says the same
    #[arg(long, value_enum, default_value = "cifar10")]
    rows: RowsArg,
    // Not an alias, so that what is said about it calls it by its name.
    #[arg(long, value_enum, conflicts_with = "rows", hide = true)]
    table: Option<RowsArg>,
    /// Seeds 1 to N for each cell
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u32,
    /// The folder for runs and report
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only these cells, by their recipes' names
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    cells: Vec<String>,
    /// Held out of the training images, to choose an epoch by: a share below 1, or a number; 0 for none
    #[arg(long, value_name = "SHARE", default_value_t = 0.02)]
    validation: f64,
    #[command(flatten)]
    study: StudyArgs,
}

/// What the table's columns are called by.
const CALLED_BY: [&str; 3] = ["activation", "layer_loss", "qrelu_form"];

#[derive(Clone, Copy, ValueEnum)]
enum RowsArg {
    Cifar10,
    Imagenet,
}

impl Reproduce {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let rows = match self.table.unwrap_or(self.rows) {
            RowsArg::Cifar10 => Rows::Cifar10,
            RowsArg::Imagenet => Rows::Imagenet,
        };
        if self.seeds == 0 {
            return Err(Error::Usage("--seeds must be at least 1".into()));
        }
        self.study.refuse_overruled(&[("data.validation", "--validation")])?;
        if let Some(key) = self.study.set_keys().find(|key| CALLED_BY.contains(key)) {
            return Err(Error::Usage(format!(
                "--set {key}: the table's columns are called by it, and would be called what they are not; ftprop sweep \
                 compares recipes with another"
            )));
        }
        let cells = self.cells(rows)?;
        let plan = Plan {
            data: self.data.clone(),
            seeds: self.seeds,
            epochs: self.study.epochs,
            validation: self.validation,
            device: self.study.device.parse()?,
            threads: self.study.threads,
            diagnostics: self.study.diagnostics,
            settings: self.study.set.clone(),
        };
        // What is in the way is found before anything is trained.
        let shown = covered(rows, &cells, &plan, &self.out).map_err(|error| self.about_flags(error))?;
        let (order, others) = asked_first(&cells, self.seeds, shown);
        if !others.is_empty() && !self.study.quiet {
            tell(&also_shown(&others));
        }
        self.study.run(&self.out, &order, &others, || {
            let mut found = Vec::new();
            // Another call may have trained more beside this one.
            for (cell, jobs) in covered(rows, &cells, &plan, &self.out)? {
                let runs = jobs.iter().map(study::outcome).collect::<Result<_, _>>()?;
                let recipe = &jobs[0].recipe;
                found.push(CellRuns { cell, epochs: recipe.train.epochs, held_out: recipe.data.validation, runs });
            }
            report(rows, &found, &study::history(&self.out)?)
        })
    }

    /// Where nothing is to be trained, another folder is no help.
    fn about_flags(&self, error: ftprop_lab::Error) -> ftprop_lab::Error {
        match error {
            ftprop_lab::Error::OtherStudy { run, last, .. } if self.study.report_only => {
                let what = format!("{} holds a run of another recipe", run.display());
                ftprop_lab::Error::NotTrained { what, last }
            }
            other => other,
        }
    }

    fn cells(&self, rows: Rows) -> Result<Vec<Cell>, Error> {
        let all = rows.cells();
        let names: Vec<String> = all.iter().map(Cell::name).collect();
        // As in --grid, spaces beside a comma are none of the names'.
        let wanted: Vec<&str> = self.cells.iter().map(|name| name.trim()).collect();
        if let Some(unknown) = wanted.iter().find(|wanted| names.iter().all(|name| name != *wanted)) {
            return Err(Error::Usage(format!("--cells {unknown}: known are {}", names.join(", "))));
        }
        let asked = |cell: &Cell| wanted.is_empty() || wanted.contains(&cell.name().as_str());
        Ok(all.into_iter().filter(asked).collect())
    }
}

/// The runs that are asked for, seed by seed, so that a first one is complete early; and the others that a report shows.
fn asked_first(cells: &[Cell], seeds: u32, shown: Vec<(Cell, Vec<Job>)>) -> (Vec<Job>, Vec<Job>) {
    let asked = |cell: &Cell, job: &Job| {
        job.recipe.train.seed <= u64::from(seeds) && cells.iter().any(|other| other.name() == cell.name())
    };
    let all = shown.into_iter().flat_map(|(cell, jobs)| jobs.into_iter().map(move |job| (cell, job)));
    let (order, others): (Vec<_>, Vec<_>) = all.partition(|(cell, job)| asked(cell, job));
    let jobs = |of: Vec<(Cell, Job)>| of.into_iter().map(|(_, job)| job).collect::<Vec<_>>();
    let (mut order, others) = (jobs(order), jobs(others));
    order.sort_by_key(|job| job.recipe.train.seed);
    (order, others)
}

/// That a report has more than was asked for.
fn also_shown(others: &[Job]) -> String {
    let mut names: Vec<&str> = others.iter().map(|job| job.recipe.name.as_str()).collect();
    names.dedup();
    format!(
        "the report also has {} that {} there already: {}",
        counted(others.len() as u64, "run"),
        if others.len() == 1 { "is" } else { "are" },
        names.join(", ")
    )
}
