//! The layer losses, one small type each.

use super::MarginLoss;
use crate::number::Number;

/// −m: the plain straight-through estimator.
#[derive(Debug)]
pub struct Linear;
impl MarginLoss for Linear {
    fn loss(&self, m: f32, _: f32) -> f32 {
        -m
    }
    #[inline(always)]
    fn phi<N: Number>(&self, _: N, _: N) -> N {
        N::of(1.0)
    }
}

/// max(0, −m): Rosenblatt's criterion.
#[derive(Debug)]
pub struct Perceptron;
impl MarginLoss for Perceptron {
    fn loss(&self, m: f32, _: f32) -> f32 {
        (-m).max(0.0)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        N::indicator(m.at_most(N::of(0.0)))
    }
}

/// max(0, 1 − m)
#[derive(Debug)]
pub struct Hinge;
impl MarginLoss for Hinge {
    fn loss(&self, m: f32, _: f32) -> f32 {
        (1.0 - m).max(0.0)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        N::indicator(m.at_most(N::of(1.0)))
    }
}

/// The hinge truncated at m = b, so that outliers lose their pull. With the paper's b = −1 its slope is even: the
/// saturated straight-through estimator.
#[derive(Debug)]
pub struct SaturatedHinge {
    /// The margin below which nothing pulls any more.
    pub b: f32,
}
impl MarginLoss for SaturatedHinge {
    fn loss(&self, m: f32, _: f32) -> f32 {
        (1.0 - m.max(self.b)).max(0.0)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        N::indicator(N::both(N::of(self.b).at_most(m), m.at_most(N::of(1.0))))
    }
    #[inline(always)]
    fn is_even(&self) -> bool {
        self.b == -1.0
    }
}

/// 1 − tanh(a·m). With a = 1 it is the paper's own: slope 1 at the threshold and no region without slope.
#[derive(Debug)]
pub struct SoftHinge {
    /// What margins are scaled by: the larger, the narrower.
    pub a: f32,
}
impl MarginLoss for SoftHinge {
    fn loss(&self, m: f32, _: f32) -> f32 {
        1.0 - (self.a * m).tanh()
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        N::of(self.a) * (N::of(self.a) * m).sech_squared()
    }
    #[inline(always)]
    fn is_even(&self) -> bool {
        true
    }
}

/// ½ max(0, 1 − m)²
#[derive(Debug)]
pub struct SquaredHinge;
impl MarginLoss for SquaredHinge {
    fn loss(&self, m: f32, _: f32) -> f32 {
        0.5 * (1.0 - m).max(0.0).powi(2)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        (N::of(1.0) - m).max(N::of(0.0))
    }
}

/// The squared hinge truncated at m = −1.
#[derive(Debug)]
pub struct SaturatedSquaredHinge;
impl MarginLoss for SaturatedSquaredHinge {
    fn loss(&self, m: f32, _: f32) -> f32 {
        0.5 * (1.0 - m.max(-1.0)).max(0.0).powi(2)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        N::indicator(m.abs().at_most(N::of(1.0))) * (N::of(1.0) - m)
    }
}

/// log(1 + e⁻ᵐ)
#[derive(Debug)]
pub struct Log;
impl MarginLoss for Log {
    fn loss(&self, m: f32, _: f32) -> f32 {
        (-m).max(0.0) + (-m.abs()).exp().ln_1p()
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        (-m).sigmoid()
    }
}

/// σ(−a·m)
#[derive(Debug)]
pub struct Sigmoid {
    /// How steep it is.
    pub a: f32,
}
impl MarginLoss for Sigmoid {
    fn loss(&self, m: f32, _: f32) -> f32 {
        Number::sigmoid(-self.a * m)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        // σ(x) σ(−x) = ¼ sech²(x/2), even to the bit.
        N::of(0.25 * self.a) * (N::of(0.5 * self.a) * m).sech_squared()
    }
}

/// φ is 1 for |m| ≤ 1 and falls linearly to 0 at 2.
#[derive(Debug)]
pub struct Ramp;
impl MarginLoss for Ramp {
    fn loss(&self, m: f32, _: f32) -> f32 {
        // The integral of φ from m to 2.
        let a = m.abs().min(2.0);
        let below = if a <= 1.0 { a } else { 1.5 - 0.5 * (2.0 - a).powi(2) };
        1.5 - below.copysign(m)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        (N::of(2.0) - m.abs()).clamp(N::of(0.0), N::of(1.0))
    }
}

/// φ is a triangle of height 2 on [−1, 1], as in Bi-Real Net and ReActNet.
#[derive(Debug)]
pub struct ApproxSign;
impl MarginLoss for ApproxSign {
    fn loss(&self, m: f32, _: f32) -> f32 {
        let a = m.abs().min(1.0);
        1.0 - (a * (2.0 - a)).copysign(m)
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, _: N) -> N {
        N::of(2.0) * (N::of(1.0) - m.abs()).max(N::of(0.0))
    }
}

/// The soft hinge with slope τ, which grows from 0.1 to 10 over training, times max(1/τ, 1): IR-Net's estimator.
#[derive(Debug)]
pub struct AnnealedTanh;
impl MarginLoss for AnnealedTanh {
    fn loss(&self, m: f32, tau: f32) -> f32 {
        (1.0 / tau).max(1.0) * (1.0 - (tau * m).tanh())
    }
    #[inline(always)]
    fn phi<N: Number>(&self, m: N, tau: N) -> N {
        tau.max(N::of(1.0)) * (tau * m).sech_squared()
    }
    fn scheduled(&self, progress: f32) -> f32 {
        10f32.powf(2.0 * progress.clamp(0.0, 1.0) - 1.0)
    }
}
