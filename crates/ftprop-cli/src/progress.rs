//! What a person sees while the program works: a live bar on a terminal, plain lines elsewhere.
//!
//! Both go to standard error, so that standard output stays free for results. A training loop may call
//! [`Progress::step`] as often as it likes: nothing is formatted or drawn more than ten times a second, and between
//! two drawings a call costs one look at the clock.

use crate::terminal::{Stream, draws};
use ftprop_train::observe::{Answer, Ending, Notice, Observer, ObserverError, RunView, StepReport};
use ftprop_train::run::{EpochMetrics, Scores};
use ftprop_train::words::{plain, plain_lines};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use ftprop_train::words::{counted, duration};

/// How often the bar is drawn at most.
const REDRAW: Duration = Duration::from_millis(100);
/// Columns for the bar itself, with the spaces around it.
const LEAST_BAR: usize = 7;
/// Without a bar, how long an epoch stays silent.
const SILENCE: Duration = Duration::from_secs(10);
/// The same at first where a person looks on, at a terminal that cannot draw.
const PATIENCE: Duration = Duration::from_secs(2);

/// A loss and an accuracy (a fraction of 1) over some examples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Score {
    loss: f64,
    accuracy: f64,
}

/// What is said when an epoch is done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct EpochLine {
    /// Counted from 1.
    epoch: u32,
    train: Score,
    validation: Option<Score>,
    test: Option<Score>,
    learning_rate: f64,
    images_per_s: f64,
    /// The same of one of several ranks.
    of_a_rank: Option<f64>,
    /// How long the epoch took, evaluation included.
    seconds: f64,
}

impl From<&EpochMetrics> for EpochLine {
    fn from(m: &EpochMetrics) -> Self {
        let score = |s: &Scores| Score { loss: s.loss, accuracy: s.top1 };
        EpochLine {
            epoch: m.epoch,
            train: score(&m.train),
            validation: m.validation.as_ref().map(score),
            test: Some(score(&m.test)),
            learning_rate: m.learning_rate,
            images_per_s: m.images_per_s,
            of_a_rank: m.images_per_s_of_a_rank,
            seconds: m.seconds,
        }
    }
}

impl EpochLine {
    /// The line for a terminal of so many columns, with what matters most where not all of it fits. `heading` and `left`
    /// stand around it.
    fn fitted(&self, heading: &str, left: &str, room: usize) -> String {
        let whole = format!("{heading}  {self}{left}");
        let parts = [("train", Some(self.train)), ("val", self.validation), ("test", self.test)];
        let share = |(part, score): (&str, Option<Score>)| Some(format!("  {part} {:5.2} %", 100.0 * score?.accuracy));
        let all: String = parts.into_iter().filter_map(share).collect();
        let last: String = share(parts[2]).or_else(|| share(parts[0])).unwrap_or_default();
        let took = duration(Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        let shorter =
            [format!("{heading}{all}  {took}{left}"), format!("{heading}{all}{left}"), format!("{heading}{all}")];
        first_that_fits([whole].into_iter().chain(shorter).chain([format!("{heading}{last}")]), room)
    }
}

/// The first of some lines that fits, or as much of the last as does.
fn first_that_fits(lines: impl IntoIterator<Item = String>, room: usize) -> String {
    let mut last = String::new();
    for line in lines {
        if line.chars().count() <= room {
            return line;
        }
        last = line;
    }
    last.chars().take(room).collect()
}

/// The columns of the terminal.
fn columns() -> usize {
    Stream::Err.columns().unwrap_or(80)
}

impl fmt::Display for EpochLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("train", Some(self.train)), ("validation", self.validation), ("test", self.test)];
        for (part, score) in parts.into_iter().filter_map(|(part, score)| Some((part, score?))) {
            write!(f, "{part} loss {:.4} acc {:5.2} %  ", score.loss, 100.0 * score.accuracy)?;
        }
        let took = duration(Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        let speed = speed(self.images_per_s, self.of_a_rank);
        write!(f, "rate {}  {speed}  {took}", three_digits(self.learning_rate))
    }
}

/// Examples a second, of all ranks and of each where there are several.
fn speed(images_per_s: f64, of_a_rank: Option<f64>) -> String {
    let each = of_a_rank.map(|each| format!(" ({each:.0} a rank)")).unwrap_or_default();
    format!("{images_per_s:.0} examples/s{each}")
}

/// A small number with three digits that count: 0.00025, 1.32e-5.
fn three_digits(x: f64) -> String {
    let scientific = format!("{x:.2e}");
    if x != 0.0 && x.abs() < 1e-4 { scientific } else { scientific.parse::<f64>().unwrap_or(x).to_string() }
}

enum Sink {
    Quiet,
    Bar(ProgressBar),
    Lines(Box<dyn Write + Send>),
}

/// Shows how a long job goes. See the [module](self).
pub(crate) struct Progress {
    sink: Sink,
    /// What is done, where it is not epochs.
    label: Option<String>,
    epochs: u32,
    steps_per_epoch: usize,
    /// The epoch under way, counted from 1.
    epoch: u32,
    /// Steps that an earlier session did: they took none of this session's time.
    steps_before: usize,
    started: Instant,
    /// Nothing is shown before this moment.
    next: Instant,
    /// The columns that lines have to fit, on a terminal that cannot draw.
    room: Option<usize>,
}

impl Progress {
    /// For training: `epochs` in all, each of `steps_per_epoch` steps. `quiet` shows nothing at all.
    pub(crate) fn new(epochs: u32, steps_per_epoch: usize, quiet: bool) -> Self {
        let sink = match quiet || errors_only() {
            true => Sink::Quiet,
            false if draws() => Sink::Bar(bar(steps_per_epoch)),
            false => Sink::Lines(Box::new(std::io::stderr())),
        };
        let mut progress = Self::with_sink(sink, epochs, steps_per_epoch, Instant::now());
        if let (Sink::Lines(_), Some(room)) = (&progress.sink, Stream::Err.columns()) {
            (progress.room, progress.next) = (Some(room), progress.started + PATIENCE);
        }
        progress
    }

    /// For one job of `steps` steps that is no epoch; `label` says what it is, such as `evaluating`.
    pub(crate) fn of_steps(label: &str, steps: usize, quiet: bool) -> Self {
        let mut progress = Self::new(1, steps, quiet);
        progress.label = Some(label.to_owned());
        progress
    }

    /// For a resumed run: `epochs_done` whole epochs and `steps_done` steps of the next one lie behind.
    pub(crate) fn resumed(mut self, epochs_done: u32, steps_done: usize) -> Self {
        self.epoch = epochs_done + 1;
        self.steps_before = epochs_done as usize * self.steps_per_epoch + steps_done;
        self
    }

    fn with_sink(sink: Sink, epochs: u32, steps_per_epoch: usize, now: Instant) -> Self {
        let next = now + if matches!(sink, Sink::Lines(_)) { SILENCE } else { Duration::ZERO };
        Self { sink, label: None, epochs, steps_per_epoch, epoch: 1, steps_before: 0, started: now, next, room: None }
    }

    /// Steps of the present epoch are done.
    pub(crate) fn step(&mut self, done: &StepReport) {
        if !matches!(self.sink, Sink::Quiet) {
            let each = (done.ranks > 1).then(|| done.images_per_s / done.ranks as f64);
            self.step_at(Instant::now(), done.step, (done.loss, done.top1), &speed(done.images_per_s, each));
        }
    }

    fn step_at(&mut self, now: Instant, step: usize, (loss, accuracy): (f64, f64), speed: &str) {
        if now < self.next {
            return;
        }
        let left = self.time_left(now, step).map(|left| format!("  {} left", duration(left))).unwrap_or_default();
        let accuracy = 100.0 * accuracy;
        let state = format!("loss {loss:.4}  acc {accuracy:5.2} %  {speed}{left}");
        let shorter = [format!("acc {accuracy:5.2} %{left}"), format!("acc {accuracy:5.2} %"), String::new()];
        let heading = self.heading(self.epoch);
        match &mut self.sink {
            Sink::Quiet => {}
            Sink::Bar(bar) => {
                self.next = now + REDRAW;
                // On one line, with something of the bar: a second one would not be cleared when others print.
                let room = columns().saturating_sub(heading.chars().count() + LEAST_BAR);
                bar.set_position(step as u64);
                bar.set_message(first_that_fits([state].into_iter().chain(shorter), room));
                bar.set_prefix(heading);
            }
            Sink::Lines(out) => {
                self.next = now + SILENCE;
                let at = format!("{heading}  step {step}/{}", self.steps_per_epoch);
                let shorter = shorter.map(|state| format!("{at}  {state}"));
                let lines = [format!("{at}  {state}")].into_iter().chain(shorter);
                let _ = writeln!(out, "{}", first_that_fits(lines, self.room.unwrap_or(usize::MAX)).trim_end());
            }
        }
    }

    /// So many pictures are done, of a job that knows no loss.
    pub(crate) fn count(&mut self, done: usize, per_s: f64) {
        let now = Instant::now();
        if now < self.next || matches!(self.sink, Sink::Quiet) {
            return;
        }
        let left = self.time_left(now, done).map(|left| format!("  {} left", duration(left))).unwrap_or_default();
        let (heading, of) = (self.heading(self.epoch), self.steps_per_epoch);
        let state = format!("{done}/{of}  {per_s:.0} pictures/s{left}");
        match &mut self.sink {
            Sink::Quiet => {}
            Sink::Bar(bar) => {
                self.next = now + REDRAW;
                let room = columns().saturating_sub(heading.chars().count() + LEAST_BAR);
                bar.set_position(done as u64);
                bar.set_message(first_that_fits([state, format!("{done}/{of}"), String::new()], room));
                bar.set_prefix(heading);
            }
            Sink::Lines(out) => {
                self.next = now + SILENCE;
                let lines = [format!("{heading}  {state}"), format!("{heading}  {done}/{of}")];
                let _ = writeln!(out, "{}", first_that_fits(lines, self.room.unwrap_or(usize::MAX)));
            }
        }
    }

    /// The epoch is over: leaves a line that stays.
    pub(crate) fn epoch_done(&mut self, line: &EpochLine) {
        self.epoch_done_at(Instant::now(), line);
    }

    fn epoch_done_at(&mut self, now: Instant, line: &EpochLine) {
        self.epoch = line.epoch + 1;
        let left = match self.time_left(now, 0) {
            Some(left) if self.epoch <= self.epochs => format!("  {} left", duration(left)),
            _ => String::new(),
        };
        let heading = self.heading(line.epoch);
        let room = if let Sink::Bar(_) = self.sink { Some(columns()) } else { self.room };
        self.message(&match room {
            Some(room) => line.fitted(&heading, &left, room),
            None => format!("{heading}  {line}{left}"),
        });
        if let Sink::Lines(_) = self.sink {
            self.next = now + SILENCE;
        }
    }

    /// Says something between two steps, above the bar. A failed write is ignored: training goes on without a
    /// listener.
    pub(crate) fn message(&mut self, text: &str) {
        match &mut self.sink {
            Sink::Quiet => {}
            Sink::Bar(bar) => bar.println(Stream::Err.fitted(&plain_lines(text))),
            Sink::Lines(out) => {
                let text = plain_lines(text);
                let text = if self.room.is_some() { Stream::Err.fitted(&text) } else { text.clone() };
                let _ = writeln!(out, "{text}");
            }
        }
    }

    fn heading(&self, epoch: u32) -> String {
        match &self.label {
            Some(label) => label.clone(),
            None => {
                let width = self.epochs.to_string().len();
                format!("epoch {epoch:width$}/{}", self.epochs)
            }
        }
    }

    /// What is left at the pace since the start of this session; nothing before its first step.
    fn time_left(&self, now: Instant, step: usize) -> Option<Duration> {
        let position = (self.epoch as usize - 1) * self.steps_per_epoch + step;
        let here = position.checked_sub(self.steps_before).filter(|steps| *steps > 0)?;
        let to_go = (self.epochs as usize * self.steps_per_epoch).saturating_sub(position);
        let pace = now.saturating_duration_since(self.started).as_secs_f64() / here as f64;
        Duration::try_from_secs_f64(pace * to_go as f64).ok()
    }
}

impl Progress {
    /// Takes the bar off the screen; the lines above it stay.
    pub(crate) fn finish(&mut self) {
        if let Sink::Bar(bar) = &self.sink {
            bar.finish_and_clear();
        }
    }
}

/// Shows how training goes.
impl Observer for Progress {
    fn step(&mut self, _run: &RunView<'_>, step: &StepReport) -> Answer {
        self.step(step);
        Ok(ControlFlow::Continue(()))
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        if let Some(metrics) = run.metrics.last() {
            self.epoch_done(&EpochLine::from(metrics));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn notice(&mut self, _run: &RunView<'_>, notice: &Notice) {
        match (&self.sink, notice) {
            // Whoever wants no progress wants to know of damage, and of settings in vain, all the same.
            (Sink::Quiet, Notice::Checkpoint(_) | Notice::LoneExample { .. } | Notice::NoEffect { .. }) => {
                tell(&notice.to_string())
            }
            (Sink::Quiet, Notice::Begun { .. } | Notice::Changed(_) | Notice::OtherNumber { .. }) => {}
            _ => self.message(&from_here(notice).to_string()),
        }
    }

    fn end(&mut self, _run: &RunView<'_>, _ending: &Ending) -> Result<(), ObserverError> {
        self.finish();
        Ok(())
    }
}

/// The same notice with paths as they are seen from the folder that the program was started in.
fn from_here(notice: &Notice) -> Cow<'_, Notice> {
    let Notice::Begun { from, taken, new } = notice else { return Cow::Borrowed(notice) };
    let here = std::env::current_dir().ok().and_then(|here| from.strip_prefix(here).ok());
    match here {
        Some(from) => Cow::Owned(Notice::Begun { from: from.into(), taken: *taken, new: new.clone() }),
        None => Cow::Borrowed(notice),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} {wide_bar:.cyan/dim} {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━━─"))
}

/// How much is said beside results.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Info,
}

/// Whether only errors are told.
static ERRORS_ONLY: AtomicBool = AtomicBool::new(false);

/// Chooses how much is said from now on.
pub(crate) fn set_log_level(level: LogLevel) {
    ERRORS_ONLY.store(level == LogLevel::Error, Ordering::Relaxed);
}

fn errors_only() -> bool {
    ERRORS_ONLY.load(Ordering::Relaxed)
}

/// Says something on standard error, for good. A failed write is ignored: a full disk under a log file is no
/// reason to end what works.
pub(crate) fn tell(text: &str) {
    if !errors_only() {
        let _ = writeln!(std::io::stderr(), "{}", Stream::Err.fitted(&plain_lines(text)));
    }
}

/// Says what is wrong, whatever the log level.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", Stream::Err.fitted(&format!("ftprop: {}", plain(text))));
}

#[cfg(test)]
mod tests;
