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
        for activation in [Activation::Sign, Activation::Step, Activation::Qrelu { k: 3 }, Activation::Qrelu { k: 5 }] {
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
                                (0..k).map(|i2| phi(t * (z[i] - i2 as f32 / (k - 1) as f32))).sum::<f32>() / k as f32
                            }
                            _ => phi(t * z[i]),
                        };
                        let weight = if weighted { g[i].abs() } else { 1.0 / 64.0 };
                        let expected = -t * shaped * weight;
                        let close = (fast[i] - expected).abs() <= 1e-6 * expected.abs();
                        assert!(close, "{loss} {activation} {form}, g {} z {}: {} for {expected}", g[i], z[i], fast[i]);
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

#[test]
fn slopes_that_are_said_to_be_proportional_are() {
    let rules = ["gradient_sign", "random_subset:0.5"].map(|name| name.parse::<TargetRule>().unwrap());
    let mut proportional = 0;
    for loss in LayerLoss::all() {
        for (activation, rule, weighted) in
            ["sign", "qrelu:3"].into_iter().flat_map(|a| rules.map(|r| [(a, r, true), (a, r, false)])).flatten()
        {
            let activation = activation.parse().unwrap();
            let unit = HardUnit { rule, weighted, ..HardUnit::new(activation, loss) };
            if !unit.is_proportional() {
                continue;
            }
            proportional += 1;
            for i in -30..30 {
                let z = i as f32 * 0.11;
                // Powers of two, so that nothing is rounded.
                let (one, both) = (unit.slope(0.25, z), unit.slope(0.25, z) + unit.slope(-0.5, z));
                assert_eq!((unit.slope(-0.5, z), both), (-2.0 * one, unit.slope(-0.25, z)), "{loss} at {z}");
            }
        }
    }
    assert!(proportional >= 4);
}

/// The paper's targets, of which none counts more than a bound.
#[derive(Debug)]
struct Bounded(f32);

impl From<f32> for Bounded {
    fn from(bound: f32) -> Self {
        Bounded(bound)
    }
}

impl Rule for Bounded {
    #[inline(always)]
    fn target<N: Number>(&self, seen: Seen<N>) -> N {
        seen.g.opposite_sign()
    }

    #[inline(always)]
    fn weight<N: Number>(&self, seen: Seen<N>) -> Option<N> {
        Some(seen.g.abs().min(N::of(self.0)))
    }
}

#[test]
fn a_rule_says_how_much_a_target_counts() {
    TargetRule::register_family::<Bounded>("bounded", "b", Numbers::Positive, None).unwrap();
    assert!("bounded".parse::<TargetRule>().unwrap_err().to_string().contains("bounded:b"));
    let (g, z) = units();
    for loss in [LayerLoss::soft_hinge(), "log".parse().unwrap()] {
        let paper = HardUnit::new(Activation::Sign, loss);
        let unit = |name: &str| HardUnit { rule: name.parse().unwrap(), ..paper };
        let (plain, free, bounded) =
            (slopes(paper, 64), slopes(unit("bounded:1e9"), 64), slopes(unit("bounded:0.25"), 64));
        assert!(g.iter().any(|g| g.abs() > 0.25), "some are bounded");
        for i in 0..g.len() {
            assert!((free[i] - plain[i]).abs() <= 1e-6 * plain[i].abs(), "{loss} at g {} z {}", g[i], z[i]);
            let expected = if g[i].abs() > 0.25 { plain[i] / g[i].abs() * 0.25 } else { plain[i] };
            assert!((bounded[i] - expected).abs() <= 1e-6 * expected.abs(), "{loss} at g {} z {}", g[i], z[i]);
        }
        // Where all count alike, none counts less.
        let alike = |unit: HardUnit| slopes(HardUnit { weighted: false, ..unit }, 64);
        assert_eq!(alike(unit("bounded:0.25")), alike(unit("bounded:1e9")));
    }
}
