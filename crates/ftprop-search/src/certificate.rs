//! Certificates: files from which anyone who has the data can prove an answer again.
//!
//! A certificate names the data by a fingerprint and holds what the checker needs, all of it as whole numbers and
//! fractions. `docs/exact.md` describes the format; verifying is in [`verify`] and uses the exact checker alone: no
//! solver, no search.

mod verify;

use std::path::Path;

use num_bigint::{BigInt, BigUint};
use serde::{Deserialize, Serialize};

use crate::error::SearchError;
use crate::exact::{Witness, check_separation};
use crate::network::as_points;
use crate::points::{Fnv, Labelled};
use crate::rational::Rational;
use crate::search::{Bound, Loss, Proof};
use crate::separability::{Verdict, separable};
use crate::solve::Solution;

pub use verify::Verification;

const FORMAT: &str = "ftprop-certificate-2";

/// A certificate as it is written to a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    format: String,
    data: DataId,
    claim: Claim,
    /// Of all the rest, against accidents.
    checksum: String,
}

/// Which data a certificate is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataId {
    instances: usize,
    inputs: usize,
    classes: Vec<String>,
    fingerprint: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Claim {
    /// The two classes are linearly separable.
    Separable { unit: UnitProof },
    /// They are not.
    NotSeparable { witness: Vec<Term> },
    /// A network and what it does.
    Network(Box<NetworkClaim>),
}

/// Weights, the bias last, and the exact smallest tᵢ (w · xᵢ + b).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitProof {
    weights: Vec<Rational>,
    functional_margin: Rational,
}

/// One instance's share in a witness, counted from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Term {
    instance: usize,
    y: Rational,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkClaim {
    hidden: Vec<Vec<HiddenUnit>>,
    outputs: Vec<OutputUnit>,
    errors: usize,
    loss: LossClaim,
    bound: BoundClaim,
}

/// The loss that the search minimised; the zero-one loss is the number of errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum LossClaim {
    ZeroOne {},
    /// Its value, and whether the search claims that no network of this shape has a lower one.
    Hinge {
        value: Rational,
        least: bool,
    },
}

/// No network of this shape makes fewer errors than this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoundClaim {
    at_least: usize,
    proof: ProofClaim,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case", deny_unknown_fields)]
enum ProofClaim {
    /// Equal instances with different labels force them.
    Labels {},
    /// The checker may list every possibility itself.
    Enumeration {},
    /// Instances that cancel cannot all be right: whoever hits every witness gives up that many instances.
    Witnesses { witnesses: Vec<Vec<Term>> },
    /// The search excluded everything else, which the file cannot show.
    Search {},
}

/// A hidden unit's targets, one sign an instance, and the proof that it realises them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HiddenUnit {
    targets: String,
    unit: UnitProof,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputUnit {
    weights: Vec<Rational>,
    verdict: OutputVerdict,
}

/// Whether the last hidden layer's outputs are separable with respect to the unit's targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
enum OutputVerdict {
    Separable { unit: UnitProof },
    NotSeparable { witness: Vec<Term> },
    Unknown {},
}

pub(crate) fn refused(why: impl Into<String>) -> SearchError {
    SearchError::Refused { why: why.into() }
}

/// A message about a file, with what could move a terminal's cursor made visible; quotes stay as they are.
pub(crate) fn escaped(message: &str) -> String {
    let plain = |c: char| matches!(c, '\'' | '"' | '\\');
    message.chars().map(|c| if plain(c) { c.to_string() } else { c.escape_debug().to_string() }).collect()
}

fn signs(targets: &[bool]) -> String {
    targets.iter().map(|&target| if target { '+' } else { '-' }).collect()
}

fn terms(witness: &Witness) -> Vec<Term> {
    let share = |y: &BigUint| Rational::from(BigInt::from(y.clone()));
    witness.iter().map(|(instance, y)| Term { instance: instance + 1, y: share(y) }).collect()
}

/// Larger files are no certificates of this program.
const MOST_BYTES: u64 = 1 << 30;

/// The text of a certificate file, if it is not out of all proportion.
pub fn read_certificate(path: &Path) -> Result<String, SearchError> {
    let name = || path.display().to_string();
    let failed = |source| SearchError::File { path: name(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > MOST_BYTES {
        let why = format!("{bytes} bytes are too many");
        return Err(SearchError::InFile { path: name(), source: Box::new(SearchError::BadCertificate { why }) });
    }
    std::fs::read_to_string(path).map_err(failed)
}

impl Certificate {
    fn new(data: &Labelled, claim: Claim) -> Self {
        let id = DataId {
            instances: data.points.len(),
            inputs: data.points.inputs(),
            classes: data.classes.clone(),
            fingerprint: format!("{:016x}", data.points.fingerprint(&data.labels)),
        };
        let mut certificate = Certificate { format: FORMAT.to_string(), data: id, claim, checksum: String::new() };
        certificate.checksum = certificate.sum();
        certificate
    }

    fn sum(&self) -> String {
        let plain = Certificate { checksum: String::new(), ..self.clone() };
        let mut sum = Fnv::default();
        sum.add(serde_json::to_string(&plain).unwrap_or_default().as_bytes());
        format!("{:016x}", sum.0)
    }

    /// The certificate of a verdict about two classes; none for an unknown one.
    pub fn of_verdict(data: &Labelled, verdict: &Verdict) -> Option<Self> {
        let claim = match verdict {
            Verdict::Separable(found) => {
                Claim::Separable { unit: UnitProof::of(&found.exact, &found.functional_margin) }
            }
            Verdict::NotSeparable(witness) => Claim::NotSeparable { witness: terms(witness) },
            Verdict::Unknown { .. } => return None,
        };
        Some(Certificate::new(data, claim))
    }

    /// The certificate of a solution on its training instances.
    pub fn of_solution(data: &Labelled, solution: &Solution) -> Result<Self, SearchError> {
        let network = &solution.exact;
        let hidden = network.hidden(&data.points)?;
        let mut units = vec![];
        for (depth, layer) in hidden.iter().enumerate() {
            let below = depth.checked_sub(1).map(|below| as_points(&hidden[below]));
            let inputs = below.as_ref().unwrap_or(&data.points);
            let prove = |(targets, weights): (&Vec<bool>, &Vec<Rational>)| {
                let margin = check_separation(inputs, targets, weights).map_err(|why| refused(why.to_string()))?;
                Ok(HiddenUnit { targets: signs(targets), unit: UnitProof::of(weights, &margin) })
            };
            units.push(layer.iter().zip(&network.layers[depth]).map(prove).collect::<Result<_, SearchError>>()?);
        }
        let last = hidden.last().map(as_points);
        let inputs = last.as_ref().unwrap_or(&data.points);
        let output = |(number, weights): (usize, &Vec<Rational>)| {
            let verdict = match separable(inputs, &data.targets(number)) {
                Verdict::Separable(found) => {
                    OutputVerdict::Separable { unit: UnitProof::of(&found.exact, &found.functional_margin) }
                }
                Verdict::NotSeparable(witness) => OutputVerdict::NotSeparable { witness: terms(&witness) },
                Verdict::Unknown { .. } => OutputVerdict::Unknown {},
            };
            OutputUnit { weights: weights.clone(), verdict }
        };
        let outputs = network.layers.last().into_iter().flatten().enumerate().map(output).collect();
        let loss = match solution.loss {
            Loss::ZeroOne => LossClaim::ZeroOne {},
            Loss::Hinge => {
                let on_trust = solution.at_least_on_trust.is_some_and(|most| solution.loss_value <= most + 1e-6);
                LossClaim::Hinge { value: network.hinge(data)?, least: solution.proved || on_trust }
            }
        };
        let bound = BoundClaim::of(data, solution);
        let claim = NetworkClaim { hidden: units, outputs, errors: solution.train.errors, loss, bound };
        Ok(Certificate::new(data, Claim::Network(Box::new(claim))))
    }

    /// Reads a certificate file.
    pub fn read(path: &Path) -> Result<Self, SearchError> {
        let text = read_certificate(path)?;
        let name = || path.display().to_string();
        Certificate::from_json(&text).map_err(|source| SearchError::InFile { path: name(), source: Box::new(source) })
    }

    /// Reads a certificate from its text.
    pub fn from_json(text: &str) -> Result<Self, SearchError> {
        serde_json::from_str(text).map_err(|why| {
            // Older formats have other fields, so their number is looked for before anything else is complained about.
            let older = text.contains("\"ftprop-certificate-1\"");
            let why = if older {
                "it has the first format, which was about rounded numbers; make it again".to_string()
            } else {
                escaped(&why.to_string())
            };
            SearchError::BadCertificate { why }
        })
    }

    /// The text of the certificate file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl UnitProof {
    fn of(weights: &[Rational], functional_margin: &Rational) -> Self {
        UnitProof { weights: weights.to_vec(), functional_margin: functional_margin.clone() }
    }
}

impl BoundClaim {
    fn of(data: &Labelled, solution: &Solution) -> Self {
        let labels = BoundClaim { at_least: data.forced_errors(), proof: ProofClaim::Labels {} };
        let Bound { at_least, proof } = &solution.bound;
        // What is not proved is not written off for that: it stays on trust.
        let (at_least, proof) = solution.at_least_on_trust.map_or((*at_least, proof), |most| (most, &Proof::Search));
        let at_least = at_least as usize;
        if solution.loss != Loss::ZeroOne || at_least <= labels.at_least {
            return labels;
        }
        let proof = match proof {
            Proof::Labels => return labels,
            Proof::Enumeration => ProofClaim::Enumeration {},
            Proof::Witnesses(all) => ProofClaim::Witnesses { witnesses: all.iter().map(terms).collect() },
            Proof::Search => ProofClaim::Search {},
        };
        BoundClaim { at_least, proof }
    }
}

#[cfg(test)]
mod tests;
