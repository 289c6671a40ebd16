//! The preset networks with made-up weights, at any width, and a builder for odd ones.

use ftprop_runtime::pack::{BatchNorm, Connected, Convolution, FlattenOrder, FloatLayer, FloatNetwork, WeightLayout};
use ftprop_runtime::{Activation, Element, Preprocessing, Shape, Window};

use super::Numbers;

/// Adds layers and keeps the shape. Weights are whole multiples, up to `grid`, of a power of two, and the largest
/// occurs in each output channel; so quantizing to as many bits loses nothing and a reference can be exact. Weights
/// on the image are on a finer grid in the same way, as the deviations are a power of two of bytes.
pub struct Builder {
    pub numbers: Numbers,
    pub grid: i32,
    pub shape: Shape,
    pub layers: Vec<FloatLayer>,
    input: Shape,
    on_image: bool,
}

impl Builder {
    pub fn new(seed: u64, height: usize, width: usize, channels: usize) -> Self {
        let input = Shape { height, width, channels };
        Builder { numbers: Numbers(seed), grid: 127, shape: input, layers: Vec::new(), input, on_image: true }
    }

    fn weights(&mut self, outputs: usize, inputs: usize) -> Vec<f32> {
        // About 1 / √inputs at most, as PyTorch starts.
        let (most, usual) = if std::mem::take(&mut self.on_image) { (32767, 8191) } else { (self.grid, self.grid) };
        let unit = 2f32.powi(-((inputs as f32).log2() / 2.0) as i32 - (usual as f32).log2().ceil() as i32);
        let mut weights = Vec::with_capacity(outputs * inputs);
        for _ in 0..outputs {
            let full = self.numbers.below(inputs);
            for i in 0..inputs {
                let whole = self.numbers.below(2 * usual as usize + 1) as i32 - usual;
                let whole = if i == full { most } else { whole };
                weights.push(whole as f32 * unit);
            }
        }
        weights
    }

    fn slide(&mut self, window: Window, channels: usize) {
        let side =
            |axis: usize, side: usize| (side + 2 * window.pad[axis] - window.kernel[axis]) / window.stride[axis] + 1;
        self.shape = Shape { height: side(0, self.shape.height), width: side(1, self.shape.width), channels };
    }

    pub fn conv_with(
        mut self,
        outputs: usize,
        window: Window,
        groups: usize,
        layout: WeightLayout,
        bias: bool,
    ) -> Self {
        let inputs = window.kernel[0] * window.kernel[1] * self.shape.channels / groups;
        let weights = self.weights(outputs, inputs);
        let bias = bias.then(|| (0..outputs).map(|_| self.numbers.real() * 0.3).collect());
        self.slide(window, outputs);
        self.layers.push(FloatLayer::Conv(Convolution { outputs, window, groups, weights, layout, bias }));
        self
    }

    pub fn conv(self, outputs: usize, kernel: usize, stride: usize, pad: usize, bias: bool) -> Self {
        self.conv_with(outputs, Window::square(kernel, stride, pad), 1, WeightLayout::Oihw, bias)
    }

    pub fn connected(mut self, outputs: usize, bias: bool) -> Self {
        let inputs = self.shape.len() as usize;
        let weights = self.weights(outputs, inputs);
        let bias = bias.then(|| (0..outputs).map(|_| self.numbers.real() * 0.3).collect());
        self.shape = Shape { height: 1, width: 1, channels: outputs };
        self.layers.push(FloatLayer::FullyConnected(Connected { outputs, weights, bias }));
        self
    }

    /// A norm as training leaves it, with some negative gammas and now and then one that is zero.
    pub fn norm(mut self, eps: f64) -> Self {
        self.on_image = false;
        let channels = self.shape.channels;
        let mut many = |scale: f32, shift: f32| -> Vec<f32> {
            (0..channels).map(|_| self.numbers.real() * scale + shift).collect()
        };
        let (mut gamma, beta, mean) = (many(1.0, 0.3), many(0.3, 0.1), many(0.3, 0.0));
        let var = many(0.4, 0.6);
        gamma[channels / 2] = if channels > 4 { 0.0 } else { -0.5 };
        self.layers.push(FloatLayer::BatchNorm(BatchNorm { gamma, beta, mean, var, eps }));
        self
    }

    pub fn max_pool(mut self, kernel: usize, stride: usize, pad: usize) -> Self {
        let window = Window::square(kernel, stride, pad);
        self.slide(window, self.shape.channels);
        self.layers.push(FloatLayer::MaxPool(window));
        self
    }

    pub fn average_pool(mut self, window: Window) -> Self {
        self.slide(window, self.shape.channels);
        self.layers.push(FloatLayer::AveragePool(window));
        self
    }

    pub fn act(mut self, activation: Activation) -> Self {
        self.layers.push(FloatLayer::Activation(activation));
        self
    }

    pub fn flatten(mut self, order: FlattenOrder) -> Self {
        self.layers.push(FloatLayer::Flatten(order));
        self
    }

    /// A residual block; the closures add the layers of the two paths.
    pub fn residual(mut self, main: impl FnOnce(Self) -> Self, shortcut: impl FnOnce(Self) -> Self) -> Self {
        let (before, shape) = (std::mem::take(&mut self.layers), self.shape);
        self = main(self);
        let main = std::mem::take(&mut self.layers);
        self.shape = shape;
        self = shortcut(self);
        let shortcut = std::mem::replace(&mut self.layers, before);
        self.layers.push(FloatLayer::Residual { main, shortcut });
        self
    }

    pub fn build(mut self, name: &str) -> FloatNetwork {
        let channels = self.input.channels;
        let mean = (0..channels).map(|_| self.numbers.real() * 0.05 + 0.45).collect();
        let std = vec![64.0 / 255.0; channels];
        let classes = (0..self.shape.channels).map(|class| format!("class {class}")).collect();
        let preprocessing = Preprocessing {
            input: self.input,
            element: Element::Byte,
            resize_shorter: None,
            center_crop: false,
            mean,
            std,
        };
        FloatNetwork { name: name.into(), preprocessing, classes, layers: self.layers }
    }
}

pub fn convnet4(act: Activation, seed: u64, thin: usize) -> FloatNetwork {
    Builder::new(seed, 32, 32, 3)
        .conv(32 / thin, 5, 1, 3, true)
        .max_pool(2, 2, 0)
        .act(act)
        .conv(64 / thin, 5, 1, 2, true)
        .max_pool(2, 2, 0)
        .act(act)
        .flatten(FlattenOrder::ChannelsFirst)
        .connected(1024 / thin, true)
        .act(act)
        .connected(10, true)
        .build("convnet4")
}

pub fn convnet8(act: Activation, seed: u64, thin: usize) -> FloatNetwork {
    let eps = 1e-4;
    Builder::new(seed, 32, 32, 3)
        .conv(48 / thin, 5, 1, 2, true)
        .max_pool(2, 2, 0)
        .act(act)
        .conv(64 / thin, 3, 1, 1, false)
        .norm(eps)
        .act(act)
        .conv(64 / thin, 3, 1, 1, false)
        .norm(eps)
        .max_pool(2, 2, 0)
        .act(act)
        .conv(128 / thin, 3, 1, 0, false)
        .norm(eps)
        .act(act)
        .conv(128 / thin, 3, 1, 1, false)
        .norm(eps)
        .act(act)
        .conv(128 / thin, 3, 1, 0, false)
        .norm(eps)
        .act(act)
        .conv(512 / thin, 4, 1, 0, false)
        .norm(eps)
        .act(act)
        .flatten(FlattenOrder::ChannelsFirst)
        .connected(10, true)
        .build("convnet8")
}

/// `side` is 224 for the real one; from about 80 the pools still fit.
pub fn alexnet(act: Activation, seed: u64, thin: usize, side: usize) -> FloatNetwork {
    let eps = 1e-4;
    Builder::new(seed, side, side, 3)
        .conv(96 / thin, 12, 4, 0, false)
        .act(act)
        .conv(256 / thin, 5, 1, 2, false)
        .norm(eps)
        .max_pool(3, 2, 1)
        .act(act)
        .conv(384 / thin, 3, 1, 1, false)
        .norm(eps)
        .max_pool(3, 2, 0)
        .act(act)
        .conv(384 / thin, 3, 1, 1, false)
        .norm(eps)
        .act(act)
        .conv(256 / thin, 3, 1, 1, false)
        .norm(eps)
        .max_pool(3, 2, 0)
        .act(act)
        .flatten(FlattenOrder::ChannelsFirst)
        .connected(4096 / thin, false)
        .norm(eps)
        .act(act)
        .connected(4096 / thin, false)
        .norm(eps)
        .act(act)
        .connected(1000 / thin, true)
        .build("alexnet")
}

pub fn resnet18(act: Activation, seed: u64, thin: usize, side: usize) -> FloatNetwork {
    let eps = 1e-5;
    let mut net =
        Builder::new(seed, side, side, 3).conv(64 / thin, 7, 2, 3, false).norm(eps).act(act).max_pool(3, 2, 1);
    for (stage, channels) in [64, 128, 256, 512].map(|channels| channels / thin).into_iter().enumerate() {
        for block in 0..2 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let main = |net: Builder| {
                let net = net.conv(channels, 3, stride, 1, false).norm(eps).act(act);
                net.conv(channels, 3, 1, 1, false).norm(eps)
            };
            let project = |net: Builder| net.conv(channels, 1, stride, 0, false).norm(eps);
            net = net.residual(main, |net| if stride == 2 { project(net) } else { net }).act(act);
        }
    }
    let all = Window { kernel: [net.shape.height, net.shape.width], stride: [1, 1], pad: [0, 0] };
    net.average_pool(all).connected(1000 / thin, true).build("resnet18")
}

pub fn mlp(act: Activation, seed: u64, widths: &[usize]) -> FloatNetwork {
    let mut net = Builder::new(seed, 28, 28, 1).flatten(FlattenOrder::ChannelsFirst);
    for &width in widths {
        net = net.connected(width, true).act(act);
    }
    net.connected(10, true).build("mlp")
}
