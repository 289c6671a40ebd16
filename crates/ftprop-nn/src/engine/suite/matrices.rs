//! Optimizers of whole matrices on any engine.

use super::{Case, Check, Exactness, Make, apart, distance, networks_only};
use crate::NnError;
use crate::engine::{Engine, EngineError, Learning};
use crate::network::Step;
use crate::optimizer::{GroupSpec, OptimizerSpec, ParameterClass, ParameterGroups, Setting};
use ftprop_tensor::random::Stream;
use std::sync::Arc;

/// Weights by Muon, with every setting that matters in one of two ways, everything else by Adam.
fn learning(case: &Case, way: usize) -> Result<Learning, NnError> {
    let settings: &[(&str, Setting)] = match way {
        0 => &[("lr", Setting::Number(0.1)), ("momentum", Setting::Number(0.6))],
        _ => &[
            ("lr", Setting::Number(0.1)),
            ("nesterov", Setting::Flag(false)),
            ("weight_decay", Setting::Number(0.5)),
            ("iterations", Setting::Number(4.0)),
            ("normalize", Setting::Flag(true)),
        ],
    };
    let muon = OptimizerSpec::new("muon", settings)?;
    let weights = GroupSpec {
        kind: Some(ParameterClass::Weights),
        pattern: None,
        lr_factor: 0.5,
        weight_decay: None,
        momentum: None,
        optimizer: Some(muon),
    };
    let groups = ParameterGroups::resolve(&OptimizerSpec::adam(1e-3)?, &[weights], &case.graph)?;
    let clip = (way == 1).then_some(3.0);
    Ok(Learning { groups: Arc::new(groups), clip, average: Some(0.9), ..case.learning.clone() })
}

/// Steps of every network's matrices beside the reference's, along gradients that both are given: what is nearly zero in
/// a gradient of a few examples is made as large as the rest, and with it all rounding. How far the weights moved is
/// compared; then, bit by bit, a run and one that goes on from its middle.
pub(super) fn check(make: &mut Make<'_>, exactness: Exactness) -> Result<Vec<Check>, EngineError> {
    let allowed = match exactness {
        Exactness::Float => 1e-4,
        Exactness::Rounded(_) => 3e-2,
    };
    let mut checks = Vec::new();
    for (number, case) in networks_only()?.into_iter().enumerate() {
        let case = Case { learning: learning(&case, number % 2)?, ..case };
        let (mut engine, mut reference) = (make(&case)?, case.reference()?);
        engine.initialise(6)?;
        reference.initialise(6)?;
        let mut error = 0.0f64;
        for number in 0..3 {
            let before = reference.network()?.values.into_owned();
            let moved = |engine: &mut dyn Engine| {
                step(engine, &case, number)?;
                let after = engine.network()?.values.into_owned();
                Ok::<_, EngineError>(after.iter().zip(&before).map(|(a, b)| a - b).collect::<Vec<f32>>())
            };
            let (got, expected) = (moved(&mut *engine)?, moved(&mut reference)?);
            error = error.max(distance(&got, &expected));
            let (got, expected) = (engine.state()?, reference.state()?);
            error = error.max(distance(&got.moments[0], &expected.moments[0]));
            drop(got);
            engine.restore(&expected)?;
        }
        checks.push(Check { name: format!("{}: matrices as a whole", case.name), error, allowed });
        checks.push(resumed(make, &case)?);
    }
    Ok(checks)
}

/// One step along made-up gradients.
fn step(engine: &mut dyn Engine, case: &Case, number: u64) -> Result<(), EngineError> {
    let (images, labels) = case.data(31);
    engine.learn(&images, &labels, &Step { seed: 1, number, progress: 0.0 })?;
    let random = Stream::numbered(40 + number);
    let gradients: Vec<f32> = (0..case.graph.parameter_count()).map(|i| random.normal(i as u64)).collect();
    engine.set_gradients(&gradients)?;
    engine.optimize(1.0).map(|_| ())
}

fn resumed(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let (mut one, mut two) = (make(case)?, make(case)?);
    one.initialise(6)?;
    (0..2).try_for_each(|number| step(&mut *one, case, number))?;
    two.restore(&one.state()?)?;
    for engine in [&mut one, &mut two] {
        (2..4).try_for_each(|number| step(&mut **engine, case, number))?;
    }
    let error = apart(&one.network()?.values, &two.network()?.values);
    Ok(Check { name: format!("{}: matrices go on from a state", case.name), error, allowed: 0.0 })
}
