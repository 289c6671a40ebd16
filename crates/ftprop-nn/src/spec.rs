//! A network as a recipe writes it: a list of layers whose shapes are inferred.
//!
//! ```toml
//! [[network.layers]]
//! kind = "conv"
//! out = 32
//! kernel = 5
//! pad = 2
//!
//! [[network.layers]]
//! kind = "act"
//! activation = "relu"      # a full-precision first layer; without this key, the recipe's activation
//! ```

pub use ftprop_tensor::cpu::pool::PoolKind;

use crate::activation::Activation;
use crate::layer_loss::LayerLoss;
use crate::target::{QreluForm, TargetRule};
use serde::{Deserialize, Serialize};

/// A layer of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LayerSpec {
    /// A two-dimensional convolution. It has a bias unless batch norm follows it or `bias` says otherwise.
    Conv {
        /// Channels that come out.
        out: usize,
        /// The window.
        kernel: Kernel,
        /// Pixels from one window to the next.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        stride: usize,
        /// Zeros around the image, on each side.
        #[serde(default, skip_serializing_if = "is_zero")]
        pad: usize,
        /// How many parts the channels are cut into, each with filters of its own.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        groups: usize,
        /// Whether each channel has a summand.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias: Option<bool>,
        /// What the filters start from.
        #[serde(default, skip_serializing_if = "Init::is_default")]
        init: Init,
    },
    /// A fully connected layer; without `out`, one output a class.
    Fc {
        /// Units.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        out: Option<usize>,
        /// Whether each unit has a summand; if not given, as for a convolution.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bias: Option<bool>,
    },
    /// The largest value of each window.
    MaxPool {
        /// The window's side.
        kernel: usize,
        /// As the kernel if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<usize>,
        /// Pixels around the image, on each side, that are never the largest.
        #[serde(default, skip_serializing_if = "is_zero")]
        pad: usize,
    },
    /// Average pooling; without a kernel, over the whole image.
    AvgPool {
        /// The window's side.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel: Option<usize>,
        /// As the kernel if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stride: Option<usize>,
        /// Zeros around the image, on each side, that count.
        #[serde(default, skip_serializing_if = "is_zero")]
        pad: usize,
    },
    /// Batch normalisation, of channels after a convolution and of units after a fully connected layer.
    BatchNorm {
        /// What is added to the variance.
        #[serde(default = "norm_eps")]
        eps: f32,
        /// The share of each batch in the running statistics.
        #[serde(default = "norm_momentum")]
        momentum: f32,
    },
    /// A learned summand for each channel, which starts at 0, and a learned factor where `scale` says what it starts from:
    /// before a hard activation its thresholds and the size of its steps.
    Affine {
        /// What the factors start from; without it there are none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scale: Option<f32>,
    },
    /// The activation: the recipe's, with anything overridden in place.
    Act {
        /// What the units output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        activation: Option<Activation>,
        /// How they miss their targets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        layer_loss: Option<LayerLoss>,
        /// How their targets are set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target_rule: Option<TargetRule>,
        /// Which form of loss a quantized ReLU has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        qrelu_form: Option<QreluForm>,
    },
    /// Sets values to zero with probability p in training.
    Dropout {
        /// The probability.
        p: f32,
    },
    /// Sets whole channels to zero with probability p in training.
    ChannelDropout {
        /// The probability.
        p: f32,
    },
    /// The sum of a main path and a shortcut, which is the input itself if it has no layers.
    Residual {
        /// The layers of the main path.
        main: Vec<LayerSpec>,
        /// Those of the shortcut.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        shortcut: Vec<LayerSpec>,
    },
}

/// A kernel's size: one number, or height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "`kernel` must be a whole number such as 3, or [height, width]")]
pub enum Kernel {
    /// As high as wide.
    Square(usize),
    /// Height and width.
    Rectangle([usize; 2]),
}

impl Kernel {
    /// Its height.
    pub fn height(self) -> usize {
        match self {
            Kernel::Square(k) | Kernel::Rectangle([k, _]) => k,
        }
    }

    /// Its width.
    pub fn width(self) -> usize {
        match self {
            Kernel::Square(k) | Kernel::Rectangle([_, k]) => k,
        }
    }
}

/// The word for a kind of pooling in summaries, and the one that a recipe writes.
pub fn pool_words(kind: PoolKind) -> (&'static str, &'static str) {
    match kind {
        PoolKind::Max => ("max", "max_pool"),
        PoolKind::Average => ("average", "avg_pool"),
    }
}

/// How a convolution's weights start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Uniform in ±1/√fan_in, PyTorch's default.
    #[default]
    Uniform,
    /// Normal with standard deviation √(2 / (kernel_h · kernel_w · out)), as ResNets start.
    NormalFanOut,
    /// The first filters hand their channel on, one each for as many channels as come in; the rest is uniform.
    Dirac,
    /// The principal directions of the training pictures' patches, scaled to variance 1, and their opposites: for the
    /// first layer alone. Whoever trains puts them in place; before that it is uniform.
    Whitened,
}

impl Init {
    fn is_default(&self) -> bool {
        *self == Init::default()
    }
}

impl LayerSpec {
    /// A square convolution, with a bias unless a batch norm follows, that starts uniformly.
    ///
    /// ```
    /// use ftprop_nn::{Activation, Defaults, Graph, LayerLoss, LayerSpec, Shape};
    /// let mut layers = vec![LayerSpec::conv(16, 3, 1, 1), LayerSpec::batch_norm(1e-5), LayerSpec::act()];
    /// layers.extend([LayerSpec::global_average(), LayerSpec::fc(None)]);
    /// let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    /// let graph = Graph::resolve(&layers, &defaults, Shape { height: 8, width: 8, channels: 3 }, 10)?;
    /// assert_eq!(graph.parameter_count(), 3 * 3 * 3 * 16 + 2 * 16 + (16 + 1) * 10);
    /// # Ok::<(), ftprop_nn::NnError>(())
    /// ```
    pub fn conv(out: usize, kernel: usize, stride: usize, pad: usize) -> Self {
        LayerSpec::Conv { out, kernel: Kernel::Square(kernel), stride, pad, groups: 1, bias: None, init: Init::Uniform }
    }

    /// A fully connected layer, by default with a unit for each class.
    pub fn fc(out: Option<usize>) -> Self {
        LayerSpec::Fc { out, bias: None }
    }

    /// The largest of each window.
    pub fn max_pool(kernel: usize, stride: usize, pad: usize) -> Self {
        LayerSpec::MaxPool { kernel, stride: (stride != kernel).then_some(stride), pad }
    }

    /// The mean of each channel over the whole image.
    pub fn global_average() -> Self {
        LayerSpec::AvgPool { kernel: None, stride: None, pad: 0 }
    }

    /// The mean of each window.
    pub fn mean_pool(kernel: usize, stride: usize, pad: usize) -> Self {
        LayerSpec::AvgPool { kernel: Some(kernel), stride: Some(stride), pad }
    }

    /// Batch norm with the usual momentum.
    pub fn batch_norm(eps: f32) -> Self {
        LayerSpec::BatchNorm { eps, momentum: norm_momentum() }
    }

    /// The run's activation, with all that it has by default.
    pub fn act() -> Self {
        LayerSpec::Act { activation: None, layer_loss: None, target_rule: None, qrelu_form: None }
    }

    /// The word a recipe writes for this kind.
    pub fn kind(&self) -> &'static str {
        match self {
            LayerSpec::Conv { .. } => "conv",
            LayerSpec::Fc { .. } => "fc",
            LayerSpec::MaxPool { .. } => pool_words(PoolKind::Max).1,
            LayerSpec::AvgPool { .. } => pool_words(PoolKind::Average).1,
            LayerSpec::BatchNorm { .. } => "batch_norm",
            LayerSpec::Affine { .. } => "affine",
            LayerSpec::Act { .. } => "act",
            LayerSpec::Dropout { .. } => "dropout",
            LayerSpec::ChannelDropout { .. } => "channel_dropout",
            LayerSpec::Residual { .. } => "residual",
        }
    }
}

/// What the activations of a network share unless one overrides it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// What hidden units output.
    pub activation: Activation,
    /// How they miss their targets.
    pub layer_loss: LayerLoss,
    /// How targets are set.
    pub target_rule: TargetRule,
    /// Which form of loss a quantized ReLU has.
    pub qrelu_form: QreluForm,
    /// Whether a target's loss is weighted by |g|.
    pub weighted: bool,
    /// Whether the factors of batch norms start anywhere between 0 and 1, as PyTorch's once did, not at 1.
    pub uniform_gamma: bool,
}

impl Defaults {
    /// The paper's choices for everything but the activation and the layer loss.
    pub fn new(activation: Activation, layer_loss: LayerLoss) -> Self {
        Defaults {
            activation,
            layer_loss,
            target_rule: TargetRule::gradient_sign(),
            qrelu_form: QreluForm::default(),
            weighted: true,
            uniform_gamma: false,
        }
    }
}

fn one() -> usize {
    1
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

fn norm_eps() -> f32 {
    1e-5
}

fn norm_momentum() -> f32 {
    0.1
}
