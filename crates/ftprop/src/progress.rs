//! What a person sees while the program works: a live bar on a terminal, plain lines elsewhere.
//!
//! Both go to standard error, so that standard output stays free for results. A training loop may call
//! [`Progress::step`] as often as it likes: nothing is formatted or drawn more than ten times a second, and between
//! two drawings a call costs one look at the clock.
//!
//! ```
//! use ftprop::progress::{EpochLine, Progress, Score};
//!
//! let mut progress = Progress::new(1, 3, true);
//! for step in 1..=3 {
//!     progress.step(step, 2.3, 0.1, 1500.0);
//! }
//! let train = Score { loss: 2.3, accuracy: 0.1 };
//! progress.epoch_done(&EpochLine { epoch: 1, train, learning_rate: 0.001, seconds: 4.0, ..EpochLine::default() });
//! ```

use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the bar is drawn at most.
const REDRAW: Duration = Duration::from_millis(100);
/// Without a terminal, how long an epoch stays silent.
const SILENCE: Duration = Duration::from_secs(10);

/// A loss and an accuracy (a fraction of 1) over some examples.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Score {
    pub loss: f64,
    pub accuracy: f64,
}

/// What is said when an epoch is done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EpochLine {
    /// Counted from 1.
    pub epoch: u32,
    pub train: Score,
    pub validation: Option<Score>,
    pub test: Option<Score>,
    pub learning_rate: f64,
    pub images_per_s: f64,
    /// How long the epoch took, evaluation included.
    pub seconds: f64,
}

impl fmt::Display for EpochLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("train", Some(self.train)), ("validation", self.validation), ("test", self.test)];
        for (part, score) in parts.into_iter().filter_map(|(part, score)| Some((part, score?))) {
            write!(f, "{part} loss {:.4} acc {:5.2} %  ", score.loss, 100.0 * score.accuracy)?;
        }
        let took = duration(Duration::try_from_secs_f64(self.seconds).unwrap_or_default());
        write!(f, "rate {}  {:.0} images/s  {took}", three_digits(self.learning_rate), self.images_per_s)
    }
}

/// A small number with three digits that count: 0.00025, 1.32e-5.
fn three_digits(x: f64) -> String {
    let scientific = format!("{x:.2e}");
    if x != 0.0 && x.abs() < 1e-4 { scientific } else { scientific.parse::<f64>().unwrap_or(x).to_string() }
}

type Watch = dyn FnMut(Option<&str>) + Send;

enum Sink {
    Quiet,
    Bar(ProgressBar),
    Lines(Box<dyn Write + Send>),
    /// Hears of each finished epoch (nothing), and of messages.
    Watcher(Box<Watch>),
}

/// Shows how a long job goes. See the [module](self).
pub struct Progress {
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
}

impl Progress {
    /// For training: `epochs` in all, each of `steps_per_epoch` steps. `quiet` shows nothing at all.
    pub fn new(epochs: u32, steps_per_epoch: usize, quiet: bool) -> Self {
        let sink = match quiet {
            true => Sink::Quiet,
            false if std::io::stderr().is_terminal() => Sink::Bar(bar(steps_per_epoch)),
            false => Sink::Lines(Box::new(std::io::stderr())),
        };
        Self::with_sink(sink, epochs, steps_per_epoch, Instant::now())
    }

    /// For one job of `steps` steps that is no epoch; `label` says what it is, such as `evaluating`.
    pub fn of_steps(label: &str, steps: usize, quiet: bool) -> Self {
        let mut progress = Self::new(1, steps, quiet);
        progress.label = Some(label.to_owned());
        progress
    }

    /// For one run of several: shows nothing itself, but calls `watcher` after each epoch with nothing, and with
    /// messages that must be heard.
    pub fn watched(watcher: impl FnMut(Option<&str>) + Send + 'static) -> Self {
        Self::with_sink(Sink::Watcher(Box::new(watcher)), 1, 1, Instant::now())
    }

    /// For a resumed run: `epochs_done` whole epochs and `steps_done` steps of the next one lie behind.
    pub fn resumed(mut self, epochs_done: u32, steps_done: usize) -> Self {
        self.epoch = epochs_done + 1;
        self.steps_before = epochs_done as usize * self.steps_per_epoch + steps_done;
        self
    }

    fn with_sink(sink: Sink, epochs: u32, steps_per_epoch: usize, now: Instant) -> Self {
        let next = now + if matches!(sink, Sink::Lines(_)) { SILENCE } else { Duration::ZERO };
        Self { sink, label: None, epochs, steps_per_epoch, epoch: 1, steps_before: 0, started: now, next }
    }

    /// `step` steps of the present epoch are done; loss and accuracy (a fraction of 1) are its means so far.
    pub fn step(&mut self, step: usize, loss: f64, accuracy: f64, images_per_s: f64) {
        if !matches!(self.sink, Sink::Quiet | Sink::Watcher(_)) {
            self.step_at(Instant::now(), step, loss, accuracy, images_per_s);
        }
    }

    fn step_at(&mut self, now: Instant, step: usize, loss: f64, accuracy: f64, images_per_s: f64) {
        if now < self.next {
            return;
        }
        let left = self.time_left(now, step).map(|left| format!("  {} left", duration(left))).unwrap_or_default();
        let accuracy = 100.0 * accuracy;
        let state = format!("loss {loss:.4}  acc {accuracy:5.2} %  {images_per_s:.0} images/s{left}");
        let heading = self.heading(self.epoch);
        match &mut self.sink {
            Sink::Quiet | Sink::Watcher(_) => {}
            Sink::Bar(bar) => {
                self.next = now + REDRAW;
                bar.set_prefix(heading);
                bar.set_position(step as u64);
                bar.set_message(state);
            }
            Sink::Lines(out) => {
                self.next = now + SILENCE;
                let _ = writeln!(out, "{heading}  step {step}/{}  {state}", self.steps_per_epoch);
            }
        }
    }

    /// The epoch is over: leaves a line that stays.
    pub fn epoch_done(&mut self, line: &EpochLine) {
        if let Sink::Watcher(watcher) = &mut self.sink {
            return watcher(None);
        }
        self.epoch_done_at(Instant::now(), line);
    }

    fn epoch_done_at(&mut self, now: Instant, line: &EpochLine) {
        self.epoch = line.epoch + 1;
        let left = match self.time_left(now, 0) {
            Some(left) if self.epoch <= self.epochs => format!("  {} left", duration(left)),
            _ => String::new(),
        };
        self.message(&format!("{}  {line}{left}", self.heading(line.epoch)));
        if let Sink::Lines(_) = self.sink {
            self.next = now + SILENCE;
        }
    }

    /// Says something between two steps, above the bar. A failed write is ignored: training goes on without a
    /// listener.
    pub fn message(&mut self, text: &str) {
        match &mut self.sink {
            Sink::Quiet => {}
            Sink::Watcher(watcher) => watcher(Some(text)),
            Sink::Bar(bar) => bar.println(text),
            Sink::Lines(out) => {
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
    pub fn finish(&mut self) {
        if let Sink::Bar(bar) = &self.sink {
            bar.finish_and_clear();
        }
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

/// Says something on standard error, for good. A failed write is ignored: a full disk under a log file is no
/// reason to end what works.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// How many of something: `1 epoch`, `3 epochs`.
pub fn counted(number: impl Into<u64>, what: &str) -> String {
    match number.into() {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// A duration in words that fit its size: `8.2 s`, `48 s`, `12 min 30 s`, `3 h 05 min`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::counted;
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Screen(Arc<Mutex<Vec<u8>>>);

    impl Screen {
        fn take(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(epochs: u32, steps: usize) -> (Progress, Screen, Instant) {
        let (screen, start) = (Screen::default(), Instant::now());
        (Progress::with_sink(Sink::Lines(Box::new(screen.clone())), epochs, steps, start), screen, start)
    }

    fn line(epoch: u32) -> EpochLine {
        EpochLine {
            epoch,
            train: Score { loss: 1.25, accuracy: 0.5 },
            validation: None,
            test: Some(Score { loss: 1.5, accuracy: 0.0925 }),
            learning_rate: 0.001,
            images_per_s: 1234.5,
            seconds: 8.0,
        }
    }

    #[test]
    fn a_short_epoch_is_one_line() {
        let (mut progress, screen, start) = lines(10, 80);
        for step in 1..=80 {
            progress.step_at(start + Duration::from_millis(100 * step as u64), step, 1.0, 0.5, 1000.0);
        }
        assert_eq!(screen.take(), "");
        progress.epoch_done_at(start + Duration::from_secs(8), &line(1));
        assert_eq!(
            screen.take(),
            "epoch  1/10  train loss 1.2500 acc 50.00 %  test loss 1.5000 acc  9.25 %  \
             rate 0.001  1234 images/s  8.0 s  1 min 12 s left\n"
        );
    }

    #[test]
    fn a_long_epoch_speaks_every_ten_seconds() {
        let (mut progress, screen, start) = lines(2, 100);
        for step in 1..=100 {
            progress.step_at(start + Duration::from_millis(400 * step as u64), step, 0.25, 0.9, 160.0);
        }
        let said = screen.take();
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert_eq!(said[1], "epoch 1/2  step 50/100  loss 0.2500  acc 90.00 %  160 images/s  1 min 00 s left");
    }

    #[test]
    fn the_last_line_promises_nothing() {
        let (mut progress, screen, start) = lines(1, 10);
        progress.epoch_done_at(start + Duration::from_secs(8), &line(1));
        assert!(screen.take().ends_with("8.0 s\n"));
    }

    #[test]
    fn a_resumed_run_counts_only_its_own_steps() {
        let (progress, screen, start) = lines(10, 100);
        let mut progress = progress.resumed(8, 50);
        progress.step_at(start + Duration::from_secs(10), 100, 1.0, 0.5, 10.0);
        assert_eq!(screen.take(), "epoch  9/10  step 100/100  loss 1.0000  acc 50.00 %  10 images/s  20 s left\n");
    }

    #[test]
    fn jobs_without_epochs_carry_their_label() {
        let (mut progress, screen, start) = lines(1, 4);
        progress.label = Some("evaluating".to_owned());
        progress.step_at(start + Duration::from_secs(10), 2, 1.0, 0.5, 10.0);
        assert!(screen.take().starts_with("evaluating  step 2/4  loss 1.0000"));
    }

    #[test]
    fn one_is_not_several() {
        assert_eq!([0u32, 1, 2].map(|n| counted(n, "epoch")), ["0 epochs", "1 epoch", "2 epochs"]);
    }

    #[test]
    fn durations_fit_their_size() {
        let said = |seconds: f64| duration(Duration::from_secs_f64(seconds));
        assert_eq!(said(0.04), "0.0 s");
        assert_eq!(said(8.24), "8.2 s");
        assert_eq!(said(9.7), "10 s");
        assert_eq!(said(59.7), "1 min 00 s");
        assert_eq!(said(750.0), "12 min 30 s");
        assert_eq!(said(11_100.0), "3 h 05 min");
    }
}
