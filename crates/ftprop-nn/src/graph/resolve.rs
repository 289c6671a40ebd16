//! From the layers a recipe writes to nodes: shapes are inferred, parameters placed, and whatever does not fit is refused.

use super::{Affine, BatchNorm, Conv, Dropout, Fc, Node, Op, ParameterId, StatisticId, layer_name};
use crate::NnError;
use crate::parameter::{Parameter, ParameterKind, Statistic};
use crate::spec::{Defaults, Init, LayerSpec, PoolKind};
use crate::target::HardUnit;
use ftprop_tensor::geometry::{ConvGeometry, PoolGeometry};
use ftprop_tensor::{Shape, TensorError};

/// Residual blocks within residual blocks, at most: every reader of a graph follows them by recursion.
pub(super) const DEEPEST: usize = 64;
/// Layers, at most: more are a slip, and would take minutes to refuse otherwise.
pub(super) const MOST_LAYERS: usize = 10_000;

pub(super) struct Resolver<'a> {
    defaults: &'a Defaults,
    classes: usize,
    pub(super) parameters: Vec<Parameter>,
    pub(super) statistics: Vec<Statistic>,
    layers: usize,
    dropouts: u64,
    hard: u64,
}

/// A layer being resolved.
struct At<'a> {
    spec: &'a LayerSpec,
    path: &'a str,
    input: Shape,
    /// Whether batch norm follows, which makes a bias pointless.
    before_norm: bool,
    depth: usize,
}

impl At<'_> {
    fn name(&self) -> String {
        layer_name(self.path, self.spec.kind())
    }

    fn wrong(&self, source: TensorError) -> NnError {
        NnError::Layer { layer: self.name(), input: self.input.to_string(), source }
    }

    fn value(&self, what: impl Into<String>) -> NnError {
        NnError::Value { layer: self.name(), what: what.into() }
    }
}

impl<'a> Resolver<'a> {
    pub(super) fn new(defaults: &'a Defaults, classes: usize) -> Self {
        Resolver { defaults, classes, parameters: Vec::new(), statistics: Vec::new(), layers: 0, dropouts: 0, hard: 0 }
    }

    /// Layers one after another; `prefix` is the path they live under.
    pub(super) fn chain(
        &mut self,
        specs: &[LayerSpec],
        input: Shape,
        prefix: &str,
        depth: usize,
    ) -> Result<(Vec<Node>, Shape), NnError> {
        self.layers += specs.len();
        if self.layers > MOST_LAYERS {
            return Err(NnError::TooManyLayers { most: MOST_LAYERS });
        }
        let mut shape = input;
        let mut nodes = Vec::with_capacity(specs.len());
        for (i, spec) in specs.iter().enumerate() {
            let path = format!("{prefix}{i}");
            let before_norm = matches!(specs.get(i + 1), Some(LayerSpec::BatchNorm { .. }));
            let (op, output) = self.layer(&At { spec, path: &path, input: shape, before_norm, depth })?;
            nodes.push(Node { path, input: shape, output, op });
            shape = output;
        }
        Ok((nodes, shape))
    }

    fn layer(&mut self, at: &At<'_>) -> Result<(Op, Shape), NnError> {
        let input = at.input;
        Ok(match at.spec {
            LayerSpec::Conv { .. } => self.conv(at)?,
            LayerSpec::Fc { out, bias } => self.fc(at, *out, *bias)?,
            LayerSpec::MaxPool { kernel, stride, pad } => pool(at, PoolKind::Max, Some(*kernel), *stride, *pad)?,
            LayerSpec::AvgPool { kernel, stride, pad } => pool(at, PoolKind::Average, *kernel, *stride, *pad)?,
            LayerSpec::BatchNorm { eps, momentum } => (self.batch_norm(at, *eps, *momentum)?, input),
            LayerSpec::Affine { scale } => (self.affine(at, *scale)?, input),
            LayerSpec::Act { activation, layer_loss, target_rule, qrelu_form } => {
                let activation = activation.unwrap_or(self.defaults.activation);
                if !activation.is_hard() {
                    return Ok((Op::Soft(activation), input));
                }
                let unit = HardUnit {
                    activation,
                    layer_loss: layer_loss.unwrap_or(self.defaults.layer_loss),
                    rule: target_rule.unwrap_or(self.defaults.target_rule),
                    form: qrelu_form.unwrap_or(self.defaults.qrelu_form),
                    weighted: self.defaults.weighted,
                };
                self.hard += 1;
                (Op::Hard(unit, self.hard - 1), input)
            }
            LayerSpec::Dropout { p } => (self.dropout(at, *p, false)?, input),
            LayerSpec::ChannelDropout { p } => (self.dropout(at, *p, true)?, input),
            LayerSpec::Residual { main, shortcut } => self.residual(at, main, shortcut)?,
        })
    }

    fn conv(&mut self, at: &At<'_>) -> Result<(Op, Shape), NnError> {
        let LayerSpec::Conv { out, kernel, stride, pad, groups, bias, init } = at.spec else {
            unreachable!("called for convolutions");
        };
        let geometry = ConvGeometry {
            height: at.input.height,
            width: at.input.width,
            in_channels: at.input.channels,
            out_channels: *out,
            kernel_h: kernel.height(),
            kernel_w: kernel.width(),
            stride: *stride,
            pad: *pad,
            groups: *groups,
        };
        let g = geometry.checked().map_err(|e| at.wrong(e))?;
        if *init == Init::Whitened {
            if at.path != "0" {
                return Err(at.value("only the first layer can be whitened: it reads the pictures"));
            }
            if *groups != 1 || out % 2 != 0 || *out > 2 * g.fan_in() {
                let most = 2 * g.fan_in();
                return Err(at.value(format!(
                    "a whitened layer has directions and their opposites: an even number of outputs, at most {most}, and one group"
                )));
            }
        }
        let kind = ParameterKind::Conv { geometry: g, init: *init };
        let weight = self.parameter(at, "weight", kind, g.weight_len())?;
        let bias = self.bias(at, *bias, g.fan_in(), *out)?;
        let output = Shape { height: g.out_height(), width: g.out_width(), channels: *out };
        Ok((Op::Conv(Conv { geometry: g, weight, bias }), output))
    }

    fn fc(&mut self, at: &At<'_>, out: Option<usize>, bias: Option<bool>) -> Result<(Op, Shape), NnError> {
        let (inputs, outputs) = (at.input.len(), out.unwrap_or(self.classes));
        if outputs == 0 || inputs.saturating_mul(outputs) > 1 << 40 {
            return Err(at.value(format!("out must be at least 1 and fit the memory, not {outputs}")));
        }
        let kind = ParameterKind::Fc { input: at.input, outputs };
        let weight = self.parameter(at, "weight", kind, inputs * outputs)?;
        let bias = self.bias(at, bias, inputs, outputs)?;
        Ok((Op::Fc(Fc { outputs, weight, bias }), Shape::vector(outputs)))
    }

    /// A product's bias: as its layer says, else one unless batch norm follows.
    fn bias(
        &mut self,
        at: &At<'_>,
        asked: Option<bool>,
        fan_in: usize,
        len: usize,
    ) -> Result<Option<ParameterId>, NnError> {
        let wanted = asked.unwrap_or(!at.before_norm);
        wanted.then(|| self.parameter(at, "bias", ParameterKind::Bias { fan_in }, len)).transpose()
    }

    fn batch_norm(&mut self, at: &At<'_>, eps: f32, momentum: f32) -> Result<Op, NnError> {
        if !(eps > 0.0 && eps.is_finite() && (0.0..=1.0).contains(&momentum)) {
            return Err(at.value("eps must be positive and momentum between 0 and 1"));
        }
        let channels = at.input.channels;
        Ok(Op::BatchNorm(BatchNorm {
            eps,
            momentum,
            gamma: self.parameter(
                at,
                "gamma",
                ParameterKind::Gamma { uniform: self.defaults.uniform_gamma },
                channels,
            )?,
            beta: self.parameter(at, "beta", ParameterKind::Beta, channels)?,
            mean: self.statistic(at, "running_mean", channels, 0.0),
            variance: self.statistic(at, "running_var", channels, 1.0),
        }))
    }

    fn affine(&mut self, at: &At<'_>, scale: Option<f32>) -> Result<Op, NnError> {
        if scale.is_some_and(|scale| !scale.is_finite()) {
            return Err(at.value("scale must be a number"));
        }
        let channels = at.input.channels;
        let factors = |initial| self.parameter(at, "scale", ParameterKind::Scale { initial }, channels);
        let scale = scale.map(factors).transpose()?;
        Ok(Op::Affine(Affine { scale, shift: self.parameter(at, "shift", ParameterKind::Shift, channels)? }))
    }

    fn dropout(&mut self, at: &At<'_>, p: f32, by_channel: bool) -> Result<Op, NnError> {
        if !(0.0..1.0).contains(&p) {
            return Err(at.value(format!("p must be at least 0 and below 1, not {p}")));
        }
        self.dropouts += 1;
        Ok(Op::Dropout(Dropout { p, by_channel, number: self.dropouts }))
    }

    fn residual(&mut self, at: &At<'_>, main: &[LayerSpec], shortcut: &[LayerSpec]) -> Result<(Op, Shape), NnError> {
        if main.is_empty() {
            return Err(at.value("the main path has no layers"));
        }
        if at.depth >= DEEPEST {
            return Err(at.value(format!("residual blocks go at most {DEEPEST} deep into each other")));
        }
        let (main, output) = self.chain(main, at.input, &format!("{}.main.", at.path), at.depth + 1)?;
        let (shortcut, beside) = self.chain(shortcut, at.input, &format!("{}.shortcut.", at.path), at.depth + 1)?;
        if output != beside {
            let (main, shortcut) = (output.to_string(), beside.to_string());
            return Err(NnError::Residual { layer: at.name(), main, shortcut });
        }
        Ok((Op::Residual { main, shortcut }, output))
    }

    fn parameter(&mut self, at: &At<'_>, role: &str, kind: ParameterKind, len: usize) -> Result<ParameterId, NnError> {
        let start = self.parameters.last().map_or(0, |p| p.range.end);
        let end = start.checked_add(len).filter(|&end| end <= 1 << 40);
        let end = end.ok_or_else(|| at.value("up to here the network has more parameters than any memory holds"))?;
        self.parameters.push(Parameter { name: format!("{}.{role}", at.path), kind, range: start..end });
        Ok(ParameterId(self.parameters.len() - 1))
    }

    fn statistic(&mut self, at: &At<'_>, role: &str, len: usize, initial: f32) -> StatisticId {
        let start = self.statistics.last().map_or(0, |s| s.range.end);
        self.statistics.push(Statistic { name: format!("{}.{role}", at.path), range: start..start + len, initial });
        StatisticId(self.statistics.len() - 1)
    }
}

fn pool(
    at: &At<'_>,
    kind: PoolKind,
    kernel: Option<usize>,
    stride: Option<usize>,
    pad: usize,
) -> Result<(Op, Shape), NnError> {
    let Shape { height, width, channels } = at.input;
    if kernel.is_none() && height != width {
        // The kernel of a convolution without padding that leaves the shorter side on both.
        let [down, across] = [height, width].map(|side| side - height.min(width) + 1);
        return Err(at.value(format!(
            "an image of {} is not square, and a window is; give a kernel of at most {}, or make the image square before, as a \
             conv with kernel = [{down}, {across}] does",
            at.input,
            height.min(width)
        )));
    }
    let kernel = kernel.unwrap_or(height);
    let geometry = PoolGeometry { height, width, channels, kernel, stride: stride.unwrap_or(kernel), pad };
    let g = geometry.checked().map_err(|e| at.wrong(e))?;
    Ok((Op::Pool(kind, g), Shape { height: g.out_height(), width: g.out_width(), channels }))
}
