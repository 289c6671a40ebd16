//! What units with float weights say about instances, exactly: in floats wherever rounding cannot change it, else in
//! whole numbers. A search that judges by rounded sums would take a loss for lower than it is, and stop.

use crate::exact::{exact_argmax, exact_outputs};
use crate::points::Points;
use crate::rational::Rational;

/// w · x + b in floating point.
pub(crate) fn pre_activation(weights: &[f64], row: &[f64]) -> f64 {
    let (bias, linear) = weights.split_last().expect("a unit has a bias");
    linear.iter().zip(row).map(|(w, x)| w * x).sum::<f64>() + bias
}

/// The class that the output units' pre-activations mean.
pub(crate) fn class_of(scores: &[f64]) -> usize {
    if let [score] = scores {
        return usize::from(*score > 0.0);
    }
    (0..scores.len()).reduce(|best, unit| if scores[unit] > scores[best] { unit } else { best }).unwrap_or(0)
}

/// A unit whose sums are computed in floats, with what rounding can do to them.
struct Rough<'a> {
    weights: &'a [f64],
    /// Of the sum of all magnitudes, so much may be lost: in the instances, the products and the additions.
    relative: f64,
    /// And so much where numbers are too small for floats of full precision.
    absolute: f64,
}

impl<'a> Rough<'a> {
    fn new(weights: &'a [f64]) -> Self {
        let terms = weights.len() as f64;
        let all: f64 = weights.iter().map(|w| w.abs()).sum();
        // The smallest float there is, twice for each term and for what a weight makes of it.
        let absolute = (all + terms) * 2.0 * f64::from_bits(1);
        Rough { weights, relative: (terms + 8.0) * f64::EPSILON, absolute }
    }

    /// w · x + b, and how far from that the exact sum can be at most.
    fn sum(&self, row: &[f64]) -> (f64, f64) {
        let Some((bias, linear)) = self.weights.split_last() else { return (0.0, 0.0) };
        let magnitude = linear.iter().zip(row).map(|(w, x)| (w * x).abs()).sum::<f64>() + bias.abs();
        (pre_activation(self.weights, row), magnitude * self.relative + self.absolute)
    }
}

/// The outputs of one unit. Weights that are not finite are taken as floats take them.
pub(crate) fn unit_outputs(weights: &[f64], points: &Points) -> Vec<bool> {
    let rough = Rough::new(weights);
    let mut open = vec![];
    let side = |(instance, row): (usize, &[f64])| {
        let (sum, error) = rough.sum(row);
        // What is not a number is open too.
        if sum.abs() <= error || sum.is_nan() || error.is_nan() {
            open.push(instance);
        }
        sum > 0.0
    };
    let mut sides: Vec<bool> = points.rows().enumerate().map(side).collect();
    if !open.is_empty()
        && let Some(exact) = Rational::from_floats(weights)
        && let Ok(found) = exact_outputs(&points.select(&open), &exact)
    {
        open.iter().zip(found).for_each(|(&instance, side)| sides[instance] = side);
    }
    sides
}

/// The class of each instance by the output units, as [`class_of`] has it.
pub(crate) fn classes(units: &[Vec<f64>], points: &Points) -> Vec<usize> {
    if let [unit] = units {
        return unit_outputs(unit, points).into_iter().map(usize::from).collect();
    }
    let rough: Vec<Rough<'_>> = units.iter().map(|unit| Rough::new(unit)).collect();
    let mut open = vec![];
    let class = |(instance, row): (usize, &[f64])| {
        let sums: Vec<(f64, f64)> = rough.iter().map(|unit| unit.sum(row)).collect();
        let best = class_of(&sums.iter().map(|(sum, _)| *sum).collect::<Vec<_>>());
        // Twice, because the difference is rounded too. What is not a number is not ahead.
        let ahead = |&(sum, error): &(f64, f64)| sums[best].0 - sum > 2.0 * (sums[best].1 + error);
        if !sums.iter().enumerate().all(|(unit, other)| unit == best || ahead(other)) {
            open.push(instance);
        }
        best
    };
    let mut classes: Vec<usize> = points.rows().enumerate().map(class).collect();
    let exact = || units.iter().map(|unit| Rational::from_floats(unit)).collect::<Option<Vec<_>>>();
    if !open.is_empty()
        && let Some(exact) = exact()
        && let Ok(found) = exact_argmax(&points.select(&open), &exact)
    {
        open.iter().zip(found).for_each(|(&instance, class)| classes[instance] = class);
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::Labelled;
    use crate::rng::Rng;

    /// Units through instances, or past them by less than a float shows.
    #[test]
    fn sides_and_classes_are_the_exact_ones() {
        let mut rng = Rng::new(91);
        let (mut rounded_sides, mut rounded_classes) = (0, 0);
        for case in 0..300 {
            let large = [1.0, 1e12, 1e-200][case % 3];
            let rows: String = (0..12)
                .map(|at| {
                    let mut decimal = || (rng.below(2001) as f64 - 1000.0) / 100.0;
                    format!("{},{},{},{}\n", decimal(), decimal(), decimal(), at % 2)
                })
                .collect();
            let points = Labelled::from_csv(&rows).unwrap().points;
            let unit = |rng: &mut Rng| {
                let mut weights: Vec<f64> = (0..3).map(|_| large * rng.normal()).collect();
                let row = points.row(rng.below(12));
                let bias: f64 = -weights.iter().zip(row).map(|(w, x)| w * x).sum::<f64>();
                weights.push(bias);
                weights
            };
            // The second is a fraction of the first, but for rounding: where the first is zero they are equal.
            let first = unit(&mut rng);
            let second: Vec<f64> = first.iter().map(|w| w / 3.0).collect();
            let units = vec![first.clone(), second, vec![0.0; 4]];
            let exact: Vec<_> = units.iter().map(|unit| Rational::from_floats(unit).unwrap()).collect();
            let sides = unit_outputs(&first, &points);
            assert_eq!(sides, exact_outputs(&points, &exact[0]).unwrap(), "case {case}");
            assert_eq!(classes(&units, &points), exact_argmax(&points, &exact).unwrap(), "case {case}");
            let scores = |row: &[f64]| units.iter().map(|unit| pre_activation(unit, row)).collect::<Vec<_>>();
            let rough = |at: usize, row: &[f64]| usize::from((scores(row)[0] > 0.0) != sides[at]);
            rounded_sides += points.rows().enumerate().map(|(at, row)| rough(at, row)).sum::<usize>();
            let found = classes(&units, &points);
            rounded_classes +=
                points.rows().zip(&found).filter(|(row, class)| class_of(&scores(row)) != **class).count();
        }
        assert!(rounded_sides > 20 && rounded_classes > 5, "{rounded_sides} {rounded_classes}");
    }

    #[test]
    fn what_is_beyond_floats_is_taken_as_they_take_it() {
        let points = Points::from_rows(&[vec![1.0], vec![-1.0], vec![5e-324]]).unwrap();
        assert_eq!(unit_outputs(&[f64::INFINITY, 0.0], &points), [true, false, true]);
        assert_eq!(unit_outputs(&[1e-300, 0.0], &points), [true, false, true], "the product is no float");
        assert_eq!(unit_outputs(&[0.0, 0.0], &points), [false; 3]);
    }

    #[test]
    fn of_equal_scores_the_first_wins_and_zero_is_on_the_low_side() {
        assert_eq!(class_of(&[1.0, 2.0, 2.0]), 1);
        assert_eq!(class_of(&[0.0]), 0);
    }
}
