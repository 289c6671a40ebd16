//! Layer losses: how well a unit's pre-activation z meets its target t (the paper's section 3.2).
//!
//! A layer loss ℓ is a function of the margin m = t·z. What training uses of it is φ = −ℓ′: the unit's
//! pre-activation is pushed towards its target by `φ(m)`, weighted by how much the unit matters.
//!
//! Each loss is a small type that implements [`MarginLoss`]; [`LayerLoss`] is the choice between them that a
//! recipe makes by name. To add one: write its type in `losses.rs`, and give it a name in `FAMILIES`; nothing else
//! on any device. A program adds its own by [`LayerLoss::register`].
//!
//! ```
//! use ftprop_nn::layer_loss::LayerLoss;
//! let soft: LayerLoss = "soft_hinge".parse().unwrap();
//! assert_eq!(soft.phi(0.0, 0.0), 1.0);                  // slope 1 at the threshold
//! assert!(soft.phi(3.0, 0.0) > 0.0);                    // and never quite zero
//! ```

mod losses;
mod reach;

pub use losses::*;
pub(crate) use reach::Reach;

use crate::NnError;
use crate::names::{Family, Named, Numbers, Registry};
use crate::number::Number;
use crate::trace::Traced;
use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::elementwise;
use reach::{AtEach, AtMiddle, AtThreshold, PhiOf, slope};
use std::fmt;
use std::str::FromStr;

/// A loss of the margin m = t·z.
///
/// `s` is a number that the loss may let training's progress decide, see [`scheduled`](Self::scheduled); most ignore it.
pub trait MarginLoss: fmt::Debug + Send + Sync + 'static {
    /// ℓ(m)
    fn loss(&self, m: f32, s: f32) -> f32;
    /// φ(m) = −ℓ′(m), written over any number so that it runs on every device. Mark it `#[inline(always)]`.
    fn phi<N: Number>(&self, m: N, s: N) -> N;
    /// Whether φ(−m) is φ(m), to the bit, whatever m is. Then a margin's sign need not be computed.
    #[inline(always)]
    fn is_even(&self) -> bool {
        false
    }
    /// What `s` is when a share of training, 0 to 1, is done.
    fn scheduled(&self, _progress: f32) -> f32 {
        0.0
    }
}

/// The targets of a layer's units.
#[derive(Clone, Copy)]
pub(crate) enum Targets<'a> {
    /// The paper's, t = sign(−g), computed on the way.
    GradientSign,
    /// Set before.
    Given(&'a [f32]),
}

/// A [`MarginLoss`] without its type: each method is compiled for one loss.
trait AnyLoss: fmt::Debug + Send + Sync {
    fn loss(&self, m: f32, s: f32) -> f32;
    fn scheduled(&self, progress: f32) -> f32;
    fn is_even(&self) -> bool;
    fn phi(&self, reach: Reach, t: f32, z: f32, s: f32) -> f32;
    fn slope(&self, reach: Reach, share: Option<f32>, target: Option<f32>, gzs: [f32; 3]) -> f32;
    fn slopes(&self, cpu: &Cpu, at: &SlopesAt<'_>, g: &mut [f32], z: &[f32]);
    fn traced_slope<'a>(
        &self,
        reach: Reach,
        share: Option<Traced<'a>>,
        target: Option<Traced<'a>>,
        gzs: [Traced<'a>; 3],
    ) -> Traced<'a>;
}

/// Where and how a layer's slopes are taken.
pub(crate) struct SlopesAt<'a> {
    pub(crate) reach: Reach,
    /// What each target's loss is multiplied by, where that is not |g|.
    pub(crate) share: Option<f32>,
    pub(crate) targets: Targets<'a>,
    pub(crate) s: f32,
}

impl<L: MarginLoss> AnyLoss for L {
    fn loss(&self, m: f32, s: f32) -> f32 {
        MarginLoss::loss(self, m, s)
    }

    fn scheduled(&self, progress: f32) -> f32 {
        MarginLoss::scheduled(self, progress)
    }

    fn is_even(&self) -> bool {
        MarginLoss::is_even(self)
    }

    fn phi(&self, reach: Reach, t: f32, z: f32, s: f32) -> f32 {
        match reach {
            Reach::Threshold { scale } => AtThreshold(scale).phi(self, t, z, s),
            Reach::Single => AtMiddle.phi(self, t, z, s),
            Reach::PerStep { k } => AtEach(k).phi(self, t, z, s),
        }
    }

    fn slope(&self, reach: Reach, share: Option<f32>, target: Option<f32>, gzs: [f32; 3]) -> f32 {
        slope_at(self, reach, share, target, gzs)
    }

    fn slopes(&self, cpu: &Cpu, at: &SlopesAt<'_>, g: &mut [f32], z: &[f32]) {
        match at.reach {
            Reach::Threshold { scale } => slopes(self, AtThreshold(scale), cpu, at, g, z),
            Reach::Single => slopes(self, AtMiddle, cpu, at, g, z),
            Reach::PerStep { k } => slopes(self, AtEach(k), cpu, at, g, z),
        }
    }

    fn traced_slope<'a>(
        &self,
        reach: Reach,
        share: Option<Traced<'a>>,
        target: Option<Traced<'a>>,
        gzs: [Traced<'a>; 3],
    ) -> Traced<'a> {
        slope_at(self, reach, share, target, gzs)
    }
}

/// The slope for a target, the paper's where none is given, a gradient g, a pre-activation z and the scheduled number s.
fn slope_at<N: Number, L: MarginLoss>(loss: &L, reach: Reach, share: Option<N>, target: Option<N>, gzs: [N; 3]) -> N {
    match reach {
        Reach::Threshold { scale } => slope(loss, AtThreshold(scale), share, target, gzs),
        Reach::Single => slope(loss, AtMiddle, share, target, gzs),
        Reach::PerStep { k } => slope(loss, AtEach(k), share, target, gzs),
    }
}

fn slopes<L: MarginLoss>(loss: &L, reach: impl PhiOf, cpu: &Cpu, at: &SlopesAt<'_>, g: &mut [f32], z: &[f32]) {
    let of = SlopeOf { loss, reach, share: at.share, s: at.s };
    match at.targets {
        Targets::GradientSign => elementwise::update(cpu, g, z, of),
        Targets::Given(targets) => elementwise::update_with(cpu, g, [z, targets], of),
    }
}

/// The slope as a function of g and z, and of a target where one is given.
struct SlopeOf<'a, L, R> {
    loss: &'a L,
    reach: R,
    share: Option<f32>,
    s: f32,
}

impl<L: MarginLoss, R: PhiOf> elementwise::Binary for SlopeOf<'_, L, R> {
    #[inline(always)]
    fn apply(&self, g: f32, z: f32) -> f32 {
        slope(self.loss, self.reach, self.share, None, [g, z, self.s])
    }
}

impl<L: MarginLoss, R: PhiOf> elementwise::Ternary for SlopeOf<'_, L, R> {
    #[inline(always)]
    fn apply(&self, g: f32, z: f32, t: f32) -> f32 {
        slope(self.loss, self.reach, self.share, Some(t), [g, z, self.s])
    }
}

/// The choice of a layer loss, by the name that a recipe gives it. Cheap to copy; equal where the names are.
#[derive(Clone, Copy)]
pub struct LayerLoss(Named<dyn AnyLoss>);

type LossFamily = Family<dyn AnyLoss>;

/// Every layer loss that comes with the crate. A name with a number after a colon is a family of losses.
const FAMILIES: &[LossFamily] = &[
    Family::plain("linear", || Box::new(Linear)),
    Family::plain("perceptron", || Box::new(Perceptron)),
    Family::plain("hinge", || Box::new(Hinge)),
    Family::below_one("saturated_hinge", "b", -1.0, |b| Box::new(SaturatedHinge { b })),
    Family::scaled("soft_hinge", "a", 1.0, |a| Box::new(SoftHinge { a })),
    Family::plain("squared_hinge", || Box::new(SquaredHinge)),
    Family::plain("saturated_squared_hinge", || Box::new(SaturatedSquaredHinge)),
    Family::plain("log", || Box::new(Log)),
    Family::positive("sigmoid", "a", 2.0, |a| Box::new(Sigmoid { a })),
    Family::plain("ramp", || Box::new(Ramp)),
    Family::plain("approx_sign", || Box::new(ApproxSign)),
    Family::plain("annealed_tanh", || Box::new(AnnealedTanh)),
];

static REGISTRY: Registry<dyn AnyLoss> = Registry::new("layer loss", FAMILIES);

impl LayerLoss {
    /// Every one that comes with the crate, families with their usual number (`sigmoid:2` as in the authors' code).
    pub fn all() -> Vec<LayerLoss> {
        REGISTRY.usual().into_iter().map(LayerLoss).collect()
    }

    /// The paper's own, 1 − tanh(m).
    pub fn soft_hinge() -> Self {
        LayerLoss::named("soft_hinge")
    }

    /// The one that makes target propagation the saturated straight-through estimator.
    pub fn saturated_hinge() -> Self {
        LayerLoss::named("saturated_hinge")
    }

    fn named(name: &str) -> Self {
        LayerLoss(REGISTRY.find(name).expect("it comes with the crate"))
    }

    /// Makes a loss of one's own known by a name, for recipes and everything else in this process. A name can be given
    /// once.
    pub fn register(name: &str, loss: impl MarginLoss) -> Result<Self, NnError> {
        REGISTRY.add(name, Box::new(loss)).map(LayerLoss)
    }

    /// The same for a family of losses, which recipes name with a number, as in `name:2`; `letter` is what messages call it. With a
    /// usual number the name alone means that one. Making one from its number must not look for names itself.
    pub fn register_family<L: MarginLoss + From<f32>>(
        name: &'static str,
        letter: &'static str,
        numbers: Numbers,
        usual: Option<f32>,
    ) -> Result<(), NnError> {
        REGISTRY.add_family(Family::added(name, letter, (numbers, usual), |number| Box::new(L::from(number))))
    }

    /// ℓ(m), when a share of training, 0 to 1, is done.
    pub fn loss(self, m: f32, progress: f32) -> f32 {
        self.0.loss(m, self.scheduled(progress))
    }

    /// φ(m)
    pub fn phi(self, m: f32, progress: f32) -> f32 {
        self.0.phi(Reach::Threshold { scale: 1.0 }, 1.0, m, self.scheduled(progress))
    }

    /// The number that the loss lets training's progress decide.
    pub fn scheduled(self, progress: f32) -> f32 {
        self.0.scheduled(progress)
    }

    /// Whether φ(−m) is φ(m).
    pub(crate) fn is_even(self) -> bool {
        self.0.is_even()
    }

    pub(crate) fn phi_at(self, reach: Reach, t: f32, z: f32, s: f32) -> f32 {
        self.0.phi(reach, t, z, s)
    }

    pub(crate) fn slope(self, reach: Reach, share: Option<f32>, target: Option<f32>, gzs: [f32; 3]) -> f32 {
        self.0.slope(reach, share, target, gzs)
    }

    pub(crate) fn slopes(self, cpu: &Cpu, at: &SlopesAt<'_>, g: &mut [f32], z: &[f32]) {
        self.0.slopes(cpu, at, g, z);
    }

    pub(crate) fn traced_slope<'a>(
        self,
        reach: Reach,
        share: Option<Traced<'a>>,
        target: Option<Traced<'a>>,
        gzs: [Traced<'a>; 3],
    ) -> Traced<'a> {
        self.0.traced_slope(reach, share, target, gzs)
    }
}

crate::names::chosen_by_name!(LayerLoss, REGISTRY);

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> LayerLoss {
        name.parse().unwrap()
    }

    #[test]
    fn every_phi_is_the_slope_of_its_loss() {
        let others =
            ["sigmoid:1", "sigmoid:4", "soft_hinge:2.5", "saturated_hinge:-0.5", "saturated_hinge:0.5"].map(named);
        for loss in LayerLoss::all().into_iter().chain(others) {
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
    fn what_says_that_it_is_even_is_so_to_the_bit() {
        let others = ["soft_hinge:2.5", "soft_hinge:0.7"].map(named);
        let even: Vec<LayerLoss> = LayerLoss::all().into_iter().chain(others).filter(|loss| loss.is_even()).collect();
        assert!(even.contains(&LayerLoss::soft_hinge()) && even.contains(&LayerLoss::saturated_hinge()));
        for loss in even {
            for i in 0..4000 {
                let m = i as f32 * 0.0123;
                assert_eq!(loss.phi(m, 0.3).to_bits(), loss.phi(-m, 0.3).to_bits(), "{loss} at {m}");
            }
        }
    }

    #[test]
    fn the_kinks_belong_where_the_table_puts_them() {
        let one_at = |loss: LayerLoss, m: f32| loss.phi(m, 0.0);
        let after = f32::EPSILON;
        assert_eq!((one_at(named("perceptron"), 0.0), one_at(named("perceptron"), 1e-30)), (1.0, 0.0));
        assert_eq!((one_at(named("hinge"), 1.0), one_at(named("hinge"), 1.0 + after)), (1.0, 0.0));
        assert_eq!((one_at(named("saturated_hinge"), 1.0), one_at(named("saturated_hinge"), -1.0)), (1.0, 1.0));
        assert_eq!(one_at(named("saturated_hinge"), 1.0 + after), 0.0);
        assert_eq!(one_at(named("saturated_hinge"), -1.0 - after), 0.0);
        assert_eq!((one_at(named("ramp"), 2.0), one_at(named("approx_sign"), 0.0)), (0.0, 2.0));
        assert_eq!(one_at(named("soft_hinge"), 0.0), 1.0);
    }

    #[test]
    fn even_slopes_are_even_to_the_bit() {
        let even = [
            named("linear"),
            named("saturated_hinge"),
            named("soft_hinge"),
            named("sigmoid:2"),
            named("ramp"),
            named("approx_sign"),
            named("annealed_tanh"),
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
        for loss in LayerLoss::all() {
            assert_eq!(loss.to_string().parse::<LayerLoss>().unwrap(), loss);
        }
        let message = "softhinge".parse::<LayerLoss>().unwrap_err().to_string();
        assert!(message.contains("soft_hinge"), "{message}");
        assert!("sigmoid:-1".parse::<LayerLoss>().is_err());
        assert_eq!(named("sigmoid:2.0").name(), "sigmoid:2");
        // One name for one thing: the paper's own are plain.
        assert_eq!(
            (named("soft_hinge:1"), named("saturated_hinge:-1.0")),
            (named("soft_hinge"), named("saturated_hinge"))
        );
        for wrong in ["soft_hinge:0", "soft_hinge:", "soft_hinge:inf", "saturated_hinge:1", "saturated_hinge:nan"] {
            assert!(wrong.parse::<LayerLoss>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_loss_of_ones_own_has_a_name_like_the_others() {
        #[derive(Debug)]
        struct Cubic;
        impl MarginLoss for Cubic {
            fn loss(&self, m: f32, _: f32) -> f32 {
                (1.0 - m).max(0.0).powi(3) / 3.0
            }
            #[inline(always)]
            fn phi<N: Number>(&self, m: N, _: N) -> N {
                let below = (N::of(1.0) - m).max(N::of(0.0));
                below * below
            }
        }
        let cubic = LayerLoss::register("cubic", Cubic).unwrap();
        assert_eq!((named("cubic"), cubic.phi(-1.0, 0.0)), (cubic, 4.0));
        assert!("qubic".parse::<LayerLoss>().unwrap_err().to_string().contains("cubic"));
        for taken in ["cubic", "hinge", "sigmoid:3", "", "a b"] {
            assert!(LayerLoss::register(taken, Cubic).is_err(), "{taken}");
        }
        // A family of them.
        #[derive(Debug)]
        struct Power(f32);
        impl From<f32> for Power {
            fn from(a: f32) -> Self {
                Power(a)
            }
        }
        impl MarginLoss for Power {
            fn loss(&self, m: f32, _: f32) -> f32 {
                -self.0 * m
            }
            #[inline(always)]
            fn phi<N: Number>(&self, _: N, _: N) -> N {
                N::of(self.0)
            }
        }
        LayerLoss::register_family::<Power>("steep", "a", Numbers::Positive, Some(2.0)).unwrap();
        let phis = ["steep", "steep:2", "steep:0.5"].map(|name| named(name).phi(0.0, 0.0));
        assert_eq!((phis, named("steep:2.0")), ([2.0, 2.0, 0.5], named("steep")));
        let wrong = "steep:-1".parse::<LayerLoss>().unwrap_err().to_string();
        assert!(wrong.contains("steep:a takes a positive number a"), "{wrong}");
        assert!("step".parse::<LayerLoss>().unwrap_err().to_string().contains("steep or steep:a"));
        for (taken, usual) in [("steep", None), ("cubic", None), ("hinge", None), ("a:b", None), ("odd", Some(-1.0))] {
            assert!(LayerLoss::register_family::<Power>(taken, "a", Numbers::Positive, usual).is_err(), "{taken}");
        }
        assert!(LayerLoss::register("steep:3", Cubic).is_err());
    }
}
