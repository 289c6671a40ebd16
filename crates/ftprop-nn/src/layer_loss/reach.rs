//! How a layer loss is laid over an activation's thresholds, and the slope that follows from a target.

use super::MarginLoss;
use crate::number::Number;

/// Where φ is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reach {
    /// At one threshold at zero; `step`, the linear image of `sign`, has half its slope.
    Threshold {
        /// What φ is multiplied by.
        scale: f32,
    },
    /// At all thresholds of a qReLU as one, in the middle of [0, 1].
    Single,
    /// At each threshold of a qReLU for itself.
    PerStep {
        /// How many there are.
        k: u32,
    },
}

/// φ of a unit with target t and pre-activation z, for one way of reaching. These are types, not one enum, so that
/// each loop has one formula in it.
pub(super) trait PhiOf: Copy + Send + Sync {
    fn phi<N: Number, L: MarginLoss>(self, loss: &L, t: N, z: N, s: N) -> N;
}

#[derive(Clone, Copy)]
pub(super) struct AtThreshold(pub(super) f32);

impl PhiOf for AtThreshold {
    #[inline(always)]
    fn phi<N: Number, L: MarginLoss>(self, loss: &L, t: N, z: N, s: N) -> N {
        N::of(self.0) * loss.phi(t * z, s)
    }
}

#[derive(Clone, Copy)]
pub(super) struct AtMiddle;

impl PhiOf for AtMiddle {
    #[inline(always)]
    fn phi<N: Number, L: MarginLoss>(self, loss: &L, t: N, z: N, s: N) -> N {
        let m = N::of(2.0) * z - N::of(1.0);
        // A tiny negative z would round to −1, the edge of the saturated losses, from outside.
        let beyond = N::of(-1.0 - f32::EPSILON);
        let m = N::either(z.less(N::of(0.0)), m.min(beyond), m);
        loss.phi(t * m, s)
    }
}

#[derive(Clone, Copy)]
pub(super) struct AtEach(pub(super) u32);

impl PhiOf for AtEach {
    #[inline(always)]
    fn phi<N: Number, L: MarginLoss>(self, loss: &L, t: N, z: N, s: N) -> N {
        let last = N::of((self.0 - 1) as f32);
        N::sum(self.0, |i| loss.phi(t * (z - i / last), s)) / N::of(self.0 as f32)
    }
}

/// The slope of the weighted layer loss at a target: −t φ(tz) times |g|, or times `share` where one is given.
#[inline(always)]
pub(super) fn slope<N: Number, L: MarginLoss>(
    loss: &L,
    reach: impl PhiOf,
    share: Option<N>,
    [t, g, z, s]: [N; 4],
) -> N {
    let weight = match share {
        None => g.abs(),
        Some(share) => share,
    };
    -t * (reach.phi(loss, t, z, s) * weight)
}
