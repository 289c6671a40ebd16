//! Targets: the value a hidden unit should take, and the slope its layer loss then gives (section 3.1 and
//! Algorithm 2 of the paper).
//!
//! Going down from the output, a layer receives `g = ∂L/∂h`, how the loss of the layers above changes with
//! each of its outputs. A [`TargetRule`] turns that into a target t; the layer loss at that target, weighted
//! by |g|, has the slope `−t φ(t z) |g|`, which is what the layer's weights and the layer below see.
//!
//! ```
//! use ftprop_nn::activation::Activation;
//! use ftprop_nn::layer_loss::LayerLoss;
//! use ftprop_nn::target::HardUnit;
//! // With the saturated hinge this is the saturated straight-through estimator: g where |z| ≤ 1, else 0.
//! let unit = HardUnit::new(Activation::Sign, LayerLoss::SaturatedHinge);
//! assert_eq!(unit.slope(0.25, 0.5), 0.25);
//! assert_eq!(unit.slope(0.25, 1.5), 0.0);
//! ```

use crate::NnError;
use crate::activation::Activation;
use crate::layer_loss::{LayerLoss, LossVisitor, MarginLoss};
use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::elementwise;
use std::fmt;
use std::str::FromStr;

/// How a unit's target follows from what the layers above say (the paper's r).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetRule {
    /// t = sign(−g). A unit with g = 0 has no target, which is written 0, and passes nothing on.
    #[default]
    GradientSign,
}

impl TargetRule {
    /// The target of a unit with gradient g: −1, +1, or 0 for none.
    #[inline(always)]
    pub fn target(self, g: f32) -> f32 {
        match self {
            // Without a branch, so that it becomes vector code.
            TargetRule::GradientSign => f32::from(g < 0.0) - f32::from(g > 0.0),
        }
    }
}

impl FromStr for TargetRule {
    type Err = NnError;
    fn from_str(text: &str) -> Result<Self, NnError> {
        match text {
            "gradient_sign" => Ok(TargetRule::GradientSign),
            _ => Err(NnError::Name {
                what: "target rule",
                name: text.into(),
                known: "known is gradient_sign, the paper's".into(),
            }),
        }
    }
}

impl fmt::Display for TargetRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetRule::GradientSign => f.write_str("gradient_sign"),
        }
    }
}

crate::names::serde_by_name!(TargetRule);

/// How a qReLU, a sum of steps, meets its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QreluForm {
    /// One loss, shifted and scaled to [0, 1]: φ(t (2z − 1)). What the paper's results use.
    #[default]
    Single,
    /// One loss a step: (1/k) Σ φ(t (z − i/(k−1))).
    PerStep,
}

impl FromStr for QreluForm {
    type Err = NnError;
    fn from_str(text: &str) -> Result<Self, NnError> {
        match text {
            "single" => Ok(QreluForm::Single),
            "per_step" => Ok(QreluForm::PerStep),
            _ => Err(NnError::Name {
                what: "qReLU form",
                name: text.into(),
                known: "known are single and per_step".into(),
            }),
        }
    }
}

impl fmt::Display for QreluForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QreluForm::Single => "single",
            QreluForm::PerStep => "per_step",
        })
    }
}

crate::names::serde_by_name!(QreluForm);

/// What a target's loss is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weighting {
    /// |g|, how much the unit matters.
    Gradient,
    /// The same for every unit that has a target.
    Uniform { share: f32 },
}

impl Weighting {
    /// |g|, or one over the batch size for every unit alike.
    pub fn new(weighted: bool, batch: usize) -> Self {
        if weighted { Weighting::Gradient } else { Weighting::Uniform { share: 1.0 / batch as f32 } }
    }
}

/// A hard unit of one layer: everything that decides its slope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HardUnit {
    pub activation: Activation,
    pub layer_loss: LayerLoss,
    pub rule: TargetRule,
    pub form: QreluForm,
    pub weighting: Weighting,
    /// The share of training done, 0 to 1, for losses that change with it.
    pub progress: f32,
}

impl HardUnit {
    /// The paper's choices for everything but the activation and the layer loss.
    pub fn new(activation: Activation, layer_loss: LayerLoss) -> Self {
        HardUnit {
            activation,
            layer_loss,
            rule: TargetRule::GradientSign,
            form: QreluForm::Single,
            weighting: Weighting::Gradient,
            progress: 0.0,
        }
    }

    /// ∂ℓ/∂z of one unit with gradient g and pre-activation z.
    pub fn slope(&self, g: f32, z: f32) -> f32 {
        struct One<'a>(&'a HardUnit, f32, f32);
        impl LossVisitor for One<'_> {
            type Output = f32;
            fn visit<L: MarginLoss>(self, loss: L) -> f32 {
                let One(unit, g, z) = self;
                match unit.reach() {
                    Reach::Threshold(reach) => unit.slope_of(loss, reach, g, z),
                    Reach::Single(reach) => unit.slope_of(loss, reach, g, z),
                    Reach::PerStep(reach) => unit.slope_of(loss, reach, g, z),
                }
            }
        }
        self.layer_loss.visit(self.progress, One(self, g, z))
    }

    /// φ of one unit with target t and pre-activation z: how hard its layer loss pushes it, weights left aside.
    pub fn phi(&self, t: f32, z: f32) -> f32 {
        struct At<'a>(&'a HardUnit, f32, f32);
        impl LossVisitor for At<'_> {
            type Output = f32;
            fn visit<L: MarginLoss>(self, loss: L) -> f32 {
                let At(unit, t, z) = self;
                match unit.reach() {
                    Reach::Threshold(reach) => reach.phi(loss, t, z),
                    Reach::Single(reach) => reach.phi(loss, t, z),
                    Reach::PerStep(reach) => reach.phi(loss, t, z),
                }
            }
        }
        self.layer_loss.visit(self.progress, At(self, t, z))
    }

    /// Turns a layer's gradients by h into its slopes by z, in place.
    pub fn slopes(&self, cpu: &Cpu, g: &mut [f32], z: &[f32]) {
        struct All<'a>(&'a HardUnit, &'a Cpu, &'a mut [f32], &'a [f32]);
        impl LossVisitor for All<'_> {
            type Output = ();
            fn visit<L: MarginLoss>(self, loss: L) {
                let All(unit, cpu, g, z) = self;
                let unit = *unit;
                match unit.reach() {
                    Reach::Threshold(reach) => elementwise::update(cpu, g, z, SlopeOf { unit, loss, reach }),
                    Reach::Single(reach) => elementwise::update(cpu, g, z, SlopeOf { unit, loss, reach }),
                    Reach::PerStep(reach) => elementwise::update(cpu, g, z, SlopeOf { unit, loss, reach }),
                }
            }
        }
        self.layer_loss.visit(self.progress, All(self, cpu, g, z));
    }

    /// The whole of it: set the target, then take the slope of the weighted layer loss at that target.
    #[inline(always)]
    fn slope_of<L: MarginLoss>(&self, loss: L, reach: impl PhiOf, g: f32, z: f32) -> f32 {
        let t = self.rule.target(g);
        let weight = match self.weighting {
            Weighting::Gradient => g.abs(),
            Weighting::Uniform { share } => share,
        };
        -t * (reach.phi(loss, t, z) * weight)
    }

    fn reach(&self) -> Reach {
        match (self.activation, self.form) {
            // `step` is the linear image of `sign`, so its slope is half of that.
            (Activation::Step, _) => Reach::Threshold(Threshold { scale: 0.5 }),
            (Activation::Qrelu { .. }, QreluForm::Single) => Reach::Single(Single),
            (Activation::Qrelu { k }, QreluForm::PerStep) => Reach::PerStep(PerStep { k }),
            _ => Reach::Threshold(Threshold { scale: 1.0 }),
        }
    }
}

/// [`HardUnit::slope_of`] as a function of g and z.
struct SlopeOf<L, R> {
    unit: HardUnit,
    loss: L,
    reach: R,
}

impl<L: MarginLoss, R: PhiOf> elementwise::Binary for SlopeOf<L, R> {
    #[inline(always)]
    fn apply(&self, g: f32, z: f32) -> f32 {
        self.unit.slope_of(self.loss, self.reach, g, z)
    }
}

/// How φ is laid over an activation's thresholds.
enum Reach {
    Threshold(Threshold),
    Single(Single),
    PerStep(PerStep),
}

trait PhiOf: Copy + Send + Sync {
    /// φ for a unit with target t and pre-activation z.
    fn phi<L: MarginLoss>(self, loss: L, t: f32, z: f32) -> f32;
}

/// One threshold at zero.
#[derive(Clone, Copy)]
struct Threshold {
    scale: f32,
}

impl PhiOf for Threshold {
    #[inline(always)]
    fn phi<L: MarginLoss>(self, loss: L, t: f32, z: f32) -> f32 {
        self.scale * loss.phi(t * z)
    }
}

/// All thresholds of a qReLU as one, in the middle of [0, 1].
#[derive(Clone, Copy)]
struct Single;

impl PhiOf for Single {
    #[inline(always)]
    fn phi<L: MarginLoss>(self, loss: L, t: f32, z: f32) -> f32 {
        let m = 2.0 * z - 1.0;
        // A tiny negative z would round to −1, the edge of the saturated losses, from outside.
        let m = if z < 0.0 { m.min(-1.0 - f32::EPSILON) } else { m };
        loss.phi(t * m)
    }
}

/// Each threshold of a qReLU for itself.
#[derive(Clone, Copy)]
struct PerStep {
    k: u32,
}

impl PhiOf for PerStep {
    #[inline(always)]
    fn phi<L: MarginLoss>(self, loss: L, t: f32, z: f32) -> f32 {
        let last = (self.k - 1) as f32;
        let sum: f32 = (0..self.k).map(|i| loss.phi(t * (z - i as f32 / last))).sum();
        sum / self.k as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::random::Stream;

    /// Gradients and pre-activations of all sizes, with zeros and thresholds among them.
    fn units() -> (Vec<f32>, Vec<f32>) {
        let s = Stream::numbered(3);
        let mut g: Vec<f32> = (0..4000).map(|i| (s.uniform(i) - 0.5) * 10f32.powi(i as i32 % 9 - 6)).collect();
        let mut z: Vec<f32> = (0..4000).map(|i| (s.uniform(9000 + i) - 0.5) * 5.0).collect();
        let special = [0.0, -0.0, 1.0, -1.0, 0.5, 1.0 + f32::EPSILON, -1.0 - f32::EPSILON, -1e-30, 1e-30, 40.0, -40.0];
        for (i, a) in special.iter().enumerate() {
            for (j, b) in [0.25, -0.25, 0.0, 1e-20].iter().enumerate() {
                z[i * 4 + j] = *a;
                g[i * 4 + j] = *b;
            }
        }
        (g, z)
    }

    fn slopes(unit: HardUnit) -> Vec<f32> {
        let (mut g, z) = units();
        unit.slopes(&Cpu::new(2).unwrap(), &mut g, &z);
        g
    }

    /// Equal to the bit, but for the sign of a zero.
    fn same(a: &[f32], b: impl Fn(f32, f32) -> f32) {
        let (g, z) = units();
        for i in 0..g.len() {
            let expected = b(g[i], z[i]);
            assert!(a[i] == expected, "g = {}, z = {}: {} for {expected}", g[i], z[i], a[i]);
        }
    }

    #[test]
    fn saturated_hinge_is_the_saturated_straight_through_estimator() {
        let unit = HardUnit::new(Activation::Sign, LayerLoss::SaturatedHinge);
        same(&slopes(unit), |g, z| if z.abs() <= 1.0 { g } else { 0.0 });
        let unit = HardUnit::new(Activation::Qrelu { k: 3 }, LayerLoss::SaturatedHinge);
        same(&slopes(unit), |g, z| if (0.0..=1.0).contains(&z) { g } else { 0.0 });
    }

    #[test]
    fn linear_is_the_plain_straight_through_estimator() {
        same(&slopes(HardUnit::new(Activation::Sign, LayerLoss::Linear)), |g, _| g);
        same(&slopes(HardUnit::new(Activation::Qrelu { k: 5 }, LayerLoss::Linear)), |g, _| g);
        same(&slopes(HardUnit::new(Activation::Step, LayerLoss::Linear)), |g, _| 0.5 * g);
    }

    #[test]
    fn even_losses_collapse_to_g_times_phi_and_others_do_not() {
        for loss in LayerLoss::ALL {
            let even = (0..100).all(|i| loss.phi(i as f32 * 0.03, 0.0) == loss.phi(-i as f32 * 0.03, 0.0));
            let unit = HardUnit::new(Activation::Sign, loss);
            if even {
                same(&slopes(unit), |g, z| g * loss.phi(z, 0.0));
            } else {
                // On the wrong side of its target a unit is pushed harder than on the right one.
                let harder = |z: f32| unit.slope(-1.0, z).abs() > unit.slope(1.0, z).abs();
                assert!(harder(-0.5) || harder(-1.5), "{loss}");
            }
        }
    }

    #[test]
    fn fast_slopes_are_the_plain_definition() {
        let (g, z) = units();
        for loss in LayerLoss::ALL {
            for activation in
                [Activation::Sign, Activation::Step, Activation::Qrelu { k: 3 }, Activation::Qrelu { k: 5 }]
            {
                for form in [QreluForm::Single, QreluForm::PerStep] {
                    for weighting in [Weighting::Gradient, Weighting::new(false, 64)] {
                        let unit = HardUnit { form, weighting, progress: 0.6, ..HardUnit::new(activation, loss) };
                        let fast = slopes(unit);
                        for i in 0..g.len() {
                            // The definition, written out: t = sign(−g), slope = −t φ(margin) weight.
                            let t = if g[i] == 0.0 { 0.0 } else { -g[i].signum() };
                            let phi = |m: f32| loss.phi(m, 0.6);
                            let shaped = match (activation, form) {
                                (Activation::Step, _) => 0.5 * phi(t * z[i]),
                                (Activation::Qrelu { .. }, QreluForm::Single) => {
                                    let m = 2.0 * z[i] - 1.0;
                                    // Below zero the margin is beyond −1, however near.
                                    let beyond = -1.0 - f32::EPSILON;
                                    phi(t * if z[i] < 0.0 && m == -1.0 { beyond } else { m })
                                }
                                (Activation::Qrelu { k }, QreluForm::PerStep) => {
                                    (0..k).map(|i2| phi(t * (z[i] - i2 as f32 / (k - 1) as f32))).sum::<f32>()
                                        / k as f32
                                }
                                _ => phi(t * z[i]),
                            };
                            let weight = match weighting {
                                Weighting::Gradient => g[i].abs(),
                                Weighting::Uniform { share } => share,
                            };
                            let expected = -t * shaped * weight;
                            let close = (fast[i] - expected).abs() <= 1e-6 * expected.abs();
                            assert!(
                                close,
                                "{loss} {activation} {form}, g {} z {}: {} for {expected}",
                                g[i], z[i], fast[i]
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_unit_without_gradient_has_no_target_and_passes_nothing_on() {
        assert_eq!(TargetRule::GradientSign.target(0.0), 0.0);
        assert_eq!(TargetRule::GradientSign.target(-0.0), 0.0);
        for loss in LayerLoss::ALL {
            for weighting in [Weighting::Gradient, Weighting::new(false, 4)] {
                let unit = HardUnit { weighting, ..HardUnit::new(Activation::Sign, loss) };
                assert_eq!(unit.slope(0.0, 0.3), 0.0, "{loss}");
            }
        }
    }

    #[test]
    fn a_nan_gradient_is_not_hidden() {
        assert!(HardUnit::new(Activation::Sign, LayerLoss::SoftHinge).slope(f32::NAN, 0.3).is_nan());
    }
}
