//! Targets: the value a hidden unit should take, and the slope its layer loss then gives (section 3.1 and
//! Algorithm 2 of the paper).
//!
//! Going down from the output, a layer receives `g = ∂L/∂h`, how the loss of the layers above changes with
//! each of its outputs. A [`TargetRule`] turns that into a target t; the layer loss at that target, weighted
//! by |g|, has the slope `−t φ(t z) |g|`, which is what the layer's weights and the layer below see.
//!
//! Each rule is a small type that implements [`Rule`]; to add one, write its type and give it a name in `FAMILIES`.
//! A program adds its own by [`TargetRule::register`].
//!
//! ```
//! use ftprop_nn::activation::Activation;
//! use ftprop_nn::layer_loss::LayerLoss;
//! use ftprop_nn::target::HardUnit;
//! // With the saturated hinge this is the saturated straight-through estimator: g where |z| ≤ 1, else 0.
//! let unit = HardUnit::new(Activation::Sign, LayerLoss::saturated_hinge());
//! assert_eq!(unit.slope(0.25, 0.5), 0.25);
//! assert_eq!(unit.slope(0.25, 1.5), 0.0);
//! ```

use crate::NnError;
use crate::activation::Activation;
use crate::layer_loss::{LayerLoss, Reach, SlopesAt, Targets};
use crate::names::{Family, Named, Registry, chosen_by_name, serde_by_name};
use crate::number::Number;
use crate::portion::Portion;
use crate::trace::{Traced, function};
use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::elementwise;
use ftprop_tensor::random::{Purpose, Stream};
use std::fmt;
use std::str::FromStr;

/// What a rule may look at when it sets the target of one unit for one example.
#[derive(Clone, Copy, Debug)]
pub struct Seen<N> {
    /// ∂L/∂h, from the layers above.
    pub g: N,
    /// The unit's pre-activation.
    pub z: N,
    /// Its output.
    pub h: N,
    /// The example's class, as a number.
    pub label: N,
    /// The training step's number, counted from 0.
    pub step: N,
    /// Uniform in [0, 1): a number of this unit, example and step alone.
    pub random: N,
}

/// How a unit's target follows from what the layers above say (the paper's r).
pub trait Rule: fmt::Debug + Send + Sync + 'static {
    /// −1, +1, or 0 for no target: such a unit passes nothing on. Written over any number so that it runs on every
    /// device; mark it `#[inline(always)]`. What is not looked at costs nothing.
    fn target<N: Number>(&self, seen: Seen<N>) -> N;
}

/// t = sign(−g), the paper's. A unit with g = 0 has no target.
#[derive(Debug)]
pub struct GradientSign;
impl Rule for GradientSign {
    #[inline(always)]
    fn target<N: Number>(&self, seen: Seen<N>) -> N {
        seen.g.opposite_sign()
    }
}

/// The paper's, each target kept with probability p: its other idea for putting some targets before others.
#[derive(Debug)]
pub struct RandomSubset {
    /// How likely a unit has a target.
    pub p: f32,
}
impl Rule for RandomSubset {
    #[inline(always)]
    fn target<N: Number>(&self, seen: Seen<N>) -> N {
        seen.g.opposite_sign() * N::indicator(seen.random.less(N::of(self.p)))
    }
}

/// Every rule that comes with the crate, the paper's first.
const FAMILIES: &[Family<dyn AnyRule>] = &[
    Family::plain("gradient_sign", || Box::new(GradientSign)),
    Family::share("random_subset", "p", 0.5, |p| Box::new(RandomSubset { p })),
];

static REGISTRY: Registry<dyn AnyRule> = Registry::new("target rule", FAMILIES);

/// The choice of a target rule, by the name that a recipe gives it. Cheap to copy; equal where the names are.
#[derive(Clone, Copy)]
pub struct TargetRule(Named<dyn AnyRule>);

impl TargetRule {
    /// Every one that comes with the crate.
    pub fn all() -> Vec<TargetRule> {
        REGISTRY.usual().into_iter().map(TargetRule).collect()
    }

    /// The paper's, t = sign(−g).
    pub fn gradient_sign() -> Self {
        TargetRule(REGISTRY.find("gradient_sign").expect("it comes with the crate"))
    }

    /// Makes a rule of one's own known by a name, for recipes and everything else in this process. A name can be given
    /// once.
    pub fn register(name: &str, rule: impl Rule) -> Result<Self, NnError> {
        REGISTRY.add(name, Box::new(rule)).map(TargetRule)
    }

    /// The target of one unit.
    pub fn target(self, seen: Seen<f32>) -> f32 {
        self.0.target(seen)
    }
}

impl Default for TargetRule {
    fn default() -> Self {
        TargetRule::gradient_sign()
    }
}

chosen_by_name!(TargetRule, REGISTRY);

/// A [`Rule`] without its type: each method is compiled for one rule.
trait AnyRule: fmt::Debug + Send + Sync {
    fn target(&self, seen: Seen<f32>) -> f32;
    fn targets(&self, cpu: &Cpu, seen: &SeenBy<'_>, g: &[f32], z: &[f32], targets: &mut [f32]);
    fn traced<'a>(&self, seen: Seen<Traced<'a>>) -> Traced<'a>;
}

/// Where a layer's units find what a rule may look at.
struct SeenBy<'a> {
    activation: Activation,
    moment: &'a Moment<'a>,
    random: Stream,
    /// The place of the first unit among those of all engines that share the batch.
    first: usize,
}

impl SeenBy<'_> {
    /// What there is to see of the unit at a place of the layer's outputs.
    #[inline(always)]
    fn seen(&self, at: usize, g: f32, z: f32) -> Seen<f32> {
        let label = self.moment.labels.get(at / self.moment.units).copied().unwrap_or(0);
        Seen {
            g,
            z,
            h: self.activation.value(z),
            label: label as f32,
            step: self.moment.step as f32,
            random: self.random.uniform((self.first + at) as u64),
        }
    }
}

impl<R: Rule> AnyRule for R {
    fn target(&self, seen: Seen<f32>) -> f32 {
        Rule::target(self, seen)
    }

    fn targets(&self, cpu: &Cpu, by: &SeenBy<'_>, g: &[f32], z: &[f32], targets: &mut [f32]) {
        elementwise::map_places(cpu, targets, [g, z], |at, g, z| Rule::target(self, by.seen(at, g, z)));
    }

    fn traced<'a>(&self, seen: Seen<Traced<'a>>) -> Traced<'a> {
        Rule::target(self, seen)
    }
}

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

serde_by_name!(QreluForm);

/// When and for whom a layer's targets are set.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The training step, counted from 0.
    pub step: u64,
    /// The share of training done, 0 to 1, for losses that change with it.
    pub progress: f32,
    /// The batch's labels; as many as it has examples.
    pub labels: &'a [u32],
    /// Units of one example.
    pub units: usize,
    /// Tells this layer's random numbers from those of others.
    pub layer: u64,
    /// Where the examples are in a batch that several engines share.
    pub portion: Option<Portion>,
}

impl Default for Moment<'_> {
    /// One unit, at the start of training.
    fn default() -> Self {
        Moment { seed: 0, step: 0, progress: 0.0, labels: &[0], units: 1, layer: 0, portion: None }
    }
}

/// A hard unit: everything that decides its targets and slopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardUnit {
    /// What it outputs.
    pub activation: Activation,
    /// How well it meets its target.
    pub layer_loss: LayerLoss,
    /// Which target it gets.
    pub rule: TargetRule,
    /// How a qReLU meets it.
    pub form: QreluForm,
    /// Whether a target's loss is weighted by |g|.
    pub weighted: bool,
}

impl HardUnit {
    /// The paper's choices for everything but the activation and the layer loss.
    pub fn new(activation: Activation, layer_loss: LayerLoss) -> Self {
        HardUnit { activation, layer_loss, rule: TargetRule::gradient_sign(), form: QreluForm::Single, weighted: true }
    }

    /// ∂ℓ/∂z of one unit with gradient g and pre-activation z, alone in its batch at the start of training.
    pub fn slope(&self, g: f32, z: f32) -> f32 {
        let moment = Moment::default();
        let (t, s) = (self.target(&moment, 0, g, z), self.layer_loss.scheduled(moment.progress));
        self.layer_loss.slope(self.reach(), self.share(&moment), [t, g, z, s])
    }

    /// φ of one unit with target t and pre-activation z: how hard its layer loss pushes it, weights left aside.
    pub fn phi(&self, t: f32, z: f32, progress: f32) -> f32 {
        self.layer_loss.phi_at(self.reach(), t, z, self.layer_loss.scheduled(progress))
    }

    /// The target of a unit at a place of the layer's outputs.
    pub fn target(&self, moment: &Moment<'_>, at: usize, g: f32, z: f32) -> f32 {
        self.rule.target(self.seen_by(moment).seen(at, g, z))
    }

    /// Turns a layer's gradients by h into its slopes by z, in place: sets each unit's target, then takes the slope of
    /// the weighted layer loss at it. `spare` has room for as many targets.
    pub fn slopes(&self, cpu: &Cpu, moment: &Moment<'_>, g: &mut [f32], z: &[f32], spare: &mut [f32]) {
        let targets = if self.rule == TargetRule::gradient_sign() {
            Targets::GradientSign
        } else {
            let targets = &mut spare[..g.len()];
            self.rule.0.targets(cpu, &self.seen_by(moment), g, z, targets);
            Targets::Given(targets)
        };
        let (share, s) = (self.share(moment), self.layer_loss.scheduled(moment.progress));
        self.layer_loss.slopes(cpu, &SlopesAt { reach: self.reach(), share, targets, s }, g, z);
    }

    /// Where targets are not weighted by |g|: one over the batch size for every unit that has one.
    fn share(&self, moment: &Moment<'_>) -> Option<f32> {
        (!self.weighted).then(|| 1.0 / moment.portion.map_or(moment.labels.len(), |portion| portion.of) as f32)
    }

    fn seen_by<'a>(&self, moment: &'a Moment<'a>) -> SeenBy<'a> {
        let random = Stream::new(moment.seed, Purpose::Target, moment.step).fork(moment.layer);
        let first = moment.portion.map_or(0, |portion| portion.first * moment.units);
        SeenBy { activation: self.activation, moment, random, first }
    }

    fn reach(&self) -> Reach {
        match (self.activation, self.form) {
            // `step` is the linear image of `sign`, so its slope is half of that.
            (Activation::Step, _) => Reach::Threshold { scale: 0.5 },
            (Activation::Qrelu { .. }, QreluForm::Single) => Reach::Single,
            (Activation::Qrelu { k }, QreluForm::PerStep) => Reach::PerStep { k },
            (Activation::Sign | Activation::Relu | Activation::SaturatedRelu, _) => Reach::Threshold { scale: 1.0 },
        }
    }

    /// The slope as a function of g, z, the label, the step, a random number, the loss's scheduled number and one over
    /// the batch size, for a GPU's compiler.
    pub fn device_slope(&self, name: &str) -> String {
        function(name, &["g", "z", "label", "step", "random", "s", "share"], |[g, z, label, step, random, s, share]| {
            let seen = Seen { g, z, h: self.activation.value(z), label, step, random };
            let t = self.rule.0.traced(seen);
            self.layer_loss.traced_slope(self.reach(), (!self.weighted).then_some(share), [t, g, z, s])
        })
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

    fn slopes(unit: HardUnit, batch: usize) -> Vec<f32> {
        let (mut g, z) = units();
        let labels = vec![0; batch];
        let moment = Moment { progress: 0.6, labels: &labels, ..Moment::default() };
        let mut spare = vec![0.0; g.len()];
        unit.slopes(&Cpu::new(2).unwrap(), &moment, &mut g, &z, &mut spare);
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
        let unit = HardUnit::new(Activation::Sign, LayerLoss::saturated_hinge());
        same(&slopes(unit, 1), |g, z| if z.abs() <= 1.0 { g } else { 0.0 });
        let unit = HardUnit::new(Activation::Qrelu { k: 3 }, LayerLoss::saturated_hinge());
        same(&slopes(unit, 1), |g, z| if (0.0..=1.0).contains(&z) { g } else { 0.0 });
    }

    #[test]
    fn linear_is_the_plain_straight_through_estimator() {
        let linear: LayerLoss = "linear".parse().unwrap();
        same(&slopes(HardUnit::new(Activation::Sign, linear), 1), |g, _| g);
        same(&slopes(HardUnit::new(Activation::Qrelu { k: 5 }, linear), 1), |g, _| g);
        same(&slopes(HardUnit::new(Activation::Step, linear), 1), |g, _| 0.5 * g);
    }

    #[test]
    fn even_losses_collapse_to_g_times_phi_and_others_do_not() {
        for loss in LayerLoss::all() {
            let even = (0..100).all(|i| loss.phi(i as f32 * 0.03, 0.6) == loss.phi(-i as f32 * 0.03, 0.6));
            let unit = HardUnit::new(Activation::Sign, loss);
            if even {
                same(&slopes(unit, 1), |g, z| g * loss.phi(z, 0.6));
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
        for loss in LayerLoss::all() {
            for activation in
                [Activation::Sign, Activation::Step, Activation::Qrelu { k: 3 }, Activation::Qrelu { k: 5 }]
            {
                for form in [QreluForm::Single, QreluForm::PerStep] {
                    for weighted in [true, false] {
                        let unit = HardUnit { form, weighted, ..HardUnit::new(activation, loss) };
                        let fast = slopes(unit, 64);
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
                            let weight = if weighted { g[i].abs() } else { 1.0 / 64.0 };
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
        let unit = HardUnit::new(Activation::Sign, LayerLoss::soft_hinge());
        assert_eq!([0.0, -0.0].map(|g| unit.target(&Moment::default(), 0, g, 0.3)), [0.0, 0.0]);
        for loss in LayerLoss::all() {
            for weighted in [true, false] {
                let unit = HardUnit { weighted, ..HardUnit::new(Activation::Sign, loss) };
                assert_eq!(unit.slope(0.0, 0.3), 0.0, "{loss}");
            }
        }
    }

    #[test]
    fn a_nan_gradient_is_not_hidden() {
        assert!(HardUnit::new(Activation::Sign, LayerLoss::soft_hinge()).slope(f32::NAN, 0.3).is_nan());
    }

    #[test]
    fn a_rule_sees_the_unit_its_example_and_the_moment() {
        /// A target towards the class's parity, where the output is not there yet.
        #[derive(Debug)]
        struct Parity;
        impl Rule for Parity {
            #[inline(always)]
            fn target<N: Number>(&self, seen: Seen<N>) -> N {
                let half = seen.label / N::of(2.0);
                let odd = N::either(half.less(half.ceil()), N::of(1.0), N::of(-1.0));
                let there = N::indicator((seen.h - odd).abs().less(N::of(0.5)));
                odd * (N::of(1.0) - there) * N::indicator(seen.step.less(N::of(8.0)))
            }
        }
        let rule = TargetRule::register("parity", Parity).unwrap();
        assert_eq!("parity".parse::<TargetRule>().unwrap(), rule);
        let unit = HardUnit { rule, ..HardUnit::new(Activation::Sign, LayerLoss::saturated_hinge()) };
        let slopes = |step: u64| {
            let (labels, mut g, z) = ([3, 4], [0.5; 4], [-0.5, 0.5, -0.5, 0.5]);
            let moment = Moment { step, labels: &labels, units: 2, ..Moment::default() };
            unit.slopes(&Cpu::new(1).unwrap(), &moment, &mut g, &z, &mut [0.0; 4]);
            g
        };
        // The first example is odd: its low unit should rise; the second is even: its high unit should fall.
        assert_eq!(slopes(7), [-0.5, 0.0, 0.0, 0.5]);
        assert_eq!(slopes(8), [0.0; 4]);
    }

    #[test]
    fn a_random_subset_keeps_its_share_of_the_papers_targets_and_another_one_at_each_step() {
        let unit = HardUnit {
            rule: "random_subset:0.3".parse().unwrap(),
            ..HardUnit::new(Activation::Sign, LayerLoss::soft_hinge())
        };
        let labels = vec![0; 200];
        let slopes = |step: u64, layer: u64| {
            let moment = Moment { step, layer, labels: &labels, units: 50, ..Moment::default() };
            let mut g = vec![0.25; 10_000];
            unit.slopes(&Cpu::new(2).unwrap(), &moment, &mut g, &vec![0.0; 10_000], &mut vec![0.0; 10_000]);
            g
        };
        let (first, second, other) = (slopes(0, 0), slopes(1, 0), slopes(0, 1));
        assert!(first.iter().all(|&s| s == 0.25 || s == 0.0));
        let share = first.iter().filter(|&&s| s != 0.0).count();
        assert!((2850..3150).contains(&share), "{share}");
        assert!(first == slopes(0, 0) && first != second && first != other);
        for wrong in ["random_subset", "random_subset:0", "random_subset:1.5", "random_subset:x"] {
            assert!(wrong.parse::<TargetRule>().is_err(), "{wrong}");
        }
    }
}
