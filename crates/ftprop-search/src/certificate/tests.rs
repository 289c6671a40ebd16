use std::sync::atomic::AtomicBool;

use super::*;
use crate::problem::{Problem, ProblemName};
use crate::rng::Rng;
use crate::search::SearchKind;
use crate::solve::{SolveConfig, solve};

/// The certificate after one number in its JSON was changed, with a checksum that fits again.
fn tampered(certificate: &Certificate, change: impl Fn(&mut serde_json::Value)) -> Result<Verification, SearchError> {
    let mut value = serde_json::to_value(certificate).unwrap();
    change(&mut value);
    let mut changed: Certificate = serde_json::from_value(value).unwrap();
    assert_ne!(changed.claim, certificate.claim, "the change must change something");
    assert!(matches!(changed.verify(&xor()), Err(SearchError::Refused { .. })), "the checksum alone refuses it");
    changed.checksum = changed.sum();
    changed.verify(&xor())
}

fn xor() -> Labelled {
    Problem::generate(ProblemName::Xor, 0).unwrap().train
}

fn xor_network() -> Certificate {
    let problem = Problem::generate(ProblemName::Xor, 0).unwrap();
    let config = SolveConfig { search: Some(SearchKind::Exhaustive), ..SolveConfig::default() };
    let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
    Certificate::of_solution(&problem.train, &solution).unwrap()
}

#[test]
fn a_network_is_proved_again() {
    let certificate = Certificate::from_json(&xor_network().to_json()).unwrap();
    assert_eq!(certificate, xor_network());
    let verification = certificate.verify(&xor()).unwrap();
    assert!(verification.trusted.is_empty(), "zero errors need no trust");
    assert!(verification.to_string().contains("feasible (Definition 2)"));
}

/// Every number of the proofs matters: each is changed in turn and every change is refused, even by someone who
/// repairs the checksum.
#[test]
fn a_network_with_one_changed_number_is_refused() {
    let certificate = xor_network();
    for unit in 0..2 {
        for weight in 0..3 {
            let result = tampered(&certificate, |value| {
                let number = &mut value["claim"]["hidden"][0][unit]["proof"]["weights"][weight];
                *number = serde_json::json!(-number.as_f64().unwrap() - 1.0);
            });
            assert!(result.is_err(), "unit {unit} weight {weight}: {result:?}");
        }
        let result = tampered(&certificate, |value| {
            value["claim"]["hidden"][0][unit]["proof"]["functional_margin"] = "3*2^-1000".into();
        });
        assert!(result.is_err());
    }
    for (key, other) in [("errors", 1.into()), ("loss_value", serde_json::json!(1.0))] {
        assert!(tampered(&certificate, |value| value["claim"][key] = other.clone()).is_err(), "{key}");
    }
    let result = tampered(&certificate, |value| value["claim"]["outputs"][0]["weights"][2] = serde_json::json!(9.0));
    assert!(result.is_err(), "the network no longer makes the errors it claims");
}

#[test]
fn witnesses_and_separations_are_proved_again_and_changes_refused() {
    let certificate = Certificate::of_verdict("xor", &xor(), &separable(&xor().points, &xor().targets(0))).unwrap();
    assert!(certificate.verify(&xor()).unwrap().to_string().contains("4 instances cancel"));
    for term in 0..4 {
        assert!(tampered(&certificate, |value| value["claim"]["witness"][term]["y"] = "2".into()).is_err());
        assert!(tampered(&certificate, |value| value["claim"]["witness"][term]["y"] = "-1".into()).is_err());
        assert!(tampered(&certificate, |value| value["claim"]["witness"][term]["instance"] = 7.into()).is_err());
    }
    let mut rng = Rng::new(61);
    let rows: Vec<Vec<f64>> = (0..20).map(|_| vec![rng.normal(), rng.normal(), rng.normal()]).collect();
    let labels: Vec<usize> = rows.iter().map(|row| usize::from(row[0] - 0.3 * row[2] > 0.1)).collect();
    let data = Labelled::new(Points::from_rows(&rows).unwrap(), labels, vec!["a".into(), "b".into()]).unwrap();
    let certificate = Certificate::of_verdict("plane", &data, &separable(&data.points, &data.targets(0))).unwrap();
    certificate.verify(&data).unwrap();
    let Claim::Separable(proof) = &certificate.claim else { panic!() };
    for weight in 0..4 {
        // The smallest change that a float can have.
        let mut proof = proof.clone();
        proof.weights[weight] = f64::from_bits(proof.weights[weight].to_bits() + 1);
        let changed = Certificate::new("plane", &data, Claim::Separable(proof));
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
    for text in ["", "{}", "[1]", "{\"format\": 3}"] {
        assert!(matches!(Certificate::from_json(text), Err(SearchError::BadCertificate { .. })), "{text}");
    }
}

/// A proved optimum with errors says what is taken on trust.
#[test]
fn a_proved_optimum_with_errors_names_what_is_trusted() {
    let problem = Problem::generate(ProblemName::Parity(3), 0).unwrap();
    let config = SolveConfig { search: Some(SearchKind::Exhaustive), hidden: vec![1], ..SolveConfig::default() };
    let solution = solve(&problem, &config, &AtomicBool::new(false), &|_| {}).unwrap();
    assert!(solution.proved && solution.train.errors > 0);
    let verification = Certificate::of_solution(&problem.train, &solution).unwrap().verify(&problem.train).unwrap();
    assert_eq!(verification.trusted.len(), 1);
    assert!(verification.trusted[0].contains("run it again"));
    assert!(verification.proved.iter().any(|line| line.contains("cannot separate")));
}
