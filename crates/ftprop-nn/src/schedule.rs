//! How the learning rate changes over training.

use crate::NnError;
use serde::{Deserialize, Serialize};

/// A schedule as a recipe writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Schedule {
    /// By which curve.
    pub kind: ScheduleKind,
    /// `step`: the epochs, counted from 1, from whose start on the rate is multiplied by `factor` (again).
    pub decay_at: Vec<u32>,
    /// `step` and `plateau`: what the rate is multiplied by each time.
    pub factor: f64,
    /// `cosine`, `linear` and `one_cycle`: where it ends, as a share of the learning rate; `plateau`: the least.
    pub floor: f64,
    /// `plateau`: epochs without a better one on the validation part after which the rate is multiplied by `factor`.
    #[serde(skip_serializing_if = "is_usual")]
    pub patience: u32,
    /// Epochs over which the rate first rises linearly, for any kind.
    pub warmup: f64,
}

/// The curve that a learning rate follows after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// The same rate throughout.
    Constant,
    /// Multiplied by a factor at the start of chosen epochs.
    Step,
    /// Down half a cosine wave to the floor.
    Cosine,
    /// Down a straight line to the floor.
    Linear,
    /// Up half a cosine wave from a 25th for three tenths of the run, then down another to the floor.
    OneCycle,
    /// Multiplied by a factor whenever so many epochs brought none that was better on the validation part.
    Plateau,
}

/// Epochs that a plateau has unless it is told.
const PATIENCE: u32 = 5;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_usual(patience: &u32) -> bool {
    *patience == PATIENCE
}

/// The share of a run in which the rate of one cycle rises, and where it begins.
const RISE: f64 = 0.3;
const BEGINNING: f64 = 0.04;

impl Default for Schedule {
    fn default() -> Self {
        Schedule {
            kind: ScheduleKind::Constant,
            decay_at: Vec::new(),
            factor: 0.1,
            floor: 0.0,
            patience: PATIENCE,
            warmup: 0.0,
        }
    }
}

impl Schedule {
    /// What is wrong with it for a run of so many epochs, if anything.
    pub fn check(&self) -> Result<(), NnError> {
        let bad = |what: String| Err(NnError::Setting(what));
        if !(self.factor > 0.0 && self.factor.is_finite()) {
            return bad(format!("schedule.factor must be positive, not {}", self.factor));
        }
        if !(0.0..=1.0).contains(&self.floor) {
            return bad(format!("schedule.floor must be between 0 and 1, not {}", self.floor));
        }
        if !(self.warmup >= 0.0 && self.warmup.is_finite()) {
            return bad(format!("schedule.warmup must be at least 0 epochs, not {}", self.warmup));
        }
        if self.decay_at.contains(&0) {
            return bad("schedule.decay_at counts epochs from 1".into());
        }
        if self.kind != ScheduleKind::Step && !self.decay_at.is_empty() {
            return bad("schedule.decay_at goes with schedule.kind = \"step\"".into());
        }
        if self.kind == ScheduleKind::Plateau && self.factor >= 1.0 {
            return bad(format!("schedule.factor must be below 1 for a plateau, not {}", self.factor));
        }
        if self.patience == 0 {
            return bad("schedule.patience must be at least 1 epoch".into());
        }
        if self.kind != ScheduleKind::Plateau && self.patience != PATIENCE {
            return bad(
                "schedule.patience goes with schedule.kind = \"plateau\"; to end training early set train.patience"
                    .into(),
            );
        }
        if self.kind == ScheduleKind::OneCycle && self.warmup > 0.0 {
            return bad("schedule.warmup does not go with schedule.kind = \"one_cycle\", which rises by itself".into());
        }
        Ok(())
    }

    /// What the learning rate is multiplied by at a step of an epoch (counted from 1) of so many.
    pub fn factor_at(&self, epoch: u32, step: usize, steps_per_epoch: usize, epochs: u32) -> f64 {
        let done = f64::from(epoch - 1) + step as f64 / steps_per_epoch as f64;
        if done < self.warmup {
            // The first step is not at zero.
            return (done + 1.0 / steps_per_epoch as f64).min(self.warmup) / self.warmup;
        }
        match self.kind {
            ScheduleKind::Constant | ScheduleKind::Plateau => 1.0,
            ScheduleKind::Step => {
                self.factor.powi(self.decay_at.iter().filter(|&&start| epoch >= start).count() as i32)
            }
            ScheduleKind::Cosine | ScheduleKind::Linear => {
                let span = (f64::from(epochs) - self.warmup).max(f64::MIN_POSITIVE);
                let share = ((done - self.warmup) / span).clamp(0.0, 1.0);
                match self.kind {
                    ScheduleKind::Linear => self.floor + (1.0 - self.floor) * (1.0 - share),
                    _ => falling(self.floor, share),
                }
            }
            ScheduleKind::OneCycle => {
                let share = (done / f64::from(epochs)).clamp(0.0, 1.0);
                match share < RISE {
                    true => falling(BEGINNING, 1.0 - share / RISE),
                    false => falling(self.floor, (share - RISE) / (1.0 - RISE)),
                }
            }
        }
    }

    /// What a plateau's rate is multiplied by after epochs with these scores on the validation part, where more is better:
    /// once for each time that its patience went by without a better one. 1 for any other kind. Each epoch comes with the
    /// schedule that it had: what was decided by another one stays, and a plateau begins where the kind before was another.
    pub fn cut<'a>(&self, epochs: impl Iterator<Item = (&'a Schedule, f64)>) -> f64 {
        if self.kind != ScheduleKind::Plateau {
            return 1.0;
        }
        let begin = (f64::NEG_INFINITY, 0, 1.0);
        let (mut best, mut waited, mut factor) = begin;
        for (then, score) in epochs {
            if then.kind != ScheduleKind::Plateau {
                (best, waited, factor) = begin;
                continue;
            }
            waited += 1;
            if score > best {
                (best, waited) = (score, 0);
            } else if waited >= then.patience {
                (factor, waited) = (f64::max(factor * then.factor, then.floor), 0);
            }
        }
        f64::max(factor, self.floor)
    }

    /// The same schedule for a run of another length: whenever something changes, the same share of the whole is done.
    /// What would change after the end of a very short run is left out, and where that is everything the rate is constant.
    pub fn scaled(&self, from: u32, to: u32) -> Self {
        let scale = f64::from(to) / f64::from(from);
        let begins = |&epoch: &u32| (f64::from(epoch.saturating_sub(1)) * scale).round() as u32 + 1;
        let decay_at: Vec<u32> = self.decay_at.iter().map(begins).collect();
        let warmup = self.warmup * scale;
        // What never came in the whole run is somebody's mistake, and stays to be told.
        if self.decay_at.iter().all(|&epoch| epoch > from) {
            return Schedule { decay_at, warmup, ..self.clone() };
        }
        let decay_at: Vec<u32> = decay_at.into_iter().filter(|&epoch| epoch <= to).collect();
        match decay_at.is_empty() {
            // A kind and a factor that nothing comes of would be told as a mistake, and are none.
            true => Schedule { warmup, ..Schedule::default() },
            false => Schedule { decay_at, warmup, ..self.clone() },
        }
    }
}

/// Half a cosine wave from 1 down to a floor.
fn falling(floor: f64, share: f64) -> f64 {
    floor + (1.0 - floor) * 0.5 * (1.0 + (std::f64::consts::PI * share).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_begin_with_the_listed_epoch() {
        let s = Schedule { kind: ScheduleKind::Step, decay_at: vec![200, 250], ..Schedule::default() };
        let at = |epoch| s.factor_at(epoch, 0, 10, 300);
        assert_eq!((at(1), at(199), at(200)), (1.0, 1.0, 0.1));
        assert!((at(250) - 0.01).abs() < 1e-15 && (at(300) - 0.01).abs() < 1e-15);
        for (epochs, decay_at) in
            [(300, vec![200, 250]), (30, vec![21, 26]), (10, vec![8, 9]), (2, vec![2]), (1, vec![])]
        {
            assert_eq!(s.scaled(300, epochs).decay_at, decay_at, "{epochs} epochs");
        }
        let halved = Schedule { factor: 0.5, warmup: 30.0, ..s };
        assert_eq!(halved.scaled(300, 1), Schedule { warmup: 0.1, ..Schedule::default() });
        let late = Schedule { decay_at: vec![301, 400], ..halved };
        assert_eq!(late.scaled(300, 30).decay_at, [31, 41]);
    }

    #[test]
    fn warm_up_rises_and_cosine_falls() {
        let s = Schedule { kind: ScheduleKind::Cosine, warmup: 2.0, floor: 0.1, ..Schedule::default() };
        let all: Vec<f64> = (0..100).map(|i| s.factor_at(1 + i / 10, i as usize % 10, 10, 10)).collect();
        assert_eq!((all[0], all[19], all[20]), (0.05, 1.0, 1.0));
        assert!(all[..20].windows(2).all(|w| w[0] < w[1]) && all[20..].windows(2).all(|w| w[0] > w[1]));
        assert!(all[99] > 0.1 && all[99] < 0.11);
    }

    #[test]
    fn a_straight_line_ends_at_the_floor() {
        let s = Schedule { kind: ScheduleKind::Linear, floor: 0.2, ..Schedule::default() };
        let at = |epoch| s.factor_at(epoch, 0, 10, 4);
        for (epoch, expected) in [(1, 1.0), (2, 0.8), (3, 0.6), (4, 0.4), (5, 0.2)] {
            assert!((at(epoch) - expected).abs() < 1e-12, "{epoch}");
        }
    }

    #[test]
    fn one_cycle_rises_and_falls() {
        let s = Schedule { kind: ScheduleKind::OneCycle, floor: 0.001, ..Schedule::default() };
        let all: Vec<f64> = (0..100).map(|i| s.factor_at(1 + i / 10, i as usize % 10, 10, 10)).collect();
        assert!((all[0] - 0.04).abs() < 1e-12 && (all[30] - 1.0).abs() < 1e-12 && all[99] < 0.01, "{all:?}");
        assert!(all[..31].windows(2).all(|w| w[0] < w[1]) && all[30..].windows(2).all(|w| w[0] > w[1]));
    }

    #[test]
    fn a_plateau_cuts_the_rate_each_time_that_patience_ends() {
        let s = Schedule { kind: ScheduleKind::Plateau, factor: 0.5, patience: 2, floor: 0.2, ..Schedule::default() };
        let scores = [0.1, 0.2, 0.2, 0.15, 0.3, 0.3, 0.3, 0.1, 0.1, 0.1];
        let cuts: Vec<f64> =
            (0..=scores.len()).map(|done| s.cut(scores[..done].iter().map(|&score| (&s, score)))).collect();
        assert_eq!(cuts, [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2]);
        assert_eq!(s.factor_at(7, 3, 10, 9), 1.0);
        let other = Schedule { kind: ScheduleKind::Constant, ..s.clone() };
        assert_eq!(other.cut(scores.into_iter().map(|score| (&s, score))), 1.0);
    }

    #[test]
    fn what_a_plateau_decided_stays_when_it_changes() {
        let before = Schedule { kind: ScheduleKind::Plateau, factor: 0.5, patience: 2, ..Schedule::default() };
        // Cut twice, and one epoch waited.
        let scores = [0.3, 0.2, 0.2, 0.2, 0.2, 0.2];
        let cut = |now: &Schedule, others: &[f64]| {
            let past = scores.iter().map(|&score| (&before, score));
            now.cut(past.chain(others.iter().map(|&score| (now, score))))
        };
        let steeper = Schedule { factor: 0.1, ..before.clone() };
        assert_eq!([cut(&steeper, &[]), cut(&steeper, &[0.2]), cut(&before, &[0.2])], [0.25, 0.25 * 0.1, 0.125]);
        let hasty = Schedule { patience: 1, ..before.clone() };
        assert_eq!([cut(&hasty, &[]), cut(&hasty, &[0.2]), cut(&hasty, &[0.4])], [0.25, 0.125, 0.25]);
        let held = Schedule { floor: 0.3, ..before.clone() };
        assert_eq!(cut(&held, &[]), 0.3);
        // A floor that was there held what went by it.
        assert_eq!(before.cut(scores.iter().map(|&score| (&held, score))), 0.3);
        // After another kind it begins.
        let constant = Schedule::default();
        let waits = |more: usize| before.cut(scores.iter().map(|&s| (&constant, s)).chain(vec![(&before, 0.1); more]));
        assert_eq!([waits(0), waits(2), waits(3)], [1.0, 1.0, 0.5]);
    }

    #[test]
    fn nonsense_is_refused() {
        for s in [
            Schedule { kind: ScheduleKind::Plateau, factor: 1.0, ..Schedule::default() },
            Schedule { kind: ScheduleKind::Plateau, patience: 0, ..Schedule::default() },
            Schedule { patience: 3, ..Schedule::default() },
            Schedule { kind: ScheduleKind::OneCycle, warmup: 1.0, ..Schedule::default() },
            Schedule { factor: 0.0, ..Schedule::default() },
            Schedule { warmup: -1.0, ..Schedule::default() },
            Schedule { decay_at: vec![3], ..Schedule::default() },
            Schedule { kind: ScheduleKind::Step, decay_at: vec![0], ..Schedule::default() },
        ] {
            assert!(s.check().is_err(), "{s:?}");
        }
    }
}
