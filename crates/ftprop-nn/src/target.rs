//! Targets: the value a hidden unit should take, and the slope its layer loss then gives (section 3.1 and
//! Algorithm 2 of the paper).
//!
//! Going down from the output, a layer receives `g = ∂L/∂h`, how the loss of the layers above changes with
//! each of its outputs. A [`TargetRule`] turns that into a target t; the layer loss at that target, weighted
//! by |g|, has the slope `−t φ(t z) |g|`, which is what the layer's weights and the layer below see.
//!
//! Each rule is a small type that implements [`Rule`]; to add one, write its type and give it a name in `FAMILIES`.
//! A program adds its own by [`TargetRule::register`]. One that looks at several examples at once is a [`BatchRule`]; those that
//! need the curvature of the loss, the layers above or a teacher are in `beyond`.
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

mod batch;
mod beyond;
mod device;

pub use batch::{BatchRule, ClassAgreement, ClassMean, SeenBatch};
pub(crate) use beyond::Needs;
pub use device::Further;

use crate::NnError;
use crate::activation::Activation;
use crate::layer_loss::{LayerLoss, Reach, SlopesAt, Targets};
use crate::names::{Family, Named, Numbers, Registry, chosen_by_name, serde_by_name};
use crate::number::Number;
use crate::portion::Portion;
use crate::trace::Traced;
use batch::OfBatch;
use beyond::Beyond;
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

    /// How much the unit's target counts in the place of the paper's |g|, below 0 as little as 0; none where |g| is what counts.
    /// The paper asks which targets should come before others: this is where a rule answers. Whether it does must not depend on
    /// what it sees. Where recipes say `weighted = false` all targets count alike, whatever is said here.
    #[inline(always)]
    fn weight<N: Number>(&self, _seen: Seen<N>) -> Option<N> {
        None
    }
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
    Family::plain("class_mean", || Box::new(OfBatch(ClassMean))),
    Family::plain("class_agreement", || Box::new(OfBatch(ClassAgreement))),
    Family::plain("secant", || Box::new(Beyond(Needs::Curvature))),
    Family::share("verified", "p", 0.1, |share| Box::new(Beyond(Needs::Above { share }))),
    Family::plain("teacher", || Box::new(Beyond(Needs::Teacher))),
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

    /// The same for a family of rules, which recipes name with a number, as in `name:0.5`; `letter` is what messages call it. With
    /// a usual number the name alone means that one. Making one from its number must not look for names itself.
    pub fn register_family<R: Rule + From<f32>>(
        name: &'static str,
        letter: &'static str,
        numbers: Numbers,
        usual: Option<f32>,
    ) -> Result<(), NnError> {
        REGISTRY.add_family(Family::added(name, letter, (numbers, usual), |number| Box::new(R::from(number))))
    }

    /// The same for a rule that looks at whole batches.
    pub fn register_batch(name: &str, rule: impl BatchRule) -> Result<Self, NnError> {
        REGISTRY.add(name, Box::new(OfBatch(rule))).map(TargetRule)
    }

    /// Whether it looks at more than its unit's own numbers.
    pub fn looks_further(self) -> bool {
        self.needs() != Needs::Nothing
    }

    /// Whether it looks at all examples of a batch, so that a batch cannot be shared.
    pub fn looks_at_batch(self) -> bool {
        self.needs() == Needs::Batch
    }

    /// Whether it looks at how the loss bends.
    pub fn looks_at_curvature(self) -> bool {
        self.needs() == Needs::Curvature
    }

    /// Whether it needs a teacher whose activations are the targets.
    pub fn follows_teacher(self) -> bool {
        self.needs() == Needs::Teacher
    }

    pub(crate) fn needs(self) -> Needs {
        self.0.needs()
    }

    /// The target of one unit, alone in its batch, with nothing above it and no teacher.
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
    /// What a target counts in the place of |g|, where that is something else.
    fn weight(&self, _seen: Seen<f32>) -> Option<f32> {
        None
    }
    /// Puts that in the place of each g.
    fn weigh(&self, _cpu: &Cpu, _seen: &SeenBy<'_>, _g: &mut [f32], _z: &[f32]) {}
    /// The same for a GPU.
    fn traced_weight<'a>(&self, _seen: Seen<Traced<'a>>) -> Option<Traced<'a>> {
        None
    }
    /// With what a rule [looks at further](Further); none where that is not enough.
    fn traced<'a>(&self, seen: Seen<Traced<'a>>, further: Traced<'a>) -> Option<Traced<'a>>;
    fn needs(&self) -> Needs {
        Needs::Nothing
    }
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

    /// The same of a whole batch.
    fn batch<'b>(&self, g: &'b [f32], z: &'b [f32]) -> SeenBatch<'b>
    where
        Self: 'b,
    {
        let Moment { labels, units, step, progress, .. } = *self.moment;
        SeenBatch { g, z, labels, units, activation: self.activation, step, progress, random: self.random }
    }
}

impl<R: Rule> AnyRule for R {
    fn target(&self, seen: Seen<f32>) -> f32 {
        Rule::target(self, seen)
    }

    fn targets(&self, cpu: &Cpu, by: &SeenBy<'_>, g: &[f32], z: &[f32], targets: &mut [f32]) {
        elementwise::map_places(cpu, targets, [g, z], |at, g, z| Rule::target(self, by.seen(at, g, z)));
    }

    fn weight(&self, seen: Seen<f32>) -> Option<f32> {
        counted(self, seen)
    }

    fn weigh(&self, cpu: &Cpu, by: &SeenBy<'_>, g: &mut [f32], z: &[f32]) {
        let nothing = Seen { g: 0.0, z: 0.0, h: 0.0, label: 0.0, step: 0.0, random: 0.0 };
        if Rule::weight::<f32>(self, nothing).is_some() {
            elementwise::update_places(cpu, g, |at, g| counted(self, by.seen(at, g, z[at])).unwrap_or(g));
        }
    }

    fn traced_weight<'a>(&self, seen: Seen<Traced<'a>>) -> Option<Traced<'a>> {
        counted(self, seen)
    }

    fn traced<'a>(&self, seen: Seen<Traced<'a>>, _: Traced<'a>) -> Option<Traced<'a>> {
        Some(Rule::target(self, seen))
    }
}

/// What a rule says that a target counts, at least 0; what is no number stays none.
#[inline(always)]
fn counted<N: Number>(rule: &impl Rule, seen: Seen<N>) -> Option<N> {
    let zero = N::of(0.0);
    rule.weight(seen).map(|weight| N::either(weight.less(zero), zero, weight))
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
        let t = (self.rule != TargetRule::gradient_sign()).then(|| self.target(&moment, 0, g, z));
        let weight = self.rule.0.weight(self.seen_by(&moment).seen(0, g, z)).unwrap_or(g);
        let s = self.layer_loss.scheduled(moment.progress);
        self.layer_loss.slope(self.reach(), self.share(&moment), t, [weight, z, s])
    }

    /// Whether the slope is the gradient times a factor that follows from the pre-activation alone.
    pub fn is_proportional(&self) -> bool {
        self.rule == TargetRule::gradient_sign() && self.weighted && self.layer_loss.is_even()
    }

    /// φ of one unit with target t and pre-activation z: how hard its layer loss pushes it, weights left aside.
    pub fn phi(&self, t: f32, z: f32, progress: f32) -> f32 {
        self.layer_loss.phi_at(self.reach(), t, z, self.layer_loss.scheduled(progress))
    }

    /// The target of a unit at a place of the layer's outputs.
    pub fn target(&self, moment: &Moment<'_>, at: usize, g: f32, z: f32) -> f32 {
        self.rule.target(self.seen_by(moment).seen(at, g, z))
    }

    /// The targets of a layer's units for a whole batch; what they count takes the place of g, where a rule says more of it than |g|.
    pub(crate) fn targets(&self, cpu: &Cpu, moment: &Moment<'_>, g: &mut [f32], z: &[f32], targets: &mut [f32]) {
        let by = self.seen_by(moment);
        self.rule.0.targets(cpu, &by, g, z, targets);
        self.rule.0.weigh(cpu, &by, g, z);
    }

    /// Turns a layer's gradients by h into its slopes by z, in place: sets each unit's target, then takes the slope of
    /// the weighted layer loss at it. `spare` has room for as many targets. Rules that look at other layers or at a teacher
    /// see none here, and set the paper's targets.
    pub fn slopes(&self, cpu: &Cpu, moment: &Moment<'_>, g: &mut [f32], z: &[f32], spare: &mut [f32]) {
        let targets = if self.rule == TargetRule::gradient_sign() {
            Targets::GradientSign
        } else {
            let targets = &mut spare[..g.len()];
            self.targets(cpu, moment, g, z, targets);
            Targets::Given(targets)
        };
        self.slopes_at(cpu, moment, targets, g, z);
    }

    /// The same with targets that are set.
    pub(crate) fn slopes_at(&self, cpu: &Cpu, moment: &Moment<'_>, targets: Targets<'_>, g: &mut [f32], z: &[f32]) {
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
}

#[cfg(test)]
mod tests;
