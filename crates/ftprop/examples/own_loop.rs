//! A network and a training loop of one's own: layers, batches and steps, without recipes.
//!
//!     cargo run --release -p ftprop --example own_loop

use ftprop::data::{self, Options};
use ftprop::nn::Tally;
use ftprop::prelude::*;
use std::sync::Arc;

const SEED: u64 = 7;
const BATCH: usize = 32;
const EPOCHS: u64 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let digits = data::open(Source::Digits, None, &Options::default())?;
    let input = Shape { height: digits.shape.height, width: digits.shape.width, channels: digits.shape.channels };

    // Two hidden layers: one of steps, one of signs that learn by the saturated hinge.
    let layers = [
        LayerSpec::Fc { out: Some(96), bias: None },
        LayerSpec::Act { activation: Some("qrelu:3".parse()?), layer_loss: None, target_rule: None, qrelu_form: None },
        LayerSpec::Fc { out: Some(48), bias: None },
        LayerSpec::Act {
            activation: Some(Activation::Sign),
            layer_loss: Some("saturated_hinge".parse()?),
            target_rule: None,
            qrelu_form: None,
        },
        LayerSpec::Fc { out: None, bias: None },
    ];
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let graph = Arc::new(Graph::resolve(&layers, &defaults, input, digits.classes.len())?);
    let learning = Learning::new(&graph, &OptimizerSpec::adam(2e-3)?)?;
    let cpu = Arc::new(Cpu::new(0)?);
    let mut engine = CpuEngine::new(cpu.clone(), graph, learning, BATCH)?;
    engine.initialise(SEED)?;

    let train = Loader::new(&digits.train, LoaderConfig::training(BATCH, SEED, digits.normalize.clone()))?;
    let test = Loader::new(&digits.test, LoaderConfig::evaluation(BATCH, digits.normalize.clone()))?;
    let (mut number, steps) = (0, EPOCHS * train.batches_per_epoch() as u64);
    let mut accuracy = 0.0;
    for epoch in 1..=EPOCHS {
        let mut batches = train.epoch(epoch, 0);
        while let Some(batch) = batches.next_batch()? {
            let step = Step { seed: SEED, number, progress: number as f32 / steps as f32 };
            cpu.enter(|| {
                engine.learn(batch.images, batch.labels, &step)?;
                // The rate falls in a straight line.
                engine.optimize(1.0 - f64::from(step.progress))
            })?;
            number += 1;
        }
        let mut tally = Tally::default();
        let mut batches = test.epoch(0, 0);
        while let Some(batch) = batches.next_batch()? {
            tally.add(&cpu.enter(|| engine.evaluate(batch.images, batch.labels))?);
        }
        accuracy = tally.top1_share();
        println!("epoch {epoch}: test accuracy {:.2} %", 100.0 * accuracy);
    }
    assert!(accuracy > 0.9, "the digits are learned to {:.2} % only", 100.0 * accuracy);
    Ok(())
}
