//! What the numbers in a network's flat buffers are.

use crate::spec::Init;
use ftprop_tensor::Shape;
use ftprop_tensor::geometry::ConvGeometry;
use ftprop_tensor::random::{Purpose, Stream};
use std::ops::Range;

/// A parameter: a slice of the flat buffer of values (and of gradients, and of the optimizer's moments).
#[derive(Clone, Debug)]
pub struct Parameter {
    /// The layer's path and the parameter's role, such as `3.weight` or `4.main.1.gamma`.
    pub name: String,
    /// What it is.
    pub kind: ParameterKind,
    /// Where it lies in the flat buffers.
    pub range: Range<usize>,
}

/// What a parameter is, which decides its layout and how it starts.
#[derive(Clone, Debug)]
pub enum ParameterKind {
    /// `[out, kernel_h, kernel_w, in / groups]`
    Conv {
        /// The convolution that it is the filters of.
        geometry: ConvGeometry,
        /// What its values are drawn from.
        init: Init,
    },
    /// `[out, height, width, channels]` of the example that comes in.
    Fc {
        /// The example that comes in.
        input: Shape,
        /// How many units there are.
        outputs: usize,
    },
    /// What is added to each channel or unit of a product.
    Bias {
        /// The inputs of one unit, which bound its first values.
        fan_in: usize,
    },
    /// Batch norm's factors.
    Gamma {
        /// Whether they start anywhere between 0 and 1, not at 1.
        uniform: bool,
    },
    /// Batch norm's summands.
    Beta,
    /// The factors of an affine layer.
    Scale {
        /// What each starts from.
        initial: f32,
    },
    /// The summands of an affine layer.
    Shift,
}

impl Parameter {
    /// Writes the value that training starts from. Parameter number j of a network uses stream j of the seed.
    pub(crate) fn initialise(&self, seed: u64, number: usize, values: &mut [f32]) {
        let stream = Stream::new(seed, Purpose::Init, number as u64);
        let uniform = |values: &mut [f32], fan_in: usize| {
            let bound = 1.0 / (fan_in as f32).sqrt();
            values.iter_mut().enumerate().for_each(|(i, v)| *v = (2.0 * stream.uniform(i as u64) - 1.0) * bound);
        };
        match &self.kind {
            ParameterKind::Conv { geometry, init: Init::Uniform | Init::Whitened } => {
                uniform(values, geometry.fan_in());
            }
            ParameterKind::Conv { geometry: g, init: Init::Dirac } => {
                uniform(values, g.fan_in());
                let channels = g.in_channels / g.groups;
                let middle = (g.kernel_h / 2 * g.kernel_w + g.kernel_w / 2) * channels;
                for group in values.chunks_exact_mut(g.fan_in() * g.out_channels / g.groups) {
                    for (channel, filter) in group.chunks_exact_mut(g.fan_in()).take(channels).enumerate() {
                        filter.fill(0.0);
                        filter[middle + channel] = 1.0;
                    }
                }
            }
            ParameterKind::Conv { geometry: g, init: Init::NormalFanOut } => {
                let deviation = (2.0 / (g.kernel_h * g.kernel_w * g.out_channels) as f32).sqrt();
                values.iter_mut().enumerate().for_each(|(i, v)| *v = stream.normal(i as u64) * deviation);
            }
            ParameterKind::Fc { input, .. } => uniform(values, input.len()),
            ParameterKind::Bias { fan_in } => uniform(values, *fan_in),
            ParameterKind::Gamma { uniform: false } => values.fill(1.0),
            ParameterKind::Gamma { uniform: true } => {
                values.iter_mut().enumerate().for_each(|(i, v)| *v = stream.uniform(i as u64));
            }
            ParameterKind::Beta | ParameterKind::Shift => values.fill(0.0),
            ParameterKind::Scale { initial } => values.fill(*initial),
        }
    }

    /// The shape that PyTorch gives it.
    pub fn torch_shape(&self) -> Vec<usize> {
        match &self.kind {
            ParameterKind::Conv { geometry: g, .. } => {
                vec![g.out_channels, g.in_channels / g.groups, g.kernel_h, g.kernel_w]
            }
            ParameterKind::Fc { input, outputs } => vec![*outputs, input.len()],
            _ => vec![self.range.len()],
        }
    }

    /// Where PyTorch keeps the value that is the `index`-th here: its images are channels first.
    pub fn torch_index(&self, index: usize) -> usize {
        let (height, width, channels) = match &self.kind {
            ParameterKind::Conv { geometry: g, .. } => (g.kernel_h, g.kernel_w, g.in_channels / g.groups),
            ParameterKind::Fc { input, .. } => (input.height, input.width, input.channels),
            _ => return index,
        };
        let (pixel, c) = (index / channels, index % channels);
        let (out, pixel) = (pixel / (height * width), pixel % (height * width));
        (out * channels + c) * height * width + pixel
    }
}

/// A running statistic: a slice of the flat buffer of statistics.
#[derive(Clone, Debug)]
pub struct Statistic {
    /// The layer's path and the statistic's role, such as `4.running_mean`.
    pub name: String,
    /// Where it lies in the buffer of statistics.
    pub range: Range<usize>,
    /// What each of its values starts from.
    pub initial: f32,
}
