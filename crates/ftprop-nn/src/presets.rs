//! The paper's networks by name (SPEC: channels × height × width), and networks for any input.

mod auto;

use crate::NnError;
use crate::spec::{Init, Kernel, LayerSpec};
use LayerSpec as L;
use ftprop_tensor::Shape;

/// Every preset's name.
pub const NAMES: [&str; 6] = ["convnet4", "convnet8", "alexnet", "resnet18", "mlp", "auto"];

/// The layers of a preset. `widths` are the hidden widths of `mlp` and `auto`; the others have theirs fixed.
pub fn layers(preset: &str, input: Shape, widths: &[usize]) -> Result<Vec<LayerSpec>, NnError> {
    let (layers, expected) = match preset {
        "convnet4" => (convnet4(), Some((32, 32))),
        "convnet8" => (convnet8(), Some((32, 32))),
        "alexnet" => (alexnet(), Some((224, 224))),
        "resnet18" => (resnet18(), Some((224, 224))),
        "mlp" => (mlp(widths), None),
        "auto" => (auto::layers(input, widths), None),
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
    let conv = |out, kernel, stride, pad| L::Conv {
        out,
        kernel: Kernel::Square(kernel),
        stride,
        pad,
        groups: 1,
        bias: None,
        init: Init::NormalFanOut,
    };
    let norm = || L::batch_norm(1e-5);
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

/// Fully connected layers of the given widths, then one output a class.
fn mlp(widths: &[usize]) -> Vec<LayerSpec> {
    widths.iter().flat_map(|&width| [L::fc(Some(width)), L::act()]).chain([L::fc(None)]).collect()
}
