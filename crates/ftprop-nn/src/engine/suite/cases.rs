//! What engines are tried with: networks that between them use every layer in every place, and examples for them.

use super::super::{CpuEngine, Engine, EngineError, Learning};
use super::distance::distance;
use crate::NnError;
use crate::activation::Activation;
use crate::graph::Graph;
use crate::layer_loss::LayerLoss;
use crate::mixing::Mixing;
use crate::network::Step;
use crate::optimizer::{GroupSpec, OptimizerSpec, ParameterClass, ParameterGroups, Setting};
use crate::output_loss::{Criterion, OutputLoss};
use crate::spec::{Defaults, Init, Kernel, LayerSpec};
use crate::target::{QreluForm, TargetRule};
use ftprop_tensor::cpu::Isa;
use ftprop_tensor::random::Stream;
use ftprop_tensor::{Cpu, Shape, TensorError};
use std::sync::Arc;

/// What an engine is made for.
#[derive(Clone)]
pub struct Case {
    /// The network and what it is tried with, in words.
    pub name: String,
    /// The network.
    pub graph: Arc<Graph>,
    /// How it learns.
    pub learning: Learning,
    /// The most examples a batch may have.
    pub batch: usize,
    /// Examples of the batches that it is tried with.
    pub(super) n: usize,
    /// Whether it has no thresholds, so that rounding moves results a little and never a lot.
    pub(super) soft: bool,
    /// How far its results may be from the reference's in f32.
    pub(super) allowed: f64,
    /// Which made-up examples it is compared on.
    pub(super) examples: u64,
}

pub(super) fn act() -> LayerSpec {
    LayerSpec::act()
}

pub(super) fn conv(
    out: usize,
    kernel: [usize; 2],
    stride: usize,
    pad: usize,
    groups: usize,
    bias: Option<bool>,
) -> LayerSpec {
    LayerSpec::Conv { out, kernel: Kernel::Rectangle(kernel), stride, pad, groups, bias, init: Init::Uniform }
}

pub(super) fn norm() -> LayerSpec {
    LayerSpec::batch_norm(1e-4)
}

fn affine(scale: Option<f32>) -> LayerSpec {
    LayerSpec::Affine { scale }
}

fn soft_relu() -> LayerSpec {
    LayerSpec::Act { activation: Some(Activation::Relu), layer_loss: None, target_rule: None, qrelu_form: None }
}

pub(super) fn fc(out: Option<usize>) -> LayerSpec {
    LayerSpec::fc(out)
}

pub(super) fn max_pool(kernel: usize, stride: usize, pad: usize) -> LayerSpec {
    LayerSpec::max_pool(kernel, stride, pad)
}

fn residual(main: Vec<LayerSpec>, shortcut: Vec<LayerSpec>) -> LayerSpec {
    LayerSpec::Residual { main, shortcut }
}

/// Networks that between them use every layer in every place, all geometries odd.
pub fn networks() -> Vec<(&'static str, Shape, Vec<LayerSpec>)> {
    let image = |height, width, channels| Shape { height, width, channels };
    let plain = |out, stride| conv(out, [3, 3], stride, 1, 1, None);
    let pooled = vec![plain(8, 1), max_pool(2, 2, 0), act(), conv(20, [3, 3], 2, 1, 1, None), act(), fc(None)];
    let dropping = vec![
        plain(12, 1),
        norm(),
        max_pool(3, 2, 1),
        act(),
        LayerSpec::Dropout { p: 0.3 },
        conv(64, [2, 3], 1, 0, 1, Some(true)),
        norm(),
        act(),
        LayerSpec::ChannelDropout { p: 0.5 },
        LayerSpec::mean_pool(3, 2, 1),
        fc(None),
    ];
    let grouped = vec![
        conv(9, [3, 3], 1, 1, 3, None),
        act(),
        conv(15, [1, 1], 1, 0, 3, None),
        norm(),
        act(),
        max_pool(3, 2, 0),
        fc(None),
    ];
    let blocks = vec![
        plain(16, 1),
        norm(),
        act(),
        residual(vec![plain(16, 1), norm(), act(), plain(16, 1), norm()], vec![]),
        act(),
        residual(
            vec![plain(24, 2), norm(), act(), plain(24, 1), norm()],
            vec![conv(24, [1, 1], 2, 0, 1, None), norm()],
        ),
        act(),
        residual(vec![norm(), act(), plain(24, 1)], vec![residual(vec![conv(24, [1, 1], 1, 0, 1, None)], vec![])]),
        LayerSpec::global_average(),
        fc(None),
    ];
    let around = vec![
        plain(16, 1),
        norm(),
        residual(vec![act(), plain(16, 1), norm()], vec![]),
        residual(
            vec![act(), plain(24, 2), norm()],
            vec![LayerSpec::mean_pool(2, 2, 0), conv(24, [1, 1], 1, 0, 1, None), norm()],
        ),
        residual(vec![act(), plain(24, 1), norm()], vec![]),
        // Two paths that both add to what they came from, the second without a norm of its own.
        residual(vec![act(), plain(24, 1)], vec![act(), conv(24, [1, 1], 1, 0, 1, None)]),
        LayerSpec::global_average(),
        fc(None),
    ];
    let wide_windows = vec![plain(8, 1), norm(), max_pool(18, 1, 0), act(), fc(None)];
    let bend = residual(vec![affine(None), soft_relu(), affine(Some(0.75))], vec![affine(Some(0.25))]);
    let shifted = vec![
        plain(10, 1),
        affine(None),
        act(),
        plain(16, 1),
        norm(),
        residual(vec![affine(Some(1.5)), act(), plain(16, 1), norm()], vec![]),
        bend,
        affine(None),
        max_pool(2, 2, 0),
        affine(Some(0.5)),
        act(),
        affine(Some(-1.0)),
        LayerSpec::Dropout { p: 0.2 },
        // No activation here: of so few units a single one that rounding moves over a kink is a tenth of all slopes.
        fc(Some(21)),
        affine(Some(2.0)),
        fc(None),
        // Logits so small that no hinge's kink is near.
        affine(Some(0.1)),
    ];
    vec![
        ("fc", Shape::vector(37), vec![fc(Some(29)), act(), fc(Some(70)), norm(), act(), fc(None)]),
        ("conv, pool", image(13, 11, 3), pooled),
        ("norm, overlapping pool, dropout", image(12, 15, 4), dropping),
        ("groups, odd channels", image(9, 9, 6), grouped),
        ("residual", image(8, 8, 8), blocks),
        ("windows of more than 16 by 16", image(20, 21, 3), wide_windows),
        ("affine", image(9, 7, 5), shifted),
        ("ways around", image(8, 8, 8), around),
    ]
}

/// Every optimizer that comes with the crate, with settings that all matter.
fn optimizers() -> Result<Vec<OptimizerSpec>, NnError> {
    let spec = |name: &str, numbers: &[(&'static str, f64)]| {
        let settings: Vec<_> = numbers.iter().map(|(key, value)| (*key, Setting::Number(*value))).collect();
        OptimizerSpec::new(name, &settings)
    };
    let momentum = spec("sgd", &[("lr", 0.1), ("momentum", 0.9), ("weight_decay", 1e-4)])?;
    let rms = spec("rmsprop", &[("lr", 1e-3), ("eps", 1e-6), ("weight_decay", 1e-4)])?;
    Ok(vec![
        spec("adam", &[("lr", 1e-3), ("weight_decay", 5e-4)])?,
        spec("sgd", &[("lr", 0.1), ("weight_decay", 1e-4)])?,
        momentum.with("nesterov", Setting::Flag(true))?,
        momentum,
        spec("adamw", &[("lr", 1e-3), ("weight_decay", 0.01)])?,
        rms.with("momentum", Setting::Number(0.9))?,
        rms,
    ])
}

/// Groups that differ in everything they can.
pub(super) fn some_groups() -> Vec<GroupSpec> {
    let usual =
        GroupSpec { kind: None, pattern: None, lr_factor: 1.0, weight_decay: None, momentum: None, optimizer: None };
    vec![
        GroupSpec { kind: Some(ParameterClass::Norms), weight_decay: Some(0.0), ..usual.clone() },
        GroupSpec { pattern: Some("0.*".into()), lr_factor: 0.25, ..usual.clone() },
        GroupSpec { kind: Some(ParameterClass::Biases), optimizer: OptimizerSpec::sgd(0.05, 0.5).ok(), ..usual },
    ]
}

/// Every third with weights of classes, every fourth with mixed examples, where the loss allows it.
fn criterion(loss: OutputLoss, smoothing: f32, number: usize, classes: usize) -> Result<Criterion, NnError> {
    let mut criterion = Criterion::new(loss, smoothing)?;
    if number % 3 == 1 {
        criterion = criterion.with_class_weights((0..classes).map(|c| 0.25 + c as f32 / 4.0).collect())?;
    }
    if number % 4 == 1 && loss == OutputLoss::CrossEntropy {
        criterion = criterion.with_mixing(Mixing::new([0.0, 0.4, 1.0][number % 3], 1.0)?)?;
    }
    Ok(criterion)
}

/// By which part of themselves examples are moved to see whether they are near a threshold: ten times what different orders
/// of the sums here make.
const NUDGE: f32 = 1e-5;

/// The examples of most cases.
pub(super) const EXAMPLES: u64 = 99;

/// The examples that a network is compared on. Where operands are rounded, units near a kink end up on its other side, and
/// their slopes jump: of the residual network with saturated ReLUs 6 to 18 of 30,000 in tf32, by which gradients differ by 3 to
/// 19 parts in a hundred, depending on the examples; were these units held where they are, by one in a thousand. So these two are
/// compared on examples of which few units are near a kink.
fn examples(network: &str) -> u64 {
    if matches!(network, "residual" | "affine") { 13 } else { EXAMPLES }
}

/// Every network with every kind of activation, every layer loss and target rule, and all optimizers in turn.
pub fn cases() -> Result<Vec<Case>, NnError> {
    let (networks, optimizers) = (networks(), optimizers()?);
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |name: String, i: usize, defaults: Defaults, loss: OutputLoss| -> Result<(), NnError> {
        let (_, input, layers) = &networks[i % networks.len()];
        let number = cases.len();
        let graph = Graph::resolve(layers, &defaults, *input, 5 + number % 7)?;
        let smoothing = if loss == OutputLoss::CrossEntropy && number.is_multiple_of(2) { 0.1 } else { 0.0 };
        let with_norms = graph.parameters().iter().any(|p| ParameterClass::of(p) == ParameterClass::Norms);
        let groups = if number % 5 == 4 && with_norms { some_groups() } else { vec![] };
        let optimizer = &optimizers[number % optimizers.len()];
        let learning = Learning {
            criterion: criterion(loss, smoothing, number, graph.classes())?,
            groups: Arc::new(ParameterGroups::resolve(optimizer, &groups, &graph)?),
            clip: number.is_multiple_of(3).then_some(0.05),
            average: None,
            teacher: None,
            sync_norm: false,
        };
        cases.push(Case {
            name: format!("{}, {name}", networks[i % networks.len()].0),
            graph: Arc::new(graph),
            learning,
            batch: 9,
            n: if number.is_multiple_of(2) { 9 } else { 7 },
            soft: !defaults.activation.is_hard(),
            // Without weighting, the sign of a gradient that is nearly zero counts as much as any other.
            allowed: if defaults.weighted { 2e-4 } else { 3e-2 },
            examples: examples(networks[i % networks.len()].0),
        });
        Ok(())
    };
    for i in 0..networks.len() {
        for activation in [Activation::Relu, Activation::SaturatedRelu, Activation::Sign] {
            let loss = OutputLoss::ALL[(i + activation.bits() as usize) % OutputLoss::ALL.len()];
            add(format!("{activation}, {loss}"), i, Defaults::new(activation, LayerLoss::soft_hinge()), loss)?;
        }
    }
    for (i, layer_loss) in LayerLoss::all().into_iter().enumerate() {
        for activation in [Activation::Sign, Activation::Step, Activation::Qrelu { k: 2 + i as u32 % 5 }] {
            let form = if i % 2 == 0 { QreluForm::PerStep } else { QreluForm::Single };
            let defaults = Defaults { qrelu_form: form, weighted: i % 3 != 1, ..Defaults::new(activation, layer_loss) };
            add(format!("{activation}, {layer_loss}"), i, defaults, OutputLoss::CrossEntropy)?;
        }
    }
    // Rules that look further than at their unit have cases of their own.
    let rules = TargetRule::all().into_iter().filter(|rule| !rule.looks_further());
    for (i, target_rule) in rules.enumerate().skip(1) {
        for (j, activation) in [Activation::Sign, Activation::Qrelu { k: 3 }].into_iter().enumerate() {
            let defaults = Defaults { target_rule, ..Defaults::new(activation, LayerLoss::soft_hinge()) };
            for network in [i + 2 * j, i + 2 * j + 1] {
                add(format!("{activation}, {target_rule}"), network, defaults, OutputLoss::CrossEntropy)?;
            }
        }
    }
    Ok(cases)
}

/// Each network once, with sign units and Adam.
pub(super) fn networks_only() -> Result<Vec<Case>, NnError> {
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let case = |(name, input, layers): (&str, Shape, Vec<LayerSpec>)| {
        let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 4)?);
        let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3)?)?;
        Ok(Case { name: name.into(), graph, learning, batch: 8, n: 8, soft: false, allowed: 0.0, examples: EXAMPLES })
    };
    networks().into_iter().map(case).collect()
}

/// The network with a little of everything.
pub(super) fn plain_case() -> Result<Case, NnError> {
    Ok(networks_only()?.swap_remove(2))
}

/// The same with mixed examples.
pub(super) fn mixed(case: &Case) -> Result<Case, NnError> {
    let criterion = case.learning.criterion.clone().with_mixing(Mixing::new(0.5, 1.0)?)?;
    let learning = Learning { criterion, ..case.learning.clone() };
    Ok(Case { name: format!("{}, mixed", case.name), learning, ..case.clone() })
}

impl Case {
    /// A batch of made-up numbers.
    pub(super) fn data(&self, stream: u64) -> (Vec<f32>, Vec<u32>) {
        let random = Stream::numbered(stream);
        let len = self.n * self.graph.input().len();
        let images = (0..len).map(|i| 3.4 * random.uniform(i as u64) - 1.7).collect();
        let label = |i: usize| random.below((1 << 40) + i as u64, self.graph.classes() as u64) as u32;
        (images, (0..self.n).map(label).collect())
    }

    /// Examples whose gradients hardly change if every number does by some units in its last place. Engines add up in
    /// different orders, and on others a unit that stands on a threshold goes to one side here and to the other there, which
    /// says nothing about either.
    pub(super) fn steady_data(&self) -> Result<(Vec<f32>, Vec<u32>), EngineError> {
        let mut best: Option<(f64, u64)> = None;
        for stream in self.examples..self.examples + 40 {
            let moved = self.moved_by_a_nudge(stream)?;
            if best.is_none_or(|(least, _)| moved < least) {
                best = Some((moved, stream));
            }
            if moved < self.allowed / 2.0 {
                break;
            }
        }
        Ok(self.data(best.map_or(self.examples, |(_, stream)| stream)))
    }

    /// How far gradients of two steps move if examples and parameters do. Behind the first thresholds only parameters
    /// count, for what comes through them does not move; zeros move too, since the mean of numbers that are few may be one of
    /// them, and then a norm without a shift puts that one on the threshold.
    fn moved_by_a_nudge(&self, stream: u64) -> Result<f64, EngineError> {
        let ((images, labels), random) = (self.data(stream), Stream::numbered(stream ^ 1 << 32));
        let nudged = |values: &[f32], first: u64, by: f32| -> Vec<f32> {
            let noise = |i: usize| by * (2.0 * random.uniform(first + i as u64) - 1.0);
            values.iter().enumerate().map(|(i, value)| value + value.abs().max(0.05) * noise(i)).collect()
        };
        let (mut one, mut other, mut moved) = (self.reference()?, self.reference()?, 0.0f64);
        one.initialise(17)?;
        for number in 0..2 {
            let (step, before) = (Step { seed: 5, number, progress: 0.4 }, one.state()?);
            let mut gradients = Vec::new();
            // What stands on a threshold goes one way and then the other.
            for by in [NUDGE, -NUDGE] {
                let mut state = before.clone();
                state.network.values = nudged(&before.network.values, (number + 1) << 40, by).into();
                other.restore(&state)?;
                other.learn(&nudged(&images, 0, by), &labels, &step)?;
                gradients.push(other.gradients()?.into_owned());
            }
            drop(before);
            one.learn(&images, &labels, &step)?;
            for other in gradients {
                moved = moved.max(distance(&other, &one.gradients()?));
            }
            one.optimize(0.5)?;
        }
        Ok(moved)
    }

    /// The plainest engine there is: one thread, no vector instructions.
    pub(super) fn reference(&self) -> Result<CpuEngine, EngineError> {
        let cpu = Cpu::with_isa(1, Isa::Portable).map_err(|e: TensorError| EngineError::Device(Box::new(e)))?;
        Ok(CpuEngine::new(Arc::new(cpu), self.graph.clone(), self.learning.clone(), self.batch)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As tf32 has it.
    fn rounded(numbers: &[f32]) -> Vec<f32> {
        numbers.iter().map(|v| f32::from_bits(v.to_bits().wrapping_add(0x1000) & !0x1fff)).collect()
    }

    /// A unit stood on a threshold in one of them, and a GPU that adds up in another order had it on the other side.
    #[test]
    fn no_case_is_compared_where_a_unit_stands_on_a_threshold() {
        let mut moved = 0;
        for case in cases().unwrap().into_iter().filter(|case| case.allowed == 2e-4) {
            let images = case.steady_data().unwrap().0;
            let stream = (case.examples..).find(|stream| case.data(*stream).0 == images).unwrap();
            moved += usize::from(stream != case.examples);
            let by = case.moved_by_a_nudge(stream).unwrap();
            assert!(by < case.allowed / 2.0, "{}: {by:.1e} on {stream}", case.name);
        }
        assert!(moved > 0, "the first examples were good enough for all, so this shows nothing");
    }

    #[test]
    fn soft_cases_are_compared_where_rounding_moves_little() {
        for case in cases().unwrap().into_iter().filter(|case| case.soft) {
            let (images, labels) = case.data(case.examples);
            let step = Step { seed: 5, number: 0, progress: 0.4 };
            let gradients = |round: bool| {
                let mut engine = case.reference().unwrap();
                engine.initialise(17).unwrap();
                if round {
                    let values = rounded(&case.graph.initial_values(17));
                    let other = case.reference().unwrap();
                    let mut state = other.state().unwrap();
                    state.network.values = values.into();
                    engine.restore(&state).unwrap();
                }
                let images = if round { rounded(&images) } else { images.clone() };
                engine.learn(&images, &labels, &step).unwrap();
                engine.gradients().unwrap().to_vec()
            };
            let moved = distance(&gradients(true), &gradients(false));
            println!("{}: {moved:.1e}", case.name);
            assert!(moved < 7e-2, "{}: {moved:.1e}", case.name);
        }
    }
}
