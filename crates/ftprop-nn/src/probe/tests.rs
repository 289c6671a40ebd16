use super::*;
use crate::activation::step as step_at;
use crate::optimizer::OptimizerSpec;
use crate::output_loss::OutputLoss;
use crate::presets;
use crate::spec::{Init, Kernel};
use crate::target::QreluForm;
use ftprop_tensor::random::Stream;

const STEP: Step = Step { seed: 3, number: 5, progress: 0.4 };

fn seen(unit: &HardUnit, g: &[f32], z: &[f32], z_after: &[f32]) -> LayerDiagnosis {
    let watch = Watch::default();
    let layer = HardLayer { unit: *unit, weighted: true, len: z.len() };
    Watched::new(layer, &watch, "1", "fc", 0);
    let sight = &mut watch.lock().sights[0];
    sight.see_targets(unit, g, z);
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
    for loss in LayerLoss::ALL {
        for (activation, form) in [
            (Activation::Sign, QreluForm::Single),
            (Activation::Step, QreluForm::Single),
            (Activation::Qrelu { k: 3 }, QreluForm::Single),
            (Activation::Qrelu { k: 5 }, QreluForm::PerStep),
        ] {
            let unit = HardUnit { form, progress: 0.4, ..HardUnit::new(activation, loss) };
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
                // With g = −t the slope is −t φ.
                let phi = |z: f32| unit.slope(-t, z).abs();
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
            let got = seen(&unit, &g, &z, &after);
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
            let norm = g.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
            assert!((got.gradient - norm).abs() < 1e-12, "{name}");
        }
    }
}

#[test]
fn reach_ends_where_the_saturated_hinge_does() {
    let sign = HardUnit::new(Activation::Sign, LayerLoss::SaturatedHinge);
    let got = seen(&sign, &[1.0; 4], &[1.0, -1.0, 1.0001, -1.0001], &[0.0; 4]);
    assert_eq!((got.beyond, got.faint), (0.5, Some(0.5)));
    // The soft hinge reaches further: its slope is 1 % of the full one near |z| = 3.
    let soft = HardUnit::new(Activation::Sign, LayerLoss::SoftHinge);
    let got = seen(&soft, &[1.0; 4], &[0.5, 2.0, -2.9, 3.1], &[0.0; 4]);
    assert_eq!((got.beyond, got.faint), (0.75, Some(0.25)));
    // Units without targets leave nothing to take a share of.
    let got = seen(&soft, &[0.0; 2], &[0.5, 2.0], &[-0.5, 2.0]);
    assert_eq!((got.untargeted, got.faint, got.disagree), (1.0, None, None));
    assert_eq!((got.came_true, got.lost), (None, None));
}

/// One unit, one example, worked out by hand.
#[test]
fn a_flip_that_comes_true_is_seen() {
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let fc = |out| LayerSpec::Fc { out, bias: Some(false) };
    let layers = [fc(Some(1)), LayerSpec::act(), fc(None)];
    let defaults = Defaults::new(Activation::Sign, LayerLoss::SaturatedHinge);
    let mut probe = Probe::new(cpu, &layers, defaults, Shape::vector(1), 2, 1).unwrap();
    let spec = OptimizerSpec::Sgd { lr: 1.0, momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
    let mut diagnose = |w: f32, lr: f64| {
        let mut optimizer = Optimizer::new(&spec, 3).unwrap();
        // h = sign(w) = −1, logits (−1, 1) h = (1, −1); the label is 1, so the unit should be at +1.
        probe.network_mut().values_mut().copy_from_slice(&[w, -1.0, 1.0]);
        probe.step(&mut optimizer, (&[1.0], &[1]), &criterion, &STEP, (lr, None)).unwrap()
    };
    // ∂L/∂logits = (p, −p) with p = e / (e + 1/e), so g = −2p, and within reach w grows by lr · 2p.
    let p = 1.0 / (1.0 + (-2f64).exp());
    let near = diagnose(-0.5, 1.0);
    let layer = &near.layers[0];
    assert_eq!((layer.layer.as_str(), layer.below.as_str(), layer.units), ("1", "fc 1", 1));
    assert_eq!((layer.beyond, layer.untargeted, layer.faint), (0.0, 0.0, Some(0.0)));
    assert_eq!((layer.disagree, layer.came_true, layer.lost), (Some(1.0), Some(1.0), None));
    for norm in [layer.gradient, layer.slope, layer.weight_gradient] {
        assert!((norm - 2.0 * p).abs() < 1e-6, "{layer:?}");
    }
    assert!(near.loss_after < near.loss);
    // A step too small to bring it over, and a unit out of reach, which is dead.
    assert_eq!(diagnose(-0.5, 0.1).layers[0].came_true, Some(0.0));
    let dead = &diagnose(-1.5, 1.0).layers[0];
    assert_eq!((dead.beyond, dead.faint, dead.came_true), (1.0, Some(1.0), Some(0.0)));
    assert!((dead.gradient - 2.0 * p).abs() < 1e-6 && dead.slope == 0.0 && dead.weight_gradient == 0.0);
}

/// A little of everything: residual paths, both kinds of activation, norms, dropout, and a hard layer that
/// nothing below learns from.
fn layers() -> Vec<LayerSpec> {
    let conv = |out, kernel, stride, pad| LayerSpec::Conv {
        out,
        kernel: Kernel::Square(kernel),
        stride,
        pad,
        groups: 1,
        bias: None,
        init: Init::Uniform,
    };
    let qrelu = LayerSpec::Act {
        activation: Some(Activation::Qrelu { k: 3 }),
        layer_loss: None,
        target_rule: None,
        qrelu_form: None,
    };
    let main = vec![
        conv(6, 3, 2, 1),
        LayerSpec::batch_norm(1e-4),
        LayerSpec::act(),
        LayerSpec::ChannelDropout { p: 0.3 },
        conv(6, 3, 1, 1),
    ];
    vec![
        LayerSpec::act(),
        conv(4, 3, 1, 1),
        LayerSpec::max_pool(2, 2, 0),
        qrelu,
        LayerSpec::Residual { main, shortcut: vec![conv(6, 1, 2, 0)] },
        LayerSpec::act(),
        LayerSpec::fc(None),
    ]
}

#[test]
fn a_probe_makes_the_very_step_that_training_makes() {
    let cpu = Arc::new(Cpu::new(2).unwrap());
    let input = Shape { height: 8, width: 8, channels: 2 };
    let defaults = Defaults::new(Activation::Sign, LayerLoss::SoftHinge);
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
    let s = Stream::numbered(1);
    let images: Vec<f32> = (0..5 * input.len()).map(|i| s.uniform(i as u64) - 0.5).collect();
    let labels = [0, 1, 2, 3, 1];
    let mut network = Network::new(cpu.clone(), &layers(), defaults, input, 4, 6).unwrap();
    network.initialise(2);
    let mut optimizer = Optimizer::new(&OptimizerSpec::adam(1e-2), network.values().len()).unwrap();
    let mut probe = Probe::new(cpu, &layers(), defaults, input, 4, 6).unwrap();
    let mut twin = Optimizer::new(&OptimizerSpec::adam(1e-2), network.values().len()).unwrap();
    // Twice, so that nothing of one probe is left in the next.
    for number in 0..2 {
        let step = Step { number, ..STEP };
        probe.network_mut().values_mut().copy_from_slice(network.values());
        probe.network_mut().stats_mut().copy_from_slice(network.stats());
        let (steps, moments) = optimizer.state();
        twin.restore(steps, &moments.collect::<Vec<_>>()).unwrap();
        let got = probe.step(&mut twin, (&images, &labels), &criterion, &step, (0.5, Some(1.0))).unwrap();
        let tally = network.learn(&images, &labels, &criterion, &step);
        optimizer.step(&mut network, 0.5, Some(1.0));
        assert_eq!(probe.network().values(), network.values());
        assert_eq!(got.loss, tally.loss());
        let names: Vec<_> = got.layers.iter().map(|l| (l.layer.as_str(), l.below.as_str(), l.units)).collect();
        let below = ["conv 4 3×3 pad 1", "conv 6 3×3 stride 2 pad 1", "conv 6 1×1 stride 2"];
        assert_eq!(names, [("3", below[0], 64), ("4.main.2", below[1], 24), ("5", below[2], 24)]);
        for layer in &got.layers {
            assert!(layer.slope > 0.0 && layer.slope <= layer.gradient, "{layer:?}");
            assert!(layer.disagree.is_some_and(|d| d > 0.2 && d < 0.8), "{layer:?}");
            assert!(layer.came_true.is_some_and(|c| c < 1.0), "{layer:?}");
        }
        // Between them the layers have every gradient but that of the last fully connected one.
        let last = network.parameters().iter().position(|p| p.name.starts_with('6')).unwrap();
        let below = norm(&network.grads()[..network.parameters()[last].range.start]);
        let all = got.layers.iter().map(|l| l.weight_gradient.powi(2)).sum::<f64>().sqrt();
        assert!((all - below).abs() < 1e-9 * below, "{all} for {below}");
    }
}

#[test]
fn soft_networks_have_nothing_to_report_and_blown_up_ones_do_not() {
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let layers = presets::layers("mlp", Shape::vector(3), &[4]).unwrap();
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
    let batch: (&[f32], &[u32]) = (&[1.0, 2.0, 3.0], &[1]);
    for (activation, hard) in [(Activation::Relu, 0), (Activation::Sign, 1)] {
        let defaults = Defaults::new(activation, LayerLoss::SoftHinge);
        let mut probe = Probe::new(cpu.clone(), &layers, defaults, Shape::vector(3), 2, 1).unwrap();
        probe.network_mut().initialise(0);
        let mut optimizer = Optimizer::new(&OptimizerSpec::adam(1e-3), probe.network().values().len()).unwrap();
        let mut step = |probe: &mut Probe| probe.step(&mut optimizer, batch, &criterion, &STEP, (1.0, None));
        assert_eq!(step(&mut probe).unwrap().layers.len(), hard);
        probe.network_mut().values_mut().fill(f32::NAN);
        assert_eq!(step(&mut probe), None);
    }
}
