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
        N::of(self.0) * loss.phi(margin(loss, t, z), s)
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
        loss.phi(margin(loss, t, m), s)
    }
}

#[derive(Clone, Copy)]
pub(super) struct AtEach(pub(super) u32);

impl PhiOf for AtEach {
    #[inline(always)]
    fn phi<N: Number, L: MarginLoss>(self, loss: &L, t: N, z: N, s: N) -> N {
        let last = N::of((self.0 - 1) as f32);
        // A z by less than a rounding beyond the reach of a threshold counts as at its edge. What `AtMiddle` has against that
        // would make this loop a sixth to a half slower.
        N::sum(self.0, |i| loss.phi(margin(loss, t, z - i / last), s)) / N::of(self.0 as f32)
    }
}

/// The margin t·z, or z itself where the sign does not matter.
#[inline(always)]
fn margin<N: Number, L: MarginLoss>(loss: &L, t: N, z: N) -> N {
    if loss.is_even() { z } else { t * z }
}

/// The slope of the weighted layer loss at a target, the paper's sign(−g) where none is given: −t φ(tz) times |g|, or times
/// `share` where there is one.
#[inline(always)]
pub(super) fn slope<N: Number, L: MarginLoss>(
    loss: &L,
    reach: impl PhiOf,
    share: Option<N>,
    target: Option<N>,
    [g, z, s]: [N; 3],
) -> N {
    let t = target.unwrap_or_else(|| g.opposite_sign());
    let phi = reach.phi(loss, t, z, s);
    match (target, share) {
        // −sign(−g) |g| is g.
        (None, None) => phi * g,
        (_, share) => -t * (phi * share.unwrap_or_else(|| g.abs())),
    }
}
