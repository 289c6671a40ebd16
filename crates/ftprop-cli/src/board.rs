//! What a person sees of a fleet: each run's end, and now and then how far all are.

use crate::error;
use crate::progress::{counted, duration, tell};
use ftprop_lab::pictures::Pictures;
use ftprop_train::fleet::{FleetEvent, FleetObserver, Job};
use ftprop_train::observe::{Answer, Ending, Notice, Observer, ObserverError, RunView, StepReport};
use ftprop_train::words::plain;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a fleet says how far it is.
const SPEAK_EVERY: Duration = Duration::from_secs(10);
/// When it does so for the first time.
const SPEAK_FIRST: Duration = Duration::from_secs(1);

/// Tells of a fleet on standard error, draws its runs' pictures, and stops it when a flag is set.
pub(crate) struct Board<'a> {
    quiet: bool,
    stop: &'a AtomicBool,
    started: Instant,
    tally: Mutex<Tally>,
}

struct Tally {
    /// Runs that have to be done, and those that are.
    runs: usize,
    runs_done: usize,
    /// Epochs of all these runs, those that are done, and those that an earlier call did.
    epochs: u64,
    done: u64,
    before: u64,
    /// When the first run began: making runs, with kernels to compile and time, says nothing about how long epochs take.
    began: Option<Instant>,
    spoke: Instant,
    /// How long it may be silent.
    patience: Duration,
}

impl<'a> Board<'a> {
    /// `quiet` tells of errors only.
    pub(crate) fn new(quiet: bool, stop: &'a AtomicBool) -> Self {
        let now = Instant::now();
        let tally = Tally {
            runs: 0,
            runs_done: 0,
            epochs: 0,
            done: 0,
            before: 0,
            began: None,
            spoke: now,
            patience: SPEAK_FIRST,
        };
        Board { quiet, stop, started: now, tally: Mutex::new(tally) }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch_done(&self) {
        let mut tally = self.tally();
        tally.done += 1;
        let Some(began) = tally.began.filter(|_| !self.quiet && tally.spoke.elapsed() >= tally.patience) else {
            return;
        };
        (tally.spoke, tally.patience) = (Instant::now(), SPEAK_EVERY);
        let pace = began.elapsed().as_secs_f64() / (tally.done - tally.before) as f64;
        let left = Duration::from_secs_f64(pace * tally.epochs.saturating_sub(tally.done) as f64);
        tell(&format!(
            "{} of {} runs done, {} of {} epochs; {} so far, {} left",
            tally.runs_done,
            tally.runs,
            tally.done,
            tally.epochs,
            duration(self.started.elapsed()),
            duration(left)
        ));
    }

    /// Between two epochs that take long.
    fn step_done(&self, run: &RunView<'_>, step: &StepReport) {
        let mut tally = self.tally();
        if self.quiet || tally.spoke.elapsed() < tally.patience {
            return;
        }
        (tally.spoke, tally.patience) = (Instant::now(), SPEAK_EVERY);
        tell(&format!(
            "{}, seed {}: epoch {} of {}, step {} of {}; {} of {} runs done, {} so far",
            run.recipe.name,
            run.recipe.train.seed,
            run.state.epoch,
            run.recipe.train.epochs,
            step.step,
            step.steps,
            tally.runs_done,
            tally.runs,
            duration(self.started.elapsed())
        ));
    }

    fn ended(&self, job: &Job, ending: &Result<Ending, ftprop_train::Error>) {
        let (name, place) = (plain(&job.recipe.name), job.folder.display());
        self.tally().runs_done += 1;
        match ending {
            Ok(Ending::Finished(s)) if !self.quiet => tell(&format!(
                "{name}, seed {}: test accuracy {:.2} % after {}, train {:.2} %; {place}",
                job.recipe.train.seed,
                100.0 * s.test.top1_last,
                counted(s.epochs, "epoch"),
                100.0 * s.train.top1_last,
            )),
            Err(error) => tell(&plain(&format!("{place} failed: {}", error::words(error)))),
            Ok(_) => {}
        }
    }
}

impl FleetObserver for Board<'_> {
    fn event(&self, event: &FleetEvent<'_>) {
        match event {
            FleetEvent::Begins { jobs, waiting, at_once, place, note } => {
                let mut tally = self.tally();
                tally.runs = waiting.len();
                tally.epochs = waiting.iter().map(|&i| u64::from(jobs[i].recipe.train.epochs)).sum();
                if self.quiet {
                    return;
                }
                if let Some(note) = note {
                    tell(note);
                }
                if let Some(place) = place {
                    let done = jobs.len() - waiting.len();
                    let before = if done > 0 { format!(", {done} of them finished before") } else { String::new() };
                    let all = counted(jobs.len() as u64, "run");
                    tell(&format!("{all}{before}; {at_once} at once on {}", place.describe()));
                }
            }
            FleetEvent::MemoryIsFull { runs } if !self.quiet => {
                tell(&format!("no more than {runs} of them fit in the GPU's memory at once"));
            }
            FleetEvent::MemoryIsFull { .. } => {}
            FleetEvent::Ended { job, ending } => self.ended(job, ending),
        }
    }

    fn run<'a>(&'a self, number: usize, _job: &Job) -> Box<dyn Observer + 'a> {
        Box::new(Member { board: self, number, pictures: Pictures::default() })
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Watches one of the runs.
struct Member<'a> {
    board: &'a Board<'a>,
    number: usize,
    pictures: Pictures,
}

impl Observer for Member<'_> {
    fn begin(&mut self, run: &RunView<'_>) -> Answer {
        let before = u64::from(run.state.epoch - 1);
        let mut tally = self.board.tally();
        tally.done += before;
        tally.before += before;
        tally.began.get_or_insert_with(Instant::now);
        self.pictures.begin(run)
    }

    fn step(&mut self, run: &RunView<'_>, step: &StepReport) -> Answer {
        self.board.step_done(run, step);
        Ok(ControlFlow::Continue(()))
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        self.board.epoch_done();
        self.pictures.epoch(run)
    }

    fn notice(&mut self, run: &RunView<'_>, notice: &Notice) {
        tell(&format!("{} (run {}): {}", plain(&run.recipe.name), self.number + 1, notice));
    }

    fn end(&mut self, run: &RunView<'_>, ending: &Ending) -> Result<(), ObserverError> {
        self.pictures.end(run, ending)
    }
}
