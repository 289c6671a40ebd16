//! A trained network as plain layers with their numbers: what an exporter needs and nothing of training.

use crate::error::Error;
use ftprop_nn::parameter::Parameter;
use ftprop_nn::parameter::ParameterKind;
use ftprop_nn::{Activation, LayerSpec, Network, Shape};
use ftprop_tensor::geometry::ConvGeometry;
use ftprop_train::model::Model;

/// A layer. Dropout is left out, and every activation is the one it really has.
#[derive(Clone, Debug)]
pub enum Layer<'a> {
    /// A convolution.
    Conv {
        /// Its shapes.
        geometry: ConvGeometry,
        /// Its filters.
        weight: Weight<'a>,
        /// Its bias, if it has one.
        bias: Option<&'a [f32]>,
    },
    /// A fully connected layer.
    Fc {
        /// The shape of its input.
        input: Shape,
        /// Its units.
        outputs: usize,
        /// Its weights.
        weight: Weight<'a>,
        /// Its bias, if it has one.
        bias: Option<&'a [f32]>,
    },
    /// The largest of each window.
    MaxPool(Pool),
    /// The mean of each window, its padding counted.
    AvgPool(Pool),
    /// Batch norm by its running statistics.
    BatchNorm {
        /// What is added to the variance.
        eps: f32,
        /// The scales.
        gamma: &'a [f32],
        /// The shifts.
        beta: &'a [f32],
        /// The running means.
        mean: &'a [f32],
        /// The running variances.
        variance: &'a [f32],
    },
    /// An activation.
    Act(Activation),
    /// The sum of two paths; one without layers is the input itself.
    Residual {
        /// The first path.
        main: Vec<Layer<'a>>,
        /// The second path.
        shortcut: Vec<Layer<'a>>,
    },
}

/// A pooling window: square, the same stride and pad in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The side of the window.
    pub kernel: usize,
    /// How far it moves.
    pub stride: usize,
    /// What is added on every side.
    pub pad: usize,
    /// Of the input.
    pub channels: usize,
}

/// The weights of a layer, in this program's layout or in PyTorch's.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    parameter: &'a Parameter,
    values: &'a [f32],
}

impl<'a> Weight<'a> {
    /// Output, row, column, channel.
    pub fn channels_last(&self) -> &'a [f32] {
        self.values
    }

    /// Output, channel, row, column, as PyTorch and ONNX have it.
    pub fn channels_first(&self) -> Vec<f32> {
        channels_first(self.parameter, self.values)
    }
}

/// A parameter's values in PyTorch's order.
pub fn channels_first(parameter: &Parameter, values: &[f32]) -> Vec<f32> {
    let mut moved = vec![0.0; values.len()];
    values.iter().enumerate().for_each(|(i, &v)| moved[parameter.torch_index(i)] = v);
    moved
}

/// The layers of a trained network.
pub fn layers(model: &Model) -> Result<Vec<Layer<'_>>, Error> {
    let input = model.network.input();
    let walk = Walk { network: &model.network, activation: model.recipe.activation };
    walk.chain(&model.recipe.layers(input)?, input, "")
}

struct Walk<'a> {
    network: &'a Network,
    /// What an activation is unless its layer says otherwise.
    activation: Activation,
}

impl<'a> Walk<'a> {
    fn chain(&self, specs: &[LayerSpec], input: Shape, prefix: &str) -> Result<Vec<Layer<'a>>, Error> {
        let mut layers = Vec::with_capacity(specs.len());
        let mut shape = input;
        for (i, spec) in specs.iter().enumerate() {
            let path = format!("{prefix}{i}");
            layers.extend(self.layer(spec, shape, &path)?);
            let info = self.network.layers().iter().find(|info| info.path == path);
            shape = info.ok_or_else(|| missing(&path))?.output;
        }
        Ok(layers)
    }

    fn layer(&self, spec: &LayerSpec, input: Shape, path: &str) -> Result<Option<Layer<'a>>, Error> {
        Ok(Some(match spec {
            LayerSpec::Conv { .. } | LayerSpec::Fc { .. } => {
                let name = format!("{path}.weight");
                let parameter = self.parameter(&name).ok_or_else(|| missing(&name))?;
                let weight = Weight { parameter, values: &self.network.values()[parameter.range.clone()] };
                let bias = self.values(&format!("{path}.bias")).ok();
                match &parameter.kind {
                    ParameterKind::Conv { geometry, .. } => Layer::Conv { geometry: *geometry, weight, bias },
                    ParameterKind::Fc { input, outputs } => {
                        Layer::Fc { input: *input, outputs: *outputs, weight, bias }
                    }
                    _ => return Err(missing(&name)),
                }
            }
            LayerSpec::MaxPool { kernel, stride, pad } => Layer::MaxPool(Pool {
                kernel: *kernel,
                stride: stride.unwrap_or(*kernel),
                pad: *pad,
                channels: input.channels,
            }),
            LayerSpec::AvgPool { kernel, stride, pad } => {
                let kernel = kernel.unwrap_or(input.height);
                Layer::AvgPool(Pool { kernel, stride: stride.unwrap_or(kernel), pad: *pad, channels: input.channels })
            }
            LayerSpec::BatchNorm { eps, .. } => Layer::BatchNorm {
                eps: *eps,
                gamma: self.values(&format!("{path}.gamma"))?,
                beta: self.values(&format!("{path}.beta"))?,
                mean: self.statistic(&format!("{path}.running_mean"))?,
                variance: self.statistic(&format!("{path}.running_var"))?,
            },
            LayerSpec::Act { activation, .. } => Layer::Act(activation.unwrap_or(self.activation)),
            LayerSpec::Dropout { .. } | LayerSpec::ChannelDropout { .. } => return Ok(None),
            LayerSpec::Residual { main, shortcut } => Layer::Residual {
                main: self.chain(main, input, &format!("{path}.main."))?,
                shortcut: self.chain(shortcut, input, &format!("{path}.shortcut."))?,
            },
        }))
    }

    fn parameter(&self, name: &str) -> Option<&'a Parameter> {
        self.network.parameters().iter().find(|p| p.name == name)
    }

    fn values(&self, name: &str) -> Result<&'a [f32], Error> {
        let parameter = self.parameter(name).ok_or_else(|| missing(name))?;
        Ok(&self.network.values()[parameter.range.clone()])
    }

    fn statistic(&self, name: &str) -> Result<&'a [f32], Error> {
        let statistic = self.network.statistics().iter().find(|s| s.name == name).ok_or_else(|| missing(name))?;
        Ok(&self.network.stats()[statistic.range.clone()])
    }
}

fn missing(name: &str) -> Error {
    Error::NoSuchLayer { name: name.to_string() }
}
