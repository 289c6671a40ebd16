use super::*;
use crate::rng::Rng;
use crate::separability::{Verdict, separable};

fn problem(rng: &mut Rng, m: usize, n: usize, whole: bool) -> (Points, Vec<bool>) {
    let draw = |rng: &mut Rng| if whole { rng.below(3) as f64 - 1.0 } else { rng.normal() };
    let points = Points::new(n, (0..m * n).map(|_| draw(rng)).collect()).unwrap();
    (points, (0..m).map(|_| rng.coin()).collect())
}

/// The linear program ends without errors exactly where the data is separable.
#[test]
fn the_linear_program_agrees_with_separability() {
    let mut rng = Rng::new(11);
    for case in 0..200 {
        let (points, targets) = problem(&mut rng, 2 + case % 23, 1 + case % 6, case % 2 == 0);
        let learned = LinearProgram::default().learn(&Task::new(&points, &targets));
        match separable(&points, &targets) {
            Verdict::Separable(_) => {
                assert_eq!(learned.stop, LearnerStop::Separated, "case {case}");
                assert!(learned.hinge < 1e-6, "case {case}: {}", learned.hinge);
            }
            Verdict::NotSeparable(_) => {
                assert_eq!(learned.stop, LearnerStop::Converged, "case {case}");
                assert!(learned.hinge >= 2.0 - 1e-6, "an error costs at least 2 in some way: {}", learned.hinge);
            }
            Verdict::Unknown { why } => panic!("{why}"),
        }
    }
}

/// Inputs that say nothing new change nothing, however many there are.
#[test]
fn the_linear_program_needs_no_input_twice() {
    let mut rng = Rng::new(14);
    for case in 0..60 {
        let (points, targets) = problem(&mut rng, 3 + case % 9, 1 + case % 3, case % 2 == 0);
        let copies: Vec<(usize, f64)> =
            (0..40).map(|_| (rng.below(points.inputs()), if rng.coin() { 2.0 } else { -1.0 })).collect();
        let all = (0..points.inputs()).map(|input| (input, 1.0)).chain(copies).collect::<Vec<_>>();
        let numbers = points.rows().flat_map(|row| all.iter().map(|&(input, factor)| factor * row[input])).collect();
        let wide = Points::new(all.len(), numbers).unwrap();
        let few = LinearProgram::default().learn(&Task::new(&points, &targets));
        let many = LinearProgram::default().learn(&Task::new(&wide, &targets));
        assert_eq!(many.weights.len(), all.len() + 1);
        assert_eq!(few.stop, many.stop, "case {case}");
        assert!((few.hinge - many.hinge).abs() < 1e-6, "case {case}: {} {}", few.hinge, many.hinge);
        let weights = many.weights.clone();
        let again = Learned::new(&Task::new(&wide, &targets), weights, many.stop, 0);
        assert!((again.hinge - many.hinge).abs() < 1e-9 && again.errors == many.errors, "case {case}");
    }
}

/// The hinge loss of the linear program is never above that of other weights, in particular of a nearly
/// unregularised hinge learner, which comes close to it.
#[test]
fn the_linear_program_has_the_least_hinge_loss() {
    let mut rng = Rng::new(12);
    for case in 0..40 {
        let (points, targets) = problem(&mut rng, 10 + case % 13, 2, case % 2 == 0);
        let importance: Vec<f64> = (0..points.len()).map(|_| 1.0 + rng.below(3) as f64).collect();
        let task = Task { importance: Some(&importance), ..Task::new(&points, &targets) };
        let least = LinearProgram::default().learn(&task).hinge;
        let close = Hinge { cost: 100.0, tolerance: 1e-4, passes: 20_000 }.learn(&task).hinge;
        assert!(least <= close + 1e-6, "case {case}: {least} {close}");
        assert!(close <= least + 0.05 * (1.0 + least), "case {case}: {least} {close}");
        for _ in 0..50 {
            let weights: Vec<f64> = (0..3).map(|_| 3.0 * rng.normal()).collect();
            assert!(least <= Learned::new(&task, weights, LearnerStop::Limit, 0).hinge + 1e-6, "case {case}");
        }
    }
}

#[test]
fn the_perceptron_keeps_within_novikoffs_bound() {
    let mut rng = Rng::new(13);
    let mut separated = 0;
    for case in 0..60 {
        let (points, targets) = problem(&mut rng, 3 + case % 6, 3, false);
        let learned = Perceptron { passes: 10_000 }.learn(&Task::new(&points, &targets));
        match (learned.stop, learned.novikoff) {
            (LearnerStop::Separated, Some(bound)) => {
                assert!(learned.updates as f64 <= bound, "case {case}: {} > {bound}", learned.updates);
                assert_eq!(learned.errors, 0.0);
                separated += 1;
            }
            (stop, bound) => assert!(stop == LearnerStop::Limit && bound.is_none(), "case {case}"),
        }
    }
    assert!(separated > 20, "{separated}");
}

/// On data that is not separable the pocket is at least as good as always saying the same.
#[test]
fn the_pocket_keeps_the_best() {
    let points = Points::from_rows(&[vec![0.0], vec![1.0], vec![2.0], vec![3.0], vec![4.0]]).unwrap();
    let learned = Perceptron { passes: 50 }.learn(&Task::new(&points, &[false, true, false, true, true]));
    assert_eq!(learned.stop, LearnerStop::Limit);
    assert!(learned.errors <= 1.0, "{}", learned.errors);
}

#[test]
fn names_are_read_back() {
    for kind in [LearnerKind::Perceptron, LearnerKind::Hinge { cost: 0.5 }, LearnerKind::LinearProgram] {
        assert_eq!(kind.to_string().parse::<LearnerKind>().unwrap(), kind);
    }
    for bad in ["", "svm", "hinge:-1", "hinge:x", "lp:3", "hinge:inf"] {
        assert!(bad.parse::<LearnerKind>().is_err(), "{bad}");
    }
}
