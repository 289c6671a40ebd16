//! Golden cases: what PyTorch computes, in f64, for the paper's networks.
//!
//! A case stores no weights: every number it needs is a pure function of a stream and an index (see
//! `golden/README.md`). Running a case trains the network for its few steps and compares logits, loss,
//! gradients and parameters with what the file expects.

#[cfg(feature = "cuda")]
mod gpu;

use crate::device::Place;
use crate::error::Error;
use crate::files;
use ftprop_nn::parameter::{Parameter, ParameterKind};
use ftprop_nn::{
    Activation, Criterion, Defaults, LayerLoss, LayerSpec, Network, Optimizer, OptimizerSpec, OutputLoss, Shape, Step,
    presets,
};
use ftprop_tensor::random::Stream;
use serde::Deserialize;
use std::path::Path;

/// A case as its file has it.
#[derive(Deserialize)]
pub struct Case {
    /// What it is called.
    pub name: String,
    net: String,
    activation: String,
    layer_loss: String,
    optimizer: OptimizerSpec,
    batch: usize,
    seed: u64,
    /// The largest relative error that passes.
    pub tolerance: f64,
    expect: Vec<ExpectedStep>,
}

#[derive(Deserialize)]
struct ExpectedStep {
    loss: f64,
    /// The first 16 of each example.
    logits: Vec<Vec<f64>>,
    params: Vec<ExpectedParameter>,
}

#[derive(Deserialize)]
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

    /// Trains for the case's steps on a device, in f32, and compares.
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
            if self.layer_loss.is_empty() { LayerLoss::SoftHinge } else { self.layer_loss.parse::<LayerLoss>()? };
        let mut layers = presets::layers(&self.net, input, &widths)?;
        layers.retain(|l| !matches!(l, LayerSpec::ChannelDropout { .. }));
        let defaults = Defaults::new(activation, layer_loss);
        let mut subject: Box<dyn Subject> = match &place.gpu {
            #[cfg(feature = "cuda")]
            Some(gpu) => Box::new(gpu::network(gpu, layers, defaults, input, classes, self)?),
            #[cfg(not(feature = "cuda"))]
            Some(gpu) => match *gpu {},
            None => {
                let network = Network::new(place.cpu.clone(), &layers, defaults, input, classes, self.batch)?;
                let optimizer = Optimizer::new(&self.optimizer, network.values().len())?;
                let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0)?;
                Box::new(OnCpu { network, optimizer, criterion })
            }
        };
        self.compare(&mut *subject, input, classes)
    }

    fn compare(&self, subject: &mut dyn Subject, input: Shape, classes: usize) -> Result<Outcome, Error> {
        let stream = |j: u64| Stream::numbered(1000 * self.seed + j);
        let parameters = subject.parameters().to_vec();
        let mut values = vec![0.0; parameters.last().map_or(0, |p| p.range.end)];
        for (j, p) in parameters.iter().enumerate() {
            start_value(p, stream(j as u64), &mut values[p.range.clone()]);
        }
        subject.start(&values)?;
        let images = images(stream(999), self.batch, input);
        let labels: Vec<u32> =
            (0..self.batch as u64).map(|i| (f64::from(stream(998).uniform(i)) * classes as f64) as u32).collect();
        let mut worst = Worst(Outcome { largest_error: 0.0, place: "nowhere".into() });
        for (number, expected) in self.expect.iter().enumerate() {
            let step = Step { seed: 0, number: number as u64, progress: 0.0 };
            let (loss, logits) = subject.learn(&images, &labels, &step)?;
            let place = |what: &str| format!("step {}, {what}", number + 1);
            worst.see(loss, expected.loss, expected.loss.abs(), place("loss"));
            let largest = expected.logits.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
            for (row, wanted) in logits.chunks_exact(classes).zip(&expected.logits) {
                for (&got, &want) in row.iter().zip(wanted) {
                    worst.see(f64::from(got), want, largest, place("logits"));
                }
            }
            if expected.params.len() != parameters.len() {
                return Err(self.refused("another number of parameters".into()));
            }
            let grads = subject.grads()?;
            for (p, e) in parameters.iter().zip(&expected.params) {
                compare_gradient(&mut worst, p, e, &grads[p.range.clone()], &place(&p.name));
            }
            let values = subject.optimize()?;
            for (p, e) in parameters.iter().zip(&expected.params) {
                let value = &values[p.range.clone()];
                worst.see(norm(value), e.value_norm, e.value_norm, place(&format!("norm of {}", p.name)));
                compare_samples(&mut worst, p, &e.at, &e.value, e.value_norm, value, &place(&p.name));
            }
        }
        Ok(worst.0)
    }
}

/// A network whose steps can be looked into.
trait Subject {
    fn parameters(&self) -> &[Parameter];
    fn start(&mut self, values: &[f32]) -> Result<(), Error>;
    /// The loss and the logits of a step up to its gradients.
    fn learn(&mut self, images: &[f32], labels: &[u32], step: &Step) -> Result<(f64, Vec<f32>), Error>;
    fn grads(&self) -> Result<Vec<f32>, Error>;
    /// The parameters after the optimizer's step.
    fn optimize(&mut self) -> Result<Vec<f32>, Error>;
}

struct OnCpu {
    network: Network,
    optimizer: Optimizer,
    criterion: Criterion,
}

impl Subject for OnCpu {
    fn parameters(&self) -> &[Parameter] {
        self.network.parameters()
    }

    fn start(&mut self, values: &[f32]) -> Result<(), Error> {
        self.network.values_mut().copy_from_slice(values);
        Ok(())
    }

    fn learn(&mut self, images: &[f32], labels: &[u32], step: &Step) -> Result<(f64, Vec<f32>), Error> {
        let tally = self.network.learn(images, labels, &self.criterion, step);
        Ok((tally.loss(), self.network.logits().to_vec()))
    }

    fn grads(&self) -> Result<Vec<f32>, Error> {
        Ok(self.network.grads().to_vec())
    }

    fn optimize(&mut self) -> Result<Vec<f32>, Error> {
        self.optimizer.step(&mut self.network, 1.0, None);
        Ok(self.network.values().to_vec())
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
        ParameterKind::Gamma | ParameterKind::Beta => 0,
    };
    for (i, v) in values.iter_mut().enumerate() {
        let u = f64::from(stream.uniform(p.torch_index(i) as u64));
        *v = match p.kind {
            ParameterKind::Gamma => 0.5 + u,
            ParameterKind::Beta => u - 0.5,
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
}
