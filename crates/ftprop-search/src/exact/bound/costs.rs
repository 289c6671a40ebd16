//! What it costs to give points one class or the other.

use super::hyperplanes::{Bits, holds, put};
use crate::points::Labelled;

/// Whole numbers of at least zero, one a point, by binary digit: so sums over sets are counts of bits.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    digits: Vec<Bits>,
    pub(super) total: usize,
}

impl Weights {
    pub(super) fn new(weights: &[usize]) -> Self {
        let most = weights.iter().max().copied().unwrap_or(0);
        let planes = (usize::BITS - most.leading_zeros()) as usize;
        let plane = |digit: usize| {
            let mut bits = vec![0; weights.len().div_ceil(64)];
            weights.iter().enumerate().filter(|(_, w)| *w >> digit & 1 == 1).for_each(|(at, _)| put(&mut bits, at));
            bits
        };
        Weights { digits: (0..planes).map(plane).collect(), total: weights.iter().sum() }
    }

    /// The sum over a set whose words are given one by one.
    pub(super) fn sum(&self, word: impl Fn(usize) -> u64) -> usize {
        let one = |(digit, plane): (usize, &Bits)| {
            let count: u32 = plane.iter().enumerate().map(|(at, bits)| (bits & word(at)).count_ones()).sum();
            (count as usize) << digit
        };
        self.digits.iter().enumerate().map(one).sum()
    }
}

/// Distinct points of two classes, with how many instances of each class they stand for.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    /// The first instance of each point.
    pub(crate) firsts: Vec<usize>,
    /// The point of each instance.
    pub(crate) group_of: Vec<usize>,
    /// Instances of the two classes.
    pub(crate) counts: Vec<[usize; 2]>,
}

impl Groups {
    pub(crate) fn new(data: &Labelled) -> Self {
        let (group_of, firsts) = data.points.distinct();
        let mut counts = vec![[0; 2]; firsts.len()];
        group_of.iter().zip(&data.labels).for_each(|(&group, &label)| counts[group][label] += 1);
        Groups { firsts, group_of, counts }
    }
}

/// Which points should be inside, and what it costs more if they are not where they should be.
pub(super) struct Wish {
    pub(super) inside: Bits,
    /// Regret of points outside that should be inside.
    pub(super) missing: Weights,
    /// The same, point by point.
    pub(super) weights: Vec<i64>,
    /// Regret of points inside that should be outside.
    pub(super) extra: Weights,
    /// What contradicting labels cost in any case.
    pub(super) floor: usize,
}

impl Wish {
    pub(super) fn new(counts: &[[usize; 2]], inner: usize) -> Self {
        let (mut inside, mut missing, mut extra) = (vec![0; counts.len().div_ceil(64)], vec![], vec![]);
        for (at, count) in counts.iter().enumerate() {
            let (gain, loss) = (count[inner], count[1 - inner]);
            missing.push(gain.saturating_sub(loss));
            extra.push(loss.saturating_sub(gain));
            if gain > loss {
                put(&mut inside, at);
            }
        }
        let floor = counts.iter().map(|count| count[0].min(count[1])).sum();
        let weights = missing.iter().map(|&weight| weight as i64).collect();
        Wish { inside, missing: Weights::new(&missing), weights, extra: Weights::new(&extra), floor }
    }

    /// The wish for some of the points.
    pub(super) fn part(&self, points: &[usize]) -> Wish {
        let mut inside = vec![0; points.len().div_ceil(64)];
        (0..points.len()).filter(|&at| holds(&self.inside, points[at])).for_each(|at| put(&mut inside, at));
        let weights = vec![0; points.len()];
        Wish { inside, missing: Weights::new(&[]), weights, extra: Weights::new(&[]), floor: 0 }
    }
}
