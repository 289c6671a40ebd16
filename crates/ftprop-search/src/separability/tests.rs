use super::*;
use crate::rng::Rng;

fn random_points(rng: &mut Rng, m: usize, n: usize) -> Points {
    Points::new(n, (0..m * n).map(|_| rng.normal()).collect()).unwrap()
}

/// Every answer about random problems of odd shapes is definite and was confirmed; separable ones are recognised.
#[test]
fn planted_directions_are_found_and_random_labels_are_refuted() {
    let mut rng = Rng::new(1);
    for case in 0..120 {
        let (m, n) = (2 + (case * 7) % 40, 1 + case % 9);
        let points = random_points(&mut rng, m, n);
        let direction: Vec<f64> = (0..=n).map(|_| rng.normal()).collect();
        let planted: Vec<bool> = points
            .rows()
            .map(|row| row.iter().zip(&direction).map(|(x, w)| x * w).sum::<f64>() + direction[n] > 0.0)
            .collect();
        assert!(matches!(separable(&points, &planted), Verdict::Separable(_)), "case {case}");
        let random: Vec<bool> = (0..m).map(|_| rng.coin()).collect();
        assert!(!matches!(separable(&points, &random), Verdict::Unknown { .. }), "case {case}");
    }
}

/// Cover's count: m points in general position in n dimensions have 2 Σ C(m − 1, k), k ≤ n, dichotomies.
#[test]
fn dichotomies_are_as_many_as_cover_says() {
    let mut rng = Rng::new(4);
    for (m, n, expected) in [(5, 1, 10), (6, 2, 32), (7, 3, 84), (5, 4, 32)] {
        let points = random_points(&mut rng, m, n);
        let count = (0..1u32 << m)
            .filter(|labels| {
                let targets: Vec<bool> = (0..m).map(|i| labels >> i & 1 == 1).collect();
                matches!(separable(&points, &targets), Verdict::Separable(_))
            })
            .count();
        assert_eq!(count, expected, "{m} points in {n} dimensions");
    }
}

/// The threshold functions of 2, 3 and 4 variables number 14, 104 and 1,882.
#[test]
fn threshold_functions_of_the_cube_are_counted() {
    for (n, expected) in [(2, 14), (3, 104)] {
        let cube: Vec<Vec<bool>> = (0..1 << n).map(|x| (0..n).map(|b| x >> b & 1 == 1).collect()).collect();
        let points = Points::from_signs(&cube);
        let count = (0..1u32 << (1 << n))
            .filter(|labels| {
                let targets: Vec<bool> = (0..1 << n).map(|i| labels >> i & 1 == 1).collect();
                matches!(separable(&points, &targets), Verdict::Separable(_))
            })
            .count();
        assert_eq!(count, expected, "{n} variables");
    }
}

#[test]
fn equal_points_with_different_targets_are_the_witness() {
    let points = Points::from_rows(&[vec![1.0], vec![0.0], vec![2.0], vec![-0.0]]).unwrap();
    let Verdict::NotSeparable(witness) = separable(&points, &[true, true, true, false]) else { panic!() };
    assert_eq!(witness, [(1, 1u32.into()), (3, 1u32.into())]);
}

#[test]
fn hard_numbers_are_decided() {
    // Three collinear points, the middle one different: no line separates, and by a hair one does.
    let rows = [vec![0.0, 0.0], vec![0.1, 0.1], vec![0.2, 0.2]];
    let points = Points::from_rows(&rows).unwrap();
    assert!(matches!(separable(&points, &[true, false, true]), Verdict::NotSeparable(_)));
    let hair = [vec![0.0, 0.0], vec![0.1, 0.1 + 1e-15], vec![0.2, 0.2]];
    let points = Points::from_rows(&hair).unwrap();
    assert!(matches!(separable(&points, &[true, false, true]), Verdict::Separable(_)));
    // Wildly different scales and an offset far from the origin.
    let rows = [vec![1e9, 1e-9], vec![1e9 + 1.0, 2e-9], vec![1e9, 2e-9], vec![1e9 + 1.0, 1e-9]];
    let points = Points::from_rows(&rows).unwrap();
    assert!(matches!(separable(&points, &[true, true, false, false]), Verdict::NotSeparable(_)));
    assert!(matches!(separable(&points, &[true, false, true, false]), Verdict::Separable(_)));
}
