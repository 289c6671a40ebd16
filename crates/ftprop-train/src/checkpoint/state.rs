//! Where training stands, as a checkpoint keeps it.

use ftprop_nn::Tally;
use serde::{Deserialize, Serialize};

/// Where training stands.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The epoch under way, counted from 1; one past the last when training is done.
    pub epoch: u32,
    /// The next batch of that epoch.
    pub batch: usize,
    /// Steps taken in all.
    pub step: u64,
    /// The epoch's tally so far.
    pub tally: ExactTally,
    /// The best epoch so far and its score.
    pub best: Option<Best>,
    /// How long the epoch has taken so far. Between epochs that is nothing, and is not written: files of runs that did
    /// the same must not differ.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub seconds: f64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_nothing(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// No epoch takes longer, in seconds: 30 years.
const LONGEST: f64 = 1e9;

impl State {
    /// Nothing is done yet.
    pub fn start() -> Self {
        State { epoch: 1, batch: 0, step: 0, tally: ExactTally::default(), best: None, seconds: 0.0 }
    }

    /// What no training can have come to, if it says that.
    pub(super) fn impossible(&self) -> Option<&'static str> {
        let ExactTally { examples, loss_sum_bits, top1, top5 } = self.tally;
        let loss = f64::from_bits(loss_sum_bits);
        if self.epoch == 0 {
            Some("epochs are counted from 1")
        } else if top1 > top5 || top5 > examples {
            Some("more examples are right than there were")
        } else if !loss.is_finite() || (examples == 0 && loss != 0.0) {
            Some("its loss is none")
        } else if self.batch == 0 && self.tally != ExactTally::default() {
            Some("there are examples of an epoch that has not begun")
        } else if self.best.is_some_and(|b| b.epoch == 0 || b.epoch >= self.epoch || !(0.0..=1.0).contains(&b.top1())) {
            Some("its best epoch is none")
        } else if !(0.0..=LONGEST).contains(&self.seconds) {
            Some("no epoch takes so long")
        } else {
            None
        }
    }
}

/// The epoch whose network is kept as the best, and its top-1 share as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Best {
    /// Counted from 1.
    pub epoch: u32,
    top1_bits: u64,
}

impl Best {
    /// An epoch and its score.
    pub fn new(epoch: u32, top1: f64) -> Self {
        Best { epoch, top1_bits: top1.to_bits() }
    }

    /// Its score, a fraction of 1.
    pub fn top1(&self) -> f64 {
        f64::from_bits(self.top1_bits)
    }
}

/// A tally whose sum comes back bit for bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExactTally {
    examples: u64,
    loss_sum_bits: u64,
    top1: u64,
    top5: u64,
}

impl From<Tally> for ExactTally {
    fn from(t: Tally) -> Self {
        ExactTally { examples: t.examples, loss_sum_bits: t.loss_sum.to_bits(), top1: t.top1, top5: t.top5 }
    }
}

impl From<ExactTally> for Tally {
    fn from(t: ExactTally) -> Self {
        Tally { examples: t.examples, loss_sum: f64::from_bits(t.loss_sum_bits), top1: t.top1, top5: t.top5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_written_within_an_epoch_only() {
        let between = State::start();
        let within = State { batch: 7, seconds: 1.5, ..between };
        let text = |state: &State| serde_json::to_string(state).unwrap();
        assert!(!text(&between).contains("seconds") && text(&within).contains("1.5"));
        for state in [between, within] {
            assert_eq!(serde_json::from_str::<State>(&text(&state)).unwrap(), state);
        }
    }

    #[test]
    fn impossible_states_are_noticed() {
        let tally = ExactTally { examples: 100, loss_sum_bits: 230f64.to_bits(), top1: 10, top5: 50 };
        let good = State { epoch: 3, batch: 7, step: 700, tally, best: Some(Best::new(2, 0.5)), seconds: 1.5 };
        assert_eq!(good.impossible(), None);
        assert_eq!(State::start().impossible(), None);
        let with = |tally| State { tally, ..good };
        let wrong = [
            with(ExactTally { examples: 0, ..tally }),
            with(ExactTally { top1: 51, ..tally }),
            with(ExactTally { loss_sum_bits: f64::NAN.to_bits(), ..tally }),
            State { epoch: 0, ..good },
            State { batch: 0, ..good },
            State { best: Some(Best::new(3, 0.5)), ..good },
            State { best: Some(Best::new(2, 11.39)), ..good },
            State { seconds: -1.0, ..good },
            State { seconds: 1e300, ..good },
            State { seconds: f64::NAN, ..good },
        ];
        for state in wrong {
            assert!(state.impossible().is_some(), "{state:?}");
        }
    }
}
