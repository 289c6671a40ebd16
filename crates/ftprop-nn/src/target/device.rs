//! Hard units as text for a GPU's compiler: targets and slopes, from the one definition of each.

use super::{HardUnit, Needs, Seen, TargetRule};
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
}

impl TargetRule {
    /// What the rule looks at further; none where its unit's own numbers are enough, or where only the CPU has it.
    pub fn further(self) -> Option<Further> {
        match self.needs() {
            Needs::Batch => Some(Further::ClassSum),
            Needs::Curvature => Some(Further::Curvature),
            Needs::Teacher => Some(Further::Teacher),
            Needs::Nothing | Needs::Above { .. } => None,
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
            let t = self.rule.0.traced(seen, Traced::of(0.0)).expect("a rule of single units");
            self.layer_loss.traced_slope(self.reach(), (!self.weighted).then_some(share), [t, g, z, s])
        }))
    }

    /// The same in pieces, for any rule that a GPU can follow: `pull(g, z, further)` is what stands for g from here on,
    /// `target(g, z, further, label, step, random)` the target, `slope_at(t, g, z, s, share)` the slope there, and
    /// `steepness(t, g, z, s)` what the curvature is multiplied by twice on its way down. None for other rules.
    pub fn device_pieces(&self) -> Option<String> {
        // Whether it is such a rule does not depend on the numbers.
        let zero = Traced::of(0.0);
        let nothing = Seen { g: zero, z: zero, h: zero, label: zero, step: zero, random: zero };
        let taught = self.rule.further() == Some(Further::Teacher);
        if !taught && self.rule.0.traced(nothing, zero).is_none() {
            return None;
        }
        let pull = function("pull", &["g", "z", "further"], |[g, z, further]| match self.rule.further() {
            Some(Further::Curvature) => self.secant(g, further, z),
            _ => g,
        });
        let inputs = &["g", "z", "further", "label", "step", "random"];
        let target = function("target", inputs, |[g, z, further, label, step, random]| match taught {
            true => self.taught_target(further, z),
            false => {
                let seen = Seen { g, z, h: self.activation.value(z), label, step, random };
                self.rule.0.traced(seen, further).expect("asked before")
            }
        });
        let slope = function("slope_at", &["t", "g", "z", "s", "share"], |[t, g, z, s, share]| {
            self.layer_loss.traced_slope(self.reach(), (!self.weighted).then_some(share), [t, g, z, s])
        });
        let steepness = function("steepness", &["t", "g", "z", "s"], |[t, g, z, s]| {
            self.layer_loss.traced_slope(self.reach(), Some(Traced::of(1.0)), [t, g, z, s])
        });
        Some([pull, target, slope, steepness].concat())
    }
}
