//! A network in float, as plain data.

use crate::model::{Activation, Preprocessing, Window};

/// A trained network: layers in order, from normalised pixels to logits. Dropout is left out.
#[derive(Clone, Debug)]
pub struct FloatNetwork {
    /// A name for people.
    pub name: String,
    /// The image and how it is normalised: (pixel / 255 − mean) / std, or (feature − mean) / std.
    pub preprocessing: Preprocessing,
    /// The classes' names in the order of the logits, or none.
    pub classes: Vec<String>,
    /// The layers.
    pub layers: Vec<FloatLayer>,
}

/// One layer.
#[derive(Clone, Debug)]
pub enum FloatLayer {
    /// A convolution; padded taps are zero.
    Conv(Convolution),
    /// A fully connected layer. A [`FloatLayer::Flatten`] must come before it unless its input is 1 × 1.
    FullyConnected(Connected),
    /// A batch norm with running statistics, over channels.
    BatchNorm(BatchNorm),
    /// Max-pooling; padding never wins.
    MaxPool(Window),
    /// The mean of each window; padding counts as zeros, as PyTorch has it by default.
    AveragePool(Window),
    /// An activation.
    Activation(Activation),
    /// The sum of two paths from the same input; an empty path passes it on.
    Residual {
        /// The layers of the main path.
        main: Vec<FloatLayer>,
        /// The layers of the other, none for the identity.
        shortcut: Vec<FloatLayer>,
    },
    /// Says in which order the next fully connected layer counts its inputs.
    Flatten(FlattenOrder),
}

/// The order of a convolution's weights, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightLayout {
    /// Output channel, input channel, kernel row, kernel column: PyTorch's.
    Oihw,
    /// Output channel, kernel row, kernel column, input channel.
    Ohwi,
}

/// The order in which a fully connected layer counts the values of a picture, slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlattenOrder {
    /// Channel, row, column: PyTorch's.
    ChannelsFirst,
    /// Row, column, channel.
    ChannelsLast,
}

/// A convolution.
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Output channels.
    pub outputs: usize,
    /// Kernel, stride, pad.
    pub window: Window,
    /// Groups of channels that do not see each other; 1 for a plain convolution.
    pub groups: usize,
    /// The weights, outputs × (inputs / groups) × kernel.
    pub weights: Vec<f32>,
    /// Their order.
    pub layout: WeightLayout,
    /// One for each output channel, or none.
    pub bias: Option<Vec<f32>>,
}

/// A fully connected layer.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Outputs.
    pub outputs: usize,
    /// The weights, outputs × inputs.
    pub weights: Vec<f32>,
    /// One for each output, or none.
    pub bias: Option<Vec<f32>>,
}

/// gamma (x − mean) / √(var + eps) + beta for each channel.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// The factor.
    pub gamma: Vec<f32>,
    /// The summand.
    pub beta: Vec<f32>,
    /// The running mean.
    pub mean: Vec<f32>,
    /// The running variance.
    pub var: Vec<f32>,
    /// What keeps the division sane.
    pub eps: f64,
}
