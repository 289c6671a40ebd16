//! Networks that learn from another one.

use super::cases::{EXAMPLES, conv, fc, norm};
use super::{Case, Check, Exactness, Make, beside_the_reference, networks, whole_steps};
use crate::NnError;
use crate::activation::Activation;
use crate::distillation::Distillation;
use crate::engine::{EngineError, Learning, NetworkState, Teacher};
use crate::graph::Graph;
use crate::layer_loss::LayerLoss;
use crate::optimizer::OptimizerSpec;
use crate::output_loss::{Criterion, OutputLoss};
use crate::spec::{Defaults, LayerSpec};
use ftprop_tensor::Shape;
use std::sync::Arc;

/// What the teacher says is learned, as the reference learns it, in phases and in whole steps.
pub(super) fn check(make: &mut Make<'_>, exactness: Exactness) -> Result<Vec<Check>, EngineError> {
    let mut checks = Vec::new();
    for case in cases()? {
        match exactness {
            Exactness::Float => checks.push(beside_the_reference(make, &case, case.allowed, true)?),
            Exactness::Rounded(allowed) if case.soft => {
                checks.push(beside_the_reference(make, &case, allowed, false)?);
            }
            Exactness::Rounded(_) => {}
        }
        checks.push(whole_steps(make, &case)?);
    }
    Ok(checks)
}

/// Pupils of several kinds with teachers that are built otherwise.
pub(super) fn cases() -> Result<Vec<Case>, NnError> {
    let settings = [
        (0, Activation::Relu, OutputLoss::CrossEntropy, (2.0, 0.5)),
        (1, Activation::Sign, OutputLoss::SquaredMultiHinge, (4.0, 1.0)),
        (2, Activation::Relu, OutputLoss::CrossEntropy, (1.0, 0.9)),
        (3, Activation::Sign, OutputLoss::CrossEntropy, (3.0, 0.25)),
    ];
    settings
        .into_iter()
        .map(|(network, activation, loss, (temperature, weight))| {
            let (name, input, layers) = networks().swap_remove(network);
            let defaults = Defaults::new(activation, LayerLoss::soft_hinge());
            let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 6)?);
            let distillation = Distillation::new(temperature, weight)?;
            let learning = Learning {
                criterion: Criterion::new(loss, 0.0)?,
                teacher: Some(Arc::new(teacher(input, distillation)?)),
                ..Learning::new(&graph, &OptimizerSpec::sgd(0.1, 0.9)?)?
            };
            let (name, soft) = (format!("{name}, {activation}, taught"), !activation.is_hard());
            Ok(Case { name, graph, learning, batch: 9, n: 7, soft, allowed: 2e-4, examples: EXAMPLES })
        })
        .collect()
}

/// A network that has learned nothing, and says something all the same.
fn teacher(input: Shape, distillation: Distillation) -> Result<Teacher, NnError> {
    let hidden = match input.height {
        1 => fc(Some(11)),
        _ => conv(11, [3, 3], 2, 1, 1, None),
    };
    taught_by(&[hidden, norm(), LayerSpec::act(), fc(None)], input, 6, distillation)
}

/// The same of any layers.
pub(super) fn taught_by(
    layers: &[LayerSpec],
    input: Shape,
    classes: usize,
    distillation: Distillation,
) -> Result<Teacher, NnError> {
    let graph = Graph::resolve(layers, &Defaults::new(Activation::Relu, LayerLoss::soft_hinge()), input, classes)?;
    // Loud enough that its word counts, and with statistics of its own.
    let values: Vec<f32> = graph.initial_values(5).into_iter().map(|v| 3.0 * v).collect();
    let statistics: Vec<f32> = (0..graph.statistic_count()).map(|i| 0.2 + 0.1 * (i % 7) as f32).collect();
    let network = NetworkState { values: values.into(), statistics: statistics.into() };
    Ok(Teacher { graph: Arc::new(graph), network, distillation })
}
