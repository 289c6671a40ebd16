//! The paper's propositions about searches, on random small problems.

use std::sync::atomic::AtomicBool;

use super::hill_climbing::{begin, climb};
use super::state::{evaluate, evaluate_flip, neighbours};
use super::*;
use crate::learner::LinearProgram;
use crate::network::LayerTargets;
use crate::points::Points;
use crate::problem::Problem;
use crate::rng::Rng;
use crate::solve::{SolveConfig, solve};

fn problem(rng: &mut Rng, m: usize, n: usize, classes: usize) -> Labelled {
    loop {
        let points = Points::new(n, (0..m * n).map(|_| rng.normal()).collect()).unwrap();
        let labels = (0..m).map(|_| rng.below(classes)).collect();
        if let Ok(data) = Labelled::new(points, labels, (0..classes).map(|c| c.to_string()).collect()) {
            return data;
        }
    }
}

fn run(search: &dyn Search, data: &Labelled, hidden: &[usize], loss: Loss, threads: usize) -> Found {
    let setup =
        Setup { data, hidden, loss, learner: &LinearProgram::default(), seed: 1, threads, known: None, picture: None };
    let interrupt = AtomicBool::new(false);
    search.run(&setup, &Control::new(Budget::default(), &interrupt, &|_| {})).unwrap()
}

/// The least loss over every one of the 2^(m·h) settings of the hidden targets, evaluated one by one.
fn brute_force(data: &Labelled, hidden: &[usize], loss: Loss) -> f64 {
    let learner = LinearProgram::default();
    let setup = Setup { data, hidden, loss, learner: &learner, seed: 1, threads: 1, known: None, picture: None };
    let interrupt = AtomicBool::new(false);
    let control = Control::new(Budget::default(), &interrupt, &|_| {});
    let m = data.labels.len();
    let bits = m * hidden.iter().sum::<usize>();
    let setting = |number: u64| -> Vec<LayerTargets> {
        let mut place = 0;
        let mut bit = || {
            place += 1;
            number >> (place - 1) & 1 == 1
        };
        hidden.iter().map(|&width| (0..width).map(|_| (0..m).map(|_| bit()).collect()).collect()).collect()
    };
    (0..1u64 << bits).map(|number| evaluate(&setup, &control, setting(number)).loss).fold(f64::INFINITY, f64::min)
}

/// Proposition 2: exhaustive search over dichotomies finds what trying every setting finds.
#[test]
fn exhaustive_search_finds_the_global_minimum() {
    let mut rng = Rng::new(51);
    for case in 0..12 {
        let data = problem(&mut rng, 5, 1 + case % 2, 2);
        let loss = if case % 3 == 2 { Loss::Hinge } else { Loss::ZeroOne };
        let found = run(&Exhaustive, &data, &[2], loss, 1);
        assert!(found.proved());
        let least = brute_force(&data, &[2], loss);
        assert!((found.loss - least).abs() < 1e-6, "case {case}: {} {least}", found.loss);
        assert!((loss_of(&found.network, &data, loss) - found.loss).abs() < 1e-6, "case {case}");
    }
}

#[test]
fn exhaustive_search_of_two_hidden_layers_and_three_classes_finds_the_global_minimum() {
    let mut rng = Rng::new(52);
    for case in 0..4 {
        let data = problem(&mut rng, 5, 1, 2);
        let found = run(&Exhaustive, &data, &[2, 1], Loss::ZeroOne, 2);
        assert_eq!(found.loss, brute_force(&data, &[2, 1], Loss::ZeroOne), "case {case}");
        assert_eq!(found.network.errors(&data) as f64, found.loss);
        assert_eq!(found.network.widths(), [2, 1, 1]);
    }
    for case in 0..3 {
        let data = problem(&mut rng, 6, 2, 3);
        let found = run(&Exhaustive, &data, &[1], Loss::ZeroOne, 1);
        assert!(found.proved());
        assert_eq!(found.network.errors(&data) as f64, found.loss);
        // One unit makes two cells, and a cell has one class.
        let least = exhaustive_by_one_cut(&data);
        assert_eq!(found.loss, least as f64, "case {case}");
    }
}

fn exhaustive_by_one_cut(data: &Labelled) -> usize {
    let interrupt = AtomicBool::new(false);
    let control = Control::new(Budget::default(), &interrupt, &|_| {});
    let listed = dichotomies(&data.points, 1, &control).unwrap().unwrap();
    let lost = |side: bool, signs: &[bool]| {
        let mut counts = vec![0; data.classes.len()];
        signs.iter().zip(&data.labels).filter(|(s, _)| **s == side).for_each(|(_, &label)| counts[label] += 1);
        counts.iter().sum::<usize>() - counts.iter().max().unwrap()
    };
    listed.iter().map(|d| lost(true, d) + lost(false, d)).min().unwrap()
}

/// The pruned scan equals the plain scan over all pairs and triples of dichotomies, on more points than brute force
/// over targets could take, and gives the same network for any number of threads.
#[test]
fn pruning_and_threads_change_nothing() {
    let mut rng = Rng::new(53);
    for (case, hidden) in [(12, 2), (16, 2), (8, 3), (9, 3)].into_iter().enumerate() {
        let (m, h) = hidden;
        let data = problem(&mut rng, m, 2, 2);
        let interrupt = AtomicBool::new(false);
        let control = Control::new(Budget::default(), &interrupt, &|_| {});
        let listed = dichotomies(&data.points, 1, &control).unwrap().unwrap();
        let mut least = usize::MAX;
        let mut chosen: Vec<usize> = vec![0; h];
        loop {
            let code = |i: usize| (0..h).fold(0, |code, u| code | usize::from(listed[chosen[u]][i]) << u);
            let wrong = |f: &u16| (0..m).filter(|&i| usize::from(f >> code(i) & 1) != data.labels[i]).count();
            least = least.min(output::threshold_functions(h).iter().map(wrong).min().unwrap());
            let Some(at) = (0..h).rev().find(|&at| chosen[at] + 1 < listed.len()) else { break };
            let next = chosen[at] + 1;
            chosen[at..].fill(next);
        }
        let one = run(&Exhaustive, &data, &[h], Loss::ZeroOne, 1);
        assert_eq!(one.loss, least as f64, "case {case}");
        let two = run(&Exhaustive, &data, &[h], Loss::ZeroOne, 2);
        assert_eq!(one.network, two.network, "case {case}");
    }
}

/// However early a budget ends the exhaustive search, what it calls proved is optimal.
#[test]
fn nothing_is_called_proved_that_was_left_early() {
    let mut rng = Rng::new(57);
    let data = problem(&mut rng, 12, 2, 2);
    let least = run(&Exhaustive, &data, &[2], Loss::ZeroOne, 1).loss;
    assert!(least > 0.0);
    let learner = LinearProgram::default();
    let setup = Setup {
        data: &data,
        hidden: &[2],
        loss: Loss::ZeroOne,
        learner: &learner,
        seed: 3,
        threads: 1,
        known: None,
        picture: None,
    };
    let mut proved = 0;
    for nodes in (1..6000).step_by(53) {
        let interrupt = AtomicBool::new(false);
        let control = Control::new(Budget { nodes: Some(nodes), ..Budget::default() }, &interrupt, &|_| {});
        let found = Exhaustive.run(&setup, &control).unwrap();
        assert!(!found.proved() || (found.loss == least && control.nodes() < nodes), "{nodes}");
        proved += usize::from(found.proved());
    }
    assert!(proved > 0, "the largest budgets suffice");
}

/// Proposition 3: where hill climbing stops, no neighbour is better.
#[test]
fn hill_climbing_ends_in_a_local_minimum() {
    let mut rng = Rng::new(54);
    for case in 0..6 {
        let data = problem(&mut rng, 9, 2, 2);
        let hidden: &[usize] = if case % 2 == 0 { &[2] } else { &[2, 2] };
        let loss = if case % 3 == 0 { Loss::Hinge } else { Loss::ZeroOne };
        let learner = LinearProgram::default();
        let setup =
            Setup { data: &data, hidden, loss, learner: &learner, seed: case, threads: 1, known: None, picture: None };
        let interrupt = AtomicBool::new(false);
        let control = Control::new(Budget::default(), &interrupt, &|_| {});
        let state = climb(&setup, &control, begin(&setup, &control, &Rng::new(case), 1));
        let again = evaluate(&setup, &control, state.targets.clone());
        assert_eq!(again.loss, state.loss, "training only what changed is the same as training all");
        for flip in neighbours(&state) {
            assert!(evaluate_flip(&setup, &control, &state, flip).loss >= state.loss, "case {case}: {flip:?}");
        }
    }
}

/// The ends of beam search: width 1 is hill climbing, unbounded width is exhaustive search.
#[test]
fn beam_search_contains_both_ends() {
    let mut rng = Rng::new(55);
    for case in 0..8 {
        let data = problem(&mut rng, 7, 2, 2);
        let beam = run(&Beam { width: Some(1), ..Beam::default() }, &data, &[2], Loss::ZeroOne, 1);
        let climbing = run(&HillClimbing::default(), &data, &[2], Loss::ZeroOne, 1);
        assert_eq!(beam.loss, climbing.loss, "case {case}");
        assert_eq!(beam.network, climbing.network, "case {case}");
    }
    for case in 0..3 {
        let data = problem(&mut rng, 5, 2, 2);
        let beam = run(&Beam { width: None, ..Beam::default() }, &data, &[2], Loss::ZeroOne, 1);
        let exhaustive = run(&Exhaustive, &data, &[2], Loss::ZeroOne, 1);
        assert_eq!(beam.loss, exhaustive.loss, "case {case}");
    }
}

fn parity(n: usize) -> Labelled {
    let rows: Vec<Vec<f64>> = (0..1usize << n).map(|x| (0..n).map(|b| (x >> b & 1) as f64).collect()).collect();
    let labels = (0..1usize << n).map(|x| x.count_ones() as usize % 2).collect();
    Labelled::new(Points::from_rows(&rows).unwrap(), labels, vec!["even".into(), "odd".into()]).unwrap()
}

#[test]
fn xor_and_parity_are_solved() {
    let xor = run(&Exhaustive, &parity(2), &[2], Loss::ZeroOne, 1);
    assert!(xor.proved() && xor.loss == 0.0);
    let gradient = Ftprop { rule: TargetRule::Gradient { attempts: 10 }, ..Ftprop::default() };
    for search in [
        &Settled::default() as &dyn Search,
        &Ftprop::default(),
        &gradient,
        &HillClimbing::default(),
        &Madaline::default(),
    ] {
        let found = run(search, &parity(2), &[2], Loss::ZeroOne, 1);
        assert_eq!((found.loss, found.stop), (0.0, Stop::Floor), "{}", search.name());
    }
    let found = run(&Settled::default(), &parity(6), &[6], Loss::ZeroOne, 1);
    assert_eq!(found.loss, 0.0);
    let deep = run(&Settled::default(), &parity(4), &[4, 3], Loss::ZeroOne, 1);
    assert_eq!((deep.loss, deep.network.errors(&parity(4))), (0.0, 0));
}

/// Budgets end searches early, with a network all the same.
#[test]
fn every_search_is_anytime() {
    let mut rng = Rng::new(56);
    let data = problem(&mut rng, 30, 2, 2);
    let kinds = [
        "anytime",
        "exhaustive",
        "hill-climbing",
        "beam:3",
        "ftprop",
        "ftprop:beam:3",
        "ftprop:r:5",
        "settled",
        "madaline",
        "relaxed",
    ];
    for kind in kinds.map(|name| name.parse::<SearchKind>().unwrap()) {
        let learner = LinearProgram::default();
        let setup = Setup {
            data: &data,
            hidden: &[3],
            loss: Loss::ZeroOne,
            learner: &learner,
            seed: 2,
            threads: 1,
            known: None,
            picture: None,
        };
        for (nodes, interrupted) in [(Some(1), false), (Some(20), false), (None, true)] {
            let interrupt = AtomicBool::new(interrupted);
            let control = Control::new(Budget { nodes, ..Budget::default() }, &interrupt, &|_| {});
            let found = kind.search().run(&setup, &control).unwrap();
            let wanted = if interrupted { Stop::Interrupted } else { Stop::Nodes };
            assert_eq!(found.stop, wanted, "{kind:?} {nodes:?}");
            assert!(!found.proved());
            assert_eq!(found.network.errors(&data) as f64, found.loss, "{kind:?}");
        }
    }
    assert!("annealing".parse::<SearchKind>().is_err() && "beam:0".parse::<SearchKind>().is_err());
}

/// Listings stop at the nodes, too: soon after them, for what a thread has begun it ends.
#[test]
fn nodes_bound_what_is_listed() {
    let mut rng = Rng::new(61);
    for (inputs, hidden, all) in [(1, 1, 40), (2, 1, 1_000), (3, 1, 50_000), (2, 2, 10_000), (2, 3, 50_000)] {
        let data = problem(&mut rng, 80, inputs, 2);
        let begin = run(&HillClimbing { starts: Some(1) }, &data, &[hidden], Loss::ZeroOne, 1);
        let bound = Bound { at_least: 0.0, proof: Proof::Labels };
        let network = ExactNetwork::of(&begin.network).unwrap();
        let known = Known { network, loss: Loss::ZeroOne, bound };
        let learner = LinearProgram::default();
        let (data, hidden, loss) = (&data, &[hidden][..], Loss::ZeroOne);
        let setup =
            Setup { data, hidden, loss, learner: &learner, seed: 1, threads: 2, known: Some(&known), picture: None };
        let interrupt = AtomicBool::new(false);
        for search in [&Anytime as &dyn Search, &Exhaustive] {
            for nodes in [5, all / 4] {
                let control = Control::new(Budget { nodes: Some(nodes), ..Budget::default() }, &interrupt, &|_| {});
                let found = search.run(&setup, &control).unwrap();
                assert_eq!(found.stop, Stop::Nodes, "{search:?} {inputs} {hidden:?}");
                assert!(control.nodes() < nodes + 2_000, "{search:?} {inputs} {hidden:?}: {}", control.nodes());
            }
            let control = Control::new(Budget::default(), &interrupt, &|_| {});
            assert!(search.run(&setup, &control).unwrap().proved());
            assert!(control.nodes() >= all, "{search:?} {inputs} {hidden:?}: {}", control.nodes());
        }
    }
}

/// Tables whose classes floats seem to divide, or better than they do: instances lie on lines but for the last digits.
const NEAR: [(&str, usize, usize); 4] = [
    ("-8.1,-17,1.9,0\n-0.57999998,-1.3,0,1\n3.8,6,0,0\n-0.6,-1,-0.2,1\n13.86,1.1,13,1\n", 1, 1),
    (
        "17.75000001,-14,1\n10.24999999,-8,0\n-2.125,1.9,0\n1.5,-1,1\n15.25000001,-12,1\n4.00000001,-3,1\n\
         2.625,-1.9,1\n6.5,-5,0\n14.00000002,-11,1\n-0.875,0.9,1\n-0.25000001,0.4,0\n5.25,-4,1\n",
        1,
        1,
    ),
    (
        "-0.7875,0.1,-1.6,0\n-1.174999,0.8,-0.8,1\n-8.550001,7,-1.6,0\n1.437499,-1.3,-0.3,0\n4.924999,-1.6,6,0\n\
         -1.975,2,0.3,0\n1.7,-1.8,-0.9,1\n-0.712498,0.3,-1,1\n-22,13,-15,0\n-2.1,1.4,-1.3,0\n-7.5625,1.5,-12,0\n\
         -5.225001,4,-1.7,0\n-0.2875,-0.3,-1.5,0\n0.2625,-0.7,-1.3,1\n9.250002,-9,-2,1\n-1.15,1,-0.3,1\n\
         -1.599999,1,-1.2,0\n-8.5,5,-6,0\n0.7125,-1.1,-1.3,0\n-3.849998,3,-1.2,1\n-1.762501,-0.1,-4,0\n\
         -1.249998,-1,-5,1\n-10.375,8,-3,1\n2.775002,-2,0.8,0\n-23.274998,20,-1.8,1\n",
        2,
        2,
    ),
    ("0.1428571428,0\n0.1428571427,1\n0.1428571429,0\n0.1428571427,1\n0.1428571427,1\n", 3, 0),
];

/// A loss that floats take for lower than it is ends no search and proves nothing.
#[test]
fn losses_are_those_of_the_exact_numbers() {
    for (table, hidden, fewest) in NEAR {
        let data = Labelled::from_csv(table).unwrap();
        let heuristics: [Box<dyn Search>; 5] = [
            Box::new(Settled { starts: Some(20), ..Settled::default() }),
            Box::new(HillClimbing { starts: Some(2) }),
            Box::new(Beam { width: Some(2), starts: Some(1) }),
            Box::new(Ftprop { starts: Some(20), ..Ftprop::default() }),
            Box::new(Madaline { passes: 10, starts: Some(5) }),
        ];
        for search in heuristics {
            let found = run(&*search, &data, &[hidden], Loss::ZeroOne, 1);
            let exact = ExactNetwork::of(&found.network).unwrap();
            assert_eq!(found.loss, exact.errors(&data).unwrap() as f64, "{search:?}");
            assert!(found.loss >= fewest as f64 && (found.stop != Stop::Floor || found.proved()), "{search:?}");
        }
        let problem = Problem::new("near", data, None).unwrap();
        let config = SolveConfig { hidden: vec![hidden], ..SolveConfig::default() };
        let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
        assert_eq!((solution.train.errors, solution.proved), (fewest, true), "{solution}");
    }
}
