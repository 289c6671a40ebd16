//! Parameters that are not learned, on any engine.

use super::{Case, Check, Make, apart, distance};
use crate::NnError;
use crate::engine::{Engine, EngineError, Learning};
use crate::network::Step;
use crate::optimizer::{GroupSpec, OptimizerSpec, ParameterGroups, Setting};
use ftprop_tensor::random::Stream;
use std::sync::Arc;

/// Every way in which a step at a rate of 0 could change a weight or what becomes of others: decay, momentum, a matrix that
/// is scaled before its step, a gradient that counts for the norm.
pub(super) fn check(make: &mut Make<'_>, case: &Case) -> Result<Vec<Check>, EngineError> {
    let number = |key, value| (key, Setting::Number(value));
    let optimizers = [
        OptimizerSpec::new("adamw", &[number("lr", 1e-2), number("weight_decay", 0.5)])?,
        OptimizerSpec::new("sgd", &[number("lr", 0.1), number("momentum", 0.9), number("weight_decay", 0.5)])?,
        OptimizerSpec::new(
            "muon",
            &[number("lr", 0.1), number("weight_decay", 0.5), ("normalize", Setting::Flag(true))],
        )?,
    ];
    let mut checks = Vec::new();
    for optimizer in optimizers {
        let name = format!("what {} has frozen", optimizer.name());
        let case = Case { learning: learning(case, optimizer)?, name, ..case.clone() };
        checks.extend(beside_the_reference(make, &case)?);
    }
    Ok(checks)
}

/// The first layer frozen, everything else learned by Adam; gradients are clipped.
fn learning(case: &Case, optimizer: OptimizerSpec) -> Result<Learning, NnError> {
    let first = GroupSpec {
        kind: None,
        pattern: Some("0.*".into()),
        lr_factor: 0.0,
        weight_decay: None,
        momentum: None,
        optimizer: Some(optimizer),
    };
    let groups = ParameterGroups::resolve(&OptimizerSpec::adam(1e-2)?, &[first], &case.graph)?;
    Ok(Learning { groups: Arc::new(groups), clip: Some(3.0), ..case.learning.clone() })
}

/// Steps along gradients that both are given, those of what is frozen so large that nothing would be left of the others if
/// they counted.
fn beside_the_reference(make: &mut Make<'_>, case: &Case) -> Result<[Check; 2], EngineError> {
    let (mut engine, mut reference) = (make(case)?, case.reference()?);
    engine.initialise(3)?;
    reference.initialise(3)?;
    let before = engine.network()?.values.into_owned();
    let mut error = 0.0f64;
    for number in 0..2 {
        let (got, expected) = (step(&mut *engine, case, number)?, step(&mut reference, case, number)?);
        error = error.max(distance(&[got as f32], &[expected as f32]));
    }
    let (got, expected) = (engine.state()?, reference.state()?);
    error = error.max(distance(&got.network.values, &expected.network.values));
    for (got, expected) in got.moments.iter().zip(&expected.moments) {
        error = error.max(distance(got, expected));
    }
    let mut moved = 0.0f64;
    for p in case.graph.parameters() {
        let (before, after) = (&before[p.range.clone()], &got.network.values[p.range.clone()]);
        match p.name.starts_with("0.") {
            true => moved = moved.max(apart(after, before)),
            false if before == after => error = f64::INFINITY,
            false => (),
        }
    }
    Ok([
        Check { name: format!("{} stays bit for bit", case.name), error: moved, allowed: 0.0 },
        Check { name: format!("{} does not count for the others", case.name), error, allowed: 1e-5 },
    ])
}

/// One step along made-up gradients; gives their norm.
fn step(engine: &mut dyn Engine, case: &Case, number: u64) -> Result<f64, EngineError> {
    let (images, labels) = case.data(9);
    engine.learn(&images, &labels, &Step { seed: 1, number, progress: 0.0 })?;
    let random = Stream::numbered(50 + number);
    let mut gradients: Vec<f32> = (0..case.graph.parameter_count()).map(|i| random.normal(i as u64)).collect();
    for p in case.graph.parameters().iter().filter(|p| p.name.starts_with("0.")) {
        gradients[p.range.clone()].iter_mut().for_each(|g| *g *= 1e6);
    }
    engine.set_gradients(&gradients)?;
    Ok(engine.optimize(1.0)?.unwrap_or(f64::NAN))
}
