//! Rules that look at a whole batch: what a unit should be for one example may depend on the others. The paper leaves
//! open how targets might combine what several examples say.
//!
//! The CPU runs any such rule. One that looks at the sum over the examples of a class and at nothing else of the others says
//! so by [`BatchRule::by_class`], and a GPU runs it too; it refuses the rest by name.

use super::{AnyRule, HardUnit, Moment, Needs, Seen, SeenBy};
use crate::activation::Activation;
use crate::layer_loss::LayerLoss;
use crate::number::Number;
use crate::trace::Traced;
use ftprop_tensor::Cpu;
use ftprop_tensor::random::Stream;
use std::fmt;

/// What there is to see of a layer when its targets are set for a batch: example by example, unit by unit.
#[derive(Clone, Copy, Debug)]
pub struct SeenBatch<'a> {
    /// ∂L/∂h of every unit.
    pub g: &'a [f32],
    /// Their pre-activations.
    pub z: &'a [f32],
    /// The class of every example.
    pub labels: &'a [u32],
    /// Units of one example.
    pub units: usize,
    /// What the units output of their pre-activations.
    pub activation: Activation,
    /// The training step, counted from 0.
    pub step: u64,
    /// The share of training done, 0 to 1.
    pub progress: f32,
    /// Random numbers of this run, step and layer alone: `random.uniform(i)` is the same in every run of its seed.
    pub random: Stream,
}

/// How targets follow from what the layers above say about all examples of a batch.
pub trait BatchRule: fmt::Debug + Send + Sync + 'static {
    /// Writes −1, +1, or 0 for no target, for each unit of each example. Sums must have an order that depends on nothing
    /// but the batch.
    fn targets(&self, seen: &SeenBatch<'_>, targets: &mut [f32]);

    /// The same from a unit's g and the sum of g over the examples of its class, where that is all the rule looks at.
    fn by_class<N: Number>(&self, _g: N, _sum: N) -> Option<N>
    where
        Self: Sized,
    {
        None
    }
}

/// t = sign(−Σ g) over the examples of the same class: a unit is to say the same about all of them, what is best for them
/// together. How much each counts is left to its own |g|.
#[derive(Debug)]
pub struct ClassMean;
impl BatchRule for ClassMean {
    fn targets(&self, seen: &SeenBatch<'_>, targets: &mut [f32]) {
        by_class_sum(self, seen, targets);
    }

    #[inline(always)]
    fn by_class<N: Number>(&self, _: N, sum: N) -> Option<N> {
        Some(sum.opposite_sign())
    }
}

/// The paper's t = sign(−g), but only where it is also that of the examples of the same class together; elsewhere none.
#[derive(Debug)]
pub struct ClassAgreement;
impl BatchRule for ClassAgreement {
    fn targets(&self, seen: &SeenBatch<'_>, targets: &mut [f32]) {
        by_class_sum(self, seen, targets);
    }

    #[inline(always)]
    fn by_class<N: Number>(&self, g: N, sum: N) -> Option<N> {
        let (t, all) = (g.opposite_sign(), sum.opposite_sign());
        Some(t * N::indicator(N::of(0.0).less(t * all)))
    }
}

/// Sets each target from its unit's g and the sum of g over the examples of the same class, in their order.
fn by_class_sum(rule: &impl BatchRule, seen: &SeenBatch<'_>, targets: &mut [f32]) {
    let SeenBatch { g, labels, units, .. } = *seen;
    // The targets of a class's first example hold the sums until all others have theirs.
    let first = |example: usize| labels.iter().position(|&label| label == labels[example]).unwrap_or(example);
    for (example, g) in g.chunks_exact(units).enumerate() {
        let sums = &mut targets[first(example) * units..][..units];
        if first(example) == example {
            sums.copy_from_slice(g);
        } else {
            sums.iter_mut().zip(g).for_each(|(sum, g)| *sum += g);
        }
    }
    for (example, g) in g.chunks_exact(units).enumerate().rev() {
        for (unit, &g) in g.iter().enumerate() {
            let sum = targets[first(example) * units + unit];
            targets[example * units + unit] = rule.by_class(g, sum).expect("a rule by classes");
        }
    }
}

/// A [`BatchRule`] among the rules of single units.
#[derive(Debug)]
pub(super) struct OfBatch<R>(pub(super) R);

impl<R: BatchRule> AnyRule for OfBatch<R> {
    fn target(&self, seen: Seen<f32>) -> f32 {
        let mut target = [0.0];
        let labels = &[seen.label as u32][..];
        let unit = HardUnit::new(Activation::Sign, LayerLoss::soft_hinge());
        let moment = Moment { step: seen.step as u64, labels, ..Moment::default() };
        self.0.targets(&unit.seen_by(&moment).batch(&[seen.g], &[seen.z]), &mut target);
        target[0]
    }

    fn targets(&self, _: &Cpu, by: &SeenBy<'_>, g: &[f32], z: &[f32], targets: &mut [f32]) {
        self.0.targets(&by.batch(g, z), targets);
    }

    fn traced<'a>(&self, seen: Seen<Traced<'a>>, sum: Traced<'a>) -> Option<Traced<'a>> {
        self.0.by_class(seen.g, sum)
    }

    fn needs(&self) -> Needs {
        Needs::Batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetRule;

    /// Three examples of class 7 and one of class 2, two units each.
    const LABELS: [u32; 4] = [7, 2, 7, 7];
    const G: [f32; 8] = [1.0, -1.0, -0.5, 0.0, -3.0, -2.0, 1.5, 4.0];

    fn targets(rule: &dyn BatchRule) -> [f32; 8] {
        let mut targets = [f32::NAN; 8];
        let unit = HardUnit::new(Activation::Sign, LayerLoss::soft_hinge());
        let moment = Moment { labels: &LABELS, units: 2, ..Moment::default() };
        rule.targets(&unit.seen_by(&moment).batch(&G, &[0.0; 8]), &mut targets);
        targets
    }

    /// A rule may draw, and the same run draws the same.
    #[test]
    fn a_rule_sees_the_step_and_has_its_own_random_numbers() {
        #[derive(Debug)]
        struct Coin;
        impl BatchRule for Coin {
            fn targets(&self, seen: &SeenBatch<'_>, targets: &mut [f32]) {
                let heads = |i: usize| seen.random.uniform(i as u64) < 0.5 && seen.activation == Activation::Step;
                targets.iter_mut().enumerate().for_each(|(i, t)| *t = f32::from(heads(i)) * (1 + seen.step) as f32);
            }
        }
        let rule = TargetRule::register_batch("coin", Coin).unwrap();
        let unit = HardUnit { rule, ..HardUnit::new(Activation::Step, LayerLoss::soft_hinge()) };
        let thrown = |seed: u64, step: u64| {
            let moment = Moment { seed, step, labels: &LABELS, units: 16, ..Moment::default() };
            let (mut g, mut targets) = ([1.0; 64], [0.0; 64]);
            unit.targets(&Cpu::new(1).unwrap(), &moment, &mut g, &[0.0; 64], &mut targets);
            targets
        };
        assert!(thrown(1, 2).contains(&3.0) && thrown(1, 2).contains(&0.0));
        assert!(thrown(1, 2) == thrown(1, 2) && thrown(1, 2) != thrown(2, 2) && thrown(1, 2) != thrown(1, 3));
    }

    #[test]
    fn examples_of_a_class_have_the_target_of_their_sum() {
        // Sums of class 7: −0.5 and 1; of class 2: its own.
        assert_eq!(targets(&ClassMean), [1.0, -1.0, 1.0, 0.0, 1.0, -1.0, 1.0, -1.0]);
    }

    #[test]
    fn only_those_that_agree_with_it_have_one() {
        assert_eq!(targets(&ClassAgreement), [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, -1.0]);
    }
}
