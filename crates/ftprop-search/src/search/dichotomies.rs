//! The linear dichotomies of a set of points: the only targets that a first-layer unit can realise. There are
//! O(mⁿ) of them for m points in n dimensions, not 2^m.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Control;
use crate::error::SearchError;
use crate::exact::bound::{self, Flat, Watch, holds};
use crate::points::Points;
use crate::rational::Rational;
use crate::separability::{Verdict, separable_distinct};
use crate::sides::pre_activation;

/// Hyperplanes times points up to which all hyperplanes through points are looked at; with more inputs there are too
/// many of them, and the dichotomies are found point after point.
const LISTED: u64 = 200_000_000;

/// All linear dichotomies of distinct points up to negation, each as the side of every point, that of the first +1;
/// none if `control` says stop first.
pub fn dichotomies(
    points: &Points,
    threads: usize,
    control: &Control<'_>,
) -> Result<Option<Vec<Vec<bool>>>, SearchError> {
    let flat = Flat::new(points.whole(), &(0..points.len()).collect::<Vec<_>>());
    let hyperplanes = bound::hyperplanes(flat.len(), flat.dimension());
    if hyperplanes.and_then(|count| count.checked_mul(flat.len() as u64)).is_some_and(|work| work <= LISTED) {
        let proved = AtomicUsize::new(0);
        let stop = |looked_at| {
            control.count(looked_at);
            control.stop().is_some()
        };
        let watch = Watch { threads, stop: &stop, memory: control.memory(), steps: u64::MAX, proved: &proved };
        let Ok(listed) = bound::list::dichotomies(&flat, &watch) else { return Ok(None) };
        let half = listed.iter().filter(|sides| holds(sides, 0));
        return Ok(Some(half.map(|sides| (0..points.len()).map(|at| holds(sides, at)).collect()).collect()));
    }
    let found = one_by_one(points, threads, control)?;
    Ok(found.map(|found| found.into_iter().map(|dichotomy| dichotomy.signs).collect()))
}

/// A dichotomy with weights that realise it, or zeros where no floats do.
#[derive(Clone, Debug, PartialEq)]
struct Dichotomy {
    signs: Vec<bool>,
    weights: Vec<f64>,
}

/// Point after point: each dichotomy of the points so far goes on with the side on which its weights put the
/// next one, and also with the other side if that is separable. Every decision is proved.
fn one_by_one(points: &Points, threads: usize, control: &Control<'_>) -> Result<Option<Vec<Dichotomy>>, SearchError> {
    let mut bias = vec![0.0; points.inputs() + 1];
    bias[points.inputs()] = 1.0;
    let mut known = vec![Dichotomy { signs: vec![true], weights: bias }];
    for count in 2..=points.len() {
        let part = points.select(&(0..count).collect::<Vec<_>>());
        let stopped = AtomicBool::new(false);
        let extend_all = |chunk: &[Dichotomy]| -> Result<Vec<Dichotomy>, SearchError> {
            let mut extended = Vec::with_capacity(chunk.len() * 2);
            for (at, dichotomy) in chunk.iter().enumerate() {
                if at % 64 == 0 && control.stop().is_some() {
                    stopped.store(true, Ordering::Relaxed);
                    break;
                }
                extend(&part, dichotomy, &mut extended)?;
            }
            Ok(extended)
        };
        known = if threads > 1 && known.len() >= 128 {
            let chunks = known.chunks(known.len().div_ceil(threads));
            let parts: Vec<_> = std::thread::scope(|scope| {
                let workers: Vec<_> = chunks.map(|chunk| scope.spawn(|| extend_all(chunk))).collect();
                workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
            });
            parts.into_iter().collect::<Result<Vec<_>, _>>()?.concat()
        } else {
            extend_all(&known)?
        };
        if stopped.into_inner() {
            return Ok(None);
        }
    }
    Ok(Some(known))
}

/// The one or two ways in which a dichotomy of all points but the last goes on to the last.
fn extend(points: &Points, dichotomy: &Dichotomy, extended: &mut Vec<Dichotomy>) -> Result<(), SearchError> {
    let last = points.len() - 1;
    let row = points.row(last);
    let output = pre_activation(&dichotomy.weights, row);
    let size: f64 = dichotomy.weights.iter().zip(row.iter().chain(&[1.0])).map(|(w, x)| (w * x).abs()).sum();
    // Where rounding could not have changed the side, the weights themselves prove it.
    let clear = output.abs() > 1e-12 * size;
    for side in [true, false] {
        let signs: Vec<bool> = dichotomy.signs.iter().copied().chain([side]).collect();
        if clear && (output > 0.0) == side {
            extended.push(Dichotomy { signs, weights: dichotomy.weights.clone() });
            continue;
        }
        match separable_distinct(points, &signs, 0) {
            Verdict::Separable(found) => {
                let floats = Rational::from_floats(&found.weights).is_some_and(|floats| floats == found.exact);
                let weights = if floats { found.weights } else { vec![0.0; found.exact.len()] };
                extended.push(Dichotomy { signs, weights });
            }
            Verdict::NotSeparable(_) => {}
            Verdict::Unknown { why } => return Err(SearchError::Unsupported { search: "exhaustive", why }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::search::Budget;
    use crate::separability::separable;

    fn all(points: &Points, threads: usize) -> Vec<Vec<bool>> {
        let interrupt = AtomicBool::new(false);
        let control = Control::new(Budget::default(), &interrupt, &|_| {});
        dichotomies(points, threads, &control).unwrap().unwrap()
    }

    fn stepwise(points: &Points, threads: usize) -> Vec<Dichotomy> {
        let interrupt = AtomicBool::new(false);
        let control = Control::new(Budget::default(), &interrupt, &|_| {});
        one_by_one(points, threads, &control).unwrap().unwrap()
    }

    #[test]
    fn both_ways_equal_brute_force_on_points_with_coincidences() {
        let mut rng = Rng::new(31);
        for case in 0..40 {
            let (m, n) = (4 + case % 5, 1 + case % 4);
            let rows: Vec<Vec<f64>> = (0..m).map(|_| (0..n).map(|_| rng.below(4) as f64).collect()).collect();
            let points = Points::from_rows(&rows).unwrap();
            let points = points.select(&points.distinct().1);
            let m = points.len();
            let mut wanted: Vec<Vec<bool>> = (0..1u32 << (m - 1))
                .map(|bits| (0..m).map(|i| i == 0 || bits >> (i - 1) & 1 == 1).collect())
                .filter(|signs: &Vec<bool>| matches!(separable(&points, signs), Verdict::Separable(_)))
                .collect();
            wanted.sort();
            for mut found in [all(&points, 1), stepwise(&points, 1).into_iter().map(|d| d.signs).collect()] {
                found.sort();
                assert_eq!(found, wanted, "case {case}");
            }
        }
    }

    #[test]
    fn points_in_the_plane_and_the_cube_have_the_known_numbers() {
        let mut rng = Rng::new(32);
        let points = Points::new(2, (0..40).map(|_| rng.normal()).collect()).unwrap();
        let one = all(&points, 1);
        assert_eq!(one.len(), (20 * 20 - 20 + 2) / 2);
        assert_eq!(one, all(&points, 2), "threads change nothing");
        assert_eq!(stepwise(&points, 1), stepwise(&points, 2), "threads change nothing");
        let cube: Vec<Vec<bool>> = (0..16).map(|x| (0..4).map(|b| x >> b & 1 == 1).collect()).collect();
        assert_eq!(all(&Points::from_signs(&cube), 2).len(), 1882 / 2);
        assert_eq!(stepwise(&Points::from_signs(&cube), 2).len(), 1882 / 2);
    }

    #[test]
    fn every_dichotomy_comes_with_weights_that_realise_it() {
        let mut rng = Rng::new(33);
        let points = Points::new(3, (0..36).map(|_| rng.normal()).collect()).unwrap();
        for dichotomy in stepwise(&points, 1) {
            let weights = Rational::from_floats(&dichotomy.weights).unwrap();
            assert!(crate::exact::check_separation(&points, &dichotomy.signs, &weights).is_ok());
        }
    }
}
