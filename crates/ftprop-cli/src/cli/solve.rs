//! `ftprop solve`

pub(super) mod data;

use super::outputs::{self, Inputs};
use super::{say, say_json};
use crate::error::Error;
use crate::progress::{counted, tell};
use clap::Args;
use ftprop_lab::plot::{Panel, Picture, Regions};
use ftprop_search::{
    Budget, Certificate, Known, LearnerKind, Loss, Problem, Progress, SearchError, SearchKind, Solution, SolveConfig,
    Stop, solve,
};
use ftprop_train::files;
use ftprop_train::searched::{self, Origin};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Under its own name, because for clap a `Vec` is an option that may be repeated.
type Widths = Vec<usize>;

/// Learn a small network by searching for feasible targets, with proof
#[derive(Args)]
#[command(after_help = "\
Built-in problems: xor, parity:N, moons, spirals, multiplexer:N (3, 6 or 11 inputs), digits:K and mnist:K (K
instances of each class).

Exit code 0 if the search ended by itself or by its budget, 130 if Ctrl-C or a request to terminate ended it before it had a
proof; what it has by then is said and saved all the same.

Examples:
  ftprop solve --data xor --hidden 2 --search exhaustive --certificate xor.json
  ftprop solve --data parity:8 --hidden 8
  ftprop solve --data moons --hidden 3 --plot moons --save runs/moons
  ftprop solve --data points.csv --test more.csv --hidden 8,4 --search settled --budget 30s
  ftprop solve --data points.csv --hidden 1 --certificate best.json --resume best.json --budget 10m
  ftprop solve --data mnist:10 --data-path mnist/ --hidden 16 --json")]
pub(super) struct Solve {
    /// A CSV file with the label in its last column, gzipped or not, or a built-in problem
    #[arg(long)]
    data: String,
    /// Where MNIST is
    #[arg(long, value_name = "PATH")]
    data_path: Option<PathBuf>,
    /// A CSV file to test on
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// Units of the hidden layers, such as 2 or 8,4
    #[arg(long, default_value = "2", value_parser = ftprop_search::parse_hidden)]
    hidden: Widths,
    /// anytime, exhaustive, hill-climbing, beam:WIDTH, ftprop, settled, madaline or relaxed; by default anytime
    #[arg(long)]
    search: Option<SearchKind>,
    /// perceptron, hinge, hinge:COST or lp; by default what suits the problem's size
    #[arg(long)]
    learner: Option<LearnerKind>,
    /// What to minimise: zero-one or hinge
    #[arg(long, default_value = "zero-one")]
    loss: Loss,
    /// Most time, such as 500ms, 60s or 5m
    #[arg(long, default_value = "60s")]
    budget: Budget,
    /// Most nodes to look at: settings of targets, and what the proofs go over
    #[arg(long)]
    nodes: Option<u64>,
    /// Most memory for what the search remembers, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = above_zero)]
    memory: usize,
    /// Go on from the certificate of an earlier search; one that is not there yet begins anew
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Of random choices and of the built-in problems
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Worker threads, 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Write what can be proved again to this file, for ftprop verify
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Two inputs: draw decision regions, the network's and every hidden unit's, as PATH.svg and PATH.png
    #[arg(long, value_name = "PATH")]
    plot: Option<PathBuf>,
    /// Save the network as a run folder, for ftprop eval and predict
    #[arg(long, value_name = "FOLDER")]
    save: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Solve {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let (problem, origin) = data::problem(&self.data, self.data_path.as_deref(), self.test.as_deref(), self.seed)?;
        self.check(&problem, &origin)?;
        let threads = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let config = SolveConfig {
            hidden: self.hidden.clone(),
            search: self.search,
            learner: self.learner,
            loss: self.loss,
            budget: Budget { nodes: self.nodes, memory: Some(self.memory.saturating_mul(1 << 20)), ..self.budget },
            seed: self.seed,
            threads,
            known: self.known(&problem)?,
            picture: data::picture(&problem, &origin),
        };
        let started = Instant::now();
        let shown = !self.json && std::io::stderr().is_terminal();
        let progress = |now: Progress| {
            if shown {
                let seconds = started.elapsed().as_secs_f64();
                eprintln!("{seconds:.1} s: loss {}, at least {}, after {} nodes", now.loss, now.at_least, now.nodes);
            }
        };
        let solution = solve(&problem, &config, &stop_on_ctrl_c("stopping with the best so far"), &progress)?;
        // Said first: what goes wrong with a file must not cost the answer, nor the other way round.
        let said = if self.json { say_json(&solution) } else { say(&solution.to_string()) };
        let written = |what: String| {
            if !self.json {
                tell(&what);
            }
        };
        if let Some(file) = &self.certificate {
            files::write(file, Certificate::of_solution(&problem.train, &solution)?.to_json().as_bytes())?;
            written(format!("certificate in {}", file.display()));
        }
        if let Some(path) = &self.plot {
            let drawn = draw(&problem, &solution, path)?;
            written(format!("decision regions in {0}.svg and {0}.png", drawn.display()));
        }
        if let Some(folder) = &self.save {
            let changed = searched::save(folder, &problem, &origin, &solution)?;
            if changed > 0 {
                tell(&format!(
                    "ftprop: in 32-bit arithmetic the saved network answers {} differently: too near to a boundary",
                    counted(changed as u64, "training instance")
                ));
            }
            written(format!("run folder {}", folder.display()));
        }
        said?;
        let interrupted = solution.stop == Stop::Interrupted && !solution.proved;
        Ok(if interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
    }

    /// What an earlier search found.
    fn known(&self, problem: &Problem) -> Result<Option<Known>, Error> {
        match self.resume.as_deref().filter(|file| file.exists()) {
            Some(file) => Ok(Some(Certificate::read(file)?.known(&problem.train, &self.hidden)?)),
            None => Ok(None),
        }
    }

    /// What would make writing fail is found before the search.
    fn check(&self, problem: &Problem, origin: &Origin) -> Result<(), Error> {
        let inputs = || Inputs::of([self.data_path.as_deref(), self.test.as_deref()]).and_data(&self.data);
        let (certificate, mut files) = (self.certificate.as_deref(), Vec::new());
        certificate.map_or(Ok(()), |file| outputs::try_file(file, &inputs()))?;
        // To go on with one certificate, again and again, is what it is for.
        let resumed = Inputs::of([self.resume.as_deref()]);
        if let Some(path) = &self.plot {
            outputs::try_picture(path, &inputs())?;
            outputs::try_picture(path, &resumed)?;
            files.extend(outputs::pictures(path)?);
        }
        files.extend(self.certificate.clone());
        outputs::refuse_collisions(&files, self.save.as_deref())?;
        if self.plot.is_some() && problem.train.points.inputs() != 2 {
            return Err(SearchError::NotAPlane { inputs: problem.train.points.inputs() }.into());
        }
        match self.save.as_ref().map_or(Ok(()), |folder| searched::check(folder, problem, origin)) {
            // What training goes on with is not what is to be saved here.
            Err(ftprop_train::Error::RunExists { path }) => Err(Error::Other(format!(
                "{} already holds a run; choose another folder (a search goes on by --certificate and --resume)",
                path.display()
            ))),
            checked => Ok(checked?),
        }
    }
}

/// A number that means something only above zero.
pub(super) fn above_zero(text: &str) -> Result<usize, String> {
    let number = text.trim().parse::<usize>().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "it is a whole number, 1 at least".into())
}

/// The exit code after Ctrl-C or a request to terminate, when all there is was said and saved.
pub(super) const INTERRUPTED: u8 = 130;

/// The first Ctrl-C, or a request to terminate, ends the search with what it has, the second the program at once.
pub(super) fn stop_on_ctrl_c(words: &'static str) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    // Without a handler Ctrl-C simply kills: no reason to refuse to search.
    let _ = ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        eprintln!("\n{words}; press Ctrl-C again to end at once");
    });
    stop
}

/// Cells along each side of a panel.
const RESOLUTION: usize = 160;

/// One panel for the network, one for each hidden unit; gives the pictures' path without their endings.
fn draw(problem: &Problem, solution: &Solution, path: &Path) -> Result<PathBuf, Error> {
    let data = &problem.train;
    let grid = ftprop_search::Regions::new(&solution.network, data, RESOLUTION)?;
    let points: Vec<(f64, f64, usize)> =
        data.points.rows().zip(&data.labels).map(|(row, &label)| (row[0], row[1], label)).collect();
    let panel = |title: String, cells: Vec<usize>| {
        Panel::Regions(Regions {
            title,
            x_label: "input 1".into(),
            y_label: "input 2".into(),
            x_range: grid.x,
            y_range: grid.y,
            columns: grid.side,
            cells,
            points: points.clone(),
            class_names: data.classes.clone(),
        })
    };
    let mut panels = vec![panel("network".into(), grid.classes.clone())];
    for (layer, units) in grid.hidden.iter().enumerate() {
        for (unit, sides) in units.iter().enumerate() {
            let cells = sides.iter().map(|&side| usize::from(side)).collect();
            let of_layer = if grid.hidden.len() > 1 { format!("layer {}, ", layer + 1) } else { "hidden ".into() };
            // The colours are those of the first two classes, and stand for something else here.
            panels.push(panel(format!("{of_layer}unit {}: blue −1, orange +1", unit + 1), cells));
        }
    }
    let columns = panels.len().min(3);
    let title = format!("{}: {}", solution.problem, counted(solution.train.errors as u64, "training error"));
    Ok(Picture { title, panels, columns, panel_size: (360.0, 340.0), legend: true }.save(path)?)
}
