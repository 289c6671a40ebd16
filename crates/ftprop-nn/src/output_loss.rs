//! The loss of the whole network: of the last layer's pre-activations and the labels.

use crate::NnError;
use std::fmt;
use std::str::FromStr;

/// A loss of an example's logits z and its class y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputLoss {
    /// −log softmax(z)_y
    CrossEntropy,
    /// Weston and Watkins: (1/K) Σ_{j≠y} max(0, 1 − z_y + z_j)
    MultiHinge,
    /// The same, squared terms.
    SquaredMultiHinge,
    /// Crammer and Singer: max(0, 1 − z_y + max_{j≠y} z_j)
    CrammerSinger,
    /// Each class against the rest: (1/K) Σ_j max(0, 1 − t_j z_j), t_j = +1 for the class and −1 otherwise
    OneVsRestHinge,
    /// The same, squared terms.
    SquaredOneVsRestHinge,
}

impl OutputLoss {
    /// Every loss, in the order in which they are listed to people.
    pub const ALL: [OutputLoss; 6] = [
        OutputLoss::CrossEntropy,
        OutputLoss::MultiHinge,
        OutputLoss::SquaredMultiHinge,
        OutputLoss::CrammerSinger,
        OutputLoss::OneVsRestHinge,
        OutputLoss::SquaredOneVsRestHinge,
    ];
}

impl fmt::Display for OutputLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutputLoss::CrossEntropy => "cross_entropy",
            OutputLoss::MultiHinge => "multi_hinge",
            OutputLoss::SquaredMultiHinge => "squared_multi_hinge",
            OutputLoss::CrammerSinger => "crammer_singer",
            OutputLoss::OneVsRestHinge => "one_vs_rest_hinge",
            OutputLoss::SquaredOneVsRestHinge => "squared_one_vs_rest_hinge",
        })
    }
}

impl FromStr for OutputLoss {
    type Err = NnError;
    fn from_str(text: &str) -> Result<Self, NnError> {
        OutputLoss::ALL.into_iter().find(|l| l.to_string() == text).ok_or_else(|| NnError::Name {
            what: "loss",
            name: text.into(),
            known: format!("known are {}", OutputLoss::ALL.map(|l| l.to_string()).join(", ")),
        })
    }
}

crate::names::serde_by_name!(OutputLoss);

/// What a batch, or an epoch of batches, amounts to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Examples counted.
    pub examples: u64,
    /// The sum of their losses.
    pub loss_sum: f64,
    /// Examples whose class has the largest logit.
    pub top1: u64,
    /// Examples whose class is among the five largest.
    pub top5: u64,
}

impl Tally {
    /// Counts another batch in.
    pub fn add(&mut self, other: &Tally) {
        self.examples += other.examples;
        self.loss_sum += other.loss_sum;
        self.top1 += other.top1;
        self.top5 += other.top5;
    }

    /// The mean loss of an example; 0 of none.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.examples.max(1) as f64
    }

    /// The share of examples whose class has the largest logit.
    pub fn top1_share(&self) -> f64 {
        self.top1 as f64 / self.examples.max(1) as f64
    }

    /// The share of examples whose class is among the five largest.
    pub fn top5_share(&self) -> f64 {
        self.top5 as f64 / self.examples.max(1) as f64
    }
}

/// A loss with label smoothing, ready to be applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    loss: OutputLoss,
    smoothing: f32,
}

impl Criterion {
    /// Smoothing moves that share of the probability from the label to all classes alike; cross entropy only.
    pub fn new(loss: OutputLoss, smoothing: f32) -> Result<Self, NnError> {
        if !(0.0..1.0).contains(&smoothing) {
            return Err(NnError::Setting(format!("label smoothing must be at least 0 and below 1, not {smoothing}")));
        }
        if smoothing > 0.0 && loss != OutputLoss::CrossEntropy {
            return Err(NnError::Setting(format!("label smoothing goes with cross_entropy, not with {loss}")));
        }
        Ok(Criterion { loss, smoothing })
    }

    /// Which loss.
    pub fn loss(&self) -> OutputLoss {
        self.loss
    }

    /// The share of the probability that all classes have alike.
    pub fn smoothing(&self) -> f32 {
        self.smoothing
    }

    /// Tallies a batch and, if asked, writes the slopes of the mean loss by the logits.
    pub fn apply(&self, logits: &[f32], labels: &[u32], classes: usize, slopes: Option<&mut [f32]>) -> Tally {
        self.apply_to_some(logits, labels, classes, labels.len(), slopes)
    }

    /// The same for some examples of a batch of `of`: the slopes are those of the mean over all of it.
    pub(crate) fn apply_to_some(
        &self,
        logits: &[f32],
        labels: &[u32],
        classes: usize,
        of: usize,
        mut slopes: Option<&mut [f32]>,
    ) -> Tally {
        let mut tally = Tally::default();
        let share = 1.0 / of as f32;
        for (i, (z, &label)) in logits.chunks_exact(classes).zip(labels).enumerate() {
            let y = label as usize;
            // Ranks count what is not below, so that a NaN or a tie never counts as right by accident.
            let rank = z.iter().enumerate().filter(|&(j, &v)| j != y && !(v < z[y] || (v == z[y] && j > y))).count();
            tally.examples += 1;
            tally.top1 += u64::from(rank < 1);
            tally.top5 += u64::from(rank < 5);
            let slopes = slopes.as_deref_mut().map(|s| &mut s[i * classes..(i + 1) * classes]);
            tally.loss_sum += self.one(z, y, share, slopes);
        }
        tally
    }

    /// One example's loss; its slopes are multiplied by `share`.
    fn one(&self, z: &[f32], y: usize, share: f32, slopes: Option<&mut [f32]>) -> f64 {
        let count = z.len() as f32;
        match self.loss {
            OutputLoss::CrossEntropy => {
                let most = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = z.iter().map(|&v| f64::from((v - most).exp())).sum();
                let log_sum = sum.ln() + f64::from(most);
                let (label, all) = (1.0 - self.smoothing, self.smoothing / count);
                if let Some(slopes) = slopes {
                    let scale = 1.0 / sum as f32;
                    for (j, (s, &v)) in slopes.iter_mut().zip(z).enumerate() {
                        let wanted = all + if j == y { label } else { 0.0 };
                        *s = ((v - most).exp() * scale - wanted) * share;
                    }
                }
                let mean = if all == 0.0 { 0.0 } else { z.iter().map(|&v| f64::from(v)).sum::<f64>() };
                log_sum - f64::from(label) * f64::from(z[y]) - f64::from(all) * mean
            }
            OutputLoss::MultiHinge | OutputLoss::SquaredMultiHinge => {
                let squared = self.loss == OutputLoss::SquaredMultiHinge;
                let violation = |j: usize| if j == y { 0.0 } else { (1.0 - z[y] + z[j]).max(0.0) };
                if let Some(slopes) = slopes {
                    let scale = share / count;
                    let mut total = 0.0;
                    for (j, slope) in slopes.iter_mut().enumerate() {
                        let v = violation(j);
                        *slope = scale * if squared { 2.0 * v } else { f32::from(v > 0.0) };
                        total += *slope;
                    }
                    slopes[y] = -total;
                }
                sum_of(z.len(), squared, violation) / f64::from(count)
            }
            OutputLoss::CrammerSinger => {
                let rival = (0..z.len()).filter(|&j| j != y).max_by(|&a, &b| z[a].total_cmp(&z[b]));
                let violation = rival.map_or(0.0, |j| (1.0 - z[y] + z[j]).max(0.0));
                if let Some(slopes) = slopes {
                    slopes.fill(0.0);
                    if let (Some(j), true) = (rival, violation > 0.0) {
                        slopes[j] = share;
                        slopes[y] = -share;
                    }
                }
                f64::from(violation)
            }
            OutputLoss::OneVsRestHinge | OutputLoss::SquaredOneVsRestHinge => {
                let squared = self.loss == OutputLoss::SquaredOneVsRestHinge;
                let target = |j: usize| if j == y { 1.0 } else { -1.0 };
                let violation = |j: usize| (1.0 - target(j) * z[j]).max(0.0);
                if let Some(slopes) = slopes {
                    for (j, slope) in slopes.iter_mut().enumerate() {
                        let v = violation(j);
                        *slope = -target(j) * share / count * if squared { 2.0 * v } else { f32::from(v > 0.0) };
                    }
                }
                sum_of(z.len(), squared, violation) / f64::from(count)
            }
        }
    }
}

fn sum_of(count: usize, squared: bool, violation: impl Fn(usize) -> f32) -> f64 {
    (0..count).map(|j| f64::from(violation(j))).map(|v| if squared { v * v } else { v }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::random::Stream;

    #[test]
    fn slopes_are_those_of_the_mean_loss() {
        let s = Stream::numbered(12);
        let (n, classes) = (6, 7);
        let z: Vec<f32> = (0..n * classes).map(|i| s.uniform(i as u64) * 4.0 - 2.0).collect();
        let labels: Vec<u32> = (0..n).map(|i| s.below(500 + i as u64, classes as u64) as u32).collect();
        for loss in OutputLoss::ALL {
            for smoothing in [0.0, 0.1] {
                let Ok(criterion) = Criterion::new(loss, smoothing) else {
                    assert!(loss != OutputLoss::CrossEntropy && smoothing > 0.0);
                    continue;
                };
                let mut slopes = vec![f32::NAN; z.len()];
                criterion.apply(&z, &labels, classes, Some(&mut slopes));
                for i in 0..z.len() {
                    let at = |delta: f32| {
                        let mut moved = z.clone();
                        moved[i] += delta;
                        criterion.apply(&moved, &labels, classes, None).loss()
                    };
                    let numerical = (at(1e-2) - at(-1e-2)) / 2e-2;
                    assert!((f64::from(slopes[i]) - numerical).abs() < 2e-3, "{loss} {smoothing} at {i}");
                }
            }
        }
    }

    #[test]
    fn ties_and_nans_are_not_counted_as_right() {
        let c = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
        let tally = |z: &[f32], y: u32| {
            let t = c.apply(z, &[y], z.len(), None);
            (t.top1, t.top5)
        };
        // Of equals the first counts as predicted.
        assert_eq!((tally(&[1.0, 1.0], 0), tally(&[1.0, 1.0], 1)), ((1, 1), (0, 1)));
        assert_eq!(tally(&[f32::NAN; 9], 0), (0, 0));
        assert_eq!(tally(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0], 4), (0, 1));
        assert_eq!(tally(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0], 5), (0, 0));
    }

    #[test]
    fn cross_entropy_survives_large_logits() {
        let c = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
        let t = c.apply(&[1e4, -1e4, 0.0], &[0], 3, None);
        assert!(t.loss().is_finite() && Criterion::new(OutputLoss::CrossEntropy, 1.0).is_err());
    }
}
