//! Target rules that look further than at their unit, against what they promise, tried out by brute force.
//!
//! An affine layer before a hard one shows what that layer passes on: the gradient of its summands is the slope of the hard
//! layer's units, summed over a channel. With the linear layer loss that is −t |g|, so that it shows targets too.

use ftprop_nn::engine::{NetworkState, Teacher};
use ftprop_nn::spec::{Init, Kernel};
use ftprop_nn::target::TargetRule;
use ftprop_nn::{
    Activation, CpuEngine, Criterion, Defaults, Distillation, Engine, Graph, LayerLoss, LayerSpec, Learning, Network,
    OptimizerSpec, OutputLoss, Shape, Step,
};
use ftprop_tensor::Cpu;
use ftprop_tensor::random::Stream;
use std::sync::Arc;

const STEP: Step = Step { seed: 3, number: 5, progress: 0.0 };

fn fc(out: usize) -> LayerSpec {
    LayerSpec::Fc { out: Some(out), bias: None }
}

fn last() -> LayerSpec {
    LayerSpec::Fc { out: None, bias: None }
}

fn conv(out: usize, kernel: usize, pad: usize) -> LayerSpec {
    LayerSpec::Conv { out, kernel: Kernel::Square(kernel), stride: 1, pad, groups: 1, bias: None, init: Init::Uniform }
}

fn shown() -> LayerSpec {
    LayerSpec::Affine { scale: None }
}

fn act() -> LayerSpec {
    LayerSpec::Act { activation: None, layer_loss: None, target_rule: None, qrelu_form: None }
}

fn norm() -> LayerSpec {
    LayerSpec::BatchNorm { eps: 1e-3, momentum: 0.1 }
}

fn defaults(activation: Activation, rule: &str) -> Defaults {
    Defaults { target_rule: rule.parse().unwrap(), ..Defaults::new(activation, "linear".parse().unwrap()) }
}

fn network(layers: &[LayerSpec], defaults: &Defaults, input: Shape, seed: u64, threads: usize) -> Network {
    let graph = Arc::new(Graph::resolve(layers, defaults, input, 3).unwrap());
    let mut network = Network::new(Arc::new(Cpu::new(threads).unwrap()), graph, 16).unwrap();
    network.initialise(seed);
    network
}

fn numbers(from: u64, count: usize) -> Vec<f32> {
    let s = Stream::numbered(from);
    (0..count).map(|i| 2.0 * s.uniform(i as u64) - 1.0).collect()
}

/// The gradient of the summands of the network's affine layers, in the order of the network.
fn shown_slopes(network: &Network) -> Vec<Vec<f32>> {
    let shifts = network.graph().parameters().iter().filter(|p| p.name.ends_with("shift"));
    shifts.map(|p| network.grads()[p.range.clone()].to_vec()).collect()
}

fn squared_hinge() -> Criterion {
    Criterion::new(OutputLoss::SquaredOneVsRestHinge, 0.0).unwrap()
}

/// [L(h = high) − L(h = low)] / (high − low) of every unit, by running the layers above with both.
fn true_secants(full: &Network, above: &mut Network, h: &[f32], label: u32, (low, high): (f32, f32)) -> Vec<f32> {
    let tail = full.values().len() - above.values().len();
    above.values_mut().copy_from_slice(&full.values()[tail..]);
    (0..h.len())
        .map(|unit| {
            let mut at = |value: f32| {
                let mut h = h.to_vec();
                h[unit] = value;
                above.evaluate(&h, &[label], &squared_hinge()).loss()
            };
            ((at(high) - at(low)) / f64::from(high - low)) as f32
        })
        .collect()
}

#[test]
fn a_secant_is_the_slope_between_both_outputs_of_a_quadratic_loss() {
    let image = Shape { height: 4, width: 4, channels: 2 };
    // Each output has one way to each logit, so that the diagonal is all there is.
    let stacks: Vec<(Shape, Vec<LayerSpec>)> = vec![
        (Shape::vector(9), vec![last()]),
        (Shape::vector(9), vec![last(), LayerSpec::Affine { scale: Some(0.7) }]),
        (image, vec![LayerSpec::AvgPool { kernel: Some(2), stride: Some(2), pad: 0 }, last()]),
        (image, vec![conv(1, 1, 0), last()]),
    ];
    for (number, (input, above)) in stacks.into_iter().enumerate() {
        for (activation, ends) in
            [(Activation::Sign, (-1.0, 1.0)), (Activation::Step, (0.0, 1.0)), (Activation::Qrelu { k: 3 }, (0.0, 1.0))]
        {
            let layers: Vec<LayerSpec> = [shown(), act()].into_iter().chain(above.iter().cloned()).collect();
            let mut full = network(&layers, &defaults(activation, "secant"), input, 4, 1);
            // Small weights: no margin is ever met, and the loss is one quadratic.
            full.values_mut().iter_mut().for_each(|w| *w *= 0.3);
            let mut above = network(&above, &defaults(activation, "secant"), input, 4, 1);
            let half = if matches!(activation, Activation::Step) { 0.5 } else { 1.0 };
            let (x, label) = (numbers(7, input.len()), 2);
            full.learn(&x, &[label], &squared_hinge(), &STEP);
            let h: Vec<f32> = x.iter().map(|&z| activation.value(z)).collect();
            let secants = true_secants(&full, &mut above, &h, label, ends);
            let shown = &shown_slopes(&full)[0];
            for (channel, &slope) in shown.iter().enumerate() {
                let expected: f32 = half * secants.iter().skip(channel).step_by(input.channels).sum::<f32>();
                assert!((slope - expected).abs() < 2e-5, "{activation} {number} {channel}: {slope} for {expected}");
            }
        }
    }
}

#[test]
fn a_secant_is_nearer_to_the_jump_than_the_gradient_where_the_diagonal_is_not_all() {
    let layers = [shown(), act(), last()];
    let (mut by_gradient, mut by_secant) = (0.0, 0.0);
    for seed in 0..20 {
        let input = Shape::vector(6);
        let x = numbers(100 + seed, 6);
        let h: Vec<f32> = x.iter().map(|&z| Activation::Sign.value(z)).collect();
        for (rule, apart) in [("gradient_sign", &mut by_gradient), ("secant", &mut by_secant)] {
            let rule = defaults(Activation::Sign, rule);
            let mut full = network(&layers, &rule, input, seed, 1);
            let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap();
            full.values_mut().iter_mut().for_each(|w| *w *= 0.5);
            full.learn(&x, &[1], &criterion, &STEP);
            let mut above = network(&[last()], &rule, input, seed, 1);
            above.values_mut().copy_from_slice(&full.values()[6..]);
            for unit in 0..6 {
                let mut at = |value: f32| {
                    let mut h = h.clone();
                    h[unit] = value;
                    above.evaluate(&h, &[1], &criterion).loss()
                };
                let jump = (at(1.0) - at(-1.0)) / 2.0;
                *apart += (f64::from(shown_slopes(&full)[0][unit]) - jump).abs();
            }
        }
    }
    assert!(by_secant < 0.5 * by_gradient, "{by_secant} {by_gradient}");
}

/// y = W x + b, with the weights as a network has them.
fn product(w: &[f32], b: &[f32], x: &[f32]) -> Vec<f32> {
    b.iter().zip(w.chunks(x.len())).map(|(b, w)| b + w.iter().zip(x).map(|(w, x)| w * x).sum::<f32>()).collect()
}

/// The sums and thresholds of a network of two hard layers, one of them in each path of a residual block, and one above.
struct Reference<'a>(&'a Network);

impl Reference<'_> {
    fn parameter(&self, at: usize) -> &[f32] {
        &self.0.values()[self.0.graph().parameters()[at].range.clone()]
    }

    /// The loss of an example, with these outputs in the place of the hard layers' own.
    fn loss(&self, criterion: &Criterion, label: u32, given: [&[f32]; 2], third: Option<&[f32]>) -> (f64, Vec<f32>) {
        let p = |at| self.parameter(at);
        // fc, then affine, fc of the main path; affine, fc of the shortcut; affine; fc.
        let main = product(p(3), p(4), given[0]);
        let shortcut = product(p(6), p(7), given[1]);
        let z: Vec<f32> = main.iter().zip(&shortcut).zip(p(8)).map(|((a, b), c)| a + b + c).collect();
        let h: Vec<f32> = z.iter().map(|&z| Activation::Sign.value(z)).collect();
        let logits = product(p(9), p(10), third.unwrap_or(&h));
        (criterion.apply(&logits, &[label], 3, None).loss(), z)
    }
}

#[test]
fn verified_flips_lower_their_examples_loss_wherever_the_layer_is() {
    let block = LayerSpec::Residual { main: vec![shown(), act(), fc(5)], shortcut: vec![shown(), act(), fc(5)] };
    let layers = [fc(8), block, shown(), act(), last()];
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
    let sign = |z: &[f32]| -> Vec<f32> { z.iter().map(|&z| Activation::Sign.value(z)).collect() };
    let (mut flips, mut refused) = ([0; 3], [0; 3]);
    for seed in 0..60 {
        let x = numbers(1000 + seed, 4);
        let [paper, verified] = ["gradient_sign", "verified:0.25"].map(|rule| {
            let mut net = network(&layers, &defaults(Activation::Sign, rule), Shape::vector(4), seed, 1);
            net.values_mut().iter_mut().for_each(|w| *w *= 2.0);
            net.learn(&x, &[1], &criterion, &STEP);
            net
        });
        let reference = Reference(&verified);
        let z = product(reference.parameter(0), reference.parameter(1), &x);
        let below = [2, 5].map(|at| {
            let z: Vec<f32> = z.iter().zip(reference.parameter(at)).map(|(z, s)| z + s).collect();
            sign(&z)
        });
        let (before, z) = reference.loss(&criterion, 1, [&below[0], &below[1]], None);
        let outputs = [below[0].clone(), below[1].clone(), sign(&z)];
        let (seen, wanted) = (shown_slopes(&verified), shown_slopes(&paper));
        for (layer, h) in outputs.iter().enumerate() {
            // A slope is −t |g|: where it has the output's sign the unit should change.
            let change = |slopes: &[f32]| h.iter().zip(slopes).filter(|(h, s)| **h * **s > 0.0).count();
            let moved: Vec<f32> =
                h.iter().zip(&seen[layer]).map(|(&h, &slope)| if h * slope > 0.0 { -h } else { h }).collect();
            let tried = [0, 1].map(|i| if i == layer { &moved[..] } else { &outputs[i][..] });
            let (after, _) = reference.loss(&criterion, 1, tried, (layer == 2).then_some(&moved[..]));
            match change(&seen[layer]) {
                // The layers' slopes differ below the top, so that only there the paper's say what was refused.
                0 => refused[layer] += usize::from(layer < 2 || change(&wanted[layer]) > 0),
                count => {
                    assert!(after < before, "seed {seed}, layer {layer}: {after} for {before}");
                    let most = (0.25 * h.len() as f32).ceil() as usize;
                    assert!(count <= most, "{count} of {}", h.len());
                    flips[layer] += 1;
                }
            }
        }
    }
    assert!(flips.iter().all(|&count| count > 20), "{flips:?}");
    assert!(refused[..2].iter().all(|&count| count > 0), "{refused:?}");
}

/// A network with every kind of layer that these rules go through.
fn deep() -> (Vec<LayerSpec>, Shape) {
    let block = LayerSpec::Residual {
        main: vec![act(), conv(6, 3, 1), norm()],
        shortcut: vec![LayerSpec::Residual { main: vec![act(), conv(6, 1, 0), norm()], shortcut: vec![] }],
    };
    let soft =
        LayerSpec::Act { activation: Some(Activation::Relu), layer_loss: None, target_rule: None, qrelu_form: None };
    let layers = vec![
        conv(6, 3, 1),
        LayerSpec::MaxPool { kernel: 2, stride: None, pad: 0 },
        norm(),
        block,
        shown(),
        soft,
        LayerSpec::AvgPool { kernel: Some(2), stride: Some(2), pad: 0 },
        LayerSpec::ChannelDropout { p: 0.2 },
        fc(10),
        norm(),
        act(),
        LayerSpec::Dropout { p: 0.2 },
        last(),
    ];
    (layers, Shape { height: 8, width: 8, channels: 2 })
}

#[test]
fn any_number_of_threads_gives_the_same_bytes_and_the_step_leaves_its_own_logits() {
    let (layers, input) = deep();
    let (x, labels): (Vec<f32>, Vec<u32>) = (numbers(5, 12 * input.len()), (0..12).map(|i| i % 3).collect());
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
    let learned = |rule: &str, threads: usize| {
        let rule = Defaults { layer_loss: LayerLoss::soft_hinge(), ..defaults(Activation::Qrelu { k: 3 }, rule) };
        let mut net = network(&layers, &rule, input, 2, threads);
        let tally = net.learn(&x, &labels, &criterion, &STEP);
        (net.grads().to_vec(), net.logits().to_vec(), net.stats().to_vec(), tally)
    };
    let paper = learned("gradient_sign", 1);
    for rule in ["secant", "verified:0.3"] {
        let one = learned(rule, 1);
        assert!(one == learned(rule, 3), "{rule}");
        assert!(one.0 != paper.0 && one.0.iter().all(|g| g.is_finite()), "{rule}");
        // What went up is the same as without it, running statistics and all.
        assert!((&one.1, &one.2, &one.3) == (&paper.1, &paper.2, &paper.3), "{rule}");
    }
}

fn engine(layers: &[LayerSpec], rule: &str, teacher: Option<Arc<Teacher>>) -> Result<CpuEngine, ftprop_nn::NnError> {
    let defaults = defaults(Activation::Sign, rule);
    let graph = Arc::new(Graph::resolve(layers, &defaults, Shape::vector(6), 3)?);
    let learning = Learning { teacher, ..Learning::new(&graph, &OptimizerSpec::sgd(0.1, 0.0)?)? };
    CpuEngine::new(Arc::new(Cpu::new(2).unwrap()), graph, learning, 4)
}

fn teacher(layers: &[LayerSpec], activation: Activation) -> Arc<Teacher> {
    let graph = Graph::resolve(layers, &defaults(activation, "gradient_sign"), Shape::vector(6), 3).unwrap();
    let values: Vec<f32> = graph.initial_values(77);
    let statistics = graph.initial_statistics();
    let network = NetworkState { values: values.into(), statistics: statistics.into() };
    Arc::new(Teacher { graph: Arc::new(graph), network, distillation: Distillation::new(1.0, 0.5).unwrap() })
}

#[test]
fn a_teachers_activations_are_the_targets_of_layers_of_the_same_shape() {
    let pupil = [fc(7), shown(), act(), fc(5), shown(), act(), last()];
    // The first layer of five units is followed, the second one has nobody to follow it; seven units are nowhere.
    for kind in [Activation::Sign, Activation::Relu] {
        let teacher = teacher(&[fc(5), act(), fc(5), act(), last()], kind);
        let x = numbers(9, 6);
        let slopes = |rule: &str| {
            let mut engine = engine(&pupil, rule, Some(teacher.clone())).unwrap();
            engine.initialise(5).unwrap();
            engine.learn(&x, &[2], &STEP).unwrap();
            shown_slopes(engine.cpu_network())
        };
        let (taught, paper) = (slopes("teacher"), slopes("gradient_sign"));
        let values = &teacher.network.values;
        let wanted: Vec<f32> = product(&values[..30], &values[30..35], &x).iter().map(|z| z.signum()).collect();
        let targets: Vec<f32> = taught[1].iter().map(|slope| -slope.signum()).collect();
        assert_eq!(targets, wanted);
        // The weights are the paper's: the slopes differ in their signs alone. Below, where no shape fits, so are targets.
        let sizes = |slopes: &[f32]| slopes.iter().map(|s| s.abs()).collect::<Vec<_>>();
        assert_eq!(sizes(&taught[1]), sizes(&paper[1]));
        assert_ne!(taught[1], paper[1]);
    }
}

#[test]
fn a_teacher_who_cannot_be_followed_is_refused() {
    let pupil = [fc(7), act(), last()];
    let why = |result: Result<CpuEngine, ftprop_nn::NnError>| match result {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert!(why(engine(&pupil, "teacher", None)).contains("needs a teacher"));
    let other = teacher(&[fc(5), act(), last()], Activation::Sign);
    assert!(why(engine(&pupil, "teacher", Some(other))).contains("same shapes"));
    let rule: TargetRule = "teacher".parse().unwrap();
    assert!(rule.looks_further() && rule.follows_teacher() && !rule.looks_at_batch());
    assert!("verified:0".parse::<TargetRule>().is_err());
}
