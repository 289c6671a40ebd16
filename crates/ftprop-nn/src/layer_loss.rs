//! Layer losses: how well a unit's pre-activation z meets its target t (the paper's section 3.2).
//!
//! A layer loss ℓ is a function of the margin m = t·z. What training uses of it is φ = −ℓ′: the unit's
//! pre-activation is pushed towards its target by `φ(m)`, weighted by how much the unit matters.
//!
//! Each loss is a small type that implements [`MarginLoss`]; [`LayerLoss`] is the choice between them that a
//! recipe makes by name. To add one: write its type, and give it a name in [`LayerLoss`].
//!
//! ```
//! use ftprop_nn::layer_loss::LayerLoss;
//! let soft: LayerLoss = "soft_hinge".parse().unwrap();
//! assert_eq!(soft.phi(0.0, 0.0), 1.0);                  // slope 1 at the threshold
//! assert!(soft.phi(3.0, 0.0) > 0.0);                    // and never quite zero
//! ```

use crate::NnError;
use crate::math::{sech_squared, sigmoid};
use std::fmt;
use std::str::FromStr;

/// A loss of the margin m = t·z.
pub trait MarginLoss: Copy + Send + Sync {
    /// ℓ(m)
    fn loss(self, m: f32) -> f32;
    /// φ(m) = −ℓ′(m)
    fn phi(self, m: f32) -> f32;
}

#[inline(always)]
fn one_if(condition: bool) -> f32 {
    if condition { 1.0 } else { 0.0 }
}

/// −m: the plain straight-through estimator.
#[derive(Clone, Copy)]
pub struct Linear;
impl MarginLoss for Linear {
    fn loss(self, m: f32) -> f32 {
        -m
    }
    #[inline(always)]
    fn phi(self, _: f32) -> f32 {
        1.0
    }
}

/// max(0, −m): Rosenblatt's criterion.
#[derive(Clone, Copy)]
pub struct Perceptron;
impl MarginLoss for Perceptron {
    fn loss(self, m: f32) -> f32 {
        (-m).max(0.0)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        one_if(m <= 0.0)
    }
}

/// max(0, 1 − m)
#[derive(Clone, Copy)]
pub struct Hinge;
impl MarginLoss for Hinge {
    fn loss(self, m: f32) -> f32 {
        (1.0 - m).max(0.0)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        one_if(m <= 1.0)
    }
}

/// The hinge truncated at m = −1, so that outliers lose their pull: the saturated straight-through estimator.
#[derive(Clone, Copy)]
pub struct SaturatedHinge;
impl MarginLoss for SaturatedHinge {
    fn loss(self, m: f32) -> f32 {
        (1.0 - m.max(-1.0)).max(0.0)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        one_if(m.abs() <= 1.0)
    }
}

/// 1 − tanh(m): the paper's own, with slope 1 at the threshold and no region without slope.
#[derive(Clone, Copy)]
pub struct SoftHinge;
impl MarginLoss for SoftHinge {
    fn loss(self, m: f32) -> f32 {
        1.0 - m.tanh()
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        sech_squared(m)
    }
}

/// ½ max(0, 1 − m)²
#[derive(Clone, Copy)]
pub struct SquaredHinge;
impl MarginLoss for SquaredHinge {
    fn loss(self, m: f32) -> f32 {
        0.5 * (1.0 - m).max(0.0).powi(2)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        (1.0 - m).max(0.0)
    }
}

/// The squared hinge truncated at m = −1.
#[derive(Clone, Copy)]
pub struct SaturatedSquaredHinge;
impl MarginLoss for SaturatedSquaredHinge {
    fn loss(self, m: f32) -> f32 {
        0.5 * (1.0 - m.max(-1.0)).max(0.0).powi(2)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        one_if(m.abs() <= 1.0) * (1.0 - m)
    }
}

/// log(1 + e⁻ᵐ)
#[derive(Clone, Copy)]
pub struct Log;
impl MarginLoss for Log {
    fn loss(self, m: f32) -> f32 {
        (-m).max(0.0) + (-m.abs()).exp().ln_1p()
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        sigmoid(-m)
    }
}

/// σ(−a·m)
#[derive(Clone, Copy)]
pub struct Sigmoid {
    pub a: f32,
}
impl MarginLoss for Sigmoid {
    fn loss(self, m: f32) -> f32 {
        sigmoid(-self.a * m)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        // σ(x) σ(−x) = ¼ sech²(x/2), even to the bit.
        0.25 * self.a * sech_squared(0.5 * self.a * m)
    }
}

/// φ is 1 for |m| ≤ 1 and falls linearly to 0 at 2.
#[derive(Clone, Copy)]
pub struct Ramp;
impl MarginLoss for Ramp {
    fn loss(self, m: f32) -> f32 {
        // The integral of φ from m to 2.
        let a = m.abs().min(2.0);
        let below = if a <= 1.0 { a } else { 1.5 - 0.5 * (2.0 - a).powi(2) };
        1.5 - below.copysign(m)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        (2.0 - m.abs()).clamp(0.0, 1.0)
    }
}

/// φ is a triangle of height 2 on [−1, 1], as in Bi-Real Net and ReActNet.
#[derive(Clone, Copy)]
pub struct ApproxSign;
impl MarginLoss for ApproxSign {
    fn loss(self, m: f32) -> f32 {
        let a = m.abs().min(1.0);
        1.0 - (a * (2.0 - a)).copysign(m)
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        2.0 * (1.0 - m.abs()).max(0.0)
    }
}

/// The soft hinge with slope τ, which grows from 0.1 to 10 over training, times max(1/τ, 1): IR-Net's estimator.
#[derive(Clone, Copy)]
pub struct AnnealedTanh {
    tau: f32,
}
impl AnnealedTanh {
    /// At a share of the training done, 0 to 1.
    pub fn at(progress: f32) -> Self {
        AnnealedTanh { tau: 10f32.powf(2.0 * progress.clamp(0.0, 1.0) - 1.0) }
    }
}
impl MarginLoss for AnnealedTanh {
    fn loss(self, m: f32) -> f32 {
        (1.0 / self.tau).max(1.0) * (1.0 - (self.tau * m).tanh())
    }
    #[inline(always)]
    fn phi(self, m: f32) -> f32 {
        self.tau.max(1.0) * sech_squared(self.tau * m)
    }
}

/// The choice of a layer loss, by the name that a recipe gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LayerLoss {
    Linear,
    Perceptron,
    Hinge,
    SaturatedHinge,
    SoftHinge,
    SquaredHinge,
    SaturatedSquaredHinge,
    Log,
    Sigmoid { a: f32 },
    Ramp,
    ApproxSign,
    AnnealedTanh,
}

/// Code that is compiled once for each layer loss.
pub trait LossVisitor {
    type Output;
    fn visit<L: MarginLoss>(self, loss: L) -> Self::Output;
}

impl LayerLoss {
    /// Every one, `sigmoid` as in the authors' code.
    pub const ALL: [LayerLoss; 12] = [
        LayerLoss::Linear,
        LayerLoss::Perceptron,
        LayerLoss::Hinge,
        LayerLoss::SaturatedHinge,
        LayerLoss::SoftHinge,
        LayerLoss::SquaredHinge,
        LayerLoss::SaturatedSquaredHinge,
        LayerLoss::Log,
        LayerLoss::Sigmoid { a: 2.0 },
        LayerLoss::Ramp,
        LayerLoss::ApproxSign,
        LayerLoss::AnnealedTanh,
    ];

    /// Hands the chosen loss to the visitor; `progress` is the share of training done, for those that change.
    pub fn visit<V: LossVisitor>(self, progress: f32, visitor: V) -> V::Output {
        match self {
            LayerLoss::Linear => visitor.visit(Linear),
            LayerLoss::Perceptron => visitor.visit(Perceptron),
            LayerLoss::Hinge => visitor.visit(Hinge),
            LayerLoss::SaturatedHinge => visitor.visit(SaturatedHinge),
            LayerLoss::SoftHinge => visitor.visit(SoftHinge),
            LayerLoss::SquaredHinge => visitor.visit(SquaredHinge),
            LayerLoss::SaturatedSquaredHinge => visitor.visit(SaturatedSquaredHinge),
            LayerLoss::Log => visitor.visit(Log),
            LayerLoss::Sigmoid { a } => visitor.visit(Sigmoid { a }),
            LayerLoss::Ramp => visitor.visit(Ramp),
            LayerLoss::ApproxSign => visitor.visit(ApproxSign),
            LayerLoss::AnnealedTanh => visitor.visit(AnnealedTanh::at(progress)),
        }
    }

    /// ℓ(m)
    pub fn loss(self, m: f32, progress: f32) -> f32 {
        struct At(f32);
        impl LossVisitor for At {
            type Output = f32;
            fn visit<L: MarginLoss>(self, loss: L) -> f32 {
                loss.loss(self.0)
            }
        }
        self.visit(progress, At(m))
    }

    /// φ(m)
    pub fn phi(self, m: f32, progress: f32) -> f32 {
        struct At(f32);
        impl LossVisitor for At {
            type Output = f32;
            fn visit<L: MarginLoss>(self, loss: L) -> f32 {
                loss.phi(self.0)
            }
        }
        self.visit(progress, At(m))
    }
}

impl fmt::Display for LayerLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayerLoss::Linear => "linear",
            LayerLoss::Perceptron => "perceptron",
            LayerLoss::Hinge => "hinge",
            LayerLoss::SaturatedHinge => "saturated_hinge",
            LayerLoss::SoftHinge => "soft_hinge",
            LayerLoss::SquaredHinge => "squared_hinge",
            LayerLoss::SaturatedSquaredHinge => "saturated_squared_hinge",
            LayerLoss::Log => "log",
            LayerLoss::Sigmoid { a } => return write!(f, "sigmoid:{a}"),
            LayerLoss::Ramp => "ramp",
            LayerLoss::ApproxSign => "approx_sign",
            LayerLoss::AnnealedTanh => "annealed_tanh",
        })
    }
}

impl FromStr for LayerLoss {
    type Err = NnError;
    fn from_str(text: &str) -> Result<Self, NnError> {
        if let Some(a) = text.strip_prefix("sigmoid:") {
            return match a.parse::<f32>() {
                Ok(a) if a.is_finite() && a > 0.0 => Ok(LayerLoss::Sigmoid { a }),
                _ => Err(NnError::Name {
                    what: "layer loss",
                    name: text.into(),
                    known: "sigmoid:a takes a positive number a".into(),
                }),
            };
        }
        LayerLoss::ALL.into_iter().find(|l| l.to_string() == text).ok_or_else(|| NnError::Name {
            what: "layer loss",
            name: text.into(),
            known: format!("known are {}", LayerLoss::ALL.map(|l| l.to_string()).join(", ")),
        })
    }
}

crate::names::serde_by_name!(LayerLoss);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phi_is_the_slope_of_its_loss() {
        let others = [LayerLoss::Sigmoid { a: 1.0 }, LayerLoss::Sigmoid { a: 4.0 }];
        for loss in LayerLoss::ALL.into_iter().chain(others) {
            for progress in [0.0, 0.3, 0.8] {
                for i in -40..=40 {
                    // Off the kinks at whole numbers.
                    let m = i as f32 / 10.0 + 0.05;
                    let h = 1e-3;
                    let slope = (loss.loss(m - h, progress) - loss.loss(m + h, progress)) / (2.0 * h);
                    let phi = loss.phi(m, progress);
                    assert!((phi - slope).abs() < 5e-3 * (1.0 + phi.abs()), "{loss} at {m}: {phi} for {slope}");
                }
            }
        }
    }

    #[test]
    fn the_kinks_belong_where_the_table_puts_them() {
        let one_at = |loss: LayerLoss, m: f32| loss.phi(m, 0.0);
        let after = f32::EPSILON;
        assert_eq!((one_at(LayerLoss::Perceptron, 0.0), one_at(LayerLoss::Perceptron, 1e-30)), (1.0, 0.0));
        assert_eq!((one_at(LayerLoss::Hinge, 1.0), one_at(LayerLoss::Hinge, 1.0 + after)), (1.0, 0.0));
        assert_eq!((one_at(LayerLoss::SaturatedHinge, 1.0), one_at(LayerLoss::SaturatedHinge, -1.0)), (1.0, 1.0));
        assert_eq!(one_at(LayerLoss::SaturatedHinge, 1.0 + after), 0.0);
        assert_eq!(one_at(LayerLoss::SaturatedHinge, -1.0 - after), 0.0);
        assert_eq!((one_at(LayerLoss::Ramp, 2.0), one_at(LayerLoss::ApproxSign, 0.0)), (0.0, 2.0));
        assert_eq!(one_at(LayerLoss::SoftHinge, 0.0), 1.0);
    }

    #[test]
    fn even_slopes_are_even_to_the_bit() {
        let even = [
            LayerLoss::Linear,
            LayerLoss::SaturatedHinge,
            LayerLoss::SoftHinge,
            LayerLoss::Sigmoid { a: 2.0 },
            LayerLoss::Ramp,
            LayerLoss::ApproxSign,
            LayerLoss::AnnealedTanh,
        ];
        for loss in even {
            for i in 0..500 {
                let m = i as f32 * 0.0137;
                assert_eq!(loss.phi(m, 0.4).to_bits(), loss.phi(-m, 0.4).to_bits(), "{loss} at {m}");
            }
        }
    }

    #[test]
    fn names_go_both_ways() {
        for loss in LayerLoss::ALL {
            assert_eq!(loss.to_string().parse::<LayerLoss>().unwrap(), loss);
        }
        let message = "softhinge".parse::<LayerLoss>().unwrap_err().to_string();
        assert!(message.contains("soft_hinge"), "{message}");
        assert!("sigmoid:-1".parse::<LayerLoss>().is_err());
    }
}
