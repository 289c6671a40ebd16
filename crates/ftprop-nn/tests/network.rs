//! Whole networks: gradients against numerical ones, batches of every size, any number of threads, and what is
//! refused.

use ftprop_nn::spec::{Init, Kernel};
use ftprop_nn::{
    Activation, Criterion, Defaults, Graph, LayerLoss, LayerSpec, Network, NnError, Optimizer, OptimizerSpec,
    OutputLoss, Shape, Step, presets,
};
use ftprop_tensor::Cpu;
use ftprop_tensor::random::Stream;
use std::sync::Arc;

const STEP: Step = Step { seed: 3, number: 5, progress: 0.0 };

fn conv(out: usize, kernel: usize, stride: usize, pad: usize, groups: usize) -> LayerSpec {
    LayerSpec::Conv { out, kernel: Kernel::Square(kernel), stride, pad, groups, bias: None, init: Init::Uniform }
}

fn norm() -> LayerSpec {
    LayerSpec::BatchNorm { eps: 1e-3, momentum: 0.1 }
}

fn act() -> LayerSpec {
    LayerSpec::Act { activation: None, layer_loss: None, target_rule: None, qrelu_form: None }
}

fn fc(out: Option<usize>) -> LayerSpec {
    LayerSpec::Fc { out, bias: None }
}

fn max_pool(kernel: usize, stride: usize, pad: usize) -> LayerSpec {
    LayerSpec::MaxPool { kernel, stride: Some(stride), pad }
}

fn avg_pool(kernel: usize, stride: usize, pad: usize) -> LayerSpec {
    LayerSpec::AvgPool { kernel: Some(kernel), stride: Some(stride), pad }
}

fn residual(main: Vec<LayerSpec>, shortcut: Vec<LayerSpec>) -> LayerSpec {
    LayerSpec::Residual { main, shortcut }
}

fn affine(scale: Option<f32>) -> LayerSpec {
    LayerSpec::Affine { scale }
}

fn image(channels: usize, side: usize) -> Shape {
    Shape { height: side, width: side, channels }
}

fn graph(layers: &[LayerSpec], defaults: &Defaults, input: Shape, classes: usize) -> Result<Arc<Graph>, NnError> {
    Graph::resolve(layers, defaults, input, classes).map(Arc::new)
}

fn build(layers: &[LayerSpec], activation: Activation, input: Shape, batch: usize, threads: usize) -> Network {
    let defaults = Defaults::new(activation, LayerLoss::soft_hinge());
    let cpu = Arc::new(Cpu::new(threads).unwrap());
    let mut network = Network::new(cpu, graph(layers, &defaults, input, 4).unwrap(), batch).unwrap();
    network.initialise(11);
    network
}

fn batch(input: Shape, n: usize) -> (Vec<f32>, Vec<u32>) {
    let s = Stream::numbered(21);
    let images = (0..n * input.len()).map(|i| 2.0 * s.uniform(i as u64) - 1.0).collect();
    (images, (0..n).map(|i| (i % 4) as u32).collect())
}

fn cross_entropy() -> Criterion {
    Criterion::new(OutputLoss::CrossEntropy, 0.0).unwrap()
}

/// Networks that between them have every kind of layer, with an input for each.
fn networks() -> Vec<(&'static str, Shape, Vec<LayerSpec>)> {
    vec![
        ("fully connected", Shape::vector(6), vec![fc(Some(7)), norm(), act(), fc(Some(5)), act(), fc(None)]),
        (
            "convolutions with stride, padding, groups, and padded overlapping pools",
            image(2, 9),
            vec![
                conv(4, 3, 1, 1, 1),
                act(),
                conv(6, 3, 2, 2, 2),
                norm(),
                max_pool(3, 2, 1),
                act(),
                avg_pool(2, 1, 1),
                fc(None),
            ],
        ),
        (
            "residual blocks",
            image(3, 6),
            vec![
                conv(4, 3, 1, 1, 1),
                act(),
                residual(vec![conv(4, 3, 1, 1, 1), norm(), act(), conv(4, 3, 1, 1, 1)], vec![]),
                act(),
                residual(vec![conv(6, 3, 2, 1, 1), norm()], vec![conv(6, 1, 2, 0, 1), norm()]),
                act(),
                LayerSpec::AvgPool { kernel: None, stride: None, pad: 0 },
                fc(None),
            ],
        ),
        (
            "dropout",
            image(2, 4),
            vec![
                conv(5, 3, 1, 0, 1),
                LayerSpec::ChannelDropout { p: 0.4 },
                act(),
                fc(Some(6)),
                LayerSpec::Dropout { p: 0.3 },
                fc(None),
            ],
        ),
        (
            "affine layers",
            image(3, 5),
            vec![
                conv(4, 3, 1, 1, 1),
                affine(Some(1.5)),
                act(),
                residual(vec![affine(None), conv(4, 3, 1, 1, 1)], vec![affine(Some(0.5))]),
                affine(None),
                fc(Some(6)),
                affine(Some(-0.5)),
                fc(None),
            ],
        ),
        ("a residual block first", image(2, 5), vec![residual(vec![conv(2, 3, 1, 1, 1)], vec![]), act(), fc(None)]),
    ]
}

/// The layers without their activations: a network without kinks, but for max pools.
fn without_activations(layers: &[LayerSpec]) -> Vec<LayerSpec> {
    let kept = layers.iter().filter(|l| !matches!(l, LayerSpec::Act { .. }));
    kept.map(|layer| match layer {
        LayerSpec::Residual { main, shortcut } => residual(without_activations(main), without_activations(shortcut)),
        other => other.clone(),
    })
    .collect()
}

/// The share of a network's gradients that a difference quotient does not confirm.
fn unconfirmed(layers: &[LayerSpec], input: Shape) -> f64 {
    let mut network = build(layers, Activation::Relu, input, 5, 2);
    let (images, labels) = batch(input, 5);
    let criterion = cross_entropy();
    network.learn(&images, &labels, &criterion, &STEP);
    let grads = network.grads().to_vec();
    let mut wrong = 0;
    for (i, &grad) in grads.iter().enumerate() {
        let mut at = |delta: f32| {
            let old = network.values()[i];
            network.values_mut()[i] = old + delta;
            let loss = network.learn(&images, &labels, &criterion, &STEP).loss();
            network.values_mut()[i] = old;
            loss
        };
        let numerical = (at(2e-3) - at(-2e-3)) / 4e-3;
        let error = (f64::from(grad) - numerical).abs();
        wrong += usize::from(error > 1e-3 + 1e-2 * numerical.abs());
    }
    wrong as f64 / grads.len() as f64
}

#[test]
fn gradients_are_numerical_ones() {
    for (name, input, layers) in networks() {
        // Without kinks all agree; a max pool changes its mind now and then.
        let allowed = if layers.iter().any(|l| matches!(l, LayerSpec::MaxPool { .. })) { 0.1 } else { 0.0 };
        let share = unconfirmed(&without_activations(&layers), input);
        assert!(share <= allowed, "{name}, without activations: {share} of the gradients are wrong");
        // A relu's kink within the step of the difference spoils some.
        let share = unconfirmed(&layers, input);
        assert!(share <= 0.4, "{name}: {share} of the gradients are wrong");
    }
}

#[test]
fn a_smaller_batch_gives_what_a_network_made_for_it_gives() {
    for (name, input, layers) in networks() {
        let (images, labels) = batch(input, 3);
        let learn = |batch: usize| {
            let mut network = build(&layers, Activation::Sign, input, batch, 2);
            // A full batch before it leaves its traces in every buffer.
            let (full, full_labels) = self::batch(input, batch);
            network.infer(&full);
            network.learn(&full, &full_labels, &cross_entropy(), &STEP);
            network.initialise(11);
            let tally = network.learn(&images, &labels, &cross_entropy(), &STEP);
            (tally, network.grads().to_vec(), network.stats().to_vec())
        };
        assert_eq!(learn(3), learn(8), "{name}");
    }
}

#[test]
fn training_has_the_same_bits_for_any_number_of_threads() {
    for (name, input, layers) in networks() {
        let train = |threads: usize| {
            let mut network = build(&layers, Activation::Qrelu { k: 3 }, input, 6, threads);
            let mut optimizer = Optimizer::new(&OptimizerSpec::adam(1e-2).unwrap(), network.values().len()).unwrap();
            let (images, labels) = batch(input, 6);
            for number in 0..4 {
                network.learn(&images, &labels, &cross_entropy(), &Step { number, ..STEP });
                let (cpu, values, grads) = network.values_and_grads();
                optimizer.step(cpu, values, grads, 1.0, Some(0.5));
            }
            let bits: Vec<u32> = network.values().iter().chain(network.stats()).map(|v| v.to_bits()).collect();
            bits
        };
        assert_eq!(train(1), train(2), "{name}");
        assert_eq!(train(1), train(5), "{name}");
    }
}

#[test]
fn batch_norm_follows_its_running_statistics() {
    let mut network = build(&[norm(), fc(None)], Activation::Sign, Shape::vector(3), 64, 1);
    let s = Stream::numbered(2);
    let images: Vec<f32> = (0..64 * 3).map(|i| 5.0 + 2.0 * s.normal(i as u64)).collect();
    let labels = vec![0; 64];
    for number in 0..100 {
        network.learn(&images, &labels, &cross_entropy(), &Step { number, ..STEP });
    }
    for c in 0..3 {
        let column: Vec<f32> = (0..64).map(|i| images[i * 3 + c]).collect();
        let mean = column.iter().sum::<f32>() / 64.0;
        let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 63.0;
        assert!((network.stats()[c] - mean).abs() < 1e-2, "mean");
        assert!((network.stats()[3 + c] - variance).abs() < 1e-2, "unbiased variance");
    }
    // With the statistics of that very batch, evaluation sees nearly what training saw.
    let trained = network.learn(&images, &labels, &cross_entropy(), &STEP).loss();
    let evaluated = network.evaluate(&images, &labels, &cross_entropy()).loss();
    assert!((trained - evaluated).abs() < 1e-2);
}

#[test]
fn dropout_drops_whole_channels_in_training_only() {
    let layers = [LayerSpec::ChannelDropout { p: 0.5 }, fc(None)];
    let input = image(50, 3);
    let mut network = build(&layers, Activation::Sign, input, 8, 1);
    let images = vec![1.0; 8 * input.len()];
    let logits = |network: &mut Network, number: u64| {
        network.learn(&images, &[0; 8], &cross_entropy(), &Step { number, ..STEP });
        network.logits().to_vec()
    };
    let first = logits(&mut network, 1);
    assert_eq!(first, logits(&mut network, 1), "the same step has the same mask");
    assert_ne!(first, logits(&mut network, 2), "another step has another");
    let plain = network.infer(&images).to_vec();
    assert_eq!(plain, network.infer(&images).to_vec());
    assert_ne!(plain, first);
}

#[test]
fn an_activation_can_be_overridden_in_place() {
    let relu =
        LayerSpec::Act { activation: Some(Activation::Relu), layer_loss: None, target_rule: None, qrelu_form: None };
    let network = build(&[fc(Some(8)), relu, fc(Some(8)), act(), fc(None)], Activation::Sign, Shape::vector(4), 2, 1);
    let bits: Vec<_> = network.graph().walk().into_iter().filter_map(|n| n.activation_bits()).collect();
    assert_eq!(bits, [32, 1]);
}

#[test]
fn what_does_not_fit_is_refused_with_the_layer_and_both_shapes() {
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let refuse = |layers: &[LayerSpec]| -> String {
        let error: NnError = graph(layers, &defaults, image(3, 8), 10)
            .and_then(|graph| Network::new(cpu.clone(), graph, 2))
            .err()
            .expect("it cannot fit");
        error.to_string()
    };
    let cases: [(&[LayerSpec], &[&str]); 10] = [
        (&[fc(Some(9_000_000_000)), fc(None)], &["layer 0 (fc)", "memory"]),
        (&[fc(Some(3_000_000_000)), fc(None)], &["layer 0 (fc)", "GB"]),
        (&[conv(1 << 50, 3, 1, 1, 1), fc(None)], &["layer 0 (conv)", "memory"]),
        (&[conv(4, 3, 1, 0, 1), conv(4, 9, 1, 0, 1), fc(None)], &["layer 1 (conv)", "4×6×6", "9×9"]),
        (&[conv(4, 3, 1, 1, 2), fc(None)], &["layer 0 (conv)", "2 groups", "3 input channels"]),
        (&[residual(vec![conv(5, 3, 1, 1, 1)], vec![]), fc(None)], &["layer 0 (residual)", "5×8×8", "3×8×8"]),
        (&[fc(Some(7))], &["layer 0 (fc)", "7", "10 classes"]),
        (&[conv(10, 3, 1, 1, 1)], &["last layer", "10×8×8"]),
        (&[max_pool(2, 2, 2), fc(None)], &["layer 0 (max_pool)", "padding 2"]),
        (&[], &["no layers"]),
    ];
    for (layers, words) in cases {
        let message = refuse(layers);
        words.iter().for_each(|word| assert!(message.contains(word), "'{message}' lacks '{word}'"));
        assert!(!message.contains('\n'));
    }
    assert!(presets::layers("convnet8", image(3, 28), &[]).unwrap_err().to_string().contains("32×32"));
}

#[test]
fn presets_have_the_published_numbers_of_parameters() {
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let count = |preset: &str, side: usize, classes: usize| {
        let layers = presets::layers(preset, image(3, side), &[]).unwrap();
        graph(&layers, &defaults, image(3, side), classes).unwrap().parameter_count()
    };
    // torchvision's resnet18 has 11,689,512.
    assert_eq!(count("resnet18", 224, 1000), 11_689_512);
    assert_eq!(count("convnet4", 32, 10), 32 * 76 + 64 * 801 + 1024 * 4097 + 10 * 1025);
}

/// The preset for any input has a network for every shape that data come in.
#[test]
fn the_automatic_preset_fits_every_input() {
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    for (height, width, channels) in [
        (1, 1, 1),
        (1, 1, 500),
        (2, 3, 1),
        (6, 5, 1),
        (8, 8, 1),
        (28, 28, 1),
        (32, 32, 3),
        (64, 64, 3),
        (224, 224, 3),
        (40, 300, 3),
    ] {
        for widths in [&[][..], &[5], &[8, 16, 8]] {
            let input = Shape { height, width, channels };
            let layers = presets::layers("auto", input, widths).unwrap();
            let graph = Graph::resolve(&layers, &defaults, input, 7).unwrap_or_else(|e| panic!("{input}: {e}"));
            assert_eq!(graph.classes(), 7);
            assert!(graph.parameter_count() < 4_000_000, "{input}: {} parameters", graph.parameter_count());
        }
    }
}
