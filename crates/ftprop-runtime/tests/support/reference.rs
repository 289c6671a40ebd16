//! A network in float, layer by layer as it is described, in double precision and without a single trick.

use ftprop_runtime::pack::{FlattenOrder, FloatLayer, FloatNetwork, WeightLayout};
use ftprop_runtime::{Activation, Shape, Window};

#[derive(Clone)]
struct Picture {
    shape: Shape,
    /// Rows, columns, channels.
    values: Vec<f64>,
}

impl Picture {
    fn new(height: usize, width: usize, channels: usize) -> Self {
        Picture { shape: Shape { height, width, channels }, values: vec![0.0; height * width * channels] }
    }

    fn index(&self, y: usize, x: usize, c: usize) -> usize {
        (y * self.shape.width + x) * self.shape.channels + c
    }

    /// None outside.
    fn at(&self, y: isize, x: isize, c: usize) -> Option<f64> {
        let inside = (0..self.shape.height as isize).contains(&y) && (0..self.shape.width as isize).contains(&x);
        inside.then(|| self.values[self.index(y as usize, x as usize, c)])
    }
}

/// The logits of one image.
pub fn logits(network: &FloatNetwork, image: &[u8]) -> Vec<f64> {
    let about = &network.preprocessing;
    let Shape { height, width, channels } = about.input;
    let mut picture = Picture::new(height, width, channels);
    for (i, value) in picture.values.iter_mut().enumerate() {
        let c = i % channels;
        *value = (image[i] as f64 / 255.0 - about.mean[c] as f64) / about.std[c] as f64;
    }
    run(&network.layers, picture, None).values
}

fn run(layers: &[FloatLayer], mut picture: Picture, mut order: Option<FlattenOrder>) -> Picture {
    for layer in layers {
        picture = match layer {
            FloatLayer::Flatten(new) => {
                order = Some(*new);
                picture
            }
            FloatLayer::Conv(conv) => {
                let (inner, each) = (picture.shape.channels / conv.groups, conv.outputs / conv.groups);
                let [rows, columns] = conv.window.kernel;
                slide(&picture, conv.window, conv.outputs, |taps, output| {
                    let mut sum = 0.0;
                    for (tap, (y, x)) in taps.enumerate() {
                        for c in 0..inner {
                            let weight = match conv.layout {
                                WeightLayout::Oihw => (output * inner + c) * rows * columns + tap,
                                WeightLayout::Ohwi => (output * rows * columns + tap) * inner + c,
                            };
                            let input = picture.at(y, x, output / each * inner + c).unwrap_or(0.0);
                            sum += conv.weights[weight] as f64 * input;
                        }
                    }
                    sum + conv.bias.as_ref().map_or(0.0, |bias| bias[output] as f64)
                })
            }
            FloatLayer::FullyConnected(layer) => {
                let Shape { height, width, channels } = picture.shape;
                let mut inputs = Vec::new();
                if order == Some(FlattenOrder::ChannelsFirst) {
                    for c in 0..channels {
                        inputs.extend((0..height * width).map(|place| picture.values[place * channels + c]));
                    }
                } else {
                    inputs = picture.values.clone();
                }
                let mut outputs = Picture::new(1, 1, layer.outputs);
                for (output, weights) in layer.weights.chunks_exact(inputs.len()).enumerate() {
                    let sum: f64 = weights.iter().zip(&inputs).map(|(&w, x)| w as f64 * x).sum();
                    outputs.values[output] = sum + layer.bias.as_ref().map_or(0.0, |bias| bias[output] as f64);
                }
                outputs
            }
            FloatLayer::BatchNorm(norm) => {
                let channels = picture.shape.channels;
                for (i, value) in picture.values.iter_mut().enumerate() {
                    let c = i % channels;
                    let deviation = (norm.var[c] as f64 + norm.eps).sqrt();
                    *value = norm.gamma[c] as f64 * (*value - norm.mean[c] as f64) / deviation + norm.beta[c] as f64;
                }
                picture
            }
            FloatLayer::MaxPool(window) => slide(&picture, *window, picture.shape.channels, |taps, c| {
                taps.filter_map(|(y, x)| picture.at(y, x, c)).fold(f64::NEG_INFINITY, f64::max)
            }),
            FloatLayer::AveragePool(window) => slide(&picture, *window, picture.shape.channels, |taps, c| {
                let count = (window.kernel[0] * window.kernel[1]) as f64;
                taps.map(|(y, x)| picture.at(y, x, c).unwrap_or(0.0)).sum::<f64>() / count
            }),
            FloatLayer::Activation(activation) => {
                picture.values.iter_mut().for_each(|z| *z = activate(*activation, *z));
                picture
            }
            FloatLayer::Residual { main, shortcut } => {
                let other = run(shortcut, picture.clone(), None);
                let mut sum = run(main, picture, None);
                sum.values.iter_mut().zip(&other.values).for_each(|(sum, other)| *sum += other);
                sum
            }
        };
    }
    picture
}

fn activate(activation: Activation, z: f64) -> f64 {
    match activation {
        Activation::Sign => {
            if z > 0.0 {
                1.0
            } else {
                -1.0
            }
        }
        Activation::Step => {
            if z > 0.0 {
                1.0
            } else {
                0.0
            }
        }
        Activation::QRelu(k) => (z * (k as f64 - 1.0)).ceil().clamp(0.0, k as f64) / k as f64,
        Activation::Relu => z.max(0.0),
        Activation::SaturatedRelu => z.clamp(0.0, 1.0),
    }
}

/// Calls `output` for each place and channel with the places of the window's taps, those outside included.
fn slide(
    picture: &Picture,
    window: Window,
    channels: usize,
    output: impl Fn(&mut dyn Iterator<Item = (isize, isize)>, usize) -> f64,
) -> Picture {
    let side = |axis: usize, side: usize| (side + 2 * window.pad[axis] - window.kernel[axis]) / window.stride[axis] + 1;
    let mut made = Picture::new(side(0, picture.shape.height), side(1, picture.shape.width), channels);
    for y in 0..made.shape.height {
        for x in 0..made.shape.width {
            let top = (y * window.stride[0]) as isize - window.pad[0] as isize;
            let left = (x * window.stride[1]) as isize - window.pad[1] as isize;
            for c in 0..channels {
                let [rows, columns] = window.kernel.map(|side| side as isize);
                let mut taps = (0..rows * columns).map(|tap| (top + tap / columns, left + tap % columns));
                let index = made.index(y, x, c);
                made.values[index] = output(&mut taps, c);
            }
        }
    }
    made
}
