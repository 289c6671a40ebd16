//! Engines that share batches and whose norms go by all examples: together they are one engine.

use super::cases::{EXAMPLES, conv, fc};
use super::{Case, Check, Exactness, Make, apart};
use crate::activation::Activation;
use crate::engine::{Engine, EngineError, Learning, Reducer, StepSpan};
use crate::graph::Graph;
use crate::layer_loss::LayerLoss;
use crate::optimizer::OptimizerSpec;
use crate::portion::Portion;
use crate::spec::{Defaults, LayerSpec};
use ftprop_tensor::{Shape, Share};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Engines of one process that sum with each other, each in a thread of its own.
#[derive(Clone)]
struct Table {
    share: Share,
    state: Arc<(Mutex<State>, Condvar)>,
}

/// A sum that is being made.
#[derive(Default)]
struct State {
    /// What each has brought, in their order.
    brought: Vec<Option<Vec<f64>>>,
    sum: Vec<f64>,
    /// Sums that were made.
    made: usize,
    /// Whether somebody does not come any more.
    given_up: bool,
}

impl Table {
    fn give_up(&self) {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).given_up = true;
        self.state.1.notify_all();
    }
}

impl Reducer for Table {
    fn reduce(&mut self, gradients: &mut [f32], _: &mut [f32]) -> Result<(), EngineError> {
        let mut numbers: Vec<f64> = gradients.iter().map(|&g| f64::from(g)).collect();
        self.sum(&mut numbers)?;
        gradients.iter_mut().zip(numbers).for_each(|(g, sum)| *g = sum as f32);
        Ok(())
    }

    fn sum(&mut self, numbers: &mut [f64]) -> Result<(), EngineError> {
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let made = state.made;
        state.brought.resize(self.share.ranks, None);
        state.brought[self.share.rank] = Some(numbers.to_vec());
        if state.brought.iter().all(Option::is_some) {
            let all: Vec<Vec<f64>> = state.brought.iter_mut().filter_map(Option::take).collect();
            state.sum = vec![0.0; numbers.len()];
            for own in all {
                state.sum.iter_mut().zip(own).for_each(|(sum, number)| *sum += number);
            }
            state.made += 1;
            changed.notify_all();
        }
        while state.made == made && !state.given_up {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.made == made {
            return Err(EngineError::Ranks("another engine failed".into()));
        }
        numbers.copy_from_slice(&state.sum);
        Ok(())
    }
}

/// Norms of maps and of units, and a block with one on each of its paths. Nothing in it has a kink, past which rounding could
/// carry a number.
fn case(sync_norm: bool) -> Result<Case, EngineError> {
    let norm = || LayerSpec::BatchNorm { eps: 1e-5, momentum: 0.1 };
    let layers = vec![
        conv(8, [3, 3], 1, 1, 1, None),
        norm(),
        LayerSpec::Residual {
            main: vec![conv(12, [3, 3], 2, 1, 1, None), norm(), conv(12, [3, 3], 1, 1, 1, None), norm()],
            shortcut: vec![conv(12, [1, 1], 2, 0, 1, None), norm()],
        },
        fc(Some(20)),
        norm(),
        fc(None),
    ];
    let defaults = Defaults::new(Activation::Relu, LayerLoss::soft_hinge());
    let input = Shape { height: 8, width: 6, channels: 3 };
    let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 4)?);
    let learning = Learning { sync_norm, ..Learning::new(&graph, &OptimizerSpec::sgd(0.1, 0.0)?)? };
    let name = "norms over all engines".to_string();
    Ok(Case { name, graph, learning, batch: 12, n: 12, soft: true, allowed: 2e-4, examples: EXAMPLES })
}

/// Parameters and running statistics after two steps on a share of batches, of which the second is small.
fn learned(mut engine: Box<dyn Engine>, case: &Case, share: Share) -> Result<[Vec<f32>; 2], EngineError> {
    let (images, labels) = case.data(11);
    let len = case.graph.input().len();
    engine.initialise(3)?;
    for (number, of) in [case.n, 5, 2].into_iter().enumerate() {
        let portion = Portion::new(share, of, case.batch);
        let (steps, portion) = (vec![(1.0, 0.3)], Some(portion));
        let (first_batch, first_step) = (0, number as u64);
        engine.begin(StepSpan { seed: 1, epoch: 0, first_batch, first_step, steps, portion })?;
        let own = share.of(of);
        engine.step(&images[own.start * len..own.end * len], &labels[own])?;
        engine.finish()?;
    }
    let network = engine.network()?;
    Ok([network.values.to_vec(), network.statistics.to_vec()])
}

/// One engine, alone and at a table for one, and three that share batches, of which one has no example of the last.
pub(super) fn check(make: &mut Make<'_>, exactness: Exactness) -> Result<Vec<Check>, EngineError> {
    let (alone, case) = (case(false)?, case(true)?);
    let whole = learned(make(&alone)?, &alone, Share::WHOLE)?;
    let allowed = match exactness {
        Exactness::Float => case.allowed,
        Exactness::Rounded(allowed) => allowed.max(case.allowed),
    };
    let mut checks = Vec::new();
    for ranks in [1, 3] {
        let state = Arc::default();
        let mut engines = Vec::new();
        for rank in 0..ranks {
            let table = Table { share: Share { rank, ranks }, state: Arc::clone(&state) };
            let mut engine = make(&case)?;
            engine.set_reducer(Box::new(table.clone()))?;
            engines.push((engine, table));
        }
        let ends: Vec<Result<[Vec<f32>; 2], EngineError>> = std::thread::scope(|scope| {
            let start = |(engine, table): (Box<dyn Engine>, Table)| {
                let case = &case;
                scope.spawn(move || {
                    let end = learned(engine, case, table.share);
                    if end.is_err() {
                        table.give_up();
                    }
                    end
                })
            };
            let threads: Vec<_> = engines.into_iter().map(start).collect();
            let panicked = || Err(EngineError::Ranks("an engine's thread panicked".into()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        let mut error: f64 = 0.0;
        for end in ends {
            let end = end?;
            error = error.max(apart(&end[0], &whole[0])).max(apart(&end[1], &whole[1]));
        }
        checks.push(Check { name: format!("{}, {ranks} of them", case.name), error, allowed });
    }
    Ok(checks)
}
