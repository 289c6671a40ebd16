//! Engines that share batches: what their gradients add up to is that of one engine.

use super::cases::{EXAMPLES, act, conv, fc, max_pool};
use super::{Case, Check, Exactness, Make, apart};
use crate::activation::Activation;
use crate::engine::{EngineError, Learning, Reducer, StepSpan};
use crate::graph::Graph;
use crate::layer_loss::LayerLoss;
use crate::optimizer::OptimizerSpec;
use crate::portion::Portion;
use crate::spec::{Defaults, LayerSpec};
use crate::target::TargetRule;
use ftprop_tensor::{Shape, Share};
use std::sync::{Arc, Mutex, PoisonError};

/// Keeps the gradients that go through it.
struct Keep(Arc<Mutex<Vec<f32>>>);

impl Reducer for Keep {
    fn reduce(&mut self, gradients: &mut [f32], _: &mut [f32]) -> Result<(), EngineError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = gradients.to_vec();
        Ok(())
    }
    fn sum(&mut self, _: &mut [f64]) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Networks without norms, whose every random number depends on the place of an example in its batch.
fn cases() -> Result<Vec<Case>, EngineError> {
    let layers = vec![
        conv(8, [3, 3], 1, 1, 1, None),
        max_pool(2, 2, 0),
        act(),
        LayerSpec::Dropout { p: 0.3 },
        conv(16, [3, 3], 1, 1, 1, None),
        act(),
        LayerSpec::ChannelDropout { p: 0.4 },
        fc(None),
    ];
    // One that looks at whole batches is refused where they are shared.
    let rules = TargetRule::all().into_iter().filter(|rule| !rule.looks_further());
    let case = |(number, target_rule): (usize, TargetRule)| {
        // Gradients that are nearly zero have the same sign only if all is the same to the bit, so they are weighted
        // where they come a long way.
        let loss = LayerLoss::soft_hinge();
        let defaults = Defaults { target_rule, weighted: number > 0, ..Defaults::new(Activation::Sign, loss) };
        let input = Shape { height: 8, width: 6, channels: 3 };
        let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 4)?);
        let learning = Learning::new(&graph, &OptimizerSpec::sgd(0.1, 0.0)?)?;
        let allowed = if number > 0 { 2e-5 } else { 3e-2 };
        Ok(Case {
            name: target_rule.to_string(),
            graph,
            learning,
            batch: 8,
            n: 8,
            soft: false,
            allowed,
            examples: EXAMPLES,
        })
    };
    rules.enumerate().map(case).collect()
}

/// The gradient that one engine passes on of its portion of a batch.
fn gradient(make: &mut Make<'_>, case: &Case, share: Share, of: usize) -> Result<Vec<f32>, EngineError> {
    let (images, labels) = case.data(11);
    let portion = Portion::new(share, of, case.batch);
    let len = case.graph.input().len();
    let (mut engine, kept) = (make(case)?, Arc::new(Mutex::new(Vec::new())));
    engine.initialise(3)?;
    engine.set_reducer(Box::new(Keep(kept.clone())))?;
    let steps = vec![(1.0, 0.3)];
    engine.begin(StepSpan { seed: 1, epoch: 0, first_batch: 0, first_step: 5, steps, portion: Some(portion) })?;
    let range = portion.first..portion.first + portion.count;
    engine.step(&images[range.start * len..range.end * len], &labels[range])?;
    engine.finish()?;
    Ok(std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Batches of eight and of two examples among three engines, of which one then has none.
pub(super) fn check(make: &mut Make<'_>, exactness: Exactness) -> Result<Vec<Check>, EngineError> {
    let mut checks = Vec::new();
    for case in cases()? {
        let allowed = match exactness {
            Exactness::Float => case.allowed,
            // Sums of many rounded numbers, taken in other places; their signs are the same nearly everywhere.
            Exactness::Rounded(allowed) => allowed.max(case.allowed),
        };
        let mut error: f64 = 0.0;
        for of in [8, 2] {
            let whole = gradient(make, &case, Share::WHOLE, of)?;
            let mut sum = vec![0.0; whole.len()];
            for rank in 0..3 {
                let part = gradient(make, &case, Share { rank, ranks: 3 }, of)?;
                sum.iter_mut().zip(part).for_each(|(sum, g)| *sum += g);
            }
            error = error.max(apart(&sum, &whole));
        }
        checks.push(Check { name: format!("engines that share batches, {}", case.name), error, allowed });
    }
    Ok(checks)
}
