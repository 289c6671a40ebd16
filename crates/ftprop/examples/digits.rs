//! Trains on the built-in digits, without a run folder: everything stays in memory.
//!
//!     cargo run --release -p ftprop --example digits

use ftprop::prelude::*;
use std::ops::ControlFlow;

/// Prints a line an epoch, and has had enough once the test part is known well enough.
struct Watch;

impl Observer for Watch {
    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        let Some(epoch) = run.metrics.last() else { return Ok(ControlFlow::Continue(())) };
        println!("epoch {}: test accuracy {:.2} %", epoch.epoch, 100.0 * epoch.test.top1);
        Ok(if epoch.test.top1 > 0.97 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let recipe = Recipe::built_in("digits")?;
    let (dataset, place) = (recipe.data.open()?, Place::open(DeviceChoice::Cpu, 0)?);
    let mut trainer = Trainer::new(recipe, &dataset, &place)?;
    trainer.run(&mut Watch)?;
    let best = trainer.metrics().iter().map(|epoch| epoch.test.top1).fold(0.0, f64::max);
    assert!(best > 0.97, "the digits are learned to {:.2} % only", 100.0 * best);
    Ok(())
}
