//! What it costs to give points one class or the other.

use super::hyperplanes::{Bits, put};
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
