//! `ftprop robust`

pub(super) mod subject;

use super::eval::WhichArg;
use super::outputs::{self, Inputs};
use super::solve::{INTERRUPTED, above_zero, stop_on_ctrl_c};
use super::{say, say_json};
use crate::error::Error;
use crate::progress::{counted, tell};
use clap::Args;
use ftprop_export::zoo;
use ftprop_search::{
    Ball, Budget, Decision, Rational, RobustCertificate, RobustConfig, Robustness, SearchError, robustness,
};
use ftprop_train::files;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use subject::{Place, Subject};

/// The exit code where an instance stays undecided.
const UNDECIDED: u8 = 3;

/// Decide whether inputs near an instance have another class, with proof
#[derive(Args)]
#[command(after_help = "\
For fully connected networks of sign or step units, with batch norms or without. Inputs lie within the radius of the
instance in each coordinate and are real numbers; pixels count from 0 to 1 and stay there, so 8/255 is eight grey levels.
The network is taken as exact numbers, and of classes that are equal the first wins. Whatever is said is confirmed in
whole numbers: an instance is robust with a proof, or an input with another class was found.

Exit code 0 if every instance was decided, 3 if not. Ctrl-C ends with what is decided so far, exit code 130 if that is not
all.

Examples:
  ftprop robust runs/mnist --radius 8/255 --instances 1-100
  ftprop robust runs/mnist --radius 2/255 --instances 7 --certificate proof.json
  ftprop verify proof.json --model runs/mnist
  ftprop robust mnist.ftp --source mnist --data mnist/ --radius 0.01 --instances 1-20 --json
  ftprop robust runs/table --data table.csv --radius 0.5 --inputs 1,4-6")]
pub(super) struct Robust {
    /// A run folder, a checkpoint file, a packed model (.ftp) or one of the zoo (zoo:NAME)
    model: PathBuf,
    /// How far inputs may move: a number, or a fraction such as 8/255
    #[arg(long, value_name = "R", value_parser = parse_radius)]
    radius: Radius,
    /// Where the data is, if not where it was in training; of other data in one piece all is asked about
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// The kind of data, such as mnist; for a packed model that does not say what it was trained on
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Training examples instead of those to test on
    #[arg(long)]
    train: bool,
    /// Which instances, counted from 1, such as 1-100 or 3,7; all by default
    #[arg(long, value_name = "LIST", value_parser = parse_list)]
    instances: Option<List>,
    /// Which inputs may move, counted from 1, such as 1,4-6; all by default
    #[arg(long, value_name = "LIST", value_parser = parse_list)]
    inputs: Option<List>,
    /// Most time for each instance, such as 500ms, 60s or 5m
    #[arg(long, default_value = "60s")]
    budget: Budget,
    /// Most memory for proofs while they are made, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = above_zero)]
    memory: usize,
    /// Which of a run's networks
    #[arg(long, value_enum, default_value = "best")]
    checkpoint: WhichArg,
    /// Instances decided side by side, 0 for one a core
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Write the proofs to this file, for ftprop verify
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A radius and how it was written.
#[derive(Clone)]
struct Radius {
    value: Rational,
    text: String,
}

fn parse_radius(text: &str) -> Result<Radius, SearchError> {
    Ok(Radius { value: Ball::radius(text)?, text: text.trim().to_string() })
}

/// First and last numbers, from 0. Under its own name, because for clap a `Vec` is an option that may be repeated.
type List = Vec<(usize, usize)>;

/// Numbers and ranges, counted from 1.
fn parse_list(text: &str) -> Result<List, String> {
    let wrong = || format!("'{text}' is not a list of numbers from 1 on, such as 1-100 or 3,7");
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|&n| n > 0).ok_or_else(wrong);
    let mut all = vec![];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        all.push((first - 1, last - 1));
    }
    Ok(all)
}

/// The numbers of a list, each once and in order, where there are so many.
fn numbers(list: &List, there: usize, what: &str) -> Result<Vec<usize>, Error> {
    if let Some((_, last)) = list.iter().find(|(_, last)| *last >= there) {
        return Err(Error::Usage(format!("{what}: there is no {}; there are {there}", last + 1)));
    }
    let all: BTreeSet<usize> = list.iter().flat_map(|&(first, last)| first..=last).collect();
    Ok(all.into_iter().collect())
}

#[derive(Serialize)]
struct Report {
    model: String,
    radius: String,
    /// Which inputs may move, such as `inputs 1,4-6 of 8`.
    moving: String,
    /// How many instances were asked about; after Ctrl-C those that were not begun are missing.
    asked: usize,
    instances: Vec<Instance>,
    robust: usize,
    changing: usize,
    undecided: usize,
    right: usize,
    right_and_robust: usize,
    seconds: f64,
}

#[derive(Serialize)]
struct Instance {
    /// Counted from 1.
    instance: usize,
    label: String,
    class: String,
    #[serde(flatten)]
    answer: Answer,
    branches: u64,
    seconds: f64,
}

#[derive(Serialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
enum Answer {
    Robust,
    Changes { to: String, counterexample: Vec<f64> },
    Undecided { why: &'static str },
}

impl Robust {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let inputs = Inputs::of([self.data.as_deref()]).and_model(&zoo::resolve(&self.model)?);
        self.certificate.as_deref().map_or(Ok(()), |file| outputs::try_file(file, &inputs))?;
        let (data, source) = (self.data.as_deref(), self.source.as_deref());
        let place = Place { data, source, how: "give --data PATH", train: self.train };
        let subject = Subject::open(&self.model, self.checkpoint.into(), &place)?;
        subject.note.iter().for_each(|note| tell(&note.to_string()));
        let there = subject.points.len();
        let numbers = self
            .instances
            .as_ref()
            .map_or_else(|| Ok((0..there).collect()), |all| numbers(all, there, "--instances"))?;
        let points = subject.points.select(&numbers);
        let ball = self.ball(&subject)?;
        let config = RobustConfig {
            time: self.budget.time.unwrap_or(Duration::MAX),
            memory: self.memory.saturating_mul(1 << 20),
            threads: match self.threads {
                0 => std::thread::available_parallelism().map_or(1, usize::from),
                threads => threads,
            },
        };
        let started = Instant::now();
        let shown = !self.json && std::io::stderr().is_terminal();
        let done = AtomicUsize::new(0);
        let progress = |at: usize, decision: &Decision| {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if shown {
                let what = match &decision.answer {
                    Robustness::Robust => "robust",
                    Robustness::Changes { .. } => "not robust",
                    Robustness::Undecided { .. } => "undecided",
                };
                let seconds = started.elapsed().as_secs_f64();
                eprintln!("{seconds:.1} s: {done} of {}, instance {} is {what}", numbers.len(), numbers[at] + 1);
            }
        };
        let stop = stop_on_ctrl_c("stopping with what is decided so far");
        let decisions = robustness(&subject.network, &points, &ball, &config, &stop, &progress)?;
        let report = self.report(&subject, &numbers, (&ball, &decisions), started.elapsed());
        // Said first: what goes wrong with a file must not cost the answer, nor the other way round.
        let said = if self.json { say_json(&report) } else { say(&report.text()) };
        if let Some(file) = &self.certificate {
            let certificate = RobustCertificate::new(&subject.network, &points, &numbers, &ball, &decisions)?;
            self.write(file, &certificate, decisions.len())?;
        }
        said?;
        Ok(match report.undecided == 0 && decisions.len() == numbers.len() {
            true => ExitCode::SUCCESS,
            false if stop.load(Ordering::Relaxed) => ExitCode::from(INTERRUPTED),
            false => ExitCode::from(UNDECIDED),
        })
    }

    fn ball(&self, subject: &Subject) -> Result<Ball, Error> {
        let named = |all| numbers(all, subject.points.inputs(), "--inputs");
        let inputs = self.inputs.as_ref().map(named).transpose()?;
        Ok(Ball { radius: self.radius.value.clone(), inputs, range: subject.range.clone() })
    }

    /// Writes the proofs, if there are any.
    fn write(&self, file: &Path, certificate: &RobustCertificate, decided: usize) -> Result<(), Error> {
        // One that is about nothing would not be accepted.
        if decided == 0 {
            tell(&format!("nothing was decided, so nothing was written to {}", file.display()));
            return Ok(());
        }
        files::write(file, certificate.to_json().as_bytes())?;
        if !self.json {
            tell(&format!("certificate in {}", file.display()));
        }
        Ok(())
    }

    fn report(
        &self,
        subject: &Subject,
        numbers: &[usize],
        (ball, decisions): (&Ball, &[Decision]),
        time: Duration,
    ) -> Report {
        let instance = |(&number, decision): (&usize, &Decision)| Instance {
            instance: number + 1,
            label: subject.classes[subject.labels[number]].clone(),
            class: subject.classes[decision.class].clone(),
            answer: match &decision.answer {
                Robustness::Robust => Answer::Robust,
                Robustness::Changes { input, class } => Answer::Changes {
                    to: subject.classes[*class].clone(),
                    counterexample: input.iter().map(Rational::approximate).collect(),
                },
                Robustness::Undecided { why } => Answer::Undecided { why },
            },
            branches: decision.nodes,
            seconds: decision.time.as_secs_f64(),
        };
        let instances: Vec<Instance> = numbers.iter().zip(decisions).map(instance).collect();
        let count = |which: &dyn Fn(&Instance) -> bool| instances.iter().filter(|one| which(one)).count();
        let robust = |one: &Instance| matches!(one.answer, Answer::Robust);
        let right = |one: &Instance| one.class == one.label;
        Report {
            model: self.model.display().to_string(),
            radius: self.radius.text.clone(),
            moving: ball.moving(subject.points.inputs()).unwrap_or_else(|| "all inputs".into()),
            asked: numbers.len(),
            robust: count(&robust),
            changing: count(&|one| matches!(one.answer, Answer::Changes { .. })),
            undecided: count(&|one| matches!(one.answer, Answer::Undecided { .. })),
            right: count(&right),
            right_and_robust: count(&|one| right(one) && robust(one)),
            seconds: time.as_secs_f64(),
            instances,
        }
    }
}

impl Instance {
    fn words(&self) -> String {
        let Instance { instance, class, label, .. } = self;
        let wrong = if class == label { String::new() } else { format!(" (its label is {label})") };
        let answer = match &self.answer {
            Answer::Robust => "robust".to_string(),
            Answer::Changes { to, .. } => format!("becomes {to}"),
            Answer::Undecided { why } => format!("undecided: {why}"),
        };
        format!("instance {instance}: {class}{wrong}, {answer} ({} branches, {:.2} s)", self.branches, self.seconds)
    }
}

impl Report {
    /// A line for each instance, and one about all.
    fn text(&self) -> String {
        let lines: Vec<String> = self.instances.iter().map(Instance::words).chain([self.words()]).collect();
        lines.join("\n")
    }

    fn words(&self) -> String {
        let Report { robust, changing, undecided, right, right_and_robust, radius, moving, seconds, .. } = self;
        let mut all = counted(self.instances.len() as u64, "instance");
        if self.instances.len() < self.asked {
            all += &format!(" of {} that were asked about", self.asked);
        }
        format!(
            "{all} within {radius} ({moving}): {robust} robust, {changing} not, {undecided} undecided; {right} classified right, \
             {right_and_robust} of them robust; {seconds:.1} s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{numbers, parse_list};

    #[test]
    fn lists_are_counted_from_one() {
        let listed = |text: &str| numbers(&parse_list(text).unwrap(), 8, "--inputs").map_err(|why| why.to_string());
        assert_eq!(listed("1"), Ok(vec![0]));
        assert_eq!(listed("3,5-7"), Ok(vec![2, 4, 5, 6]));
        assert_eq!(listed("1,1,2-3,3"), Ok(vec![0, 1, 2]), "each once");
        for bad in ["", "0", "a", "3-1", "1-", "-1", "1,,2", "1-99999999999999999999"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
        // No memory is taken for what is not there.
        assert_eq!(listed("1-999999999999999"), Err("--inputs: there is no 999999999999999; there are 8".into()));
    }
}
