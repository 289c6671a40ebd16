//! Certificates of every kind, with one leaf changed and sealed again: whatever is still accepted says something true.

use super::*;
use crate::network::ExactNetwork;

/// A kind of certificate, and what is true about its data.
struct Kind {
    name: &'static str,
    data: Labelled,
    value: Value,
    /// Whether a hyperplane separates the classes, and the fewest errors of the network's shape.
    separable: bool,
    fewest: usize,
}

/// Random data for which the answer is of interest.
fn data(rng: &mut Rng, [instances, inputs, values]: [usize; 3], good: impl Fn(&Labelled) -> bool) -> Labelled {
    loop {
        let data = random(rng, instances, inputs, values);
        if good(&data) {
            return data;
        }
    }
}

fn is_separable(data: &Labelled) -> bool {
    matches!(separable(&data.points, &data.targets(0)), Verdict::Separable(_))
}

fn kinds(rng: &mut Rng) -> Vec<Kind> {
    let mut kinds = vec![];
    for (name, wanted) in [("separable", true), ("not separable", false)] {
        let data = data(rng, [10, 2, 9], |data| is_separable(data) == wanted);
        let certificate = Certificate::of_verdict(&data, &separable(&data.points, &data.targets(0))).unwrap();
        let value = serde_json::to_value(&certificate).unwrap();
        kinds.push(Kind { name, data, value, separable: wanted, fewest: 0 });
    }
    let networks: [(&str, [usize; 3], &[usize], Loss); 7] = [
        ("labels", [9, 1, 3], &[2], Loss::ZeroOne),
        ("one unit listed", [11, 2, 7], &[1], Loss::ZeroOne),
        ("two units listed", [11, 2, 7], &[2], Loss::ZeroOne),
        ("three units listed", [12, 2, 7], &[3], Loss::ZeroOne),
        ("witnesses", [12, 5, 3], &[1], Loss::ZeroOne),
        ("search", [8, 2, 7], &[1, 2], Loss::ZeroOne),
        ("hinge", [7, 2, 7], &[2], Loss::Hinge),
    ];
    for (name, size, hidden, loss) in networks {
        let (data, certificate, fewest) = loop {
            let data = data(rng, size, |data| !is_separable(data));
            let (best, _) = solved(&data, hidden, SearchKind::Exhaustive);
            let problem = Problem::new("data", data.clone(), None).unwrap();
            let config = SolveConfig { hidden: hidden.to_vec(), loss, ..SolveConfig::default() };
            let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
            let certificate = Certificate::of_solution(&data, &solution).unwrap();
            let Claim::Network(claim) = &certificate.claim else { panic!("it is a network") };
            let as_named = match (&claim.bound.proof, name) {
                (ProofClaim::Labels {}, "labels" | "hinge") => true,
                (ProofClaim::Enumeration {}, _) => name.ends_with("listed"),
                (ProofClaim::Witnesses { .. }, "witnesses") | (ProofClaim::Search {}, "search") => true,
                _ => false,
            };
            if as_named {
                break (data, certificate, best.train.errors);
            }
        };
        kinds.push(Kind { name, data, value: serde_json::to_value(&certificate).unwrap(), separable: false, fewest });
    }
    kinds
}

impl Kind {
    /// Changes a leaf, and returns whether the change was accepted as proved.
    fn try_one(&self, leaves: &[String], rng: &mut Rng) -> Option<bool> {
        let path = &leaves[rng.below(leaves.len())];
        let mut changed = self.value.clone();
        let leaf = changed.pointer_mut(path).unwrap();
        *leaf = mutated(leaf, rng);
        if changed == self.value {
            return None;
        }
        let Ok(changed) = resealed(changed) else { return Some(false) };
        let accepted = changed.verify(&self.data).is_ok_and(|verification| verification.complete);
        if accepted {
            self.must_be_true(&changed.claim, path);
        }
        Some(accepted)
    }

    fn must_be_true(&self, claim: &Claim, path: &str) {
        let name = self.name;
        match claim {
            Claim::Separable { unit } => {
                let output = vec!["1".parse().unwrap(), "0".parse().unwrap()];
                let network = ExactNetwork { layers: vec![vec![unit.weights.clone()], vec![output]] };
                assert!(self.separable && network.errors(&self.data).unwrap() == 0, "{name} {path}");
            }
            Claim::NotSeparable { .. } => assert!(!self.separable, "{name} {path}"),
            Claim::Network(claim) => {
                let network = claim.network();
                assert_eq!(claim.errors, network.errors(&self.data).unwrap(), "{name} {path}");
                assert!(claim.bound.at_least <= self.fewest, "{name} {path}: no bound is above the optimum");
                if let LossClaim::Hinge { value, least } = &claim.loss {
                    assert!(!least && *value == network.hinge(&self.data).unwrap(), "{name} {path}");
                }
            }
        }
    }
}

fn try_all(count: usize) {
    let mut rng = Rng::new(64);
    for kind in kinds(&mut rng) {
        let mut leaves = vec![];
        walk(&kind.value, &mut String::new(), &mut leaves);
        let (mut changes, mut accepted) = (0, 0);
        while changes < count {
            let Some(passed) = kind.try_one(&leaves, &mut rng) else { continue };
            changes += 1;
            accepted += usize::from(passed);
        }
        assert!(accepted < changes / 3, "{}: {accepted} of {changes} are accepted", kind.name);
        println!("{}: {changes} changed, {accepted} say something else that is true", kind.name);
    }
}

#[test]
fn no_changed_certificate_makes_a_false_claim() {
    try_all(400);
}

#[test]
#[ignore = "minutes: cargo test --release -p ftprop-search ten_thousand -- --ignored"]
fn ten_thousand_changes_of_every_kind_make_no_false_claim() {
    try_all(10_000);
}

/// The paths of all leaves but the checksum.
fn walk(value: &Value, path: &mut String, leaves: &mut Vec<String>) {
    let mut go = |key: String, value: &Value| {
        let length = path.len();
        path.push('/');
        path.push_str(&key);
        walk(value, path, leaves);
        path.truncate(length);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| go(key.clone(), value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, value)| go(at.to_string(), value)),
        _ if path == "/checksum" => {}
        _ => leaves.push(path.clone()),
    }
}

fn mutated(leaf: &Value, rng: &mut Rng) -> Value {
    let words = ["labels", "enumeration", "search", "separable", "unknown", "zero-one", "hinge", "", "0", "-1", "1/3"];
    match (leaf, rng.below(4)) {
        (Value::Number(n), _) => (n.as_u64().unwrap_or(0) + rng.below(4) as u64).saturating_sub(1).into(),
        (Value::String(_), 0) => words[rng.below(words.len())].into(),
        (Value::String(text), 1) => format!("{text}0").into(),
        (Value::String(text), _) if !text.is_empty() => {
            let mut bytes = text.clone().into_bytes();
            let at = rng.below(bytes.len());
            bytes[at] = b"0123456789+-/ab"[rng.below(15)];
            String::from_utf8_lossy(&bytes).into_owned().into()
        }
        (Value::Bool(flag), _) => (!flag).into(),
        _ => Value::Null,
    }
}
