//! Certificates: files from which anyone who has the data can prove an answer again.
//!
//! A certificate names the data by a fingerprint and holds what the checker needs. Verifying uses the exact checker
//! alone: no solver, no search.

use std::fmt;
use std::path::Path;

use num_bigint::BigUint;
use serde::{Deserialize, Serialize};

use crate::error::SearchError;
use crate::exact::{Dyadic, Refusal, Witness, check_separation, check_witness};
use crate::network::{LayerTargets, Network, as_points};
use crate::points::{Fnv, Labelled, Points};
use crate::search::Loss;
use crate::separability::{Verdict, separable};
use crate::solve::Solution;

const FORMAT: &str = "ftprop-certificate-1";

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
    name: String,
    instances: usize,
    inputs: usize,
    classes: Vec<String>,
    fingerprint: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Claim {
    /// The two classes are linearly separable.
    Separable(UnitProof),
    /// They are not.
    NotSeparable { witness: Vec<Term> },
    /// A network and what it does.
    Network(Box<NetworkClaim>),
}

/// Weights, the bias last, and the exact smallest tᵢ (w · xᵢ + b).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitProof {
    weights: Vec<f64>,
    functional_margin: Dyadic,
}

/// One instance's share in a witness, counted from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Term {
    instance: usize,
    y: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkClaim {
    hidden: Vec<Vec<HiddenUnit>>,
    outputs: Vec<OutputUnit>,
    errors: usize,
    /// Whether the search claims that no network of this shape has a lower loss.
    optimal: bool,
    loss: String,
    loss_value: f64,
    search: String,
    nodes: u64,
}

/// A hidden unit's targets, one sign an instance, and the proof that it realises them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HiddenUnit {
    targets: String,
    proof: UnitProof,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputUnit {
    weights: Vec<f64>,
    verdict: OutputVerdict,
}

/// Whether the last hidden layer's outputs are separable with respect to the unit's targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case", deny_unknown_fields)]
enum OutputVerdict {
    Separable(UnitProof),
    NotSeparable { witness: Vec<Term> },
    Unknown,
}

/// What verifying established.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// What was proved again, exactly.
    pub proved: Vec<String>,
    /// What the certificate claims but its data cannot prove.
    pub trusted: Vec<String>,
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificate is good")?;
        self.proved.iter().try_for_each(|line| write!(f, "\nproved    {line}"))?;
        self.trusted.iter().try_for_each(|line| write!(f, "\non trust  {line}"))
    }
}

fn refused(why: impl Into<String>) -> SearchError {
    SearchError::Refused { why: why.into() }
}

fn signs(targets: &[bool]) -> String {
    targets.iter().map(|&target| if target { '+' } else { '-' }).collect()
}

fn terms(witness: &Witness) -> Vec<Term> {
    witness.iter().map(|(instance, y)| Term { instance: instance + 1, y: y.to_string() }).collect()
}

fn witness(terms: &[Term]) -> Result<Witness, SearchError> {
    let term = |term: &Term| {
        let y: BigUint = term.y.parse().ok()?;
        Some((term.instance.checked_sub(1)?, y))
    };
    let wrong = || refused("a share of the witness is not a whole number of at least zero for an instance");
    terms.iter().map(|one| term(one).ok_or_else(wrong)).collect()
}

impl UnitProof {
    /// Confirms the proof for these targets, the margin included.
    fn check(&self, points: &Points, targets: &[bool], what: &str) -> Result<(), SearchError> {
        let named = |why: Refusal| refused(format!("{what}: {why}"));
        let margin = check_separation(points, targets, &self.weights).map_err(named)?;
        if margin != self.functional_margin {
            return Err(refused(format!("{what}: the margin is {margin}, not {}", self.functional_margin)));
        }
        Ok(())
    }
}

impl Certificate {
    fn new(name: &str, data: &Labelled, claim: Claim) -> Self {
        let id = DataId {
            name: name.to_string(),
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
        let text = serde_json::to_string(&plain).unwrap_or_default();
        let mut sum = Fnv::default();
        text.bytes().for_each(|byte| sum.add(byte.into()));
        format!("{:016x}", sum.0)
    }

    /// The certificate of a verdict about two classes; none for an unknown one.
    pub fn of_verdict(name: &str, data: &Labelled, verdict: &Verdict) -> Option<Self> {
        let claim = match verdict {
            Verdict::Separable(found) => Claim::Separable(UnitProof {
                weights: found.weights.clone(),
                functional_margin: found.functional_margin.clone(),
            }),
            Verdict::NotSeparable(witness) => Claim::NotSeparable { witness: terms(witness) },
            Verdict::Unknown { .. } => return None,
        };
        Some(Certificate::new(name, data, claim))
    }

    /// The certificate of a solution on its training instances.
    pub fn of_solution(data: &Labelled, solution: &Solution) -> Result<Self, SearchError> {
        let network = &solution.network;
        let (hidden, _) = network.exact_run(&data.points)?;
        let mut units = vec![];
        for (depth, layer) in hidden.iter().enumerate() {
            let below = depth.checked_sub(1).map(|below| as_points(&hidden[below]));
            let inputs = below.as_ref().unwrap_or(&data.points);
            let prove = |(targets, weights): (&Vec<bool>, &Vec<f64>)| {
                let margin = check_separation(inputs, targets, weights).map_err(|why| refused(why.to_string()))?;
                let proof = UnitProof { weights: weights.clone(), functional_margin: margin };
                Ok(HiddenUnit { targets: signs(targets), proof })
            };
            units.push(layer.iter().zip(&network.layers[depth]).map(prove).collect::<Result<_, SearchError>>()?);
        }
        let last = hidden.last().map(as_points);
        let inputs = last.as_ref().unwrap_or(&data.points);
        let output = |(number, weights): (usize, &Vec<f64>)| {
            let verdict = match separable(inputs, &data.targets(number)) {
                Verdict::Separable(found) => OutputVerdict::Separable(UnitProof {
                    weights: found.weights,
                    functional_margin: found.functional_margin,
                }),
                Verdict::NotSeparable(witness) => OutputVerdict::NotSeparable { witness: terms(&witness) },
                Verdict::Unknown { .. } => OutputVerdict::Unknown,
            };
            OutputUnit { weights: weights.clone(), verdict }
        };
        let outputs = network.layers.last().into_iter().flatten().enumerate().map(output).collect();
        let claim = NetworkClaim {
            hidden: units,
            outputs,
            errors: solution.train.errors,
            optimal: solution.proved,
            loss: if solution.loss == Loss::ZeroOne { "zero-one" } else { "hinge" }.to_string(),
            loss_value: solution.loss_value,
            search: solution.search.clone(),
            nodes: solution.nodes,
        };
        Ok(Certificate::new(&solution.problem, data, Claim::Network(Box::new(claim))))
    }

    /// The name of the data, for people and for built-in problems.
    pub fn data_name(&self) -> &str {
        &self.data.name
    }

    /// Reads a certificate file.
    pub fn read(path: &Path) -> Result<Self, SearchError> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| SearchError::File { path: name(), source })?;
        Certificate::from_json(&text).map_err(|source| SearchError::InFile { path: name(), source: Box::new(source) })
    }

    /// Reads a certificate from its text.
    pub fn from_json(text: &str) -> Result<Self, SearchError> {
        serde_json::from_str(text).map_err(|why| SearchError::BadCertificate { why: why.to_string() })
    }

    /// The text of the certificate file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Writes a certificate file.
    pub fn write(&self, path: &Path) -> Result<(), SearchError> {
        let failed = |source| SearchError::File { path: path.display().to_string(), source };
        std::fs::write(path, self.to_json()).map_err(failed)
    }

    /// Proves the claim again for these instances, or says what is wrong with it.
    pub fn verify(&self, data: &Labelled) -> Result<Verification, SearchError> {
        if self.format != FORMAT {
            return Err(refused(format!("its format is '{}', not '{FORMAT}'", self.format)));
        }
        if self.checksum != self.sum() {
            return Err(refused("its checksum does not fit its content: it was changed"));
        }
        let id = &self.data;
        let found = format!("{:016x}", data.points.fingerprint(&data.labels));
        if (id.instances, id.inputs) != (data.points.len(), data.points.inputs()) || id.classes != data.classes {
            return Err(refused(format!(
                "it is about {} instances with {} inputs and {} classes, the data has {}, {} and {}",
                id.instances,
                id.inputs,
                id.classes.len(),
                data.points.len(),
                data.points.inputs(),
                data.classes.len()
            )));
        }
        if id.fingerprint != found {
            return Err(refused(format!("it is about data with fingerprint {}, this one has {found}", id.fingerprint)));
        }
        match &self.claim {
            Claim::Network(claim) => claim.verify(data),
            _ if data.classes.len() != 2 => Err(SearchError::NotBinary { classes: data.classes.len() }),
            Claim::Separable(proof) => {
                proof.check(&data.points, &data.targets(0), "the weights")?;
                let proved = format!("{} instances are linearly separable: all are on their side", id.instances);
                Ok(Verification { proved: vec![proved], trusted: vec![] })
            }
            Claim::NotSeparable { witness: terms } => {
                check_witness(&data.points, &data.targets(0), &witness(terms)?).map_err(|w| refused(w.to_string()))?;
                let proved = format!("not linearly separable: {} instances cancel exactly (Gordan)", terms.len());
                Ok(Verification { proved: vec![proved], trusted: vec![] })
            }
        }
    }
}

impl NetworkClaim {
    fn network(&self) -> Network {
        let hidden = self.hidden.iter().map(|layer| layer.iter().map(|unit| unit.proof.weights.clone()).collect());
        let outputs = self.outputs.iter().map(|unit| unit.weights.clone()).collect();
        Network { layers: hidden.chain([outputs]).collect() }
    }

    fn verify(&self, data: &Labelled) -> Result<Verification, SearchError> {
        let mut verification = Verification { proved: vec![], trusted: vec![] };
        if self.outputs.len() != data.outputs() || self.hidden.iter().any(Vec::is_empty) {
            return Err(refused("it has the wrong number of units"));
        }
        let targets = self.check_hidden(data)?;
        let units: usize = self.hidden.iter().map(Vec::len).sum();
        verification.proved.push(format!("each hidden unit, {units} in all, separates its targets (Definition 1)"));
        let last = targets.last().map(as_points);
        self.check_outputs(data, last.as_ref().unwrap_or(&data.points), &mut verification)?;
        self.check_errors(data, &mut verification)?;
        Ok(verification)
    }

    /// Every hidden unit's proof; returns the targets.
    fn check_hidden(&self, data: &Labelled) -> Result<Vec<LayerTargets>, SearchError> {
        let mut targets: Vec<LayerTargets> = vec![];
        for (depth, layer) in self.hidden.iter().enumerate() {
            let below = targets.last().map(as_points);
            let inputs = below.as_ref().unwrap_or(&data.points);
            let mut read = vec![];
            for (number, unit) in layer.iter().enumerate() {
                let what = format!("layer {} unit {}", depth + 1, number + 1);
                let sign = |c: char| match c {
                    '+' => Some(true),
                    '-' => Some(false),
                    _ => None,
                };
                let unit_targets: Option<Vec<bool>> = unit.targets.chars().map(sign).collect();
                let unit_targets = unit_targets.ok_or_else(|| refused(format!("{what}: targets are not signs")))?;
                unit.proof.check(inputs, &unit_targets, &what)?;
                read.push(unit_targets);
            }
            targets.push(read);
        }
        Ok(targets)
    }

    /// The verdict about every output unit.
    fn check_outputs(&self, data: &Labelled, inputs: &Points, out: &mut Verification) -> Result<(), SearchError> {
        let (mut yes, mut no) = (0, 0);
        for (number, unit) in self.outputs.iter().enumerate() {
            let what = format!("output {}", number + 1);
            let wanted = data.targets(number);
            match &unit.verdict {
                OutputVerdict::Separable(proof) => {
                    proof.check(inputs, &wanted, &what)?;
                    yes += 1;
                }
                OutputVerdict::NotSeparable { witness: terms } => {
                    let refuse = |why: Refusal| refused(format!("{what}: {why}"));
                    check_witness(inputs, &wanted, &witness(terms)?).map_err(refuse)?;
                    no += 1;
                }
                OutputVerdict::Unknown => out.trusted.push(format!("{what}: nothing is claimed about separability")),
            }
        }
        if yes == self.outputs.len() {
            out.proved.push("each output unit's targets are separable: the targets are feasible (Definition 2)".into());
        } else if no > 0 {
            out.proved.push(format!("{no} of {} output units cannot separate their targets", self.outputs.len()));
        }
        Ok(())
    }

    /// The number of errors, and what follows for optimality.
    fn check_errors(&self, data: &Labelled, out: &mut Verification) -> Result<(), SearchError> {
        let (_, classes) = self.network().exact_run(&data.points)?;
        let errors = classes.iter().zip(&data.labels).filter(|(found, wanted)| found != wanted).count();
        if errors != self.errors {
            return Err(refused(format!("the network makes {errors} errors, not {}", self.errors)));
        }
        out.proved.push(format!("the network makes {errors} errors on {} instances", data.labels.len()));
        let zero_one = self.loss == "zero-one";
        if zero_one && self.loss_value != errors as f64 {
            return Err(refused(format!("the zero-one loss is {errors}, not {}", self.loss_value)));
        }
        if errors == data.forced_errors() {
            out.proved.push("no classifier makes fewer errors on these labels".into());
        } else if self.optimal && zero_one {
            let shape: Vec<String> = self.hidden.iter().map(|layer| layer.len().to_string()).collect();
            out.trusted.push(format!(
                "no network with hidden units {} makes fewer errors: found by {} search over {} settings, which a \
                 certificate cannot hold; run it again to repeat the proof",
                shape.join(","),
                self.search,
                self.nodes
            ));
        }
        if !zero_one {
            out.trusted.push(format!("the hinge loss {} is computed in floating point", self.loss_value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
