//! Rules that need more than the numbers of a layer: how the loss bends, what the layers above make of other outputs, or
//! what a trained network does. A network brings these along where a rule asks for them; what is above a layer is asked by the
//! CPU's alone, and a GPU refuses such a rule by name.
//!
//! - **`secant`**. A hard output jumps, so the slope that matters is that of the jump, `[L(h = +1) − L(h = −1)] / 2`, which to
//!   second order is `g − c (h − m)`, with the curvature `c = ∂²L/∂h²` and the middle m of the activation's range. It takes
//!   the place of g for the target and for its weight. The curvature comes down from the output loss by the diagonal of
//!   Gauss and Newton: through squared weights, and through a hard layer by φ².
//! - **`verified:p`**. The paper's targets, but a unit that is not at its target only has it where that was seen to help: of
//!   each example's units the share p with the largest |g| φ is moved to its target, and the layers above are run again, with
//!   the statistics that their norms had. An example whose loss is not lower then leaves those without a target.
//! - **`teacher`**. A trained network's activations are the targets of the layers of the same shape, weighted by |g|; the
//!   paper's rule elsewhere.

use super::{AnyRule, HardUnit, Seen, SeenBy};
use crate::activation::Activation;
use crate::layer_loss::{SlopesAt, Targets};
use crate::number::Number;
use crate::trace::Traced;
use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::elementwise::{self, Ternary};

/// What a rule looks at beside a unit's own numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Needs {
    /// At nothing.
    Nothing,
    /// At all examples of the batch.
    Batch,
    /// At the diagonal of the loss's curvature.
    Curvature,
    /// At what the layers above make of other outputs.
    Above {
        /// Which share of an example's units is moved to see.
        share: f32,
    },
    /// At a trained network's activations.
    Teacher,
}

/// A rule whose targets are set where what it needs is at hand. Alone, it is the paper's.
#[derive(Debug)]
pub(super) struct Beyond(pub(super) Needs);

impl AnyRule for Beyond {
    fn target(&self, seen: Seen<f32>) -> f32 {
        seen.g.opposite_sign()
    }

    fn targets(&self, cpu: &Cpu, _: &SeenBy<'_>, g: &[f32], _: &[f32], targets: &mut [f32]) {
        elementwise::map(cpu, g, targets, |g| g.opposite_sign());
    }

    fn traced<'a>(&self, seen: Seen<Traced<'a>>, _: Traced<'a>) -> Option<Traced<'a>> {
        // Other targets are the unit's matter, since they depend on its activation.
        (self.0 == Needs::Curvature).then(|| seen.g.opposite_sign())
    }

    fn needs(&self) -> Needs {
        self.0
    }
}

/// g − c (h − m)
struct Secant(Activation);

impl Secant {
    #[inline(always)]
    fn of<N: Number>(&self, g: N, c: N, z: N) -> N {
        let middle = if self.0 == Activation::Sign { 0.0 } else { 0.5 };
        g - c * (self.0.value(z) - N::of(middle))
    }
}

impl Ternary for Secant {
    #[inline(always)]
    fn apply(&self, g: f32, c: f32, z: f32) -> f32 {
        self.of(g, c, z)
    }
}

/// c f²
struct Squared;

impl elementwise::Binary for Squared {
    #[inline(always)]
    fn apply(&self, c: f32, f: f32) -> f32 {
        c * (f * f)
    }
}

impl HardUnit {
    /// Turns each unit's g into the slope of the loss over its jump, given the loss's curvature there.
    pub(crate) fn secants(&self, cpu: &Cpu, g: &mut [f32], curvature: &[f32], z: &[f32]) {
        elementwise::update_with(cpu, g, [curvature, z], Secant(self.activation));
    }

    /// The same of one unit.
    pub(super) fn secant<N: Number>(&self, g: N, c: N, z: N) -> N {
        Secant(self.activation).of(g, c, z)
    }

    /// Carries the curvature from the units' outputs to their pre-activations: times φ², the slope that stands in for theirs.
    pub(crate) fn carry(
        &self,
        cpu: &Cpu,
        progress: f32,
        targets: Targets<'_>,
        [g, z]: [&[f32]; 2],
        [curvature, spare]: [&mut [f32]; 2],
    ) {
        spare.copy_from_slice(g);
        let s = self.layer_loss.scheduled(progress);
        self.layer_loss.slopes(cpu, &SlopesAt { reach: self.reach(), share: Some(1.0), targets, s }, spare, z);
        elementwise::update(cpu, curvature, spare, Squared);
    }

    /// The outputs with the most pressing of them moved one step to the paper's target: of each example the share of units
    /// with the largest |g| φ, at least one, among those that are not there yet.
    pub(crate) fn propose(
        &self,
        cpu: &Cpu,
        (share, progress): (f32, f32),
        units: usize,
        [g, z]: [&[f32]; 2],
        proposal: &mut [f32],
    ) {
        proposal.copy_from_slice(g);
        let at = SlopesAt {
            reach: self.reach(),
            share: None,
            targets: Targets::GradientSign,
            s: self.layer_loss.scheduled(progress),
        };
        self.layer_loss.slopes(cpu, &at, proposal, z);
        let most = tried(share, units);
        elementwise::update_rows(cpu, proposal, units, |example, proposal| {
            let (g, z) = (&g[example * units..][..units], &z[example * units..][..units]);
            // Where there is nothing to move, nothing presses.
            for ((pressing, &g), &z) in proposal.iter_mut().zip(g).zip(z) {
                *pressing = self.pressing(g, z, *pressing);
            }
            let mut ranked = proposal.to_vec();
            let (above, &mut least, _) = ranked.select_nth_unstable_by(most - 1, |a, b| b.total_cmp(a));
            // Of those that press alike the first ones.
            let mut alike = most - above.iter().filter(|&&p| p.total_cmp(&least).is_gt()).count();
            for ((unit, &g), &z) in proposal.iter_mut().zip(g).zip(z) {
                let chosen = match unit.total_cmp(&least) {
                    std::cmp::Ordering::Greater => true,
                    std::cmp::Ordering::Equal if alike > 0 => {
                        alike -= 1;
                        true
                    }
                    _ => false,
                };
                let moves = chosen && *unit > 0.0;
                *unit = if moves { self.moved_to(g, z) } else { self.activation.value(z) };
            }
        });
    }

    /// The paper's targets, but of the units that are not at theirs only those that a proposal moved, in the examples that it
    /// helped.
    pub(crate) fn verified(
        &self,
        cpu: &Cpu,
        units: usize,
        [g, z, proposal]: [&[f32]; 3],
        helped: &[bool],
        targets: &mut [f32],
    ) {
        elementwise::map_places(cpu, targets, [g, z], |at, g, z| {
            let seen = helped[at / units] && proposal[at] != self.activation.value(z);
            self.verified_target(g, z, f32::from(seen))
        });
    }

    /// The same of one unit; `seen` is 1 where moving it was seen to help, else 0.
    #[inline(always)]
    pub(super) fn verified_target<N: Number>(&self, g: N, z: N, seen: N) -> N {
        let (moved, h) = (self.moved_to(g, z), self.activation.value(z));
        let there = N::indicator(N::both(moved.at_most(h), h.at_most(moved)));
        g.opposite_sign() * N::indicator(N::of(0.0).less(seen + there))
    }

    /// How much it presses that a unit be moved, |g| φ, given its slope at the paper's target; 0 where it is there.
    #[inline(always)]
    pub(super) fn pressing<N: Number>(&self, g: N, z: N, slope: N) -> N {
        let (moved, h) = (self.moved_to(g, z), self.activation.value(z));
        N::either(N::both(moved.at_most(h), h.at_most(moved)), N::of(0.0), slope.abs())
    }

    /// The targets that bring units to where those of a teacher are, given its pre-activations.
    pub(crate) fn taught(&self, cpu: &Cpu, teacher: &[f32], z: &[f32], targets: &mut [f32]) {
        elementwise::map_places(cpu, targets, [teacher, z], |_, teacher, z| self.taught_target(teacher, z));
    }

    /// The same of one unit. One that is there between two thresholds is to stay, for which there is no target.
    #[inline(always)]
    pub(super) fn taught_target<N: Number>(&self, teacher: N, z: N) -> N {
        let (own, wanted) = (self.activation.value(z), self.activation.value(teacher));
        let lowest = if self.activation == Activation::Sign { -1.0 } else { 0.0 };
        let highest_or_lowest = N::indicator(N::of(1.0).at_most(own)) - N::indicator(own.at_most(N::of(lowest)));
        let there = N::both(own.at_most(wanted), wanted.at_most(own));
        N::either(there, highest_or_lowest, (own - wanted).opposite_sign())
    }

    /// The output one step nearer to the paper's target; the output itself where the unit is there.
    #[inline(always)]
    pub(super) fn moved_to<N: Number>(&self, g: N, z: N) -> N {
        let (t, h) = (g.opposite_sign(), self.activation.value(z));
        let moved = match self.activation {
            Activation::Sign => t,
            Activation::Qrelu { k } => {
                let k = N::of(k as f32);
                // Outputs are whole numbers of steps, as nearly as they can be.
                ((h * k - N::of(0.5)).ceil() + t).clamp(N::of(0.0), k) / k
            }
            _ => (t + N::of(1.0)) * N::of(0.5),
        };
        N::either(N::both(t.at_most(N::of(0.0)), N::of(0.0).at_most(t)), h, moved)
    }
}

/// How many of an example's units are moved to see.
pub(super) fn tried(share: f32, units: usize) -> usize {
    ((share * units as f32).ceil() as usize).clamp(1, units)
}
