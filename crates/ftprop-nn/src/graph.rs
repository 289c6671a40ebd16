//! The graph: what a network is, resolved once from what a recipe writes.
//!
//! [`Graph::resolve`] infers every shape, places every parameter in the flat buffers and fills in what activations
//! share; whatever does not fit is refused with the layer's name. Engines, exporters and summaries are lowered from its
//! [`Node`]s: nobody looks at a [`LayerSpec`] or at a parameter's name again.
//!
//! ```
//! use ftprop_nn::graph::{Graph, Op};
//! use ftprop_nn::{Activation, Defaults, LayerLoss, Shape, presets};
//! let input = Shape { height: 32, width: 32, channels: 3 };
//! let layers = presets::layers("convnet4", input, &[]).unwrap();
//! let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
//! let graph = Graph::resolve(&layers, &defaults, input, 10).unwrap();
//! let Op::Conv(conv) = &graph.nodes()[0].op else { panic!("it begins with a convolution") };
//! assert_eq!(graph.parameter(conv.weight).range.len(), 32 * 5 * 5 * 3);
//! ```

mod resolve;

use crate::NnError;
use crate::activation::Activation;
use crate::parameter::{Parameter, Statistic};
use crate::spec::{Defaults, LayerSpec, PoolKind, pool_words};
use crate::target::{HardUnit, TargetRule};
use ftprop_tensor::Shape;
use ftprop_tensor::geometry::{ConvGeometry, PoolGeometry};
use resolve::Resolver;

/// A network, checked: its nodes with their shapes, its parameters and statistics with their places.
#[derive(Clone, Debug)]
pub struct Graph {
    input: Shape,
    classes: usize,
    nodes: Vec<Node>,
    parameters: Vec<Parameter>,
    statistics: Vec<Statistic>,
}

/// One layer.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its path, such as `3` or `4.main.1`.
    pub path: String,
    /// The shape of an example that comes in.
    pub input: Shape,
    /// The shape of what comes out.
    pub output: Shape,
    /// What it does.
    pub op: Op,
}

/// What a layer does.
#[derive(Clone, Debug)]
pub enum Op {
    /// A convolution.
    Conv(Conv),
    /// A fully connected layer.
    Fc(Fc),
    /// A pooling.
    Pool(PoolKind, PoolGeometry),
    /// Batch normalisation.
    BatchNorm(BatchNorm),
    /// A learned factor and summand for each channel.
    Affine(Affine),
    /// Hard-threshold units, which need targets. The number tells the layer from other hard ones, counted from 0.
    Hard(HardUnit, u64),
    /// A full-precision activation, which passes a gradient.
    Soft(Activation),
    /// Dropout.
    Dropout(Dropout),
    /// The sum of two paths; one without nodes is the input itself.
    Residual {
        /// The first summand.
        main: Vec<Node>,
        /// The second.
        shortcut: Vec<Node>,
    },
}

/// A convolution, with a bias or not.
#[derive(Clone, Debug)]
pub struct Conv {
    /// Its shapes.
    pub geometry: ConvGeometry,
    /// `[out, kernel_h, kernel_w, in / groups]`
    pub weight: ParameterId,
    /// One number a filter.
    pub bias: Option<ParameterId>,
}

/// A fully connected layer, with a bias or not.
#[derive(Clone, Debug)]
pub struct Fc {
    /// How many numbers come out.
    pub outputs: usize,
    /// `[out, height, width, channels]` of the example that comes in.
    pub weight: ParameterId,
    /// One number an output.
    pub bias: Option<ParameterId>,
}

/// Batch normalisation, of channels after a convolution and of units after a fully connected layer.
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// Added to the variance.
    pub eps: f32,
    /// How much a batch moves the running statistics.
    pub momentum: f32,
    /// The learned scale.
    pub gamma: ParameterId,
    /// The learned shift, right behind `gamma` in the flat buffers.
    pub beta: ParameterId,
    /// The running mean.
    pub mean: StatisticId,
    /// The running variance.
    pub variance: StatisticId,
}

/// A learned factor and summand for each channel, whatever the batch.
#[derive(Clone, Debug)]
pub struct Affine {
    /// The factors; where there are none they are 1.
    pub scale: Option<ParameterId>,
    /// The summands, right behind the factors in the flat buffers.
    pub shift: ParameterId,
}

/// Sets values, or whole channels, to zero in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// With this probability.
    pub p: f32,
    /// Whether whole channels.
    pub by_channel: bool,
    /// Tells this layer's masks from those of others.
    pub number: u64,
}

/// Which of a graph's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParameterId(usize);

/// Which of a graph's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StatisticId(usize);

impl Graph {
    /// The network of these layers for examples of a shape and so many classes.
    pub fn resolve(layers: &[LayerSpec], defaults: &Defaults, input: Shape, classes: usize) -> Result<Self, NnError> {
        let Some(last) = layers.last() else { return Err(NnError::Empty) };
        if input.is_empty() || classes == 0 {
            return Err(NnError::NoInput);
        }
        let mut resolver = Resolver::new(defaults, classes);
        let (nodes, output) = resolver.chain(layers, input, "", 0)?;
        if output != Shape::vector(classes) {
            return Err(NnError::Output {
                layer: layer_name(&(layers.len() - 1).to_string(), last.kind()),
                got: output.to_string(),
                classes,
                expected: Shape::vector(classes).to_string(),
            });
        }
        let Resolver { parameters, statistics, .. } = resolver;
        if parameters.is_empty() {
            return Err(NnError::NoParameters);
        }
        Ok(Graph { input, classes, nodes, parameters, statistics })
    }

    /// The shape of an example.
    pub fn input(&self) -> Shape {
        self.input
    }

    /// How many classes it tells apart.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Its layers, one after another.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Everything that is learned, in the order of the flat buffers.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Every running statistic, in the order of the flat buffer.
    pub fn statistics(&self) -> &[Statistic] {
        &self.statistics
    }

    /// One parameter.
    pub fn parameter(&self, id: ParameterId) -> &Parameter {
        &self.parameters[id.0]
    }

    /// One statistic.
    pub fn statistic(&self, id: StatisticId) -> &Statistic {
        &self.statistics[id.0]
    }

    /// How many numbers are learned.
    pub fn parameter_count(&self) -> usize {
        self.parameters.last().map_or(0, |p| p.range.end)
    }

    /// How many numbers the running statistics are.
    pub fn statistic_count(&self) -> usize {
        self.statistics.last().map_or(0, |s| s.range.end)
    }

    /// Where training starts from.
    pub fn initial_values(&self, seed: u64) -> Vec<f32> {
        let mut values = vec![0.0; self.parameter_count()];
        for (number, parameter) in self.parameters.iter().enumerate() {
            parameter.initialise(seed, number, &mut values[parameter.range.clone()]);
        }
        values
    }

    /// What the running statistics start from.
    pub fn initial_statistics(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.statistic_count()];
        for statistic in &self.statistics {
            values[statistic.range.clone()].fill(statistic.initial);
        }
        values
    }

    /// Every node in the order of the forward pass, those of residual blocks before the blocks themselves.
    pub fn walk(&self) -> Vec<&Node> {
        fn visit<'a>(nodes: &'a [Node], all: &mut Vec<&'a Node>) {
            for node in nodes {
                if let Op::Residual { main, shortcut } = &node.op {
                    visit(main, all);
                    visit(shortcut, all);
                }
                all.push(node);
            }
        }
        let mut all = Vec::new();
        visit(&self.nodes, &mut all);
        all
    }
}

impl Node {
    /// How messages name it: `layer 3 (conv)`.
    pub fn name(&self) -> String {
        layer_name(&self.path, self.op.kind())
    }

    /// What it is, in words.
    pub fn description(&self) -> String {
        match &self.op {
            Op::Conv(Conv { geometry: g, .. }) => {
                let mut text = format!("conv {} {}×{}", g.out_channels, g.kernel_h, g.kernel_w);
                for (word, number, usual) in [("stride", g.stride, 1), ("pad", g.pad, 0), ("groups", g.groups, 1)] {
                    if number != usual {
                        text += &format!(" {word} {number}");
                    }
                }
                text
            }
            Op::Fc(fc) => format!("fc {}", fc.outputs),
            Op::Pool(kind, g) => {
                let mut text = format!("{}-pool {}×{}", pool_words(*kind).0, g.kernel, g.kernel);
                if g.stride != g.kernel {
                    text += &format!(" stride {}", g.stride);
                }
                if g.pad != 0 {
                    text += &format!(" pad {}", g.pad);
                }
                text
            }
            Op::BatchNorm(_) => "batch norm".into(),
            Op::Affine(Affine { scale: Some(_), .. }) => "scale and shift".into(),
            Op::Affine(_) => "shift".into(),
            Op::Hard(unit, _) => format!("{}, {}", unit.activation, unit.layer_loss),
            Op::Soft(activation) => activation.to_string(),
            Op::Dropout(d) => format!("{} {}", if d.by_channel { "channel dropout" } else { "dropout" }, d.p),
            Op::Residual { .. } => "residual sum".into(),
        }
    }

    /// Multiply-adds of one example.
    pub fn multiply_adds(&self) -> usize {
        match &self.op {
            Op::Conv(conv) => conv.geometry.multiply_adds(),
            Op::Fc(fc) => self.input.len() * fc.outputs,
            _ => 0,
        }
    }

    /// Bits of one output value, where an activation decides it.
    pub fn activation_bits(&self) -> Option<u32> {
        match &self.op {
            Op::Hard(HardUnit { activation, .. }, _) | Op::Soft(activation) => Some(activation.bits()),
            _ => None,
        }
    }

    /// Its own parameters.
    pub fn parameters(&self) -> impl Iterator<Item = ParameterId> {
        let all = match &self.op {
            Op::Conv(Conv { weight, bias, .. }) | Op::Fc(Fc { weight, bias, .. }) => [Some(*weight), *bias],
            Op::BatchNorm(norm) => [Some(norm.gamma), Some(norm.beta)],
            Op::Affine(affine) => [affine.scale, Some(affine.shift)],
            _ => [None; 2],
        };
        all.into_iter().flatten()
    }
}

impl Op {
    /// The rule that sets its units' targets, where they are hard.
    pub fn target_rule(&self) -> Option<TargetRule> {
        match self {
            Op::Hard(unit, _) => Some(unit.rule),
            _ => None,
        }
    }

    /// The word a recipe writes for it.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Conv(_) => "conv",
            Op::Fc(_) => "fc",
            Op::Pool(kind, _) => pool_words(*kind).1,
            Op::BatchNorm(_) => "batch_norm",
            Op::Affine(_) => "affine",
            Op::Hard(..) | Op::Soft(_) => "act",
            Op::Dropout(Dropout { by_channel: false, .. }) => "dropout",
            Op::Dropout(_) => "channel_dropout",
            Op::Residual { .. } => "residual",
        }
    }
}

/// How messages name a layer.
fn layer_name(path: &str, kind: &str) -> String {
    format!("layer {path} ({kind})")
}

#[cfg(test)]
mod tests {
    use super::resolve::{DEEPEST, MOST_LAYERS};
    use super::*;
    use crate::layer_loss::LayerLoss;
    use crate::presets;
    use crate::spec::{Init, Kernel};

    fn resolve(layers: &[LayerSpec], input: Shape, classes: usize) -> Result<Graph, NnError> {
        Graph::resolve(layers, &Defaults::new(Activation::Sign, LayerLoss::soft_hinge()), input, classes)
    }

    #[test]
    fn parameters_lie_one_after_another_and_belong_to_their_nodes() {
        let input = Shape { height: 224, width: 224, channels: 3 };
        let graph = resolve(&presets::layers("resnet18", input, &[]).unwrap(), input, 10).unwrap();
        let mut end = 0;
        for p in graph.parameters() {
            assert_eq!(p.range.start, end, "{}", p.name);
            end = p.range.end;
        }
        assert_eq!(end, graph.parameter_count());
        let of_nodes: Vec<_> = graph.walk().into_iter().flat_map(|n| n.parameters().map(move |id| (n, id))).collect();
        assert_eq!(of_nodes.len(), graph.parameters().len());
        for (node, id) in of_nodes {
            assert!(graph.parameter(id).name.starts_with(&format!("{}.", node.path)));
        }
        let norms = graph.walk().into_iter().filter_map(|n| match &n.op {
            Op::BatchNorm(norm) => Some(norm),
            _ => None,
        });
        for norm in norms {
            assert_eq!(graph.parameter(norm.gamma).range.end, graph.parameter(norm.beta).range.start);
        }
    }

    #[test]
    fn advice_for_the_mean_of_an_image_that_is_not_square_can_be_followed() {
        let input = Shape { height: 2, width: 5, channels: 16 };
        let after = |first: &[LayerSpec]| resolve(&[first, &[LayerSpec::fc(None)]].concat(), input, 10).map(|_| ());
        let message = after(&[LayerSpec::global_average()]).unwrap_err().to_string();
        assert!(message.contains("kernel of at most 2") && message.contains("kernel = [1, 4]"), "{message}");
        assert!(after(&[LayerSpec::mean_pool(2, 2, 0)]).is_ok() && after(&[LayerSpec::mean_pool(3, 3, 0)]).is_err());
        let (kernel, init) = (Kernel::Rectangle([1, 4]), Init::Uniform);
        let conv = LayerSpec::Conv { out: 16, kernel, stride: 1, pad: 0, groups: 1, bias: None, init };
        assert!(after(&[conv, LayerSpec::global_average()]).is_ok());
    }

    #[test]
    fn what_no_memory_holds_and_what_no_stack_holds_is_refused() {
        let deep = (0..DEEPEST + 1)
            .fold(vec![LayerSpec::act()], |main, _| vec![LayerSpec::Residual { main, shortcut: vec![] }]);
        let message = resolve(&deep, Shape::vector(3), 3).unwrap_err().to_string();
        assert!(message.contains("64 deep"), "{message}");
        let many = vec![LayerSpec::act(); MOST_LAYERS + 1];
        assert!(matches!(resolve(&many, Shape::vector(3), 3), Err(NnError::TooManyLayers { .. })));
        assert!(matches!(resolve(&[LayerSpec::act()], Shape::vector(3), 3), Err(NnError::NoParameters)));
        assert!(matches!(resolve(&[], Shape::vector(3), 3), Err(NnError::Empty)));
    }

    #[test]
    fn hard_layers_and_dropouts_are_numbered_in_order() {
        let relu = LayerSpec::Act {
            activation: Some(Activation::Relu),
            layer_loss: None,
            target_rule: None,
            qrelu_form: None,
        };
        let layers = [LayerSpec::act(), relu, LayerSpec::Dropout { p: 0.0 }, LayerSpec::act(), LayerSpec::fc(None)];
        let graph = resolve(&layers, Shape::vector(3), 2).unwrap();
        let numbers: Vec<u64> = graph
            .nodes()
            .iter()
            .filter_map(|n| match n.op {
                Op::Hard(_, number) => Some(number),
                Op::Dropout(d) => Some(100 + d.number),
                _ => None,
            })
            .collect();
        assert_eq!(numbers, [0, 101, 1]);
        assert_eq!(graph.nodes()[1].activation_bits(), Some(32));
    }
}
