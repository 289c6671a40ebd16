//! Networks by name: the paper's, ones that came after it, which take pictures of any size from 28 on, and one for any input.

mod auto;

use crate::NnError;
use crate::activation::Activation;
use crate::spec::{Init, Kernel, LayerSpec};
use LayerSpec as L;
use ftprop_tensor::Shape;

/// Every preset's name.
pub const NAMES: [&str; 10] =
    ["convnet4", "convnet8", "alexnet", "resnet18", "mlp", "auto", "fast", "vgg_small", "resnet20", "bireal18"];

/// The smallest side of a picture for presets of any size.
const SMALLEST: usize = 28;

/// The side from which a picture is halved twice before anything else is done, as ResNets do it.
const LARGE: usize = 128;

/// The layers of a preset. `widths` are the hidden widths of `mlp` and `auto`; the others have theirs fixed.
pub fn layers(preset: &str, input: Shape, widths: &[usize]) -> Result<Vec<LayerSpec>, NnError> {
    let edge = input.height.min(input.width);
    let (layers, expected) = match preset {
        "convnet4" => (convnet4(), Some((32, 32))),
        "convnet8" => (convnet8(), Some((32, 32))),
        "alexnet" => (alexnet(), Some((224, 224))),
        "mlp" => (mlp(widths), None),
        "auto" => (auto::layers(input, widths), None),
        "resnet18" | "fast" | "vgg_small" | "resnet20" | "bireal18" if edge < SMALLEST => {
            return Err(NnError::PresetInput {
                preset: preset.into(),
                expected: format!("{SMALLEST}×{SMALLEST} or larger"),
                got: format!("{}×{}", input.height, input.width),
            });
        }
        "resnet18" => (resnet18(), None),
        "fast" => (fast(edge), None),
        "vgg_small" => (vgg_small(edge), None),
        "resnet20" => (resnet20(input), None),
        "bireal18" => (bireal18(input), None),
        _ => {
            return Err(NnError::Name {
                what: "preset",
                name: preset.into(),
                known: format!("known are {}", NAMES.join(", ")),
            });
        }
    };
    match expected {
        Some((height, width)) if (input.height, input.width) != (height, width) => Err(NnError::PresetInput {
            preset: preset.into(),
            expected: format!("{height}×{width}"),
            got: format!("{}×{}", input.height, input.width),
        }),
        _ => Ok(layers),
    }
}

/// The same layers with an affine one before each activation that is the network's usual one, also behind an affine layer of
/// the network's own: a learned threshold for each channel, and with a scale, where factors start, a learned step too.
pub fn with_affine(layers: Vec<LayerSpec>, scale: Option<f32>) -> Vec<LayerSpec> {
    let within = |layer| match layer {
        act @ L::Act { activation: None, .. } => vec![L::Affine { scale }, act],
        L::Residual { main, shortcut } => {
            vec![L::Residual { main: with_affine(main, scale), shortcut: with_affine(shortcut, scale) }]
        }
        other => vec![other],
    };
    layers.into_iter().flat_map(within).collect()
}

/// The same layers, but convolutions that would start in one of these ways start uniformly.
pub fn with_uniform_starts(layers: Vec<LayerSpec>, left_out: &[Init]) -> Vec<LayerSpec> {
    let within = |layer| match layer {
        L::Conv { out, kernel, stride, pad, groups, bias, init } => {
            let init = if left_out.contains(&init) { Init::Uniform } else { init };
            L::Conv { out, kernel, stride, pad, groups, bias, init }
        }
        L::Residual { main, shortcut } => {
            L::Residual { main: with_uniform_starts(main, left_out), shortcut: with_uniform_starts(shortcut, left_out) }
        }
        other => other,
    };
    layers.into_iter().map(within).collect()
}

/// Two convolutions and two fully connected layers, without batch norm.
fn convnet4() -> Vec<LayerSpec> {
    vec![
        L::conv(32, 5, 1, 3),
        L::max_pool(2, 2, 0),
        L::act(),
        L::conv(64, 5, 1, 2),
        L::max_pool(2, 2, 0),
        L::act(),
        L::fc(Some(1024)),
        L::act(),
        L::fc(None),
    ]
}

/// DoReFa-Net's seven convolutions and one fully connected layer, fitted to CIFAR-10.
fn convnet8() -> Vec<LayerSpec> {
    let norm = || L::batch_norm(1e-4);
    vec![
        L::conv(48, 5, 1, 2),
        L::max_pool(2, 2, 0),
        L::act(),
        L::conv(64, 3, 1, 1),
        norm(),
        L::act(),
        L::conv(64, 3, 1, 1),
        norm(),
        L::max_pool(2, 2, 0),
        L::act(),
        L::conv(128, 3, 1, 0),
        norm(),
        L::act(),
        L::conv(128, 3, 1, 1),
        norm(),
        L::act(),
        L::conv(128, 3, 1, 0),
        norm(),
        L::act(),
        L::ChannelDropout { p: 0.5 },
        L::conv(512, 4, 1, 0),
        norm(),
        L::act(),
        L::fc(None),
    ]
}

/// AlexNet with batch norm, without dropout, its convolutions not split.
fn alexnet() -> Vec<LayerSpec> {
    let norm = || L::batch_norm(1e-4);
    let first = L::Conv {
        out: 96,
        kernel: Kernel::Square(12),
        stride: 4,
        pad: 0,
        groups: 1,
        bias: Some(false),
        init: Init::Uniform,
    };
    vec![
        first,
        L::act(),
        L::conv(256, 5, 1, 2),
        norm(),
        L::max_pool(3, 2, 1),
        L::act(),
        L::conv(384, 3, 1, 1),
        norm(),
        L::max_pool(3, 2, 0),
        L::act(),
        L::conv(384, 3, 1, 1),
        norm(),
        L::act(),
        L::conv(256, 3, 1, 1),
        norm(),
        L::max_pool(3, 2, 0),
        L::act(),
        L::fc(Some(4096)),
        norm(),
        L::act(),
        L::fc(Some(4096)),
        norm(),
        L::act(),
        L::fc(None),
    ]
}

/// torchvision's ResNet-18 with the activation in ReLU's place.
fn resnet18() -> Vec<LayerSpec> {
    let (conv, norm) = (fan_out_conv, || L::batch_norm(1e-5));
    let mut layers = vec![conv(64, 7, 2, 3), norm(), L::act(), L::max_pool(3, 2, 1)];
    let mut channels = 64;
    for out in [64, 128, 256, 512] {
        for block in 0..2 {
            let stride = if block == 0 && out > 64 { 2 } else { 1 };
            let main = vec![conv(out, 3, stride, 1), norm(), L::act(), conv(out, 3, 1, 1), norm()];
            let shortcut = if stride != 1 || channels != out { vec![conv(out, 1, stride, 0), norm()] } else { vec![] };
            layers.push(L::Residual { main, shortcut });
            layers.push(L::act());
            channels = out;
        }
    }
    layers.push(L::global_average());
    layers.push(L::fc(None));
    layers
}

/// Made to be trained in seconds: a whitened first layer, which is meant to be frozen, then six convolutions, each but
/// the first with a way around it. Larger pictures are halved before, until they are about as large as CIFAR's.
fn fast(edge: usize) -> Vec<LayerSpec> {
    let conv = |out, kernel, pad, init| L::Conv {
        out,
        kernel: Kernel::Square(kernel),
        stride: 1,
        pad,
        groups: 1,
        bias: Some(kernel == 2),
        init,
    };
    let (halve, norm) = (|| L::max_pool(2, 2, 0), || L::batch_norm(1e-5));
    let mut layers = vec![conv(24, 2, 0, Init::Whitened), soft_relu()];
    layers.extend((0..halvings(edge)).map(|_| halve()));
    layers.extend([conv(64, 3, 1, Init::Dirac), halve(), norm()]);
    for (stage, out) in [64, 256, 256].into_iter().enumerate() {
        if stage > 0 {
            let main = vec![L::act(), conv(out, 3, 1, Init::Dirac), halve(), norm()];
            let shortcut = vec![halve(), conv(out, 1, 0, Init::Uniform), norm()];
            layers.push(L::Residual { main, shortcut });
        }
        let main = vec![L::act(), conv(out, 3, 1, Init::Dirac), norm()];
        layers.push(L::Residual { main, shortcut: vec![] });
    }
    layers.extend([L::max_pool(3, 3, 0), L::fc(None)]);
    layers
}

/// The VGG of the literature on binary networks: six convolutions, pooled by twos.
fn vgg_small(edge: usize) -> Vec<LayerSpec> {
    let mut layers = vec![plain_conv(128), L::batch_norm(1e-5)];
    layers.extend((0..halvings(edge)).map(|_| L::max_pool(2, 2, 0)));
    layers.extend([L::act(), plain_conv(128), L::max_pool(2, 2, 0), L::batch_norm(1e-5), L::act()]);
    for out in [256, 512] {
        layers.extend([plain_conv(out), L::batch_norm(1e-5), L::act()]);
        layers.extend([plain_conv(out), L::max_pool(2, 2, 0), L::batch_norm(1e-5), L::act()]);
    }
    layers.push(L::fc(None));
    layers
}

/// ResNet-20 with a way around every convolution.
fn resnet20(input: Shape) -> Vec<LayerSpec> {
    ways_around(stem(16, input), &[16, 32, 64], 6, input)
}

/// ResNet-18 with a way around every convolution, as Bi-Real Net has it: activation, convolution, norm; what goes around
/// is averaged and projected where it shrinks, and never thresholded.
fn bireal18(input: Shape) -> Vec<LayerSpec> {
    ways_around(stem(64, input), &[64, 128, 256, 512], 4, input)
}

/// A convolution and a norm before the first activation; large pictures are halved twice, as a ResNet does it.
fn stem(out: usize, input: Shape) -> Vec<LayerSpec> {
    match input.height.min(input.width) {
        0..LARGE => vec![fan_out_conv(out, 3, 1, 1), L::batch_norm(1e-5)],
        _ => vec![fan_out_conv(out, 7, 2, 3), L::batch_norm(1e-5), L::max_pool(3, 2, 1)],
    }
}

/// So many convolutions of each width, each with a way around it, then the mean over the picture.
fn ways_around(mut layers: Vec<LayerSpec>, widths: &[usize], each: usize, input: Shape) -> Vec<LayerSpec> {
    // Everything that halves rounds up.
    let mut sides = [input.height, input.width];
    if sides[0].min(sides[1]) >= LARGE {
        sides = sides.map(|side| side.div_ceil(4));
    }
    for (stage, &out) in widths.iter().enumerate() {
        for number in 0..each {
            let shrinks = stage > 0 && number == 0;
            let main = vec![L::act(), fan_out_conv(out, 3, if shrinks { 2 } else { 1 }, 1), L::batch_norm(1e-5)];
            let mut shortcut = Vec::new();
            if shrinks {
                let even = sides.iter().all(|side| side % 2 == 0);
                let mean = if even { L::mean_pool(2, 2, 0) } else { L::mean_pool(3, 2, 1) };
                shortcut = vec![mean, fan_out_conv(out, 1, 1, 0), L::batch_norm(1e-5)];
                sides = sides.map(|side| side.div_ceil(2));
            }
            layers.push(L::Residual { main, shortcut });
        }
    }
    layers.extend([L::global_average(), L::fc(None)]);
    layers
}

/// How often a picture is halved so that its side is below 64.
fn halvings(edge: usize) -> u32 {
    (edge / 32).max(1).ilog2()
}

fn soft_relu() -> LayerSpec {
    L::Act { activation: Some(Activation::Relu), layer_loss: None, target_rule: None, qrelu_form: None }
}

/// Of 3×3, without a bias: a norm comes sooner or later.
fn plain_conv(out: usize) -> LayerSpec {
    let (kernel, init) = (Kernel::Square(3), Init::Uniform);
    L::Conv { out, kernel, stride: 1, pad: 1, groups: 1, bias: Some(false), init }
}

fn fan_out_conv(out: usize, kernel: usize, stride: usize, pad: usize) -> LayerSpec {
    L::Conv { out, kernel: Kernel::Square(kernel), stride, pad, groups: 1, bias: None, init: Init::NormalFanOut }
}

/// Fully connected layers of the given widths, then one output a class.
fn mlp(widths: &[usize]) -> Vec<LayerSpec> {
    widths.iter().flat_map(|&width| [L::fc(Some(width)), L::act()]).chain([L::fc(None)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;
    use crate::layer_loss::LayerLoss;
    use crate::spec::Defaults;

    #[test]
    fn presets_of_any_size_take_any_size() {
        for (name, parameters) in [
            ("resnet18", 11_181_642),
            ("fast", 2_055_746),
            ("vgg_small", 4_660_106),
            ("resnet20", 272_474),
            ("bireal18", 11_173_962),
        ] {
            for side in [28, 32, 45, 64, 96, 160, 224] {
                let input = Shape { height: side, width: side, channels: 3 };
                let layers = layers(name, input, &[]).unwrap();
                let graph =
                    Graph::resolve(&layers, &Defaults::new(Activation::Sign, LayerLoss::soft_hinge()), input, 10);
                graph.unwrap_or_else(|e| panic!("{name} {side}: {e}"));
            }
            let square = Shape { height: 32, width: 32, channels: 3 };
            let layers32 = layers(name, square, &[]).unwrap();
            let graph =
                Graph::resolve(&layers32, &Defaults::new(Activation::Sign, LayerLoss::soft_hinge()), square, 10)
                    .unwrap();
            assert_eq!(graph.parameter_count(), parameters, "{name}");
            assert!(layers(name, Shape { height: 27, width: 40, channels: 1 }, &[]).is_err(), "{name}");
        }
    }

    #[test]
    fn an_affine_layer_comes_before_every_activation_of_the_network() {
        let input = Shape { height: 32, width: 32, channels: 3 };
        let defaults = Defaults { uniform_gamma: true, ..Defaults::new(Activation::Sign, LayerLoss::soft_hinge()) };
        let count = |layers: &[LayerSpec], kind: &str| {
            let graph = Graph::resolve(layers, &defaults, input, 10).unwrap();
            graph.walk().into_iter().filter(|node| node.op.kind() == kind).count()
        };
        // `fast` has a ReLU of its own besides.
        for (name, activations) in [("bireal18", 16), ("convnet8", 7), ("fast", 5)] {
            let layers = with_affine(layers(name, input, &[]).unwrap(), Some(0.5));
            assert_eq!(count(&layers, "affine"), activations, "{name}");
            assert_eq!(count(&layers, "act"), activations + usize::from(name == "fast"), "{name}");
        }
        // What networks of before are.
        let own = vec![L::fc(Some(4)), L::Affine { scale: None }, L::act(), L::fc(None)];
        let both = [L::Affine { scale: None }, L::Affine { scale: Some(0.5) }];
        assert_eq!(with_affine(own, Some(0.5))[1..3], both);
        // Norms that start anywhere between 0 and 1.
        let graph = Graph::resolve(&layers("bireal18", input, &[]).unwrap(), &defaults, input, 10).unwrap();
        let values = graph.initial_values(3);
        let gamma: Vec<f32> = graph
            .parameters()
            .iter()
            .filter(|p| p.name.ends_with("gamma"))
            .flat_map(|p| values[p.range.clone()].to_vec())
            .collect();
        let mean = gamma.iter().sum::<f32>() / gamma.len() as f32;
        assert!(gamma.iter().all(|g| (0.0..1.0).contains(g)) && (mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn starts_that_are_left_out_are_uniform_wherever_they_are() {
        fn starts(layers: &[LayerSpec]) -> Vec<Init> {
            let of = |layer: &LayerSpec| match layer {
                L::Conv { init, .. } => vec![*init],
                L::Residual { main, shortcut } => [starts(main), starts(shortcut)].concat(),
                _ => vec![],
            };
            layers.iter().flat_map(of).collect()
        }
        let input = Shape { height: 32, width: 32, channels: 3 };
        let count = |left_out: &[Init], init: Init| {
            let layers = with_uniform_starts(layers("fast", input, &[]).unwrap(), left_out);
            starts(&layers).into_iter().filter(|start| *start == init).count()
        };
        assert_eq!((count(&[], Init::Whitened), count(&[], Init::Dirac), count(&[], Init::Uniform)), (1, 6, 2));
        assert_eq!((count(&[Init::Dirac], Init::Whitened), count(&[Init::Dirac], Init::Dirac)), (1, 0));
        assert_eq!(count(&[Init::Dirac, Init::Whitened], Init::Uniform), 9);
    }
}
