use super::*;
use crate::activation::Activation;
use crate::engine::{CpuEngine, Engine, Learning, NetworkState};
use crate::layer_loss::LayerLoss;
use crate::optimizer::OptimizerSpec;
use crate::output_loss::OutputLoss;
use crate::presets;
use crate::spec::{Defaults, Init, Kernel, LayerSpec};
use ftprop_tensor::Shape;
use ftprop_tensor::random::Stream;

fn graph(layers: &[LayerSpec], defaults: Defaults, input: Shape, classes: usize) -> Arc<Graph> {
    Arc::new(Graph::resolve(layers, &defaults, input, classes).unwrap())
}

const STEP: Step = Step { seed: 3, number: 5, progress: 0.4 };

/// One unit, one example, worked out by hand.
#[test]
fn a_flip_that_comes_true_is_seen() {
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let fc = |out| LayerSpec::Fc { out, bias: Some(false) };
    let layers = [fc(Some(1)), LayerSpec::act(), fc(None)];
    let defaults = Defaults::new(Activation::Sign, LayerLoss::saturated_hinge());
    let mut probe = Probe::new(cpu, graph(&layers, defaults, Shape::vector(1), 2), 1).unwrap();
    let spec = OptimizerSpec::sgd(1.0, 0.0).unwrap();
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
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
    let s = Stream::numbered(1);
    let images: Vec<f32> = (0..5 * input.len()).map(|i| s.uniform(i as u64) - 0.5).collect();
    let labels = [0, 1, 2, 3, 1];
    let mut network = Network::new(cpu.clone(), graph(&layers(), defaults, input, 4), 6).unwrap();
    network.initialise(2);
    let mut optimizer = Optimizer::new(&OptimizerSpec::adam(1e-2).unwrap(), network.values().len()).unwrap();
    let mut probe = Probe::new(cpu, graph(&layers(), defaults, input, 4), 6).unwrap();
    let mut twin = Optimizer::new(&OptimizerSpec::adam(1e-2).unwrap(), network.values().len()).unwrap();
    // Twice, so that nothing of one probe is left in the next.
    for number in 0..2 {
        let step = Step { number, ..STEP };
        probe.network_mut().values_mut().copy_from_slice(network.values());
        probe.network_mut().stats_mut().copy_from_slice(network.stats());
        let (steps, moments) = optimizer.state();
        twin.restore(steps, &moments.collect::<Vec<_>>()).unwrap();
        let got = probe.step(&mut twin, (&images, &labels), &criterion, &step, (0.5, Some(1.0))).unwrap();
        let tally = network.learn(&images, &labels, &criterion, &step);
        let (cpu, values, grads) = network.values_and_grads();
        optimizer.step(cpu, values, grads, 0.5, Some(1.0));
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
        let last = network.graph().parameters().iter().position(|p| p.name.starts_with('6')).unwrap();
        let below = norm(&network.grads()[..network.graph().parameters()[last].range.start]);
        let all = got.layers.iter().map(|l| l.weight_gradient.powi(2)).sum::<f64>().sqrt();
        assert!((all - below).abs() < 1e-9 * below, "{all} for {below}");
    }
}

/// One hidden layer of four units.
fn hidden(rule: &str, activation: Activation) -> Arc<Graph> {
    let defaults =
        Defaults { target_rule: rule.parse().unwrap(), ..Defaults::new(activation, LayerLoss::soft_hinge()) };
    graph(&presets::layers("mlp", Shape::vector(3), &[4]).unwrap(), defaults, Shape::vector(3), 3)
}

const BATCH: (&[f32], &[u32]) = (&[1.0, 2.0, 3.0, -1.0, 0.5, 2.0], &[1, 2]);

#[test]
fn with_a_teacher_it_makes_the_step_that_a_pupil_makes() {
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let (pupil, other) = (hidden("teacher", Activation::Sign), hidden("gradient_sign", Activation::Relu));
    let network = NetworkState { values: other.initial_values(7).into(), statistics: vec![].into() };
    let distillation = Distillation::new(2.0, 0.5).unwrap();
    let teacher = Arc::new(Teacher { graph: other, network, distillation });
    let spec = OptimizerSpec::sgd(0.5, 0.0).unwrap();
    let learning = Learning { teacher: Some(teacher.clone()), ..Learning::new(&pupil, &spec).unwrap() };
    let mut engine = CpuEngine::new(cpu.clone(), pupil.clone(), learning.clone(), 2).unwrap();
    engine.initialise(1).unwrap();
    engine.learn(BATCH.0, BATCH.1, &STEP).unwrap();
    engine.optimize(1.0).unwrap();
    let stepped = |teacher: Option<&Teacher>| {
        let mut probe = Probe::new(cpu.clone(), pupil.clone(), 2).unwrap();
        teacher.into_iter().for_each(|teacher| probe.set_teacher(teacher).unwrap());
        probe.network_mut().initialise(1);
        let mut optimizer = Optimizer::for_groups(learning.groups.clone());
        probe.step(&mut optimizer, BATCH, &learning.criterion, &STEP, (1.0, None)).unwrap();
        probe.network().values().to_vec()
    };
    assert_eq!(stepped(Some(&teacher)), engine.network().unwrap().values.to_vec());
    assert_ne!(stepped(None), stepped(Some(&teacher)), "the teacher makes no difference");
}

#[test]
fn what_arrives_is_the_gradient_whatever_a_rule_makes_of_it() {
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
    let look = |rule: &str| {
        let mut probe = Probe::new(cpu.clone(), hidden(rule, Activation::Sign), 2).unwrap();
        probe.network_mut().initialise(1);
        let spec = OptimizerSpec::sgd(0.5, 0.0).unwrap();
        let mut optimizer = Optimizer::new(&spec, probe.network().values().len()).unwrap();
        probe.step(&mut optimizer, BATCH, &criterion, &STEP, (1.0, None)).unwrap().layers.swap_remove(0)
    };
    let (plain, secant) = (look("gradient_sign"), look("secant"));
    assert!(plain.slope != secant.slope && plain.gradient == secant.gradient, "{plain:?} {secant:?}");
}

#[test]
fn soft_networks_have_nothing_to_report_and_blown_up_ones_do_not() {
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let layers = presets::layers("mlp", Shape::vector(3), &[4]).unwrap();
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
    let batch: (&[f32], &[u32]) = (&[1.0, 2.0, 3.0], &[1]);
    for (activation, hard) in [(Activation::Relu, 0), (Activation::Sign, 1)] {
        let defaults = Defaults::new(activation, LayerLoss::soft_hinge());
        let mut probe = Probe::new(cpu.clone(), graph(&layers, defaults, Shape::vector(3), 2), 1).unwrap();
        probe.network_mut().initialise(0);
        let mut optimizer =
            Optimizer::new(&OptimizerSpec::adam(1e-3).unwrap(), probe.network().values().len()).unwrap();
        let mut step = |probe: &mut Probe| probe.step(&mut optimizer, batch, &criterion, &STEP, (1.0, None));
        assert_eq!(step(&mut probe).unwrap().layers.len(), hard);
        probe.network_mut().values_mut().fill(f32::NAN);
        assert_eq!(step(&mut probe), None);
    }
}
