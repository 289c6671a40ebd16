//! Hard units as text for a GPU's compiler: targets and slopes, from the one definition of each.

use super::{HardUnit, Needs, Seen, TargetRule, beyond};
use crate::number::Number;
use crate::trace::{Traced, function};

/// What a rule that looks further than at its unit's own numbers is given by a GPU, one number a unit and example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Further {
    /// The sum of g over the examples of the same class, in the batch's order.
    ClassSum,
    /// ∂²L/∂h², as it comes down.
    Curvature,
    /// The pre-activation of a teacher's unit.
    Teacher,
    /// 1 where the example's loss was lower with the unit moved to its target, else 0.
    Above,
}

impl TargetRule {
    /// What the rule looks at further; none where its unit's own numbers are enough, or where only the CPU has it.
    pub fn further(self) -> Option<Further> {
        match self.needs() {
            Needs::Batch => Some(Further::ClassSum),
            Needs::Curvature => Some(Further::Curvature),
            Needs::Teacher => Some(Further::Teacher),
            Needs::Above { .. } => Some(Further::Above),
            Needs::Nothing => None,
        }
    }

    /// How many of an example's units are moved to see whether that helps; none where the rule does not look.
    pub fn tried(self, units: usize) -> Option<usize> {
        match self.needs() {
            Needs::Above { share } => Some(beyond::tried(share, units)),
            _ => None,
        }
    }
}

impl HardUnit {
    /// The slope as a function of g, z, the label, the step, a random number, the loss's scheduled number and one over
    /// the batch size, for a GPU's compiler. None where the rule looks at more than that.
    pub fn device_slope(&self, name: &str) -> Option<String> {
        if self.rule.looks_further() {
            return None;
        }
        let inputs = &["g", "z", "label", "step", "random", "s", "share"];
        Some(function(name, inputs, |[g, z, label, step, random, s, share]| {
            let seen = Seen { g, z, h: self.activation.value(z), label, step, random };
            let traced = || self.rule.0.traced(seen, Traced::of(0.0)).expect("a rule of single units");
            let t = (self.rule != TargetRule::gradient_sign()).then(traced);
            let g = self.rule.0.traced_weight(seen).unwrap_or(g);
            self.layer_loss.traced_slope(self.reach(), (!self.weighted).then_some(share), t, [g, z, s])
        }))
    }

    /// The same in pieces, for any rule that a GPU can follow: `pull(g, z, further)` is what stands for g from here on,
    /// `target(g, z, further, label, step, random)` the target, `counted(g, z, label, step, random)` what that counts by,
    /// `slope_at(t, g, z, s, share)` the slope there, given that in the place of g, and
    /// `steepness(t, g, z, s)` what the curvature is multiplied by twice on its way down. `pressing(g, z, s)` is how much it
    /// presses that a unit be moved, and `moved(g, z)` where to. None for other rules.
    pub fn device_pieces(&self) -> Option<String> {
        // Whether it is such a rule does not depend on the numbers.
        let zero = Traced::of(0.0);
        let nothing = Seen { g: zero, z: zero, h: zero, label: zero, step: zero, random: zero };
        let further = self.rule.further();
        let by_unit = matches!(further, Some(Further::Teacher | Further::Above));
        if !by_unit && self.rule.0.traced(nothing, zero).is_none() {
            return None;
        }
        let pull = function("pull", &["g", "z", "further"], |[g, z, seen]| match further {
            Some(Further::Curvature) => self.secant(g, seen, z),
            _ => g,
        });
        let inputs = &["g", "z", "further", "label", "step", "random"];
        let target = function("target", inputs, |[g, z, more, label, step, random]| match further {
            Some(Further::Teacher) => self.taught_target(more, z),
            Some(Further::Above) => self.verified_target(g, z, more),
            _ => {
                let seen = Seen { g, z, h: self.activation.value(z), label, step, random };
                self.rule.0.traced(seen, more).expect("asked before")
            }
        });
        let inputs = &["g", "z", "label", "step", "random"];
        let counted = function("counted", inputs, |[g, z, label, step, random]| {
            let seen = Seen { g, z, h: self.activation.value(z), label, step, random };
            self.rule.0.traced_weight(seen).unwrap_or(g)
        });
        let slope = function("slope_at", &["t", "g", "z", "s", "share"], |[t, g, z, s, share]| {
            self.layer_loss.traced_slope(self.reach(), (!self.weighted).then_some(share), Some(t), [g, z, s])
        });
        let steepness = function("steepness", &["t", "g", "z", "s"], |[t, g, z, s]| {
            self.layer_loss.traced_slope(self.reach(), Some(Traced::of(1.0)), Some(t), [g, z, s])
        });
        let pressing = function("pressing", &["g", "z", "s"], |[g, z, s]| {
            let slope = self.layer_loss.traced_slope(self.reach(), None, None, [g, z, s]);
            self.pressing(g, z, slope)
        });
        let moved = function("moved", &["g", "z"], |[g, z]| self.moved_to(g, z));
        Some([pull, target, counted, slope, steepness, pressing, moved].concat())
    }
}
