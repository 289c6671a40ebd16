//! Parameter groups: which parameters are learned by which optimizer, at which rate.
//!
//! ```toml
//! [optimizer]
//! name = "adamw"
//! lr = 2e-3
//!
//! [[groups]]                 # the first group that has a parameter takes it
//! kind = "norms"
//! weight_decay = 0.0
//!
//! [[groups]]
//! pattern = "0.*"            # the first layer
//! lr_factor = 0.1
//! ```

use super::{MatrixMethod, Method, OptimizerSpec, Setting};
use crate::NnError;
use crate::graph::Graph;
use crate::parameter::{Parameter, ParameterKind};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A group as a recipe writes it: which parameters, and what is different for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// The kind of its parameters; all kinds if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ParameterClass>,
    /// What their names match, `*` standing for anything; all names if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// What the learning rate is multiplied by; 0 freezes them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub lr_factor: f64,
    /// Another weight decay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Another momentum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f64>,
    /// Another optimizer altogether.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<OptimizerSpec>,
}

fn one() -> f64 {
    1.0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(factor: &f64) -> bool {
    *factor == 1.0
}

/// Kinds of parameters that a group can be of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParameterClass {
    /// Of convolutions and fully connected layers.
    Weights,
    /// Of the same.
    Biases,
    /// Scales and shifts, of batch norms and of affine layers.
    Norms,
}

impl ParameterClass {
    /// That of a parameter.
    pub fn of(parameter: &Parameter) -> Self {
        match parameter.kind {
            ParameterKind::Conv { .. } | ParameterKind::Fc { .. } => ParameterClass::Weights,
            ParameterKind::Bias { .. } => ParameterClass::Biases,
            ParameterKind::Gamma { .. } | ParameterKind::Beta | ParameterKind::Scale { .. } | ParameterKind::Shift => {
                ParameterClass::Norms
            }
        }
    }
}

/// Parameters that are learned alike.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) method: Method,
    lr: f64,
}

impl Group {
    fn new(spec: &OptimizerSpec, lr_factor: f64) -> Result<Self, NnError> {
        Ok(Group { method: spec.method()?, lr: spec.lr() * lr_factor })
    }

    /// The learning rate when the schedule scales it by `lr_factor`.
    pub fn rate(&self, lr_factor: f64) -> f64 {
        self.lr * lr_factor
    }

    /// How it learns whole matrices, if it does. None where it is frozen.
    pub fn matrix_method(&self) -> Option<MatrixMethod<'_>> {
        match &self.method {
            Method::Matrix(rule) if !self.is_frozen() => Some(MatrixMethod { rule: &**rule, lr: self.lr }),
            _ => None,
        }
    }

    /// How many moments a weight has.
    pub fn moments(&self) -> usize {
        self.method.moments()
    }

    /// Whether nothing of it changes, neither weights nor moments, and its gradients do not count.
    pub fn is_frozen(&self) -> bool {
        self.lr == 0.0
    }

    /// The numbers of step `t`, counted from 1, where each weight is learned for itself; none for matrices.
    pub fn scalars(&self, t: u64, lr_factor: f64) -> Option<[f32; 4]> {
        match &self.method {
            Method::Elementwise(rule) => Some(rule.scalars(t, self.rate(lr_factor))),
            Method::Matrix(_) => None,
        }
    }

    /// The update of one weight, for a GPU's compiler: a function of that name that changes w, m and v, given g and the
    /// four scalars. None for matrices, and where nothing changes.
    pub fn device_update(&self, name: &str) -> Option<String> {
        match &self.method {
            Method::Elementwise(rule) if !self.is_frozen() => Some(rule.device_update(name)),
            _ => None,
        }
    }
}

/// Consecutive parameters of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Which group.
    pub group: usize,
    /// Where they lie in the flat buffers.
    pub range: Range<usize>,
    /// Rows and columns, where the group learns matrices.
    pub matrix: [usize; 2],
}

/// Every parameter of a network, in groups.
#[derive(Clone, Debug)]
pub struct ParameterGroups {
    groups: Vec<Group>,
    spans: Vec<Span>,
}

impl ParameterGroups {
    /// All parameters in one group.
    pub fn single(spec: &OptimizerSpec, parameters: usize) -> Result<Self, NnError> {
        let group = Group::new(spec, 1.0)?;
        if let Method::Matrix(_) = group.method {
            return Err(NnError::Setting(format!("{} needs to know the matrices among the parameters", spec.name())));
        }
        Ok(ParameterGroups {
            groups: vec![group],
            spans: vec![Span { group: 0, range: 0..parameters, matrix: [0; 2] }],
        })
    }

    /// The groups of a network's parameters: each parameter is in the first that has it, the others are learned by
    /// `spec` itself.
    pub fn resolve(spec: &OptimizerSpec, groups: &[GroupSpec], graph: &Graph) -> Result<Self, NnError> {
        let mut resolved = Vec::with_capacity(groups.len() + 1);
        for (i, group) in groups.iter().enumerate() {
            resolved.push(group.resolve(spec).map_err(|e| NnError::Setting(format!("group {}: {e}", i + 1)))?);
        }
        resolved.push(Group::new(spec, 1.0)?);
        let mut members = vec![0; resolved.len()];
        let mut spans: Vec<Span> = Vec::new();
        for parameter in graph.parameters() {
            let group = groups.iter().position(|g| g.has(parameter)).unwrap_or(groups.len());
            members[group] += 1;
            let matrix = match &resolved[group].method {
                Method::Elementwise(_) => [0; 2],
                Method::Matrix(_) => matrix_of(parameter)?,
            };
            match spans.last_mut() {
                Some(last) if last.group == group && matrix == [0; 2] && last.matrix == [0; 2] => {
                    last.range.end = parameter.range.end;
                }
                _ => spans.push(Span { group, range: parameter.range.clone(), matrix }),
            }
        }
        if let Some(empty) = members[..groups.len()].iter().position(|&count| count == 0) {
            return Err(NnError::Setting(format!(
                "group {} has no parameters; those of the network are named {} and so on, or another group took them",
                empty + 1,
                graph.parameters().iter().take(3).map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(ParameterGroups { groups: resolved, spans })
    }

    /// The groups; the last is the optimizer's own.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Where their parameters lie, in order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The spans of what changes; none where everything does, so that nobody needs to tell one from another.
    pub fn unfrozen(&self) -> Option<impl Iterator<Item = Range<usize>>> {
        let frozen = |span: &&Span| self.groups[span.group].is_frozen();
        let spans = self.spans.iter().filter(move |span| !frozen(span)).map(|span| span.range.clone());
        self.spans.iter().any(|span| frozen(&span)).then_some(spans)
    }

    /// How many numbers there are, frozen ones with them.
    pub fn parameters(&self) -> usize {
        self.spans.last().map_or(0, |s| s.range.end)
    }

    /// The most moments that a weight has.
    pub fn moments(&self) -> usize {
        self.groups.iter().map(Group::moments).max().unwrap_or(0)
    }
}

impl GroupSpec {
    fn has(&self, parameter: &Parameter) -> bool {
        self.kind.is_none_or(|kind| kind == ParameterClass::of(parameter))
            && self.pattern.as_ref().is_none_or(|pattern| matches(pattern, &parameter.name))
    }

    fn resolve(&self, usual: &OptimizerSpec) -> Result<Group, NnError> {
        if !(self.lr_factor >= 0.0 && self.lr_factor.is_finite()) {
            return Err(NnError::Setting(format!("lr_factor must be at least 0, not {}", self.lr_factor)));
        }
        let mut spec = self.optimizer.as_ref().unwrap_or(usual).clone();
        for (key, value) in [("weight_decay", self.weight_decay), ("momentum", self.momentum)] {
            if let Some(value) = value {
                spec = spec.with(key, Setting::Number(value))?;
            }
        }
        Group::new(&spec, self.lr_factor)
    }
}

/// A parameter's rows and columns: one row an output.
fn matrix_of(parameter: &Parameter) -> Result<[usize; 2], NnError> {
    let rows = match &parameter.kind {
        ParameterKind::Conv { geometry, .. } => geometry.out_channels,
        ParameterKind::Fc { outputs, .. } => *outputs,
        _ => return Err(NnError::NotAMatrix { parameter: parameter.name.clone() }),
    };
    Ok([rows, parameter.range.len() / rows])
}

/// Whether a name matches a pattern in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut exact = true;
    let parts: Vec<&str> = parts.collect();
    for (i, part) in parts.iter().enumerate() {
        exact = false;
        if i + 1 == parts.len() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    !exact || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::Optimizer;
    use crate::{Activation, Defaults, LayerLoss, presets};
    use ftprop_tensor::{Cpu, Shape};
    use std::sync::Arc;

    fn graph() -> Graph {
        let input = Shape { height: 32, width: 32, channels: 3 };
        let layers = presets::layers("convnet8", input, &[]).unwrap();
        Graph::resolve(&layers, &Defaults::new(Activation::Sign, LayerLoss::soft_hinge()), input, 10).unwrap()
    }

    fn group(text: &str) -> GroupSpec {
        let empty = GroupSpec {
            kind: None,
            pattern: None,
            lr_factor: 1.0,
            weight_decay: None,
            momentum: None,
            optimizer: None,
        };
        match text {
            "norms" => GroupSpec { kind: Some(ParameterClass::Norms), ..empty },
            "biases" => GroupSpec { kind: Some(ParameterClass::Biases), ..empty },
            pattern => GroupSpec { pattern: Some(pattern.into()), ..empty },
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("0.weight", "0.weight", true),
            ("0.weight", "10.weight", false),
            ("0.*", "0.weight", true),
            ("0.*", "10.weight", false),
            ("*.bias", "3.bias", true),
            ("*.bias", "3.biased", false),
            ("*", "anything", true),
            ("4.*.1.*", "4.main.1.gamma", true),
            ("4.*.1.*", "4.main.0.weight", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn each_parameter_is_in_one_group_and_learned_by_its_rule_alone() {
        let graph = graph();
        let spec = OptimizerSpec::sgd(1.0, 0.0).unwrap().with("weight_decay", Setting::Number(0.5)).unwrap();
        let norms = GroupSpec { weight_decay: Some(0.0), ..group("norms") };
        let first = GroupSpec { lr_factor: 0.0, ..group("0.*") };
        let groups = ParameterGroups::resolve(&spec, &[norms, first], &graph).unwrap();
        assert_eq!(groups.parameters(), graph.parameter_count());
        let mut end = 0;
        for span in groups.spans() {
            assert_eq!(span.range.start, end);
            end = span.range.end;
        }
        let mut values = vec![1.0; end];
        let grads = vec![0.25; end];
        let mut optimizer = Optimizer::for_groups(Arc::new(groups));
        optimizer.step(&Cpu::new(2).unwrap(), &mut values, &grads, 1.0, None);
        for p in graph.parameters() {
            let expected = match p.kind {
                ParameterKind::Gamma { .. } | ParameterKind::Beta => 0.75,
                _ if p.name.starts_with("0.") => 1.0,
                _ => 0.25,
            };
            assert!(values[p.range.clone()].iter().all(|&v| v == expected), "{}", p.name);
        }
    }

    #[test]
    fn what_is_frozen_does_not_count_where_the_gradient_is_clipped() {
        let graph = graph();
        let spec = OptimizerSpec::sgd(1.0, 0.0).unwrap();
        let frozen = |lr_factor| GroupSpec { lr_factor, ..group("0.*") };
        let step = |groups: &[GroupSpec], first: f32| {
            let groups = Arc::new(ParameterGroups::resolve(&spec, groups, &graph).unwrap());
            let mut values = vec![1.0; graph.parameter_count()];
            let mut grads = vec![0.25; graph.parameter_count()];
            graph
                .parameters()
                .iter()
                .filter(|p| p.name.starts_with("0."))
                .for_each(|p| grads[p.range.clone()].fill(first));
            let norm = Optimizer::for_groups(groups).step(&Cpu::new(2).unwrap(), &mut values, &grads, 1.0, Some(2.0));
            (values, norm.unwrap())
        };
        // The same as if its gradients were zero.
        let (as_zero, norm) = step(&[], 0.0);
        assert!(norm > 2.0);
        assert_eq!(step(&[frozen(0.0)], 1e9), (as_zero, norm));
        assert!(step(&[frozen(1e-3)], 1e9).1 > 1e9);
    }

    #[test]
    fn groups_that_mean_nothing_are_refused() {
        let (graph, spec) = (graph(), OptimizerSpec::adam(1e-3).unwrap());
        let message = |group| ParameterGroups::resolve(&spec, &[group], &graph).unwrap_err().to_string();
        assert!(message(group("conv1.*")).contains("group 1 has no parameters"));
        assert!(message(GroupSpec { momentum: Some(0.9), ..group("norms") }).contains("unknown field `momentum`"));
        assert!(message(GroupSpec { lr_factor: f64::NAN, ..group("biases") }).contains("lr_factor"));
        // What an earlier group took is not there for a later one.
        let twice = ParameterGroups::resolve(&spec, &[group("norms"), group("norms")], &graph);
        assert!(twice.unwrap_err().to_string().contains("group 2"));
    }
}
