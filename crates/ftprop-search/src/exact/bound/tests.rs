//! Bounds against trying every labelling.

use super::*;
use crate::points::Points;
use crate::rng::Rng;
use crate::separability::{Verdict, separable};

fn random(rng: &mut Rng, instances: usize, inputs: usize, values: usize) -> Labelled {
    loop {
        let points = (0..instances * inputs).map(|_| rng.below(values) as f64).collect();
        let labels = (0..instances).map(|_| rng.below(2)).collect();
        let points = Points::new(inputs, points).unwrap();
        if let Ok(data) = Labelled::new(points, labels, vec!["a".into(), "b".into()]) {
            return data;
        }
    }
}

/// All linear dichotomies of the distinct points, by asking about every labelling.
fn dichotomies(data: &Labelled, groups: &Groups) -> Vec<Vec<bool>> {
    let points = data.points.select(&groups.firsts);
    let m = points.len();
    let all = (0..1u32 << m).map(|bits| (0..m).map(|i| bits >> i & 1 == 1).collect::<Vec<bool>>());
    all.filter(|signs| matches!(separable(&points, signs), Verdict::Separable(_))).collect()
}

fn errors(groups: &Groups, class: impl Fn(usize) -> usize) -> usize {
    groups.counts.iter().enumerate().map(|(group, counts)| counts[1 - class(group)]).sum()
}

/// Nobody reads what is proved on the way here.
static PROVED: AtomicUsize = AtomicUsize::new(0);

fn watch(threads: usize) -> Watch<'static> {
    Watch { threads, stop: &|_| false, memory: 1 << 30, steps: u64::MAX, proved: &PROVED }
}

#[test]
fn one_unit_equals_brute_force() {
    let mut rng = Rng::new(71);
    for case in 0..120 {
        let inputs = 1 + case % 5;
        let data = random(&mut rng, 4 + case % 7, inputs, [2, 3, 5, 1000][case % 4]);
        let groups = Groups::new(&data);
        let flat = Flat::new(data.points.whole(), &groups.firsts);
        let least = dichotomies(&data, &groups).iter().map(|d| errors(&groups, |g| usize::from(d[g]))).min().unwrap();
        let (found, second) = one::least(&flat, &groups.counts, usize::MAX, &watch(1)).unwrap().unwrap();
        assert_eq!(found, least, "case {case}");
        assert_eq!(errors(&groups, |g| usize::from(holds(&second, g))), least, "case {case}");
        let targets: Vec<bool> = groups.group_of.iter().map(|&g| holds(&second, g)).collect();
        assert!(matches!(separable(&data.points, &targets), Verdict::Separable(_)), "case {case}");
        assert_eq!(one::least(&flat, &groups.counts, least, &watch(1)).unwrap(), None, "case {case}");
        assert!(by_enumeration(&data, &[1], least).is_ok());
        assert!(matches!(by_enumeration(&data, &[1], least + 1), Err(Refusal::Better { .. })));
    }
}

#[test]
fn two_units_equal_brute_force() {
    let mut rng = Rng::new(72);
    for case in 0..60 {
        let inputs = 1 + case % 3;
        let data = random(&mut rng, 4 + case % 6, inputs, [2, 3, 4, 1000][case % 4]);
        let groups = Groups::new(&data);
        let flat = Flat::new(data.points.whole(), &groups.firsts);
        let list = dichotomies(&data, &groups);
        let mut least = usize::MAX;
        for a in &list {
            for b in &list {
                for inner in [0, 1] {
                    least = least.min(errors(&groups, |g| if a[g] && b[g] { inner } else { 1 - inner }));
                }
            }
        }
        let wedge = two::least(&flat, &groups.counts, usize::MAX, &watch(1)).unwrap().unwrap();
        assert_eq!(wedge.errors, least, "case {case}");
        for sides in &wedge.sides {
            let targets: Vec<bool> = groups.group_of.iter().map(|&g| holds(sides, g)).collect();
            assert!(matches!(separable(&data.points, &targets), Verdict::Separable(_)), "case {case}");
        }
        assert_eq!(two::least(&flat, &groups.counts, least, &watch(1)).unwrap(), None, "case {case}");
    }
}

/// Every threshold function of three signs, as the cells in which it says +1.
fn threshold_functions() -> Vec<[bool; 8]> {
    let weight = |number: usize| number as i64 - 3;
    let mut found = std::collections::BTreeSet::new();
    for code in 0..7usize.pow(4) {
        let [a, b, c, bias] = [1, 7, 49, 343].map(|place| weight(code / place % 7));
        let sum = |cell: usize| {
            let sign = |unit: usize| if cell >> unit & 1 == 1 { 1 } else { -1 };
            a * sign(0) + b * sign(1) + c * sign(2) + bias
        };
        let sums: [i64; 8] = std::array::from_fn(sum);
        if sums.iter().all(|&sum| sum != 0) {
            found.insert(sums.map(|sum| sum > 0));
        }
    }
    found.into_iter().collect()
}

#[test]
fn three_units_equal_brute_force() {
    let functions = threshold_functions();
    assert_eq!(functions.len(), 104);
    let mut rng = Rng::new(76);
    for case in 0..40 {
        let inputs = 1 + case % 3;
        let data = random(&mut rng, 5 + case % 5, inputs, [2, 3, 4, 1000][case % 4]);
        let groups = Groups::new(&data);
        let flat = Flat::new(data.points.whole(), &groups.firsts);
        let list = dichotomies(&data, &groups);
        let half: Vec<&Vec<bool>> = list.iter().filter(|d| d[0]).collect();
        let mut least = usize::MAX;
        for (i, a) in half.iter().enumerate() {
            for (j, b) in half[i..].iter().enumerate() {
                for c in &half[i + j..] {
                    let cell = |g: usize| usize::from(a[g]) | usize::from(b[g]) << 1 | usize::from(c[g]) << 2;
                    let mut counts = [[0; 2]; 8];
                    for (group, count) in groups.counts.iter().enumerate() {
                        (0..2).for_each(|class| counts[cell(group)][class] += count[class]);
                    }
                    let cost = |f: &[bool; 8]| (0..8).map(|cell| counts[cell][usize::from(!f[cell])]).sum::<usize>();
                    least = least.min(functions.iter().map(cost).min().unwrap());
                }
            }
        }
        let trio = three::least(&flat, &groups.counts, usize::MAX, &watch(1)).unwrap().unwrap();
        assert_eq!(trio.errors, least, "case {case}");
        for sides in &trio.sides {
            let targets: Vec<bool> = groups.group_of.iter().map(|&g| holds(sides, g)).collect();
            assert!(matches!(separable(&data.points, &targets), Verdict::Separable(_)), "case {case}");
        }
        let says = |g: usize| {
            let sign = |unit: usize| if holds(&trio.sides[unit], g) { 1.0 } else { -1.0 };
            (0..3).map(|unit| trio.output[unit] * sign(unit)).sum::<f64>() + trio.output[3] > 0.0
        };
        assert_eq!(errors(&groups, |g| if says(g) { trio.inner } else { 1 - trio.inner }), least, "case {case}");
        assert_eq!(three::least(&flat, &groups.counts, least, &watch(2)).unwrap(), None, "case {case}");
        assert!(by_enumeration(&data, &[3], least).is_ok());
        assert!(matches!(by_enumeration(&data, &[3], least + 1), Err(Refusal::Better { .. })));
    }
}

/// What is proved on the way never exceeds the least errors, and reaches them.
#[test]
fn bounds_rise_to_the_least_errors() {
    let mut rng = Rng::new(77);
    let data = random(&mut rng, 30, 2, 30);
    let groups = Groups::new(&data);
    let flat = Flat::new(data.points.whole(), &groups.firsts);
    for units in [2, 3] {
        let proved = AtomicUsize::new(0);
        let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
        let stop = |_| {
            seen.lock().unwrap().insert(proved.load(std::sync::atomic::Ordering::Relaxed));
            false
        };
        let watch = Watch { threads: 2, stop: &stop, memory: 1 << 30, steps: u64::MAX, proved: &proved };
        let least = least(&flat, &groups.counts, units, usize::MAX, &watch).unwrap().unwrap().errors;
        assert_eq!(proved.load(std::sync::atomic::Ordering::Relaxed), least, "{units} units");
        let seen = seen.into_inner().unwrap();
        assert!(seen.len() > 2 && seen.iter().all(|&proved| proved <= least), "{units} units: {seen:?}, {least}");
    }
}

/// Numbers of any size: the same points, moved and stretched until floats and words no longer hold them.
#[test]
fn all_arithmetics_agree() {
    let mut rng = Rng::new(73);
    for case in 0..20 {
        let inputs = 2 + case % 3;
        let rows: Vec<i64> = (0..10 * inputs).map(|_| rng.below(6) as i64).collect();
        let labels: Vec<usize> = (0..10).map(|i| i % 2).collect();
        let mut least = vec![];
        for (stretch, shift) in [(1i64, 0i64), (1 << 30, 1 << 40), (1 << 58, -(1 << 60))] {
            let numbers = rows.iter().map(|&n| n * (stretch / 8).max(1) + shift).collect();
            let points = Points::from_ratios(inputs, numbers, 7).unwrap();
            let data = Labelled::new(points, labels.clone(), vec!["a".into(), "b".into()]).unwrap();
            let groups = Groups::new(&data);
            let flat = Flat::new(data.points.whole(), &groups.firsts);
            least.push(one::least(&flat, &groups.counts, usize::MAX, &watch(1)).unwrap());
        }
        assert_eq!(least[0], least[1], "case {case}");
        assert_eq!(least[0], least[2], "case {case}");
    }
}

#[test]
fn threads_change_nothing() {
    let mut rng = Rng::new(74);
    let data = random(&mut rng, 60, 2, 50);
    let groups = Groups::new(&data);
    let flat = Flat::new(data.points.whole(), &groups.firsts);
    let one = |threads| one::least(&flat, &groups.counts, usize::MAX, &watch(threads)).unwrap();
    let two = |threads| two::least(&flat, &groups.counts, usize::MAX, &watch(threads)).unwrap();
    let three = |threads| three::least(&flat, &groups.counts, usize::MAX, &watch(threads)).unwrap();
    for threads in [2, 3] {
        assert_eq!(one(1), one(threads));
        assert_eq!(two(1), two(threads));
        assert_eq!(three(1), three(threads));
    }
}

#[test]
fn hitting_sets_equal_brute_force() {
    let mut rng = Rng::new(75);
    for case in 0..200 {
        let (things, count) = (3 + case % 8, 1 + case % 7);
        let members: Vec<Vec<usize>> =
            (0..count).map(|_| (0..1 + rng.below(4)).map(|_| rng.below(things)).collect()).collect();
        let weights: Vec<usize> = (0..things).map(|_| 1 + rng.below(3)).collect();
        let lightest = (0..1u32 << things)
            .filter(|set| members.iter().all(|members| members.iter().any(|&at| set >> at & 1 == 1)))
            .map(|set| (0..things).filter(|at| set >> at & 1 == 1).map(|at| weights[at]).sum::<usize>())
            .min()
            .unwrap();
        let sets = Sets::new(&members, weights);
        assert_eq!(sets.hit_below(lightest), Some(false), "case {case}");
        assert_eq!(sets.hit_below(lightest + 1), Some(true), "case {case}");
    }
}
