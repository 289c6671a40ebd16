//! Golden cases: what PyTorch computes, in f64, for the paper's networks.
//!
//! A case stores no weights: every number it needs is a pure function of a stream and an index (see
//! `golden/README.md`). Running a case trains the network for its few steps and compares logits, loss,
//! gradients and parameters with what the file expects.

use crate::device::Place;
use crate::engine::{self, EngineConfig};
use crate::error::Error;
use crate::files;
use crate::team::Team;
use ftprop_nn::engine::NetworkState;
use ftprop_nn::parameter::{Parameter, ParameterKind};
use ftprop_nn::target::{QreluForm, TargetRule};
use ftprop_nn::{
    Activation, Defaults, Engine, Graph, LayerLoss, LayerSpec, Learning, OptimizerSpec, Portion, Precision, Shape,
    Step, presets,
};
use ftprop_tensor::random::Stream;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;

/// A case as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it is called.
    pub name: String,
    net: String,
    /// In the place of the network's own layers.
    layers: Option<Vec<LayerSpec>>,
    activation: String,
    layer_loss: String,
    #[serde(default)]
    target_rule: TargetRule,
    #[serde(default)]
    qrelu_form: QreluForm,
    #[serde(default = "yes")]
    weighted: bool,
    optimizer: OptimizerSpec,
    batch: usize,
    /// How many are expected.
    steps: usize,
    seed: u64,
    /// The largest relative error that passes.
    pub tolerance: f64,
    expect: Vec<ExpectedStep>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedStep {
    loss: f64,
    /// The first 16 of each example.
    logits: Vec<Vec<f64>>,
    params: Vec<ExpectedParameter>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedParameter {
    size: usize,
    grad_norm: f64,
    grad_sum: f64,
    at: Vec<usize>,
    grad: Vec<f64>,
    value_norm: f64,
    value: Vec<f64>,
}

/// How far a case was from what it expects, relative as its file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The largest relative error.
    pub largest_error: f64,
    /// Where that was.
    pub place: String,
}

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../golden/", $name, ".json")))),*]
    };
}

/// The cases that are built into the program.
const BUILT_IN: [(&str, &str); 12] = built_in![
    "alexnet-sign-soft",
    "convnet4-qrelu3-saturated",
    "convnet4-sign-soft",
    "convnet8-qrelu3-soft",
    "convnet8-saturated_relu",
    "convnet8-sign-saturated",
    "mlp-qrelu3-soft",
    "mlp-qrelu5-saturated",
    "mlp-relu",
    "mlp-sign-saturated",
    "mlp-sign-soft",
    "resnet18-qrelu5-soft",
];

/// Every case that is built into the program.
pub fn built_in() -> Result<Vec<Case>, Error> {
    BUILT_IN.iter().map(|(name, text)| parse(name, text)).collect()
}

/// Every case in a folder, by name.
pub fn in_folder(folder: &Path) -> Result<Vec<Case>, Error> {
    let entries = std::fs::read_dir(folder).map_err(|e| files::FileError::new("read", folder, e))?;
    let mut paths: Vec<_> =
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
    paths.sort();
    if paths.is_empty() {
        return Err(Error::NoGoldenCase { folder: folder.to_path_buf() });
    }
    paths.iter().map(|path| parse(&path.display().to_string(), &files::read_text(path)?)).collect()
}

fn parse(name: &str, text: &str) -> Result<Case, Error> {
    serde_json::from_str(text).map_err(|e| Error::NotAGoldenCase { name: name.to_string(), why: e.to_string() })
}

impl Case {
    fn refused(&self, why: String) -> Error {
        Error::GoldenCase { case: self.name.clone(), why }
    }

    /// Trains for the case's steps on a device, in f32, and compares. Ranks of a team share the batch, with norms over all of
    /// it; each compares its own logits, and what must be the same on all.
    pub fn run(&self, place: &Place) -> Result<Outcome, Error> {
        let (input, classes, widths) = match self.net.as_str() {
            "mlp" => (Shape::vector(20), 5, vec![16, 12]),
            "convnet4" | "convnet8" => (Shape { height: 32, width: 32, channels: 3 }, 10, vec![]),
            "alexnet" | "resnet18" => (Shape { height: 224, width: 224, channels: 3 }, 1000, vec![]),
            other => return Err(self.refused(format!("unknown network {other}"))),
        };
        let activation: Activation = match self.activation.strip_prefix("qrelu") {
            Some(k) => format!("qrelu:{k}").parse()?,
            None => self.activation.parse()?,
        };
        let layer_loss =
            if self.layer_loss.is_empty() { LayerLoss::soft_hinge() } else { self.layer_loss.parse::<LayerLoss>()? };
        let mut layers = match &self.layers {
            Some(layers) => layers.clone(),
            None => presets::layers(&self.net, input, &widths)?,
        };
        layers.retain(|l| !matches!(l, LayerSpec::ChannelDropout { .. }));
        let defaults = Defaults {
            target_rule: self.target_rule,
            qrelu_form: self.qrelu_form,
            weighted: self.weighted,
            ..Defaults::new(activation, layer_loss)
        };
        let graph = Arc::new(Graph::resolve(&layers, &defaults, input, classes)?);
        // Before anything takes memory for a batch that the case only claims.
        self.check(graph.parameters())?;
        let mut learning = Learning::new(&graph, &self.optimizer)?;
        learning.sync_norm = place.team.is_some();
        let (batch, precision) = (self.batch, Precision::F32);
        let mut engine =
            engine::compile(EngineConfig { graph, learning, batch, precision, deterministic: true }, place)?;
        if let Some(team) = &place.team {
            engine.set_reducer(team.reducer())?;
        }
        self.compare(&mut *engine, place.team.as_ref())
    }

    /// Refuses a case whose lists do not have the lengths that it says itself.
    fn check(&self, parameters: &[Parameter]) -> Result<(), Error> {
        if self.expect.len() != self.steps {
            return Err(self.refused(format!(
                "{} steps are expected, and there are {}",
                self.steps,
                self.expect.len()
            )));
        }
        for (number, step) in self.expect.iter().enumerate() {
            let wrong = |what: &str| Err(self.refused(format!("step {} has another number of {what}", number + 1)));
            if step.logits.len() != self.batch {
                return wrong("logits than the batch has examples");
            }
            if step.params.len() != parameters.len() {
                return wrong("parameters than the network");
            }
            for (p, e) in parameters.iter().zip(&step.params) {
                let lengths = [e.grad.len(), e.value.len()];
                if e.size != p.range.len() || lengths != [e.at.len(); 2] || e.at.iter().any(|&at| at >= e.size) {
                    return wrong(&format!("entries of {}", p.name));
                }
            }
        }
        Ok(())
    }

    fn compare(&self, engine: &mut dyn Engine, team: Option<&Team>) -> Result<Outcome, Error> {
        let stream = |j: u64| Stream::numbered(self.seed.wrapping_mul(1000).wrapping_add(j));
        let graph = engine.graph().clone();
        let (parameters, classes) = (graph.parameters(), graph.classes());
        let mut values = vec![0.0; graph.parameter_count()];
        for (j, p) in parameters.iter().enumerate() {
            start_value(p, stream(j as u64), &mut values[p.range.clone()]);
        }
        let statistics = graph.initial_statistics().into();
        engine.set_network(&NetworkState { values: values.into(), statistics })?;
        let images = images(stream(999), self.batch, graph.input());
        let labels: Vec<u32> =
            (0..self.batch as u64).map(|i| (f64::from(stream(998).uniform(i)) * classes as f64) as u32).collect();
        let portion = team.map(|team| Portion::new(team.share(), self.batch, self.batch));
        let own = portion.map_or(0..self.batch, |portion| portion.first..portion.first + portion.count);
        let images = &images[own.start * graph.input().len()..own.end * graph.input().len()];
        let mut worst = Worst(Outcome { largest_error: 0.0, place: "nowhere".into() });
        for (number, expected) in self.expect.iter().enumerate() {
            let step = Step { seed: 0, number: number as u64, progress: 0.0 };
            let mut tally = engine.learn_portion(images, &labels[own.clone()], &step, portion)?;
            if let Some(team) = team {
                tally = team.total(&tally)?;
            }
            let loss = tally.loss();
            let logits = if own.is_empty() { Vec::new() } else { engine.logits()?.into_owned() };
            let place = |what: &str| format!("step {}, {what}", number + 1);
            worst.see(loss, expected.loss, expected.loss.abs(), place("loss"));
            let largest = expected.logits.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
            for (row, wanted) in logits.chunks_exact(classes).zip(&expected.logits[own.clone()]) {
                for (&got, &want) in row.iter().zip(wanted) {
                    worst.see(f64::from(got), want, largest, place("logits"));
                }
            }
            let grads = engine.gradients()?.into_owned();
            for (p, e) in parameters.iter().zip(&expected.params) {
                compare_gradient(&mut worst, p, e, &grads[p.range.clone()], &place(&p.name));
            }
            engine.optimize(1.0)?;
            let values = engine.network()?.values;
            for (p, e) in parameters.iter().zip(&expected.params) {
                let value = &values[p.range.clone()];
                worst.see(norm(value), e.value_norm, e.value_norm, place(&format!("norm of {}", p.name)));
                compare_samples(&mut worst, p, &e.at, &e.value, e.value_norm, value, &place(&p.name));
            }
        }
        Ok(worst.0)
    }
}

/// The largest error so far; a NaN counts as infinite.
struct Worst(Outcome);

impl Worst {
    fn see(&mut self, got: f64, expected: f64, scale: f64, place: String) {
        let error = (got - expected).abs() / scale.max(1e-30);
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if error > self.0.largest_error {
            self.0 = Outcome { largest_error: error, place };
        }
    }
}

fn compare_gradient(worst: &mut Worst, p: &Parameter, e: &ExpectedParameter, grad: &[f32], place: &str) {
    worst.see(norm(grad), e.grad_norm, e.grad_norm, format!("{place}: norm of the gradient"));
    let sum: f64 = grad.iter().map(|&g| f64::from(g)).sum();
    worst.see(sum, e.grad_sum, e.grad_norm * (e.size as f64).sqrt(), format!("{place}: sum of the gradient"));
    compare_samples(worst, p, &e.at, &e.grad, e.grad_norm, grad, &format!("{place}: gradient"));
}

/// Compares some entries, which the file numbers as PyTorch lays the parameter out.
fn compare_samples(
    worst: &mut Worst,
    p: &Parameter,
    at: &[usize],
    expected: &[f64],
    norm: f64,
    values: &[f32],
    place: &str,
) {
    let largest = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let scale = largest.max(norm / (values.len() as f64).sqrt());
    for (i, &value) in values.iter().enumerate() {
        if let Some(k) = at.iter().position(|&a| a == p.torch_index(i)) {
            worst.see(f64::from(value), expected[k], scale, format!("{place}, entry {}", at[k]));
        }
    }
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt()
}

fn start_value(p: &Parameter, stream: Stream, values: &mut [f32]) {
    let fan_in = match &p.kind {
        ParameterKind::Conv { geometry, .. } => geometry.fan_in(),
        ParameterKind::Fc { input, .. } => input.len(),
        ParameterKind::Bias { fan_in } => *fan_in,
        ParameterKind::Gamma { .. } | ParameterKind::Beta | ParameterKind::Scale { .. } | ParameterKind::Shift => 0,
    };
    for (i, v) in values.iter_mut().enumerate() {
        let u = f64::from(stream.uniform(p.torch_index(i) as u64));
        *v = match p.kind {
            ParameterKind::Gamma { .. } | ParameterKind::Scale { .. } => 0.5 + u,
            ParameterKind::Beta | ParameterKind::Shift => u - 0.5,
            _ => (2.0 * u - 1.0) / (fan_in as f64).sqrt(),
        } as f32;
    }
}

/// The input, which the case numbers channels first.
fn images(stream: Stream, batch: usize, shape: Shape) -> Vec<f32> {
    let Shape { height, width, channels } = shape;
    let mut images = Vec::with_capacity(batch * shape.len());
    for n in 0..batch {
        for y in 0..height {
            for x in 0..width {
                for c in 0..channels {
                    let index = ((n * channels + c) * height + y) * width + x;
                    images.push((1.7 * (2.0 * f64::from(stream.uniform(index as u64)) - 1.0)) as f32);
                }
            }
        }
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::DeviceChoice;

    #[test]
    fn every_built_in_case_passes_on_the_cpu() {
        let place = Place::open(DeviceChoice::Cpu, 0).unwrap();
        let mut failed = Vec::new();
        for case in built_in().unwrap() {
            let outcome = place.cpu.enter(|| case.run(&place)).unwrap();
            println!("{}: {outcome:?}", case.name);
            if outcome.largest_error > case.tolerance {
                failed.push((case.name, outcome));
            }
        }
        assert!(failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn a_wrong_loss_is_noticed() {
        let mut case = built_in().unwrap().into_iter().find(|c| c.name == "mlp-sign-soft").unwrap();
        case.layer_loss = "saturated_hinge".into();
        let place = Place::open(DeviceChoice::Cpu, 1).unwrap();
        assert!(case.run(&place).unwrap().largest_error > 100.0 * case.tolerance);
    }

    #[test]
    fn a_case_that_says_something_unknown_or_lacks_a_row_is_refused() {
        let text = BUILT_IN.iter().find(|(name, _)| *name == "mlp-sign-soft").unwrap().1;
        let place = Place::open(DeviceChoice::Cpu, 1).unwrap();
        let changed = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut case: serde_json::Value = serde_json::from_str(text).unwrap();
            change(&mut case);
            parse("changed", &case.to_string()).and_then(|case| case.run(&place))
        };
        assert!(changed(&|_| ()).unwrap().largest_error < 1e-3);
        let unweighted = changed(&|case| case["weighted"] = false.into()).unwrap();
        assert!(unweighted.largest_error > 1e-2, "{unweighted:?}");
        let subset = changed(&|case| case["target_rule"] = "random_subset:0.5".into()).unwrap();
        assert!(subset.largest_error > 1e-2, "{subset:?}");
        type Change<'a> = &'a dyn Fn(&mut serde_json::Value);
        let refusals: [(Change<'_>, &str); 6] = [
            (&|case| case["weigthed"] = false.into(), "weigthed"),
            (&|case| case["steps"] = 9.into(), "9 steps are expected"),
            (&|case| drop(case["expect"][0]["logits"].as_array_mut().unwrap().pop()), "logits"),
            (&|case| drop(case["expect"][1]["params"].as_array_mut().unwrap().pop()), "parameters"),
            (&|case| drop(case["expect"][0]["params"][1]["grad"].as_array_mut().unwrap().pop()), "0.bias"),
            (&|case| case["expect"][0]["params"][0]["at"][0] = 1_000_000.into(), "0.weight"),
        ];
        for (change, word) in refusals {
            let message = changed(change).unwrap_err().to_string();
            assert!(message.contains(word) && !message.contains('\n'), "{message}");
        }
    }
}
