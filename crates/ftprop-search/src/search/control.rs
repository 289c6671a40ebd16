//! Budgets, interruptions and progress, shared by all threads of a search.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Setup, Stop};
use crate::error::SearchError;
use crate::learner::{Learned, Task};
use crate::points::Points;

/// How long a search may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Budget {
    /// Most time.
    pub time: Option<Duration>,
    /// Most nodes: settings of targets that are evaluated, sets of instances that are given up, hyperplanes through
    /// instances and groups of half-spaces that are listed.
    pub nodes: Option<u64>,
    /// Most bytes for what a search remembers; 4 GiB if none.
    pub memory: Option<usize>,
}

/// What a search may take if nobody says otherwise.
const USUAL_MEMORY: usize = 4 << 30;

impl Budget {
    /// Most bytes.
    pub(crate) fn memory(&self) -> usize {
        self.memory.unwrap_or(USUAL_MEMORY)
    }

    /// Refuses budgets that allow nothing.
    pub fn check(&self) -> Result<(), SearchError> {
        if self.time.is_some_and(|time| time.is_zero()) || self.nodes == Some(0) {
            return Err(SearchError::ZeroBudget);
        }
        Ok(())
    }
}

/// A time such as `500ms`, `60s`, `5m` or `1h`; a number alone means seconds.
impl FromStr for Budget {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        let wrong = || SearchError::BadBudget { text: text.to_string() };
        let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let seconds = match unit {
            "ms" => number / 1e3,
            "" | "s" => number,
            "m" | "min" => number * 60.0,
            "h" => number * 3600.0,
            _ => return Err(wrong()),
        };
        let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
        let budget = Budget { time: Some(time), ..Budget::default() };
        budget.check()?;
        Ok(budget)
    }
}

/// Where a search stands.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Nodes looked at so far.
    pub nodes: u64,
    /// The lowest loss so far.
    pub loss: f64,
    /// No network of this shape has a lower loss than this.
    pub at_least: f64,
}

/// What a search asks whether to go on, and tells how far it is.
pub struct Control<'a> {
    start: Instant,
    budget: Budget,
    interrupt: &'a AtomicBool,
    nodes: AtomicU64,
    progress: &'a (dyn Fn(Progress) + Sync),
    /// When something was told last, in seconds since the start.
    told: AtomicU64,
}

/// Seconds without news after which the state is told again.
const SILENCE: u64 = 2;

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("budget", &self.budget).field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}

impl<'a> Control<'a> {
    /// Starts the clock. `progress` is called when a better network is found.
    pub fn new(budget: Budget, interrupt: &'a AtomicBool, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        Control {
            start: Instant::now(),
            budget,
            interrupt,
            nodes: AtomicU64::new(0),
            progress,
            told: AtomicU64::new(0),
        }
    }

    /// Nodes looked at so far.
    pub fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Time since the search began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Most bytes.
    pub(super) fn memory(&self) -> usize {
        self.budget.memory()
    }

    /// A control for a part of the search: with a share of the time that is left, and no more nodes than this.
    pub(super) fn part(&self, share: u32, nodes: u64) -> Control<'a> {
        let time = self.budget.time.map(|time| time.saturating_sub(self.elapsed()) / share);
        let nodes = Some(self.budget.nodes.map_or(nodes, |most| most.saturating_sub(self.nodes()).min(nodes)));
        Control::new(Budget { time, nodes, ..self.budget }, self.interrupt, self.progress)
    }

    pub(super) fn count(&self, nodes: u64) {
        self.nodes.fetch_add(nodes, Ordering::Relaxed);
    }

    /// Why to stop now, if there is a reason.
    pub(super) fn stop(&self) -> Option<Stop> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Some(Stop::Interrupted);
        }
        if self.budget.nodes.is_some_and(|most| self.nodes() >= most) {
            return Some(Stop::Nodes);
        }
        self.budget.time.is_some_and(|most| self.start.elapsed() >= most).then_some(Stop::Time)
    }

    /// Trains a unit on its targets with a learner that ends when the search must.
    pub(super) fn learn(&self, setup: &Setup<'_>, inputs: &Points, targets: &[bool]) -> Learned {
        setup.learner.learn(&Task { stop: Some(&|| self.stop().is_some()), ..Task::new(inputs, targets) })
    }

    /// Tells where the search stands if nothing was told for a while.
    pub(super) fn tell(&self, loss: f64, at_least: f64) {
        let now = self.start.elapsed().as_secs();
        let last = self.told.load(Ordering::Relaxed);
        if now >= last + SILENCE && self.told.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            (self.progress)(Progress { nodes: self.nodes(), loss, at_least });
        }
    }

    /// Tells that the best loss or the bound is now this.
    pub(super) fn improved(&self, loss: f64, at_least: f64) {
        self.told.store(self.start.elapsed().as_secs(), Ordering::Relaxed);
        (self.progress)(Progress { nodes: self.nodes(), loss, at_least });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read() {
        let seconds = |text: &str| text.parse::<Budget>().unwrap().time.unwrap().as_secs_f64();
        assert_eq!(seconds("500ms"), 0.5);
        assert_eq!(seconds("60s"), 60.0);
        assert_eq!(seconds("1.5"), 1.5);
        assert_eq!(seconds("2m"), 120.0);
        assert!(matches!("0s".parse::<Budget>(), Err(SearchError::ZeroBudget)));
        for bad in ["", "s", "-3s", "3 parsecs", "nan", "1e99h"] {
            assert!(matches!(bad.parse::<Budget>(), Err(SearchError::BadBudget { .. })), "{bad}");
        }
    }
}
