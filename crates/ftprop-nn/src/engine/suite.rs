//! One suite for every engine: what all of them have to do, whatever they compute on.
//!
//! Small networks of odd shapes, which between them use every layer in every place, are trained for a few steps beside
//! the CPU's plainest engine on the same numbers; then what an engine promises about itself is put to the test. The
//! CPU's tests run it, and so does a self test on a GPU.

mod cases;
mod distance;
mod frozen;
mod matrices;
mod portions;
mod rules;
mod shared_norms;
mod teachers;

pub use cases::{Case, cases, networks};
use cases::{mixed, networks_only, plain_case};
pub use distance::{apart, distance};

use super::{Engine, EngineError, Learning, NetworkState, Reducer, StepSpan};
use crate::NnError;
use crate::network::Step;
use crate::optimizer::OptimizerSpec;
use crate::output_loss::Tally;

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

impl Exactness {
    /// Whether an engine may be compared with the reference on a case.
    fn allows(self, case: &Case) -> bool {
        self == Exactness::Float || case.soft
    }
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
    for case in cases_for(exactness)? {
        add(compared(make, &case, exactness)?);
    }
    for case in networks_only()? {
        add(whole_steps(make, &case)?);
    }
    matrices::check(make, exactness)?.into_iter().for_each(&mut add);
    portions::check(make, exactness)?.into_iter().for_each(&mut add);
    shared_norms::check(make, exactness)?.into_iter().for_each(&mut add);
    teachers::check(make, exactness)?.into_iter().for_each(&mut add);
    rules::check(make, exactness, &mut add)?;
    let case = plain_case()?;
    add(whole_steps(make, &mixed(&case)?)?);
    add(counted_apart(make, &case)?);
    add(resumed(make, &case)?);
    add(reduced(make, &case)?);
    frozen::check(make, &case)?.into_iter().for_each(&mut add);
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
    let networks = cases()?.into_iter().take(3 * networks().len()).enumerate().filter(|(i, _)| i % 3 != 1);
    for (_, case) in networks.filter(|(_, case)| exactness.allows(case)) {
        report(&compared(make, &case, exactness)?);
    }
    Ok(())
}

/// The cases that an engine so exact is compared with the reference on.
pub fn cases_for(exactness: Exactness) -> Result<Vec<Case>, NnError> {
    Ok(cases()?.into_iter().filter(|case| exactness.allows(case)).collect())
}

/// An engine beside the reference.
fn compared(make: &mut Make<'_>, case: &Case, exactness: Exactness) -> Result<Check, EngineError> {
    match exactness {
        Exactness::Float => beside_the_reference(make, case, case.allowed, true),
        Exactness::Rounded(allowed) => beside_the_reference(make, case, allowed, false),
    }
}

/// Target rules that look further than at their unit, and nothing else.
pub fn rules_beside(
    make: &mut Make<'_>,
    exactness: Exactness,
    report: &mut dyn FnMut(&Check),
) -> Result<(), EngineError> {
    rules::check(make, exactness, &mut |check| report(&check))
}

/// Networks with such rules.
pub fn further() -> Result<Vec<Case>, NnError> {
    rules::cases()
}

/// Networks that learn from a teacher.
pub fn taught() -> Result<Vec<Case>, NnError> {
    teachers::cases()
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
    let (images, labels) = if optimizer_too { case.steady_data()? } else { case.data(case.examples) };
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

/// The loss of some steps has the same bits however they are counted together, since that may go by the clock.
fn counted_apart(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let batches: Vec<_> = (0..20).map(|number| case.data(40 + number)).collect();
    let mut counts = Vec::new();
    for spans in [&[20][..], &[1, 7, 2, 6, 4], &[13, 7]] {
        let (mut engine, mut counted, mut first) = (make(case)?, Tally::default(), 0);
        engine.initialise(6)?;
        for &span in spans {
            let steps = vec![(1.0, 0.5); span];
            let first_step = first as u64;
            engine.begin(StepSpan { seed: 1, epoch: 0, first_batch: first, first_step, steps, portion: None })?;
            for (images, labels) in &batches[first..first + span] {
                engine.step(images, labels)?;
            }
            counted.add(&engine.finish()?);
            first += span;
        }
        counts.push(counted);
    }
    let error = if counts.iter().all(|count| *count == counts[0]) { 0.0 } else { f64::INFINITY };
    Ok(Check { name: format!("{}: losses however steps are counted", case.name), error, allowed: 0.0 })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Activation;
    use crate::engine::CpuEngine;
    use crate::graph::Graph;
    use crate::layer_loss::LayerLoss;
    use crate::spec::Defaults;
    use ftprop_tensor::Cpu;
    use ftprop_tensor::cpu::Isa;
    use std::sync::Arc;

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
