//! One suite for every engine: what all of them have to do, whatever they compute on.
//!
//! Small networks of odd shapes, which between them use every layer in every place, are trained for a few steps beside
//! the CPU's plainest engine on the same numbers; then what an engine promises about itself is put to the test. The
//! CPU's tests run it, and so does a self test on a GPU.

mod matrices;
mod portions;
mod shared_norms;
mod teachers;

use super::{CpuEngine, Engine, EngineError, Learning, NetworkState, Reducer, StepSpan};
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

/// One thing that was compared.
#[derive(Clone, Debug)]
pub struct Check {
    /// What it was.
    pub name: String,
    /// The largest ‖got − expected‖ / ‖expected‖ of what was compared; infinite where something else went wrong.
    pub error: f64,
    /// How large it may be.
    pub allowed: f64,
}

impl Check {
    /// Whether it is small enough.
    pub fn passed(&self) -> bool {
        self.error <= self.allowed
    }
}

/// How exactly an engine computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Exactness {
    /// In f32, sums in another order.
    Float,
    /// With fewer bits: networks without thresholds come this close, those with thresholds need not.
    Rounded(f64),
}

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
    n: usize,
    /// Whether it has no thresholds, so that rounding moves results a little and never a lot.
    soft: bool,
    /// How far its results may be from the reference's in f32.
    allowed: f64,
}

/// Makes an engine for a case.
pub type Make<'a> = dyn FnMut(&Case) -> Result<Box<dyn Engine>, EngineError> + 'a;

/// Puts an engine through everything and reports each check as it is done. An error means that no engine could be made,
/// or that one failed at what it should be able to do.
pub fn run(
    make: &mut Make<'_>,
    exactness: Exactness,
    report: &mut dyn FnMut(&Check),
) -> Result<Vec<Check>, EngineError> {
    let mut checks = Vec::new();
    let mut add = |check: Check| {
        report(&check);
        checks.push(check);
    };
    for case in cases()? {
        if let Some(check) = compared(make, &case, exactness)? {
            add(check);
        }
    }
    for case in networks_only()? {
        add(whole_steps(make, &case)?);
    }
    matrices::check(make, exactness)?.into_iter().for_each(&mut add);
    portions::check(make, exactness)?.into_iter().for_each(&mut add);
    shared_norms::check(make, exactness)?.into_iter().for_each(&mut add);
    teachers::check(make, exactness)?.into_iter().for_each(&mut add);
    let case = plain_case()?;
    add(whole_steps(make, &mixed(&case)?)?);
    add(resumed(make, &case)?);
    add(reduced(make, &case)?);
    add(frozen(make, &case)?);
    if exactness == Exactness::Float {
        add(averaged(make, &case)?);
        add(statistics_taken(make, &case)?);
    }
    add(refused(make, &case)?);
    add(blown_up(make, &case)?);
    Ok(checks)
}

/// Every network once with soft units and once with hard ones beside the reference, and nothing else: for an engine that has
/// more than one way of computing the same.
pub fn networks_beside(
    make: &mut Make<'_>,
    exactness: Exactness,
    report: &mut dyn FnMut(&Check),
) -> Result<(), EngineError> {
    // The first cases are all networks, each with relu, saturated relu and sign.
    for (i, case) in cases()?.iter().take(3 * networks().len()).enumerate() {
        if i % 3 == 1 {
            continue;
        }
        if let Some(check) = compared(make, case, exactness)? {
            report(&check);
        }
    }
    Ok(())
}

/// An engine beside the reference, where its exactness allows that.
fn compared(make: &mut Make<'_>, case: &Case, exactness: Exactness) -> Result<Option<Check>, EngineError> {
    Ok(match exactness {
        Exactness::Float => Some(beside_the_reference(make, case, case.allowed, true)?),
        Exactness::Rounded(allowed) if case.soft => Some(beside_the_reference(make, case, allowed, false)?),
        Exactness::Rounded(_) => None,
    })
}

fn act() -> LayerSpec {
    LayerSpec::act()
}

fn conv(out: usize, kernel: [usize; 2], stride: usize, pad: usize, groups: usize, bias: Option<bool>) -> LayerSpec {
    LayerSpec::Conv { out, kernel: Kernel::Rectangle(kernel), stride, pad, groups, bias, init: Init::Uniform }
}

fn norm() -> LayerSpec {
    LayerSpec::batch_norm(1e-4)
}

fn affine(scale: Option<f32>) -> LayerSpec {
    LayerSpec::Affine { scale }
}

fn soft_relu() -> LayerSpec {
    LayerSpec::Act { activation: Some(Activation::Relu), layer_loss: None, target_rule: None, qrelu_form: None }
}

fn fc(out: Option<usize>) -> LayerSpec {
    LayerSpec::fc(out)
}

fn max_pool(kernel: usize, stride: usize, pad: usize) -> LayerSpec {
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
fn some_groups() -> Vec<GroupSpec> {
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
    // Rules that look further than at their unit are the CPU's alone.
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

/// Networks that learn from a teacher.
pub fn taught() -> Result<Vec<Case>, NnError> {
    teachers::cases()
}

/// Each network once, with sign units and Adam.
fn networks_only() -> Result<Vec<Case>, NnError> {
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let case = |(name, input, layers): (&str, Shape, Vec<LayerSpec>)| {
        let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 4)?);
        let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3)?)?;
        Ok(Case { name: name.into(), graph, learning, batch: 8, n: 8, soft: false, allowed: 0.0 })
    };
    networks().into_iter().map(case).collect()
}

/// The network with a little of everything.
fn plain_case() -> Result<Case, NnError> {
    Ok(networks_only()?.swap_remove(2))
}

/// The same with mixed examples.
fn mixed(case: &Case) -> Result<Case, NnError> {
    let criterion = case.learning.criterion.clone().with_mixing(Mixing::new(0.5, 1.0)?)?;
    let learning = Learning { criterion, ..case.learning.clone() };
    Ok(Case { name: format!("{}, mixed", case.name), learning, ..case.clone() })
}

impl Case {
    /// A batch of made-up numbers.
    fn data(&self, stream: u64) -> (Vec<f32>, Vec<u32>) {
        let random = Stream::numbered(stream);
        let len = self.n * self.graph.input().len();
        let images = (0..len).map(|i| 3.4 * random.uniform(i as u64) - 1.7).collect();
        let label = |i: usize| random.below((1 << 40) + i as u64, self.graph.classes() as u64) as u32;
        (images, (0..self.n).map(label).collect())
    }

    /// The plainest engine there is: one thread, no vector instructions.
    fn reference(&self) -> Result<CpuEngine, EngineError> {
        let cpu = Cpu::with_isa(1, Isa::Portable).map_err(|e: TensorError| EngineError::Device(Box::new(e)))?;
        Ok(CpuEngine::new(Arc::new(cpu), self.graph.clone(), self.learning.clone(), self.batch)?)
    }
}

/// Two steps of both from the same numbers; the second from the reference's, so that one step's rounding does not grow in
/// the next.
fn beside_the_reference(
    make: &mut Make<'_>,
    case: &Case,
    allowed: f64,
    optimizer_too: bool,
) -> Result<Check, EngineError> {
    let (mut engine, mut reference) = (make(case)?, case.reference()?);
    engine.initialise(17)?;
    reference.initialise(17)?;
    let (images, labels) = case.data(99);
    let mut error = distance(&engine.network()?.values, &reference.network()?.values);
    for number in 0..2 {
        let step = Step { seed: 5, number, progress: 0.4 };
        let expected = reference.learn(&images, &labels, &step)?;
        let got = engine.learn(&images, &labels, &step)?;
        error = error.max((got.loss() - expected.loss()).abs() / expected.loss().abs().max(1e-6));
        error = error.max(distance(&engine.gradients()?, &reference.gradients()?));
        error = error.max(distance(&engine.network()?.statistics, &reference.network()?.statistics));
        reference.optimize(0.5)?;
        engine.optimize(0.5)?;
        let (got, expected) = (engine.state()?, reference.state()?);
        if got.steps != expected.steps || got.moments.len() != expected.moments.len() {
            error = f64::INFINITY;
        }
        if optimizer_too {
            error = error.max(distance(&got.network.values, &expected.network.values));
            for (got, expected) in got.moments.iter().zip(&expected.moments) {
                error = error.max(distance(got, expected));
            }
        }
        drop(got);
        engine.restore(&expected)?;
    }
    let expected = reference.infer(&images)?.into_owned();
    error = error.max(distance(&engine.infer(&images)?, &expected));
    error = error.max(distance(&engine.logits()?, &expected));
    Ok(Check { name: case.name.clone(), error, allowed })
}

/// Whole steps against their phases, one by one: the values must end up equal.
fn whole_steps(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let (images, labels) = case.data(6);
    let (mut whole, mut phases) = (make(case)?, make(case)?);
    whole.initialise(4)?;
    phases.initialise(4)?;
    let steps = vec![(1.0, 0.5); 5];
    whole.begin(StepSpan { seed: 1, epoch: 0, first_batch: 0, first_step: 0, steps, portion: None })?;
    for number in 0..5 {
        whole.step(&images, &labels)?;
        phases.learn(&images, &labels, &Step { seed: 1, number, progress: 0.5 })?;
        phases.optimize(1.0)?;
    }
    let counted = whole.finish()?.examples == 5 * case.n as u64;
    let error = apart(&whole.network()?.values, &phases.network()?.values);
    Ok(Check {
        name: format!("{}: whole steps are their phases", case.name),
        error: if counted { error } else { f64::INFINITY },
        allowed: 0.0,
    })
}

/// A state that another engine goes on from: the values must end up equal.
fn resumed(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let case = Case { learning: Learning { average: Some(0.9), ..case.learning.clone() }, ..case.clone() };
    let (images, labels) = case.data(7);
    let (mut one, mut two) = (make(&case)?, make(&case)?);
    one.initialise(2)?;
    let train = |engine: &mut dyn Engine, numbers: std::ops::Range<u64>| {
        for number in numbers {
            engine.learn(&images, &labels, &Step { seed: 1, number, progress: 0.1 })?;
            engine.optimize(1.0)?;
        }
        Ok::<_, EngineError>(())
    };
    train(&mut *one, 0..3)?;
    two.restore(&one.state()?)?;
    train(&mut *one, 3..6)?;
    train(&mut *two, 3..6)?;
    let (one, two) = (one.state()?, two.state()?);
    let mut error = apart(&one.network.values, &two.network.values);
    error = error.max(apart(&one.network.statistics, &two.network.statistics));
    for (a, b) in one.moments.iter().zip(&two.moments) {
        error = error.max(apart(a, b));
    }
    match (&one.average, &two.average) {
        (Some(a), Some(b)) => error = error.max(apart(a, b)),
        _ => error = f64::INFINITY,
    }
    Ok(Check { name: "a state that is taken up goes on".into(), error, allowed: 0.0 })
}

/// What gradients go through is gone through, in phases and in whole steps.
fn reduced(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    struct Halve;
    impl Reducer for Halve {
        fn reduce(&mut self, gradients: &mut [f32], _: &mut [f32]) -> Result<(), EngineError> {
            gradients.iter_mut().for_each(|g| *g *= 0.5);
            Ok(())
        }
        fn sum(&mut self, _: &mut [f64]) -> Result<(), EngineError> {
            Ok(())
        }
    }
    let (images, labels) = case.data(8);
    let step = Step { seed: 1, number: 0, progress: 0.0 };
    let mut results = Vec::new();
    for way in 0..3 {
        let mut engine = make(case)?;
        engine.initialise(3)?;
        if way > 0 {
            engine.set_reducer(Box::new(Halve))?;
        }
        if way == 2 {
            let steps = vec![(1.0, 0.0)];
            engine.begin(StepSpan { seed: 1, epoch: 0, first_batch: 0, first_step: 0, steps, portion: None })?;
            engine.step(&images, &labels)?;
            engine.finish()?;
        } else {
            engine.learn(&images, &labels, &step)?;
            if way == 0 {
                let halves: Vec<f32> = engine.gradients()?.iter().map(|g| 0.5 * g).collect();
                engine.set_gradients(&halves)?;
            }
            engine.optimize(1.0)?;
        }
        results.push(engine.network()?.values.into_owned());
    }
    let error = apart(&results[1], &results[0]).max(apart(&results[2], &results[0]));
    Ok(Check { name: "gradients are reduced before the optimizer".into(), error, allowed: 0.0 })
}

/// Frozen parameters stay where they are, others do not.
fn frozen(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let frozen = GroupSpec { lr_factor: 0.0, ..some_groups().swap_remove(1) };
    let groups = ParameterGroups::resolve(&OptimizerSpec::adam(1e-2)?, &[frozen], &case.graph)?;
    let learning = Learning { groups: Arc::new(groups), ..case.learning.clone() };
    let case = Case { learning, ..case.clone() };
    let (images, labels) = case.data(9);
    let mut engine = make(&case)?;
    engine.initialise(3)?;
    let before = engine.network()?.values.into_owned();
    engine.learn(&images, &labels, &Step { seed: 1, number: 0, progress: 0.0 })?;
    engine.optimize(1.0)?;
    let after = engine.network()?.values.into_owned();
    let as_asked = case.graph.parameters().iter().all(|p| {
        let moved = before[p.range.clone()] != after[p.range.clone()];
        moved != p.name.starts_with("0.")
    });
    let error = if as_asked { 0.0 } else { f64::INFINITY };
    Ok(Check { name: "frozen parameters stay".into(), error, allowed: 0.0 })
}

/// The moving average of the weights is the reference's.
fn averaged(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    // Without Adam, which makes much of gradients that are nearly zero.
    let learning = Learning::new(&case.graph, &OptimizerSpec::sgd(0.1, 0.9)?)?;
    let case = Case { learning: Learning { average: Some(0.9), ..learning }, ..case.clone() };
    let (images, labels) = case.data(10);
    let (mut engine, mut reference) = (make(&case)?, case.reference()?);
    engine.initialise(3)?;
    reference.initialise(3)?;
    let mut error = 0.0f64;
    for number in 0..4 {
        for engine in [&mut *engine, &mut reference] {
            engine.learn(&images, &labels, &Step { seed: 1, number, progress: 0.0 })?;
            engine.optimize(1.0)?;
        }
        let expected = reference.state()?;
        let average = engine.state()?.average.map(std::borrow::Cow::into_owned);
        error = error
            .max(average.map_or(f64::INFINITY, |got| distance(&got, expected.average.as_deref().unwrap_or_default())));
        engine.restore(&expected)?;
    }
    Ok(Check { name: "the moving average of the weights".into(), error, allowed: 1e-5 })
}

/// Statistics taken over several batches are the reference's.
fn statistics_taken(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let (mut engine, mut reference) = (make(case)?, case.reference()?);
    engine.initialise(3)?;
    reference.initialise(3)?;
    for before in 0..3 {
        let (images, _) = case.data(20 + before as u64);
        engine.take_statistics(&images, before)?;
        reference.take_statistics(&images, before)?;
    }
    let error = distance(&engine.network()?.statistics, &reference.network()?.statistics);
    Ok(Check { name: "statistics taken over batches".into(), error, allowed: 1e-5 })
}

/// What is no batch, and numbers of another network, are refused.
fn refused(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let mut engine = make(case)?;
    engine.initialise(3)?;
    let (images, labels) = case.data(11);
    let step = Step { seed: 1, number: 0, progress: 0.0 };
    let too_many: Vec<f32> = (0..=case.batch).flat_map(|_| &images[..case.graph.input().len()]).copied().collect();
    let unknown = vec![case.graph.classes() as u32; labels.len()];
    let short = NetworkState { values: vec![0.0; 3].into(), statistics: vec![].into() };
    let outcomes = [
        engine.learn(&images[1..], &labels, &step).is_err(),
        engine.learn(&images, &labels[1..], &step).is_err(),
        engine.learn(&images, &unknown, &step).is_err(),
        engine.learn(&[], &[], &step).is_err(),
        engine.evaluate(&too_many, &vec![0; case.batch + 1]).is_err(),
        engine.infer(&images[1..]).is_err(),
        engine.set_network(&short).is_err(),
        engine.set_gradients(&[1.0]).is_err(),
        engine.step(&images, &labels).is_err(),
    ];
    let refused = outcomes.iter().all(|&refused| refused);
    Ok(Check {
        name: "what is no batch of the network is refused".into(),
        error: if refused { 0.0 } else { f64::INFINITY },
        allowed: 0.0,
    })
}

/// A network that blew up says where.
fn blown_up(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let mut engine = make(case)?;
    engine.initialise(3)?;
    let sound = engine.first_non_finite().is_none();
    let mut state = engine.network()?;
    let last = case.graph.parameters().last().map_or(0, |p| p.range.end - 1);
    state.values.to_mut()[last] = f32::NAN;
    let state =
        NetworkState { values: state.values.into_owned().into(), statistics: state.statistics.into_owned().into() };
    engine.set_network(&state)?;
    let (images, labels) = case.data(12);
    let loss = engine.evaluate(&images, &labels)?.loss();
    let named = engine.first_non_finite().is_some_and(|culprit| culprit.contains("layer 10 (fc)"));
    let error = if sound && named && !loss.is_finite() { 0.0 } else { f64::INFINITY };
    Ok(Check { name: "a network that blew up says where".into(), error, allowed: 0.0 })
}

/// ‖got − expected‖ / ‖expected‖, infinite where anything is not finite.
pub fn distance(got: &[f32], expected: &[f32]) -> f64 {
    let (mut apart, mut size) = (0.0f64, 0.0f64);
    for (&g, &e) in got.iter().zip(expected) {
        apart += (f64::from(g) - f64::from(e)).powi(2);
        size += f64::from(e).powi(2);
    }
    let ratio = (apart / size.max(1e-30)).sqrt();
    if got.len() == expected.len() && ratio.is_finite() { ratio } else { f64::INFINITY }
}

/// 0 where both have the same bits, else how far apart they are, which is more than 0.
pub fn apart(got: &[f32], expected: &[f32]) -> f64 {
    let bits = |numbers: &[f32]| numbers.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    if bits(got) == bits(expected) { 0.0 } else { distance(got, expected).max(f64::MIN_POSITIVE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpus_engine_passes_on_every_instruction_set() {
        for isa in Isa::all_available() {
            let cpu = Arc::new(Cpu::with_isa(2, isa).unwrap());
            let mut make = |case: &Case| -> Result<Box<dyn Engine>, EngineError> {
                let engine = CpuEngine::new(cpu.clone(), case.graph.clone(), case.learning.clone(), case.batch)?;
                Ok(Box::new(engine))
            };
            let checks = run(&mut make, Exactness::Float, &mut |_| ()).unwrap();
            assert!(checks.len() > 60);
            let failed: Vec<&Check> = checks.iter().filter(|c| !c.passed()).collect();
            assert!(failed.is_empty(), "{isa:?}: {failed:?}");
        }
    }

    #[test]
    fn an_engine_that_computes_something_else_fails() {
        let cpu = Arc::new(Cpu::new(1).unwrap());
        // It learns by another layer loss than it is asked for.
        let mut make = |case: &Case| -> Result<Box<dyn Engine>, EngineError> {
            let defaults = Defaults::new(Activation::Sign, LayerLoss::saturated_hinge());
            let (_, input, layers) = &networks()[0];
            let graph = match *input == case.graph.input() {
                true => Arc::new(Graph::resolve(layers, &defaults, *input, case.graph.classes())?),
                false => case.graph.clone(),
            };
            Ok(Box::new(CpuEngine::new(cpu.clone(), graph, case.learning.clone(), case.batch)?))
        };
        let checks = run(&mut make, Exactness::Float, &mut |_| ()).unwrap();
        let failed = checks.iter().filter(|c| !c.passed()).count();
        assert!(failed >= 5 && failed < checks.len() / 2, "{failed} of {}", checks.len());
    }
}
