//! A layer loss, a target rule and an optimizer of one's own, from outside: each is a small type that says a formula
//! over any number, so that the CPU runs it in vector loops and a GPU compiles it from the text that it writes down.
//! Under a name, recipes know it like those that are built in.
//!
//!     cargo run --release -p ftprop --example own_formulas

use ftprop::nn::Numbers;
use ftprop::nn::layer_loss::MarginLoss;
use ftprop::nn::number::Number;
use ftprop::nn::optimizer::{Key, OptimizerSpec, UpdateRule};
use ftprop::nn::target::{HardUnit, Rule, Seen, TargetRule};
use ftprop::prelude::*;

/// π/2 − arctan(a m): its slope falls off like 1 / (1 + a² m²), with heavier tails than the soft hinge's. A family: recipes
/// say `cauchy:2`.
#[derive(Debug)]
struct Cauchy {
    a: f32,
}

impl From<f32> for Cauchy {
    fn from(a: f32) -> Self {
        Cauchy { a }
    }
}

impl MarginLoss for Cauchy {
    fn loss(&self, m: f32, _: f32) -> f32 {
        std::f32::consts::FRAC_PI_2 - (self.a * m).atan()
    }

    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        let scaled = N::of(self.a) * m;
        N::of(self.a) / (N::of(1.0) + scaled * scaled)
    }
}

/// The paper's target, but none for units whose gradient is below a floor; others count by how far they are above it.
#[derive(Debug)]
struct Confident {
    floor: f32,
}

impl Rule for Confident {
    #[inline(always)]
    fn target<N: Number>(&self, seen: Seen<N>) -> N {
        seen.g.opposite_sign() * N::indicator(N::of(self.floor).less(seen.g.abs()))
    }

    #[inline(always)]
    fn weight<N: Number>(&self, seen: Seen<N>) -> Option<N> {
        Some(seen.g.abs() - N::of(self.floor))
    }
}

/// Sign descent with momentum and decoupled weight decay, as Lion has it.
#[derive(Clone, Debug)]
struct Lion {
    beta1: f64,
    beta2: f64,
    weight_decay: f64,
}

impl UpdateRule for Lion {
    fn moments(&self) -> usize {
        1
    }

    fn scalars(&self, _: u64, lr: f64) -> [f32; 4] {
        [lr as f32, (1.0 - lr * self.weight_decay) as f32, 0.0, 0.0]
    }

    #[inline(always)]
    fn update<N: Number>(&self, w: N, g: N, [m, none]: [N; 2], [lr, keep, ..]: [N; 4]) -> (N, [N; 2]) {
        let mix = |share: f64| N::of(share as f32) * m + N::of((1.0 - share) as f32) * g;
        (w * keep + lr * mix(self.beta1).opposite_sign(), [mix(self.beta2), none])
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    LayerLoss::register_family::<Cauchy>("cauchy", "a", Numbers::Positive, Some(1.0))?;
    TargetRule::register("confident", Confident { floor: 1e-6 })?;
    const KEYS: &[Key] =
        &[Key::LR, Key::share("beta1", 0.9), Key::share("beta2", 0.99), Key::number("weight_decay", 0.0)];
    OptimizerSpec::register("lion", KEYS, |spec| Lion {
        beta1: spec.number("beta1"),
        beta2: spec.number("beta2"),
        weight_decay: spec.number("weight_decay"),
    })?;

    let text = r#"
        layer_loss = "cauchy:1.5"
        target_rule = "confident"
        [network]
        preset = "mlp"
        widths = [96, 48]
        [train]
        epochs = 16
        [optimizer]
        name = "lion"
        lr = 1e-3
        weight_decay = 0.1
        [schedule]
        kind = "cosine"
    "#;
    let recipe = Recipe::from_toml("own formulas", text)?;
    let (dataset, place) = (recipe.data.open()?, Place::open(DeviceChoice::Cpu, 0)?);
    let mut trainer = Trainer::new(recipe.checked()?, &dataset, &place)?;
    trainer.run(&mut ())?;
    let accuracy = trainer.metrics().last().map_or(0.0, |epoch| epoch.test.top1);
    println!("test accuracy {:.2} %", 100.0 * accuracy);
    assert!(accuracy > 0.93, "the digits are learned to {:.2} % only", 100.0 * accuracy);

    let on_a_gpu = HardUnit::new(Activation::Sign, "cauchy:2".parse()?)
        .device_slope("slope")
        .expect("its rule looks at single units");
    println!("what a GPU compiles for it:\n{on_a_gpu}");
    assert!(on_a_gpu.contains("__device__"));
    Ok(())
}
