use super::*;
use crate::activation::step as step_at;
use crate::target::{Moment, QreluForm};
use ftprop_tensor::random::Stream;

fn seen(unit: &HardUnit, progress: f32, g: &[f32], z: &[f32], z_after: &[f32]) -> LayerDiagnosis {
    let watch = Watch::default();
    let layer = HardLayer::new(*unit, 0, z.len());
    Watched::new(layer, &watch, "1", "fc", 0);
    let sight = &mut watch.lock().sights[0];
    let targets: Vec<f32> = g.iter().zip(z).map(|(&g, &z)| unit.target(&Moment::default(), 0, g, z)).collect();
    sight.see_targets(unit, progress, [g, z, &targets]);
    sight.see_outcome(unit, z_after);
    sight.diagnosis(0.0)
}

/// The thresholds of a unit, written out.
fn thresholds(activation: Activation) -> Vec<f32> {
    match activation {
        Activation::Qrelu { k } => (0..k).map(|i| i as f32 / (k - 1) as f32).collect(),
        _ => vec![0.0],
    }
}

#[test]
fn the_counts_are_the_plain_definitions() {
    let s = Stream::numbered(8);
    let random = |from: u64, scale: f32| -> Vec<f32> {
        (0..3000).map(|i| scale * (s.uniform(from + i) - 0.5) + 1e-4).collect::<Vec<_>>()
    };
    let (mut g, z, moved) = (random(0, 0.1), random(5000, 7.0), random(9000, 1.5));
    g.iter_mut().step_by(17).for_each(|g| *g = 0.0);
    let after: Vec<f32> = z.iter().zip(moved).map(|(z, by)| z + by).collect();
    for loss in LayerLoss::all() {
        for (activation, form) in [
            (Activation::Sign, QreluForm::Single),
            (Activation::Step, QreluForm::Single),
            (Activation::Qrelu { k: 3 }, QreluForm::Single),
            (Activation::Qrelu { k: 5 }, QreluForm::PerStep),
        ] {
            let unit = HardUnit { form, ..HardUnit::new(activation, loss) };
            let (mut beyond, mut none, mut faint, mut targeted) = (0, 0, 0, 0);
            let (mut steps, mut wrong, mut righted, mut wronged) = (0, 0, 0, 0);
            let mut weights = [0.0; 4];
            for i in 0..z.len() {
                let outside = match (activation, form) {
                    (Activation::Qrelu { .. }, QreluForm::Single) => !(0.0..=1.0).contains(&z[i]),
                    (Activation::Qrelu { .. }, QreluForm::PerStep) => !(-1.0..=2.0).contains(&z[i]),
                    _ => z[i].abs() > 1.0,
                };
                beyond += usize::from(outside);
                if g[i] == 0.0 {
                    none += 1;
                    continue;
                }
                targeted += 1;
                let t = -g[i].signum();
                let middle = if matches!(activation, Activation::Qrelu { .. }) { 0.5 } else { 0.0 };
                let phi = |z: f32| unit.phi(t, z, 0.4);
                faint += usize::from(phi(z[i]) < 0.01 * phi(middle));
                for threshold in thresholds(activation) {
                    let at_target = |z: f32| (step_at(z - threshold) == 1.0) == (t > 0.0);
                    steps += 1;
                    wrong += usize::from(!at_target(z[i]));
                    righted += usize::from(!at_target(z[i]) && at_target(after[i]));
                    wronged += usize::from(at_target(z[i]) && !at_target(after[i]));
                    let (before, now) = (at_target(z[i]), at_target(after[i]));
                    for (weight, counts) in weights.iter_mut().zip([true, !before, !before && now, before && !now]) {
                        *weight += if counts { f64::from(g[i].abs()) } else { 0.0 };
                    }
                }
            }
            let share = |a: usize, b: usize| a as f64 / b as f64;
            let got = seen(&unit, 0.4, &g, &z, &after);
            let name = format!("{activation} {form} {loss}");
            assert_eq!((got.beyond, got.untargeted), (share(beyond, 3000), share(none, 3000)), "{name}");
            assert_eq!(got.faint, Some(share(faint, targeted)), "{name}");
            assert_eq!(got.disagree, Some(share(wrong, steps)), "{name}");
            assert_eq!(got.came_true, Some(share(righted, wrong)), "{name}");
            assert_eq!(got.lost, Some(share(wronged, steps - wrong)), "{name}");
            let [all, wrong, righted, wronged] = weights;
            for (got, expected) in [
                (got.disagree_by_weight, wrong / all),
                (got.came_true_by_weight, righted / wrong),
                (got.lost_by_weight, wronged / (all - wrong)),
            ] {
                assert!(got.is_some_and(|got| (got - expected).abs() < 1e-9), "{name}: {got:?} for {expected}");
            }
        }
    }
}

#[test]
fn reach_ends_where_the_saturated_hinge_does() {
    let sign = HardUnit::new(Activation::Sign, LayerLoss::saturated_hinge());
    let got = seen(&sign, 0.0, &[1.0; 4], &[1.0, -1.0, 1.0001, -1.0001], &[0.0; 4]);
    assert_eq!((got.beyond, got.faint), (0.5, Some(0.5)));
    // The soft hinge reaches further: its slope is 1 % of the full one near |z| = 3.
    let soft = HardUnit::new(Activation::Sign, LayerLoss::soft_hinge());
    let got = seen(&soft, 0.0, &[1.0; 4], &[0.5, 2.0, -2.9, 3.1], &[0.0; 4]);
    assert_eq!((got.beyond, got.faint), (0.75, Some(0.25)));
    // Units without targets leave nothing to take a share of.
    let got = seen(&soft, 0.0, &[0.0; 2], &[0.5, 2.0], &[-0.5, 2.0]);
    assert_eq!((got.untargeted, got.faint, got.disagree), (1.0, None, None));
    assert_eq!((got.came_true, got.lost), (None, None));
}
