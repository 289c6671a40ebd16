use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::*;
use crate::points::Points;
use crate::problem::{Problem, ProblemName};
use crate::rng::Rng;
use crate::search::SearchKind;
use crate::solve::{SolveConfig, solve};

mod mutants;
mod resume;

fn resealed(value: Value) -> Result<Certificate, SearchError> {
    let mut changed = Certificate::from_json(&value.to_string())?;
    changed.checksum = changed.sum();
    Ok(changed)
}

fn tampered(
    certificate: &Certificate,
    data: &Labelled,
    change: impl Fn(&mut Value),
) -> Result<Verification, SearchError> {
    let mut value = serde_json::to_value(certificate).unwrap();
    change(&mut value);
    let changed = resealed(value)?;
    assert_ne!(changed.claim, certificate.claim, "the change must change something");
    let broken = Certificate { checksum: certificate.checksum.clone(), ..changed.clone() };
    assert!(matches!(broken.verify(data), Err(SearchError::Refused { .. })), "the checksum alone refuses it");
    changed.verify(data)
}

fn solved(data: &Labelled, hidden: &[usize], search: SearchKind) -> (Solution, Certificate) {
    let problem = Problem::new("data", data.clone(), None).unwrap();
    let config = SolveConfig { search: Some(search), hidden: hidden.to_vec(), ..SolveConfig::default() };
    let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
    let certificate = Certificate::of_solution(data, &solution).unwrap();
    (solution, certificate)
}

fn xor() -> Labelled {
    Problem::generate(ProblemName::Xor, 0).unwrap().train
}

fn xor_network() -> Certificate {
    solved(&xor(), &[2], SearchKind::Exhaustive).1
}

/// Random points with whole coordinates, some of them equal.
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

#[test]
fn a_network_is_proved_again() {
    let certificate = Certificate::from_json(&xor_network().to_json()).unwrap();
    assert_eq!(certificate, xor_network());
    let verification = certificate.verify(&xor()).unwrap();
    assert!(verification.complete && verification.trusted.is_empty(), "zero errors need no trust");
    assert!(verification.to_string().contains("feasible (Definition 2)"));
}

/// Every number of the proofs matters: each is changed in turn and every change is refused, even by someone who
/// repairs the checksum.
#[test]
fn a_network_with_one_changed_number_is_refused() {
    let certificate = xor_network();
    for unit in 0..2 {
        for weight in 0..3 {
            let result = tampered(&certificate, &xor(), |value| {
                let number = &mut value["claim"]["hidden"][0][unit]["unit"]["weights"][weight];
                let float = number.as_str().unwrap().parse::<Rational>().unwrap().approximate();
                *number = Rational::from_float(-float - 1.0).unwrap().to_string().into();
            });
            assert!(result.is_err(), "unit {unit} weight {weight}: {result:?}");
        }
        let result = tampered(&certificate, &xor(), |value| {
            value["claim"]["hidden"][0][unit]["unit"]["functional_margin"] = "3/1024".into();
        });
        assert!(result.is_err());
    }
    assert!(tampered(&certificate, &xor(), |value| value["claim"]["errors"] = 1.into()).is_err());
    let result = tampered(&certificate, &xor(), |value| value["claim"]["outputs"][0]["weights"][2] = "9".into());
    assert!(result.is_err(), "the network no longer makes the errors it claims");
}

#[test]
fn witnesses_and_separations_are_proved_again_and_changes_refused() {
    let certificate = Certificate::of_verdict(&xor(), &separable(&xor().points, &xor().targets(0))).unwrap();
    assert!(certificate.verify(&xor()).unwrap().to_string().contains("4 instances cancel"));
    for term in 0..4 {
        for (key, other) in [("y", Value::from("2")), ("y", "-1".into()), ("y", "1/2".into()), ("instance", 7.into())] {
            assert!(tampered(&certificate, &xor(), |v| v["claim"]["witness"][term][key] = other.clone()).is_err());
        }
    }
    let mut rng = Rng::new(61);
    let rows: Vec<Vec<f64>> = (0..20).map(|_| vec![rng.normal(), rng.normal(), rng.normal()]).collect();
    let labels: Vec<usize> = rows.iter().map(|row| usize::from(row[0] - 0.3 * row[2] > 0.1)).collect();
    let data = Labelled::new(Points::from_rows(&rows).unwrap(), labels, vec!["a".into(), "b".into()]).unwrap();
    let certificate = Certificate::of_verdict(&data, &separable(&data.points, &data.targets(0))).unwrap();
    certificate.verify(&data).unwrap();
    let Claim::Separable { unit } = &certificate.claim else { panic!() };
    for weight in 0..4 {
        // The smallest change that a float can have.
        let mut unit = unit.clone();
        let float = unit.weights[weight].approximate();
        unit.weights[weight] = Rational::from_float(f64::from_bits(float.to_bits() + 1)).unwrap();
        let changed = Certificate::new(&data, Claim::Separable { unit });
        assert!(changed.verify(&data).is_err(), "weight {weight}");
    }
}

#[test]
fn other_data_and_nonsense_are_refused() {
    let certificate = xor_network();
    let mut other = xor();
    other.labels[0] = 1;
    let error = certificate.verify(&other).unwrap_err().to_string();
    assert!(error.contains("fingerprint"), "{error}");
    let larger = Problem::generate(ProblemName::Parity(3), 0).unwrap().train;
    assert!(certificate.verify(&larger).unwrap_err().to_string().contains("8, 3 and 2"));
    let renamed = Labelled { classes: vec!["no".into(), "yes\u{1b}".into()], ..xor() };
    let error = certificate.verify(&renamed).unwrap_err().to_string();
    let named: Vec<String> = xor().classes.iter().map(|class| format!("'{class}'")).collect();
    let words = format!("it is about the classes {}, the data has 'no', 'yes\\u{{1b}}'", named.join(", "));
    assert!(error.contains(&words), "{error}");
    let quoted = Certificate::from_json(&certificate.to_json().replacen("\"errors\": 0", "\"errors\": \"NaN\"", 1));
    let error = quoted.unwrap_err().to_string();
    assert!(error.contains("\"NaN\"") && !error.contains('\\'), "{error}");
    for text in ["", "{}", "[1]", "{\"format\": 3}"] {
        assert!(matches!(Certificate::from_json(text), Err(SearchError::BadCertificate { .. })), "{text}");
    }
    let old = Certificate::from_json("{\"format\": \"ftprop-certificate-1\"}").unwrap_err().to_string();
    assert!(old.contains("make it again"), "{old}");
}

/// What a certificate says is data: it cannot add lines to what `verify` prints, or choose which checks are made.
#[test]
fn words_cannot_be_forged() {
    let value = serde_json::to_value(xor_network()).unwrap();
    for (key, words) in [
        ("/claim/loss/kind", "banana"),
        ("/claim/bound/proof/by", "labels\nproved    everything"),
        ("/claim/hidden/0/0/unit/weights/0", "1\n\u{1b}[2J"),
        ("/claim/outputs/0/verdict/answer", "\u{1b}[31mfine"),
    ] {
        let mut value = value.clone();
        *value.pointer_mut(key).unwrap() = words.into();
        let error = resealed(value).unwrap_err().to_string();
        assert!(!error.contains('\n') && !error.contains('\u{1b}'), "{error:?}");
    }
    for key in ["/format", "/data/fingerprint", "/data/classes/0"] {
        let mut value = value.clone();
        *value.pointer_mut(key).unwrap() = "x\nproved    \u{1b}[2J".into();
        let error = resealed(value).unwrap().verify(&xor()).unwrap_err().to_string();
        assert!(!error.contains('\n') && !error.contains('\u{1b}'), "{error:?}");
    }
    let mut long = value;
    *long.pointer_mut("/claim/hidden/0/0/unit/weights/0").unwrap() = "7".repeat(4_000_000).into();
    assert!(resealed(long).unwrap_err().to_string().contains("digits"));
}

/// Bounds with errors left: by enumeration and by witnesses, nothing is on trust, and no higher bound is accepted.
#[test]
fn optima_with_errors_are_proved_from_the_file() {
    let mut rng = Rng::new(62);
    for case in 0..12 {
        let inputs = 1 + case % 5;
        let data = random(&mut rng, 9 + case % 4, inputs, 4);
        for hidden in [1, 2, 3] {
            if hidden > 1 && inputs > 2 {
                continue;
            }
            let (solution, certificate) = solved(&data, &[hidden], SearchKind::Anytime);
            assert!(solution.proved, "case {case} hidden {hidden}");
            let verification = certificate.verify(&data).unwrap();
            assert!(verification.complete, "case {case}: {verification}");
            let errors = solution.train.errors;
            let higher = tampered(&certificate, &data, |v| v["claim"]["bound"]["at_least"] = (errors + 1).into());
            assert!(higher.is_err(), "case {case}: more errors than it makes");
        }
    }
}

/// A network that is worse than the optimum, called optimal.
#[test]
fn a_worse_network_is_not_called_optimal() {
    let mut rng = Rng::new(63);
    let mut tried = 0;
    for _ in 0..10 {
        let data = random(&mut rng, 12, 2, 9);
        let (best, _) = solved(&data, &[1], SearchKind::Anytime);
        let always: Vec<Rational> = ["0", "0", "1"].map(|w| w.parse().unwrap()).to_vec();
        let output: Vec<Rational> = ["1", "0"].map(|w| w.parse().unwrap()).to_vec();
        let network = crate::network::ExactNetwork { layers: vec![vec![always], vec![output]] };
        let errors = network.errors(&data).unwrap();
        if errors == best.train.errors || best.bound.proof == Proof::Labels {
            continue;
        }
        tried += 1;
        for proof in [Proof::Enumeration, Proof::Witnesses(vec![]), best.bound.proof.clone()] {
            let mut worse = best.clone();
            worse.exact = network.clone();
            worse.train.errors = errors;
            worse.bound = Bound { at_least: errors as f64, proof };
            let result = Certificate::of_solution(&data, &worse).unwrap().verify(&data);
            assert!(result.is_err(), "{result:?}");
        }
    }
    assert!(tried > 3, "{tried}");
}

/// A search that the file cannot show is on trust, and said to be.
#[test]
fn what_only_a_search_knows_is_on_trust() {
    let problem = Problem::generate(ProblemName::Parity(3), 0).unwrap();
    let (solution, certificate) = solved(&problem.train, &[1, 2], SearchKind::Exhaustive);
    assert!(solution.proved && solution.train.errors > 0);
    let verification = certificate.verify(&problem.train).unwrap();
    assert!(!verification.complete && verification.trusted.len() == 1);
    assert!(verification.to_string().starts_with("the certificate is not proved"));
}
