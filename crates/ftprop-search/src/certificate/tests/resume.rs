//! What is written is never worse than what was gone on from.

use super::*;
use crate::search::{Bound, Budget, Proof};

/// One node of a search that begins with what a certificate knows, and the certificate of that.
fn go_on(certificate: &Certificate, data: &Labelled, hidden: &[usize], search: &str) -> (Solution, Certificate) {
    let known = Some(certificate.known(data, hidden).unwrap());
    let budget = Budget { nodes: Some(1), ..Budget::default() };
    let search = Some(search.parse().unwrap());
    let config = SolveConfig { hidden: hidden.to_vec(), known, budget, search, ..SolveConfig::default() };
    let problem = Problem::new("data", data.clone(), None).unwrap();
    let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
    let certificate = Certificate::of_solution(data, &solution).unwrap();
    (solution, certificate)
}

fn network(certificate: &Certificate) -> &NetworkClaim {
    match &certificate.claim {
        Claim::Network(claim) => claim,
        _ => panic!("it is about a network"),
    }
}

#[test]
fn a_bound_and_its_proof_are_kept_by_every_search() {
    let mut rng = Rng::new(71);
    // Listings, witnesses, and by search alone.
    for (inputs, hidden) in [(2, &[2][..]), (7, &[1]), (1, &[1, 2])] {
        let data = random(&mut rng, 30, inputs, 8);
        let search = if hidden.len() == 1 { SearchKind::Anytime } else { SearchKind::Exhaustive };
        let (best, optimal) = solved(&data, hidden, search);
        assert!(best.proved && best.train.errors > data.forced_errors(), "{best}");
        for search in ["anytime", "hill-climbing", "beam:2", "settled", "ftprop", "madaline", "relaxed"] {
            let (solution, certificate) = go_on(&optimal, &data, hidden, search);
            // What nobody but a search has seen stays in the file, on trust, and is not proved by that.
            assert_eq!(solution.proved, hidden.len() == 1, "{search}: {solution}");
            assert_eq!(solution.at_least_on_trust.is_some(), hidden.len() > 1, "{search}: {solution}");
            assert_eq!(network(&certificate).errors, best.train.errors, "{search}");
            assert_eq!(network(&certificate).bound, network(&optimal).bound, "{search}");
            assert_eq!(certificate.verify(&data).unwrap().complete, hidden.len() == 1);
        }
        // Part of a proof, as a search leaves that was stopped, and a worse network.
        let part = Solution { bound: Bound { at_least: best.at_least - 1.0, ..best.bound.clone() }, ..best };
        let part = Certificate::of_solution(&data, &part).unwrap();
        let (_, certificate) = go_on(&part, &data, hidden, "hill-climbing");
        assert_eq!(network(&certificate).bound, network(&part).bound);
        assert_eq!(network(&certificate).errors, network(&part).errors);
    }
}

#[test]
fn a_least_hinge_loss_is_kept_and_no_other_loss_is_gone_on_with() {
    let data = random(&mut Rng::new(72), 12, 2, 6);
    let problem = Problem::new("data", data.clone(), None).unwrap();
    let search = Some(SearchKind::Exhaustive);
    let config = SolveConfig { hidden: vec![2], search, loss: Loss::Hinge, ..SolveConfig::default() };
    let stop = AtomicBool::new(false);
    let best = solve(&problem, &config, &stop, &|_| {}).unwrap();
    let known = Certificate::of_solution(&data, &best).unwrap().known(&data, &[2]).unwrap();
    let budget = Budget { nodes: Some(1), ..Budget::default() };
    let search = Some(SearchKind::HillClimbing);
    let again = SolveConfig { known: Some(known), budget, search, ..config };
    let solution = solve(&problem, &again, &stop, &|_| {}).unwrap();
    // Floats found that it is the least: that stays on trust.
    assert!(best.proved && !solution.proved, "{solution}");
    assert!(solution.loss_value <= best.loss_value);
    let certificate = Certificate::of_solution(&data, &solution).unwrap();
    assert!(matches!(network(&certificate).loss, LossClaim::Hinge { least: true, .. }));
    let other = SolveConfig { loss: Loss::ZeroOne, ..again };
    let said = solve(&problem, &other, &stop, &|_| {}).unwrap_err().to_string();
    assert!(said.contains("minimised the hinge loss, this one the zero-one loss"), "{said}");
}

/// What is on trust in a file may be wrong, and then nothing is claimed by it.
#[test]
fn a_wrong_bound_on_trust_is_dropped() {
    let (_, optimal) = solved(&xor(), &[2], SearchKind::Exhaustive);
    let mut known = optimal.known(&xor(), &[2]).unwrap();
    known.bound = Bound { at_least: 1.0, proof: Proof::Search };
    let problem = Problem::new("xor", xor(), None).unwrap();
    let config = SolveConfig { known: Some(known), ..SolveConfig::default() };
    let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
    assert_eq!((solution.train.errors, solution.at_least), (0, 0.0));
    assert!(Certificate::of_solution(&xor(), &solution).unwrap().verify(&xor()).unwrap().complete);
}

/// Searches of a moment each come further all the same.
#[test]
fn witnesses_add_up() {
    let data = random(&mut Rng::new(73), 60, 6, 40);
    let problem = Problem::new("data", data.clone(), None).unwrap();
    let moment = |known: Option<&Certificate>, nodes: u64| {
        let known = known.map(|certificate| certificate.known(&data, &[1]).unwrap());
        let budget = Budget { nodes: Some(nodes), ..Budget::default() };
        let config = SolveConfig { hidden: vec![1], known, budget, ..SolveConfig::default() };
        let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
        let certificate = Certificate::of_solution(&data, &solution).unwrap();
        certificate.verify(&data).unwrap();
        certificate
    };
    let state = |certificate: &Certificate| match &network(certificate).bound {
        BoundClaim { at_least, proof: ProofClaim::Witnesses { witnesses } } => (*at_least, witnesses.len()),
        bound => (bound.at_least, 0),
    };
    let mut certificate = moment(None, 2000);
    assert!(state(&certificate).1 > 0 && network(&certificate).errors > state(&certificate).0, "{certificate:?}");
    for nodes in [1000, 2000, 4000] {
        let next = moment(Some(&certificate), nodes);
        let (before, now) = (state(&certificate), state(&next));
        assert!(now.0 >= before.0 && now.1 > before.1, "{before:?} {now:?}");
        certificate = next;
    }
}

/// Proofs that are not needed, for the labels say as much, and that hold no water: a search would go on with them.
#[test]
fn witnesses_that_are_none_are_refused_whatever_they_are_for() {
    let data = random(&mut Rng::new(74), 40, 6, 8);
    let (best, optimal) = solved(&data, &[1], SearchKind::Anytime);
    let twins = random(&mut Rng::new(75), 30, 1, 4);
    assert!(best.train.errors > 0 && data.forced_errors() == 0 && twins.forced_errors() > 0);
    let (_, listed) = solved(&twins, &[1], SearchKind::Anytime);
    let term = |instance: usize, y: i64| Term { instance, y: y.into() };
    let wrong = [
        vec![term(1, 1), term(2, 1)],
        vec![term(999, 1)],
        vec![term(0, 1)],
        vec![],
        vec![term(1, 0)],
        vec![term(1, 1), term(1, -1)],
    ];
    for (data, certificate) in [(&data, &optimal), (&twins, &listed)] {
        for witness in &wrong {
            let mut claim = network(certificate).clone();
            let proof = ProofClaim::Witnesses { witnesses: vec![witness.clone()] };
            claim.bound = BoundClaim { at_least: 0, proof };
            let forged = Certificate::new(data, Claim::Network(Box::new(claim)));
            assert!(matches!(forged.verify(data), Err(SearchError::Refused { .. })), "{witness:?}");
            assert!(matches!(forged.known(data, &[1]), Err(SearchError::Refused { .. })), "{witness:?}");
        }
    }
    // From elsewhere than a file.
    let mut known = optimal.known(&data, &[1]).unwrap();
    let witnesses = vec![vec![(0, 1u32.into()), (1, 1u32.into())]];
    known.bound = Bound { at_least: 0.0, proof: Proof::Witnesses(witnesses) };
    let config = SolveConfig { hidden: vec![1], known: Some(known), ..SolveConfig::default() };
    let problem = Problem::new("data", data, None).unwrap();
    let said = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap_err().to_string();
    assert!(said.contains("a witness to go on with"), "{said}");
}

/// A listing that nobody needs is not made, which might be too long; that it is of such networks is looked at.
#[test]
fn a_listing_that_the_labels_make_needless_is_not_made() {
    let data = random(&mut Rng::new(78), 60, 20, 1000);
    let (_, found) = solved(&data, &[2], SearchKind::Settled);
    let mut claim = network(&found).clone();
    claim.bound = BoundClaim { at_least: 0, proof: ProofClaim::Enumeration {} };
    let certificate = |claim: NetworkClaim| Certificate::new(&data, Claim::Network(Box::new(claim)));
    assert!(certificate(claim).verify(&data).unwrap().complete);
    let (_, deep) = solved(&data, &[1, 1], SearchKind::Settled);
    let mut claim = network(&deep).clone();
    claim.bound = BoundClaim { at_least: 0, proof: ProofClaim::Enumeration {} };
    assert!(matches!(certificate(claim).verify(&data), Err(SearchError::Refused { .. })));
}

/// Equal instances with the same label are one to the search: together they are named once in what it writes.
#[test]
fn witnesses_of_equal_instances_are_gone_on_with() {
    // Over so many inputs it is witnesses that prove.
    let rows = [0.0, 0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|x| vec![x, 0.0, 0.0, 0.0, 0.0]);
    let labels = vec![0, 0, 1, 0, 0, 1, 0, 1, 0];
    let data = Labelled::new(Points::from_rows(&rows).unwrap(), labels, vec!["a".into(), "b".into()]).unwrap();
    let (_, optimal) = solved(&data, &[1], SearchKind::Anytime);
    let mut known = optimal.known(&data, &[1]).unwrap();
    // 0 + 2 = 1 + 1, each of both twins once.
    let twins = [(0, 1u32), (1, 1), (2, 4), (3, 1), (4, 1), (5, 0)].map(|(at, y)| (at, y.into()));
    known.bound = Bound { at_least: 0.0, proof: Proof::Witnesses(vec![twins.to_vec()]) };
    let config = SolveConfig { hidden: vec![1], known: Some(known), ..SolveConfig::default() };
    let problem = Problem::new("data", data.clone(), None).unwrap();
    let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
    assert!(matches!(solution.bound.proof, Proof::Witnesses(_)) && solution.proved, "{solution}");
    assert!(Certificate::of_solution(&data, &solution).unwrap().verify(&data).unwrap().complete);
}

/// A bound that is on trust and wrong neither ends a search nor becomes a proof.
#[test]
fn what_is_on_trust_is_not_proved_by_going_on_with_it() {
    for (seed, inputs) in [(76, 6), (77, 2)] {
        let data = random(&mut Rng::new(seed), 30, inputs, 8);
        let (best, optimal) = solved(&data, &[1], SearchKind::Anytime);
        let mut claim = network(&optimal).clone();
        // Always the second class, which is worse than the best.
        let always: Vec<Rational> = (0..=inputs).map(|at| Rational::from(i64::from(at == inputs))).collect();
        let targets = "+".repeat(data.labels.len());
        claim.hidden = vec![vec![HiddenUnit { targets, unit: UnitProof::of(&always, &Rational::from(1)) }]];
        claim.outputs = vec![OutputUnit { weights: vec![1.into(), 0.into()], verdict: OutputVerdict::Unknown {} }];
        claim.errors = data.labels.iter().filter(|&&label| label == 0).count();
        assert!(claim.errors > best.train.errors + 1);
        for at_least in [claim.errors, best.train.errors + 1] {
            claim.bound = BoundClaim { at_least, proof: ProofClaim::Search {} };
            let forged = Certificate::new(&data, Claim::Network(Box::new(claim.clone())));
            assert!(!forged.verify(&data).unwrap().complete);
            let (solution, again) = go_on(&forged, &data, &[1], "hill-climbing");
            assert!(!solution.proved && solution.to_string().contains("not proved optimal"), "{solution}");
            assert_eq!(solution.at_least, data.forced_errors() as f64, "{solution}");
            assert!(network(&again).bound.proof != ProofClaim::Search {} || !again.verify(&data).unwrap().complete);
            let known = Some(forged.known(&data, &[1]).unwrap());
            let config = SolveConfig { hidden: vec![1], known, ..SolveConfig::default() };
            let problem = Problem::new("data", data.clone(), None).unwrap();
            let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
            assert_eq!((solution.train.errors, solution.proved), (best.train.errors, true), "{solution}");
        }
    }
}
