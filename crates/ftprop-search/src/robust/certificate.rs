//! What was decided about instances, in a file from which anyone can prove it again.
//!
//! The network, the ball and the instances are in the file, so it can be checked alone; whether the network is the one
//! that is meant is for the reader to compare, with [`RobustCertificate::verify`] given both. `docs/exact.md` describes
//! the format.

use std::collections::HashSet;

use num_bigint::BigInt;
use serde::{Deserialize, Serialize};

use super::bound::Conflict;
use super::branch::{Node, Proof};
use super::network::Layers;
use super::{Ball, Decision, Question, Robustness};
use crate::certificate::{Verification, escaped, refused};
use crate::error::SearchError;
use crate::network::ExactNetwork;
use crate::points::{Fnv, Points};
use crate::rational::Rational;

const FORMAT: &str = "ftprop-robustness-1";

/// Decisions about instances as they are written to a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RobustCertificate {
    format: String,
    /// Layers of units, whole weights with the bias last.
    network: Vec<Vec<Vec<Rational>>>,
    ball: BallClaim,
    instances: Vec<InstanceClaim>,
    /// Of all the rest, against accidents.
    checksum: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BallClaim {
    radius: Rational,
    /// Counted from 1; null for all.
    inputs: Option<Vec<usize>>,
    range: Option<(Rational, Rational)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstanceClaim {
    /// Its number in the data, counted from 1.
    instance: usize,
    input: Vec<Rational>,
    class: usize,
    answer: Answer,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Answer {
    Robust { conflicts: Vec<Conflict>, tree: String },
    Changes { input: Vec<Rational>, class: usize },
    Undecided {},
}

/// What a certificate is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Meant<'a> {
    /// The network.
    pub network: &'a ExactNetwork,
    /// All instances of its data.
    pub data: &'a Points,
    /// The least and the greatest value that its inputs can have.
    pub range: &'a Option<(Rational, Rational)>,
}

impl RobustCertificate {
    /// The certificate of decisions about these instances, whose numbers in the data, counted from 0, are given.
    pub fn new(
        network: &ExactNetwork,
        points: &Points,
        numbers: &[usize],
        ball: &Ball,
        decisions: &[Decision],
    ) -> Result<Self, SearchError> {
        let layers = Layers::of(network)?;
        let instances = decisions.iter().enumerate().map(|(at, decision)| InstanceClaim {
            instance: numbers[at] + 1,
            input: points.exact_row(at),
            class: decision.class,
            answer: Answer::of(decision),
        });
        let inputs = ball.inputs.as_ref().map(|inputs| inputs.iter().map(|input| input + 1).collect());
        let certificate = RobustCertificate {
            format: FORMAT.to_string(),
            network: rows(&layers),
            ball: BallClaim { radius: ball.radius.clone(), inputs, range: ball.range.clone() },
            instances: instances.collect(),
            checksum: String::new(),
        };
        Ok(certificate.sealed())
    }

    /// With the checksum of its content.
    pub(super) fn sealed(self) -> Self {
        RobustCertificate { checksum: self.sum(), ..self }
    }

    /// Whether a text is meant to be such a certificate.
    pub fn is_meant(text: &str) -> bool {
        text.chars().take(200).collect::<String>().contains("\"ftprop-robustness-")
    }

    /// Reads a certificate from its text.
    pub fn from_json(text: &str) -> Result<Self, SearchError> {
        serde_json::from_str(text).map_err(|why| SearchError::BadCertificate { why: escaped(&why.to_string()) })
    }

    /// The text of the certificate file.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    fn sum(&self) -> String {
        let plain = RobustCertificate { checksum: String::new(), ..self.clone() };
        let mut sum = Fnv::default();
        sum.add(serde_json::to_string(&plain).unwrap_or_default().as_bytes());
        format!("{:016x}", sum.0)
    }

    /// Proves every answer again, and compares the network, the range of its inputs and the instances with those that are
    /// meant; what is not given to compare with is on trust.
    pub fn verify(&self, meant: Option<&Meant<'_>>) -> Result<Verification, SearchError> {
        if self.format != FORMAT {
            return Err(refused(format!("its format is '{}', not '{FORMAT}'", self.format.escape_debug())));
        }
        if self.checksum != self.sum() {
            return Err(refused("its checksum does not fit its content: it was changed"));
        }
        let exact = ExactNetwork { layers: self.network.clone() };
        let layers = Layers::of(&exact)?;
        if rows(&layers) != self.network {
            return Err(refused("the weights of its network are not whole numbers in lowest terms"));
        }
        let mut out = Verification::new();
        match meant.map(|meant| Layers::of(meant.network)).transpose()? {
            Some(meant) if meant == layers => out.prove("the network is the model's, weight for weight"),
            Some(_) => return Err(refused("it is about another network than the model's")),
            None => out.trust("that its network is the one that is meant: no model was given to compare with"),
        }
        let range = match &self.ball.range {
            Some((low, high)) => format!("inputs lie between {low} and {high}"),
            None => "inputs can have any value".to_string(),
        };
        match meant.map(|meant| *meant.range == self.ball.range) {
            Some(true) => out.prove(format!("{range}, as the model's can")),
            Some(false) => return Err(refused(format!("it says that {range}, and the model's are others"))),
            None => out.trust(format!("that {range}: no model was given to compare with")),
        }
        self.compare(meant.map(|meant| meant.data), &mut out)?;
        self.prove(&exact, &mut out)?;
        Ok(out)
    }

    /// Whether its instances are the data's, each once.
    fn compare(&self, data: Option<&Points>, out: &mut Verification) -> Result<(), SearchError> {
        if self.instances.is_empty() {
            return Err(refused("it is about no instances"));
        }
        let mut named = HashSet::new();
        if let Some(twice) = self.instances.iter().find(|claim| !named.insert(claim.instance)) {
            return Err(refused(format!("it names instance {} twice", twice.instance)));
        }
        let Some(data) = data else {
            out.trust("that its instances are those of the data: no data were given to compare with");
            return Ok(());
        };
        for claim in &self.instances {
            let there = claim.instance.checked_sub(1).filter(|&at| at < data.len());
            if there.is_none_or(|at| data.exact_row(at) != claim.input) {
                return Err(refused(format!("instance {} is another one in the data", claim.instance)));
            }
        }
        out.prove(format!("its {} instances are those of the data, digit for digit", self.instances.len()));
        Ok(())
    }

    /// Every answer.
    fn prove(&self, network: &ExactNetwork, out: &mut Verification) -> Result<(), SearchError> {
        let inputs = match &self.ball.inputs {
            Some(all) => {
                let from_zero = all.iter().map(|input| input.checked_sub(1)).collect::<Option<Vec<_>>>();
                Some(from_zero.ok_or_else(|| refused("inputs are counted from 1"))?)
            }
            None => None,
        };
        let ball = Ball { radius: self.ball.radius.clone(), inputs, range: self.ball.range.clone() };
        let numbers = || self.instances.iter().flat_map(|claim| &claim.input);
        let floats = numbers().map(Rational::approximate);
        let question = Question::new(network, &ball, numbers().map(Rational::denominator), floats)?;
        let (mut robust, mut changed, mut open, mut branches) = (0, 0, 0, 0);
        for claim in &self.instances {
            let wrong = |why: &str| refused(format!("instance {}: {why}", claim.instance));
            let around = question.around(&claim.input)?;
            if question.class(&around) != claim.class {
                return Err(wrong("its class is another"));
            }
            match &claim.answer {
                Answer::Robust { conflicts, tree } => {
                    let tree = parse_tree(tree).ok_or_else(|| wrong("its tree cannot be read"))?;
                    let proof = Proof { conflicts: conflicts.clone(), tree };
                    branches +=
                        question.check(&around, claim.class, &proof).ok_or_else(|| wrong("its tree proves nothing"))?;
                    robust += 1;
                }
                Answer::Changes { input, class } => {
                    if *class == claim.class || question.class_within(&around, input) != Some(*class) {
                        return Err(wrong("its counterexample is none"));
                    }
                    changed += 1;
                }
                Answer::Undecided {} => open += 1,
            }
        }
        let moving = ball.moving(network.layers[0][0].len() - 1).map_or(String::new(), |moving| format!(" ({moving})"));
        let radius = format!("{}{moving}", self.ball.radius);
        out.prove(format!("{robust} instances keep their class within {radius} ({branches} branches looked at)"));
        out.prove(format!("{changed} instances have an input within {radius} whose class is another"));
        if open > 0 {
            out.prove(format!("nothing is claimed about {open} instances"));
        }
        Ok(())
    }
}

impl Answer {
    fn of(decision: &Decision) -> Self {
        match (&decision.answer, &decision.proof) {
            (Robustness::Robust, Some(proof)) => {
                Answer::Robust { conflicts: proof.conflicts.clone(), tree: write_tree(&proof.tree) }
            }
            (Robustness::Changes { input, class }, _) => Answer::Changes { input: input.clone(), class: *class },
            _ => Answer::Undecided {},
        }
    }
}

/// A number is a split of that unit, `c` and a number a conflict, `b` a bound.
fn write_tree(tree: &[Node]) -> String {
    let word = |node: &Node| match node {
        Node::Split(unit) => unit.to_string(),
        Node::Conflict(number) => format!("c{number}"),
        Node::Bound => "b".to_string(),
    };
    tree.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn parse_tree(text: &str) -> Option<Vec<Node>> {
    // One spelling a number: what other programs would read differently must not be read here.
    let number = |digits: &str| digits.parse::<usize>().ok().filter(|n| n.to_string() == digits);
    let node = |word: &str| match word.strip_prefix('c') {
        Some(conflict) => number(conflict).map(Node::Conflict),
        None if word == "b" => Some(Node::Bound),
        None => number(word).map(Node::Split),
    };
    text.split(' ').map(node).collect()
}

fn rows(layers: &Layers<BigInt>) -> Vec<Vec<Vec<Rational>>> {
    let exact = |number: &BigInt| Rational::from(number.clone());
    let unit = |layer: &super::network::Layer<BigInt>, unit: usize| {
        layer.row(unit).iter().chain([&layer.biases[unit]]).map(exact).collect()
    };
    layers.0.iter().map(|layer| (0..layer.units()).map(|u| unit(layer, u)).collect()).collect()
}
