//! The loss of the whole network: of the last layer's pre-activations and the labels.

mod curvature;

use crate::NnError;
use crate::mixing::Mixing;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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

/// A loss as a multiple of 2⁻³⁰, less than a billionth away. Sums of such multiples are exact up to eight millions, so the
/// loss of an epoch has the same bits however its examples were divided into batches, among ranks, and into what was
/// counted at once, which goes by the clock.
fn on_grid(loss: f64) -> f64 {
    const GRID: f64 = (1u64 << 30) as f64;
    (loss * GRID).round() / GRID
}

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

/// A loss with label smoothing, ready to be applied; for learning also with weights of classes and mixed examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Criterion {
    loss: OutputLoss,
    smoothing: f32,
    weights: Option<Arc<[f32]>>,
    mixing: Option<Mixing>,
}

/// What one example's loss is made of: each label's share times its class's weight.
#[derive(Clone, Copy)]
struct Target {
    /// The example's own label, and that of the example that it is mixed with.
    labels: [usize; 2],
    weights: [f32; 2],
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
        Ok(Criterion { loss, smoothing, weights: None, mixing: None })
    }

    /// The same, but in learning an example's loss is multiplied by the weight of its class.
    pub fn with_class_weights(mut self, weights: Vec<f32>) -> Result<Self, NnError> {
        if let Some(wrong) = weights.iter().find(|w| !(**w >= 0.0 && w.is_finite())) {
            return Err(NnError::Setting(format!("the weight of a class must be 0 or more, not {wrong}")));
        }
        if weights.iter().all(|&w| w == 0.0) {
            return Err(NnError::Setting("the weights of all classes are 0: nothing would be learned".into()));
        }
        self.weights = Some(weights.into());
        Ok(self)
    }

    /// The same, but in learning examples are mixed, and their labels with them; cross entropy only.
    pub fn with_mixing(mut self, mixing: Option<Mixing>) -> Result<Self, NnError> {
        if mixing.is_some() && self.loss != OutputLoss::CrossEntropy {
            return Err(NnError::Setting(format!("mixup and cutmix go with cross_entropy, not with {}", self.loss)));
        }
        self.mixing = mixing;
        Ok(self)
    }

    /// Checks that it is one for so many classes.
    pub fn check_classes(&self, classes: usize) -> Result<(), NnError> {
        match &self.weights {
            Some(weights) if weights.len() != classes => {
                let got = weights.len();
                Err(NnError::Setting(format!("{got} weights of classes where there are {classes} classes")))
            }
            _ => Ok(()),
        }
    }

    /// The weights of the classes, where they have any.
    pub fn class_weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// How examples are mixed, where they are.
    pub fn mixing(&self) -> Option<Mixing> {
        self.mixing
    }

    /// Which loss.
    pub fn loss(&self) -> OutputLoss {
        self.loss
    }

    /// The share of the probability that all classes have alike.
    pub fn smoothing(&self) -> f32 {
        self.smoothing
    }

    /// Tallies a batch and, if asked, writes the slopes of the mean loss by the logits. Classes have no weights here, and
    /// nothing is mixed: this is what examples are measured by.
    pub fn apply(&self, logits: &[f32], labels: &[u32], classes: usize, slopes: Option<&mut [f32]>) -> Tally {
        self.tally(logits, labels, classes, labels.len(), slopes, |i| Target {
            labels: [labels[i] as usize; 2],
            weights: [1.0, 0.0],
        })
    }

    /// The same for learning, of examples that keep this share of their own label: the rest goes to the label of the
    /// example as far from the other end of the batch. Classes have their weights. An example counts as right where the
    /// label with the larger share has the largest logit. The slopes are those of the mean over `of` examples, of which
    /// these may be some.
    pub fn learn(
        &self,
        logits: &[f32],
        labels: &[u32],
        classes: usize,
        (keep, of): (f32, usize),
        slopes: Option<&mut [f32]>,
    ) -> Tally {
        self.tally(logits, labels, classes, of, slopes, |i| self.learned(labels, keep, i))
    }

    /// Each example's loss in learning.
    pub(crate) fn losses(&self, logits: &[f32], labels: &[u32], keep: f32) -> Vec<f64> {
        let rows = logits.chunks_exact(logits.len() / labels.len().max(1)).enumerate();
        rows.map(|(i, z)| self.of_example(z, self.learned(labels, keep, i), 1.0, None)).collect()
    }

    /// What the loss of an example is made of in learning, where examples keep this share of their own label.
    fn learned(&self, labels: &[u32], keep: f32, i: usize) -> Target {
        let weight = |label: usize| self.weights.as_deref().map_or(1.0, |weights| weights[label]);
        let own = labels[i] as usize;
        if keep == 1.0 {
            return Target { labels: [own; 2], weights: [weight(own), 0.0] };
        }
        let other = labels[labels.len() - 1 - i] as usize;
        let shares = [(own, keep), (other, 1.0 - keep)];
        // The label with the larger share first: it is the one that is counted.
        let [a, b] = if keep >= 0.5 { shares } else { [shares[1], shares[0]] };
        Target { labels: [a.0, b.0], weights: [a.1 * weight(a.0), b.1 * weight(b.0)] }
    }

    fn tally(
        &self,
        logits: &[f32],
        labels: &[u32],
        classes: usize,
        of: usize,
        mut slopes: Option<&mut [f32]>,
        target: impl Fn(usize) -> Target,
    ) -> Tally {
        let mut tally = Tally::default();
        let share = 1.0 / of as f32;
        for (i, z) in logits.chunks_exact(classes).take(labels.len()).enumerate() {
            let target = target(i);
            let y = target.labels[0];
            // Ranks count what is not below, so that a NaN or a tie never counts as right by accident.
            let rank = z.iter().enumerate().filter(|&(j, &v)| j != y && !(v < z[y] || (v == z[y] && j > y))).count();
            tally.examples += 1;
            tally.top1 += u64::from(rank < 1);
            tally.top5 += u64::from(rank < 5);
            let slopes = slopes.as_deref_mut().map(|s| &mut s[i * classes..(i + 1) * classes]);
            tally.loss_sum += on_grid(self.of_example(z, target, share, slopes));
        }
        tally
    }

    /// One example's loss; its slopes are multiplied by `share`.
    fn of_example(&self, z: &[f32], target: Target, share: f32, slopes: Option<&mut [f32]>) -> f64 {
        let weight = target.weights[0];
        match self.loss {
            OutputLoss::CrossEntropy => self.cross_entropy(z, target, share, slopes),
            _ => f64::from(weight) * self.hinge(z, target.labels[0], share * weight, slopes),
        }
    }

    /// One example's cross entropy; its slopes are multiplied by `share`.
    fn cross_entropy(&self, z: &[f32], target: Target, share: f32, slopes: Option<&mut [f32]>) -> f64 {
        let Target { labels: [y, other], weights: [a, b] } = target;
        let whole = a + b;
        let most = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = z.iter().map(|&v| f64::from((v - most).exp())).sum();
        let log_sum = sum.ln() + f64::from(most);
        let (label, all) = (1.0 - self.smoothing, self.smoothing / z.len() as f32);
        if let Some(slopes) = slopes {
            let scale = 1.0 / sum as f32;
            for (j, (s, &v)) in slopes.iter_mut().zip(z).enumerate() {
                let own = if j == y { label * a } else { 0.0 };
                let wanted = all * whole + own + if j == other { label * b } else { 0.0 };
                *s = ((v - most).exp() * scale * whole - wanted) * share;
            }
        }
        let mean = if all == 0.0 { 0.0 } else { z.iter().map(|&v| f64::from(v)).sum::<f64>() };
        let [a, b, whole] = [a, b, whole].map(f64::from);
        let shown = a * f64::from(z[y]) + if b == 0.0 { 0.0 } else { b * f64::from(z[other]) };
        whole * log_sum - f64::from(label) * shown - f64::from(all) * whole * mean
    }

    /// One example's loss by any loss but cross entropy; its slopes are multiplied by `share`.
    fn hinge(&self, z: &[f32], y: usize, share: f32, slopes: Option<&mut [f32]>) -> f64 {
        let count = z.len() as f32;
        match self.loss {
            OutputLoss::CrossEntropy => unreachable!("cross entropy has a function of its own"),
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
    fn a_loss_does_not_depend_on_how_examples_are_counted_together() {
        let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
        let random = Stream::numbered(9);
        let logits: Vec<f32> = (0..3000).map(|i| 3.0 * random.normal(i)).collect();
        let labels: Vec<u32> = (0..1000).map(|i| i % 3).collect();
        let counted = |at_once: usize| {
            let mut tally = Tally::default();
            for (z, y) in logits.chunks(3 * at_once).zip(labels.chunks(at_once)) {
                tally.add(&criterion.apply(z, y, 3, None));
            }
            tally
        };
        for at_once in [1, 7, 33, 400] {
            assert_eq!(counted(at_once), counted(1000), "{at_once} at once");
        }
    }

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
    fn slopes_follow_weights_and_mixed_labels() {
        let s = Stream::numbered(13);
        let (n, classes) = (5, 4);
        let z: Vec<f32> = (0..n * classes).map(|i| s.uniform(i as u64) * 4.0 - 2.0).collect();
        let labels: Vec<u32> = (0..n).map(|i| s.below(500 + i as u64, classes as u64) as u32).collect();
        let weights = vec![0.25, 2.0, 0.0, 1.5];
        for loss in OutputLoss::ALL {
            for keep in [1.0, 0.7, 0.2] {
                let smoothing = if loss == OutputLoss::CrossEntropy { 0.1 } else { 0.0 };
                if keep < 1.0 && loss != OutputLoss::CrossEntropy {
                    continue;
                }
                let criterion = Criterion::new(loss, smoothing).unwrap();
                let weighted = criterion.clone().with_class_weights(weights.clone()).unwrap();
                let mut slopes = vec![f32::NAN; z.len()];
                let tally = weighted.learn(&z, &labels, classes, (keep, n), Some(&mut slopes));
                // One example at a time, by the loss that everything is measured by.
                let of = |i: usize, label: u32| criterion.apply(&z[i * classes..][..classes], &[label], classes, None);
                let mut expected = 0.0;
                for i in 0..n {
                    let (own, other) = (labels[i], labels[n - 1 - i]);
                    expected += f64::from(keep * weights[own as usize]) * of(i, own).loss_sum;
                    expected += f64::from((1.0 - keep) * weights[other as usize]) * of(i, other).loss_sum;
                }
                assert!((tally.loss_sum - expected).abs() < 1e-5, "{loss} {keep}: {} {expected}", tally.loss_sum);
                for i in 0..z.len() {
                    let at = |delta: f32| {
                        let mut moved = z.clone();
                        moved[i] += delta;
                        weighted.learn(&moved, &labels, classes, (keep, n), None).loss()
                    };
                    let numerical = (at(1e-2) - at(-1e-2)) / 2e-2;
                    assert!((f64::from(slopes[i]) - numerical).abs() < 2e-3, "{loss} {keep} at {i}");
                }
                // What everything is measured by knows neither.
                assert_eq!(weighted.apply(&z, &labels, classes, None), criterion.apply(&z, &labels, classes, None));
            }
        }
        let criterion = Criterion::new(OutputLoss::MultiHinge, 0.0).unwrap();
        assert!(criterion.clone().with_mixing(Mixing::new(0.2, 0.0).unwrap()).is_err());
        assert!(criterion.clone().with_class_weights(vec![0.0; 3]).is_err());
        assert!(criterion.clone().with_class_weights(vec![1.0, f32::NAN]).is_err());
        let weighted = criterion.with_class_weights(vec![1.0; 3]).unwrap();
        assert!(weighted.check_classes(3).is_ok() && weighted.check_classes(4).is_err());
    }

    #[test]
    fn unmixed_and_unweighted_learning_is_measuring_bit_for_bit() {
        let s = Stream::numbered(14);
        let z: Vec<f32> = (0..9 * 11).map(|i| s.uniform(i as u64) * 9.0 - 4.0).collect();
        let labels: Vec<u32> = (0..9).map(|i| s.below(500 + i, 11) as u32).collect();
        for loss in OutputLoss::ALL {
            let criterion = Criterion::new(loss, 0.0).unwrap();
            let (mut one, mut two) = (vec![0.0; z.len()], vec![0.0; z.len()]);
            let first = criterion.apply(&z, &labels, 11, Some(&mut one));
            assert_eq!((first, &one), (criterion.learn(&z, &labels, 11, (1.0, 9), Some(&mut two)), &two));
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
