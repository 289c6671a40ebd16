//! Proving a certificate's claims again.

use std::fmt;

use serde::Serialize;

use super::{
    BoundClaim, Certificate, Claim, FORMAT, LossClaim, NetworkClaim, OutputVerdict, ProofClaim, Term, UnitProof,
    refused,
};
use crate::error::SearchError;
use crate::exact::{Refusal, Witness, bound, check_separation, check_witness};
use crate::network::{ExactNetwork, LayerTargets, as_points};
use crate::points::{Labelled, Points};
use crate::search::{Bound, Known, Loss, Proof};

/// What verifying established.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verification {
    /// Whether everything that the certificate claims was proved.
    pub complete: bool,
    /// What was proved again, exactly.
    pub proved: Vec<String>,
    /// What the certificate claims but its content cannot prove.
    pub trusted: Vec<String>,
}

impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.complete {
            "the certificate is good: all that it claims is proved"
        } else {
            "the certificate is not proved: nothing in it is wrong, but part of it is on trust"
        })?;
        self.proved.iter().try_for_each(|line| write!(f, "\nproved    {line}"))?;
        self.trusted.iter().try_for_each(|line| write!(f, "\non trust  {line}"))
    }
}

impl Verification {
    pub(crate) fn new() -> Self {
        Verification { complete: true, proved: vec![], trusted: vec![] }
    }

    pub(crate) fn prove(&mut self, line: impl Into<String>) {
        self.proved.push(line.into());
    }

    pub(crate) fn trust(&mut self, line: impl Into<String>) {
        self.complete = false;
        self.trusted.push(line.into());
    }
}

/// Classes that are named where they are others.
const MOST_NAMED: usize = 10;

/// Names in one line, the first so many.
fn listed(names: &[String], most: usize) -> String {
    let mut shown: Vec<String> = names.iter().take(most).map(|name| format!("'{}'", name.escape_debug())).collect();
    if names.len() > most {
        shown.push(format!("{} more", names.len() - most));
    }
    shown.join(", ")
}

fn witness(terms: &[Term]) -> Result<Witness, SearchError> {
    let wrong = || refused("a share of a witness is not a whole number of at least zero for an instance");
    let term = |term: &Term| {
        let y = term.y.numerator().to_biguint().filter(|_| *term.y.denominator() == 1u32.into())?;
        Some((term.instance.checked_sub(1)?, y))
    };
    terms.iter().map(|one| term(one).ok_or_else(wrong)).collect()
}

impl UnitProof {
    /// Confirms the proof for these targets, the margin included.
    fn check(&self, points: &Points, targets: &[bool], what: &str) -> Result<(), SearchError> {
        let named = |why: Refusal| refused(format!("{what}: {why}"));
        let margin = check_separation(points, targets, &self.weights).map_err(named)?;
        if margin != self.functional_margin {
            return Err(refused(format!("{what}: the margin is not the one that it says")));
        }
        Ok(())
    }
}

impl Certificate {
    /// What a search can go on from, for the same instances and shape; what is not on trust is proved first.
    pub fn known(&self, data: &Labelled, hidden: &[usize]) -> Result<Known, SearchError> {
        self.verify(data)?;
        let Claim::Network(claim) = &self.claim else { return Err(refused("it is not about a network")) };
        if claim.shape() != hidden {
            return Err(refused("it is about a network of another shape"));
        }
        let (loss, bound) = match &claim.loss {
            LossClaim::ZeroOne {} => (Loss::ZeroOne, claim.bound.known()?),
            LossClaim::Hinge { value, least: true } => {
                (Loss::Hinge, Bound { at_least: value.approximate(), proof: Proof::Search })
            }
            LossClaim::Hinge { least: false, .. } => (Loss::Hinge, Bound { at_least: 0.0, proof: Proof::Labels }),
        };
        Ok(Known { network: claim.network(), loss, bound })
    }

    /// Proves the claim again for these instances, or says what is wrong with it.
    pub fn verify(&self, data: &Labelled) -> Result<Verification, SearchError> {
        if self.format != FORMAT {
            return Err(refused(format!("its format is '{}', not '{FORMAT}'", self.format.escape_debug())));
        }
        if self.checksum != self.sum() {
            return Err(refused("its checksum does not fit its content: it was changed"));
        }
        let id = &self.data;
        let same_size = (id.instances, id.inputs) == (data.points.len(), data.points.inputs());
        if same_size && id.classes != data.classes && id.classes.len() == data.classes.len() {
            // Of many those from the first that differs on.
            let other = id.classes.iter().zip(&data.classes).position(|(said, found)| said != found).unwrap_or(0);
            let from = if id.classes.len() > MOST_NAMED { other } else { 0 };
            let named = |classes: &[String]| listed(&classes[from..], MOST_NAMED);
            let (said, found) = (named(&id.classes), named(&data.classes));
            return Err(refused(format!("it is about the classes {said}, the data has {found}")));
        }
        if !same_size || id.classes != data.classes {
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
        let found = format!("{:016x}", data.points.fingerprint(&data.labels));
        if id.fingerprint != found {
            let said = id.fingerprint.escape_debug();
            return Err(refused(format!("it is about data with fingerprint {said}, this one has {found}")));
        }
        let mut out = Verification::new();
        match &self.claim {
            Claim::Network(claim) => claim.verify(data, &mut out)?,
            _ if data.classes.len() != 2 => return Err(SearchError::NotBinary { classes: data.classes.len() }),
            Claim::Separable { unit } => {
                unit.check(&data.points, &data.targets(0), "the weights")?;
                out.prove(format!("{} instances are linearly separable: all are on their side", id.instances));
            }
            Claim::NotSeparable { witness: terms } => {
                check_witness(&data.points, &data.targets(0), &witness(terms)?).map_err(|w| refused(w.to_string()))?;
                out.prove(format!("not linearly separable: {} instances cancel exactly (Gordan)", terms.len()));
            }
        }
        Ok(out)
    }
}

impl NetworkClaim {
    pub(super) fn network(&self) -> ExactNetwork {
        let hidden = self.hidden.iter().map(|layer| layer.iter().map(|unit| unit.unit.weights.clone()).collect());
        let outputs = self.outputs.iter().map(|unit| unit.weights.clone()).collect();
        ExactNetwork { layers: hidden.chain([outputs]).collect() }
    }

    fn shape(&self) -> Vec<usize> {
        self.hidden.iter().map(Vec::len).collect()
    }

    fn verify(&self, data: &Labelled, out: &mut Verification) -> Result<(), SearchError> {
        if self.outputs.len() != data.outputs() || self.hidden.is_empty() || self.hidden.iter().any(Vec::is_empty) {
            return Err(refused("it has the wrong number of units"));
        }
        let targets = self.check_hidden(data)?;
        let units: usize = self.shape().iter().sum();
        out.prove(format!("each hidden unit, {units} in all, separates its targets (Definition 1)"));
        let last = targets.last().map(as_points);
        self.check_outputs(data, last.as_ref().unwrap_or(&data.points), out)?;
        let network = self.network();
        let errors = network.errors(data)?;
        if errors != self.errors {
            return Err(refused(format!("the network makes {errors} errors, not {}", self.errors)));
        }
        out.prove(format!("the network makes {errors} errors on {} instances", data.labels.len()));
        if let LossClaim::Hinge { value, least } = &self.loss {
            if network.hinge(data)? != *value {
                return Err(refused("the hinge loss is not the one that it says"));
            }
            out.prove(format!("its hinge loss is {}", value.approximate()));
            if *least {
                out.trust("no network of this shape has a lower hinge loss: computed in floating point");
            }
        }
        self.bound.verify(data, &self.shape(), errors, out)
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
                unit.unit.check(inputs, &unit_targets, &what)?;
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
                OutputVerdict::Separable { unit } => {
                    unit.check(inputs, &wanted, &what)?;
                    yes += 1;
                }
                OutputVerdict::NotSeparable { witness: terms } => {
                    let refuse = |why: Refusal| refused(format!("{what}: {why}"));
                    check_witness(inputs, &wanted, &witness(terms)?).map_err(refuse)?;
                    no += 1;
                }
                // Nothing is claimed.
                OutputVerdict::Unknown {} => {}
            }
        }
        if yes == self.outputs.len() {
            out.prove("each output unit's targets are separable: the targets are feasible (Definition 2)");
        } else if no > 0 {
            out.prove(format!("{no} of {} output units cannot separate their targets", self.outputs.len()));
        }
        Ok(())
    }
}

impl BoundClaim {
    /// As a search holds it.
    fn known(&self) -> Result<Bound, SearchError> {
        let proof = match &self.proof {
            ProofClaim::Labels {} => Proof::Labels,
            ProofClaim::Enumeration {} => Proof::Enumeration,
            ProofClaim::Witnesses { witnesses } => {
                Proof::Witnesses(witnesses.iter().map(|terms| witness(terms)).collect::<Result<_, _>>()?)
            }
            ProofClaim::Search {} => Proof::Search,
        };
        Ok(Bound { at_least: self.at_least as f64, proof })
    }

    /// How few errors are possible, and what follows for optimality.
    fn verify(
        &self,
        data: &Labelled,
        hidden: &[usize],
        errors: usize,
        out: &mut Verification,
    ) -> Result<(), SearchError> {
        let at_least = self.at_least;
        if at_least > errors {
            return Err(refused(format!("it says that nothing makes fewer than {at_least} errors and makes {errors}")));
        }
        let refuse = |why: bound::Refusal| refused(why.to_string());
        let shape: Vec<String> = hidden.iter().map(ToString::to_string).collect();
        let shape = shape.join(",");
        let said = if at_least == errors {
            format!("no network with hidden units {shape} makes fewer errors: it is optimal")
        } else {
            format!("no network with hidden units {shape} makes fewer than {at_least} errors")
        };
        let forced = data.forced_errors();
        // A proof that is there must hold, also where the labels alone would do: a search goes on with it.
        let how = match &self.proof {
            ProofClaim::Labels {} => String::new(),
            // Nothing is in it that could be wrong, but that there are others than it is for.
            ProofClaim::Enumeration {} if at_least <= forced => {
                bound::listed_units(data, hidden).map_err(refuse)?;
                String::new()
            }
            ProofClaim::Enumeration {} => {
                let how = bound::by_enumeration(data, hidden, at_least).map_err(refuse)?;
                format!("{how} looked at")
            }
            ProofClaim::Witnesses { witnesses } => {
                let all: Vec<Witness> = witnesses.iter().map(|terms| witness(terms)).collect::<Result<_, _>>()?;
                bound::by_witnesses(data, hidden, &all, at_least).map_err(refuse)?;
                format!("{} witnesses, each must be hit", all.len())
            }
            ProofClaim::Search {} => String::new(),
        };
        match &self.proof {
            _ if at_least <= forced && at_least == errors => {
                out.prove("no classifier makes fewer errors on these labels: it is optimal");
            }
            _ if at_least <= forced => {
                if at_least > 0 {
                    out.prove(format!("no classifier makes fewer than {at_least} errors on these labels"));
                }
            }
            ProofClaim::Labels {} => {
                return Err(refused(format!("the labels alone force {forced} errors, not {at_least}")));
            }
            ProofClaim::Search {} => {
                out.trust(format!("{said}; found by a search that a certificate cannot hold: run it again"));
            }
            ProofClaim::Enumeration {} | ProofClaim::Witnesses { .. } => out.prove(format!("{said} ({how})")),
        }
        Ok(())
    }
}
