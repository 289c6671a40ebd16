//! Which classes a network takes for which.

use crate::model::ranked;
use serde::Serialize;

/// How often each class was taken for each.
///
/// ```
/// use ftprop_train::confusion::Confusion;
///
/// let mut confusion = Confusion::new(2);
/// // Two examples of class 0 and one of class 1; the second is taken for class 1.
/// confusion.add(&[0, 0, 1], &[2.0, 1.0, 0.0, 3.0, 0.5, 0.6]);
/// assert_eq!(confusion.row(0), [1, 1]);
/// let one = confusion.class(1);
/// assert_eq!((one.examples, one.precision, one.recall), (1, 0.5, 1.0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// A row for each true class, with a count for each answer.
    counts: Vec<u64>,
}

/// How well a class is told from the others; fractions of 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ClassScores {
    /// Examples that are of this class.
    pub examples: u64,
    /// Of those that were taken for it, the share that are; 0 if none was.
    pub precision: f64,
    /// Of those that are, the share that were taken for it; 0 if there are none.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
}

impl Confusion {
    /// Of so many classes, before anything is counted.
    pub fn new(classes: usize) -> Self {
        Confusion { classes, counts: vec![0; classes * classes] }
    }

    /// Counts some examples, by their classes and what the network says of them.
    pub fn add(&mut self, labels: &[u32], logits: &[f32]) {
        for (&label, logits) in labels.iter().zip(logits.chunks_exact(self.classes)) {
            let answer = ranked(logits).first().map_or(0, |(class, _)| *class);
            self.counts[label as usize * self.classes + answer] += 1;
        }
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// What the examples of a class were taken for.
    pub fn row(&self, class: usize) -> &[u64] {
        &self.counts[class * self.classes..(class + 1) * self.classes]
    }

    /// The scores of a class.
    pub fn class(&self, class: usize) -> ClassScores {
        let right = self.row(class)[class];
        let examples: u64 = self.row(class).iter().sum();
        let answers: u64 = (0..self.classes).map(|other| self.row(other)[class]).sum();
        let share = |of: u64, all: u64| if all == 0 { 0.0 } else { of as f64 / all as f64 };
        let (precision, recall) = (share(right, answers), share(right, examples));
        ClassScores { examples, precision, recall, f1: share(2 * right, examples + answers) }
    }

    /// The mean F1 of the classes that have examples.
    pub fn mean_f1(&self) -> f64 {
        let scores: Vec<f64> =
            (0..self.classes).map(|class| self.class(class)).filter(|s| s.examples > 0).map(|s| s.f1).collect();
        scores.iter().sum::<f64>() / scores.len().max(1) as f64
    }

    /// Mistakes from the most frequent on: the class, what it was taken for, how often.
    pub fn mistakes(&self) -> Vec<(usize, usize, u64)> {
        let pairs = (0..self.classes).flat_map(|class| (0..self.classes).map(move |answer| (class, answer)));
        let mut all: Vec<_> = pairs
            .filter(|(class, answer)| class != answer)
            .map(|(class, answer)| (class, answer, self.row(class)[answer]))
            .filter(|(_, _, count)| *count > 0)
            .collect();
        all.sort_by_key(|&(class, answer, count)| (std::cmp::Reverse(count), class, answer));
        all
    }
}
