//! From the layers a recipe writes to layers that run: shapes are inferred, parameters placed, and whatever
//! does not fit is refused with the layer's name and the shapes.

use crate::NnError;
use crate::layers::{AvgPool, Chain, Conv, Dropout, Fc, HardLayer, Layer, Link, MaxPool, Norm, Residual, SoftLayer};
use crate::parameter::{Parameter, ParameterKind, Statistic};
use crate::probe::{Watch, Watched};
use crate::shape::Shape;
use crate::spec::{Defaults, LayerSpec};
use crate::target::{HardUnit, Weighting};
use ftprop_tensor::geometry::{ConvGeometry, PoolGeometry};
use ftprop_tensor::{Cpu, TensorError, cpu};
use std::ops::Range;

/// A layer as `ftprop summary` lists it.
#[derive(Clone, Debug)]
pub struct LayerInfo {
    /// Its path, such as `3` or `4.main.1`.
    pub path: String,
    /// What it is, in words.
    pub description: String,
    pub output: Shape,
    pub parameters: usize,
    /// Multiply-adds of one example.
    pub multiply_adds: usize,
    /// Bits of one output value, where an activation decides it.
    pub activation_bits: Option<u32>,
}

pub(crate) struct Builder<'a> {
    pub(crate) cpu: &'a Cpu,
    pub(crate) batch: usize,
    pub(crate) classes: usize,
    pub(crate) defaults: Defaults,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) statistics: Vec<Statistic>,
    pub(crate) infos: Vec<LayerInfo>,
    /// Values of all outputs so far, for a whole batch.
    activations: usize,
    /// The largest scratch that a layer needs.
    pub(crate) scratch: usize,
    /// The widest place in the network, in values an example.
    pub(crate) widest: usize,
    dropouts: u64,
    /// Where hard layers report what they see, in a probe. Each of them is then a layer of its own.
    pub(crate) watch: Option<Watch>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(cpu: &'a Cpu, batch: usize, classes: usize, defaults: Defaults) -> Self {
        Builder {
            cpu,
            batch,
            classes,
            defaults,
            parameters: Vec::new(),
            statistics: Vec::new(),
            infos: Vec::new(),
            activations: 0,
            scratch: 0,
            widest: 0,
            dropouts: 0,
            watch: None,
        }
    }

    /// Builds layers one after another; `prefix` is the path they live under.
    pub(crate) fn chain(&mut self, specs: &[LayerSpec], input: Shape, prefix: &str) -> Result<(Chain, Shape), NnError> {
        let mut shape = input;
        self.widest = self.widest.max(shape.len());
        let mut layers: Vec<Link> = Vec::with_capacity(specs.len());
        for (i, spec) in specs.iter().enumerate() {
            let path = format!("{prefix}{i}");
            let next_is_norm = matches!(specs.get(i + 1), Some(LayerSpec::BatchNorm { .. }));
            let (layer, out) = self.layer(spec, shape, &path, next_is_norm)?;
            self.activations = self.activations.saturating_add(out.len().saturating_mul(self.batch));
            self.check_memory(&path, spec)?;
            let pooled = layer.max_pool().zip(layers.last()).and_then(|(g, l)| l.layer.with_max_pool(g, self.batch));
            match (pooled, layers.last_mut()) {
                (Some(pooled), Some(link)) => {
                    self.needs(cpu::conv_pool::scratch_len(self.cpu, &pooled.geometry, self.batch));
                    self.activations -= shape.len() * self.batch;
                    (link.kind, link.layer) = ("conv with max_pool", Box::new(pooled));
                }
                _ => layers.push(Link { name: layer_name(&path, spec), kind: spec.kind(), layer }),
            }
            shape = out;
        }
        self.widest = layers.iter().fold(self.widest, |widest, link| widest.max(link.layer.out_len()));
        Ok((Chain::new(layers, self.batch), shape))
    }

    fn layer(
        &mut self,
        spec: &LayerSpec,
        input: Shape,
        path: &str,
        next_is_norm: bool,
    ) -> Result<(Box<dyn Layer>, Shape), NnError> {
        let name = layer_name(path, spec);
        let wrong = |source: TensorError| NnError::Layer { layer: name.clone(), input: input.to_string(), source };
        let value = |what: String| NnError::Value { layer: name.clone(), what };
        let before = self.parameter_count();
        let info = |builder: &mut Self, description: String, output: Shape, multiply_adds: usize, bits: Option<u32>| {
            builder.infos.push(LayerInfo {
                path: path.to_string(),
                description,
                output,
                parameters: builder.parameter_count() - before,
                multiply_adds,
                activation_bits: bits,
            });
        };
        Ok(match spec {
            LayerSpec::Conv { out, kernel, stride, pad, groups, bias, init } => {
                let geometry = ConvGeometry {
                    height: input.height,
                    width: input.width,
                    in_channels: input.channels,
                    out_channels: *out,
                    kernel_h: kernel.height(),
                    kernel_w: kernel.width(),
                    stride: *stride,
                    pad: *pad,
                    groups: *groups,
                };
                let g = geometry.checked().map_err(wrong)?;
                let output = Shape { height: g.out_height(), width: g.out_width(), channels: *out };
                let kind = ParameterKind::Conv { geometry: g, init: *init };
                let weight = self.parameter(format!("{path}.weight"), kind, g.weight_len());
                let bias = bias
                    .unwrap_or(!next_is_norm)
                    .then(|| self.parameter(format!("{path}.bias"), ParameterKind::Bias { fan_in: g.fan_in() }, *out));
                self.needs(cpu::conv::scratch_len(self.cpu, &g, self.batch));
                self.needs(cpu::reduce::column_scratch_len(self.batch * g.out_height() * g.out_width(), *out));
                let mut text = format!("conv {out} {}×{}", g.kernel_h, g.kernel_w);
                for (word, number, usual) in [("stride", *stride, 1), ("pad", *pad, 0), ("groups", *groups, 1)] {
                    if number != usual {
                        text += &format!(" {word} {number}");
                    }
                }
                info(self, text, output, g.multiply_adds(), None);
                (Box::new(Conv { geometry: g, weight, bias }), output)
            }
            LayerSpec::Fc { out, bias } => {
                let (inputs, outputs) = (input.len(), out.unwrap_or(self.classes));
                if outputs == 0 || inputs.saturating_mul(outputs) > 1 << 40 {
                    return Err(value(format!("out must be at least 1 and fit the memory, not {outputs}")));
                }
                let output = Shape::vector(outputs);
                let kind = ParameterKind::Fc { input, outputs };
                let weight = self.parameter(format!("{path}.weight"), kind, inputs * outputs);
                let bias = bias
                    .unwrap_or(!next_is_norm)
                    .then(|| self.parameter(format!("{path}.bias"), ParameterKind::Bias { fan_in: inputs }, outputs));
                self.needs(cpu::linear::scratch_len(self.cpu, inputs, outputs, self.batch));
                self.needs(cpu::reduce::column_scratch_len(self.batch, outputs));
                info(self, format!("fc {outputs}"), output, inputs * outputs, None);
                (Box::new(Fc { inputs, outputs, weight, bias }), output)
            }
            LayerSpec::MaxPool { kernel, stride, pad } => {
                let geometry = pool_geometry(input, *kernel, stride.unwrap_or(*kernel), *pad).map_err(wrong)?;
                let output = pool_output(&geometry);
                info(self, pool_text("max-pool", &geometry), output, 0, None);
                (Box::new(MaxPool { geometry }), output)
            }
            LayerSpec::AvgPool { kernel, stride, pad } => {
                if kernel.is_none() && input.height != input.width {
                    return Err(value(format!("an image of {input} is not square; give the window as kernel")));
                }
                let kernel = kernel.unwrap_or(input.height);
                let geometry = pool_geometry(input, kernel, stride.unwrap_or(kernel), *pad).map_err(wrong)?;
                let output = pool_output(&geometry);
                info(self, pool_text("average-pool", &geometry), output, 0, None);
                (Box::new(AvgPool { geometry }), output)
            }
            LayerSpec::BatchNorm { eps, momentum } => {
                if !(*eps > 0.0 && (0.0..=1.0).contains(momentum)) {
                    return Err(value("eps must be positive and momentum between 0 and 1".into()));
                }
                let channels = input.channels;
                let gamma = self.parameter(format!("{path}.gamma"), ParameterKind::Gamma, channels);
                let beta = self.parameter(format!("{path}.beta"), ParameterKind::Beta, channels);
                let mean = self.statistic(format!("{path}.running_mean"), channels, 0.0);
                let variance = self.statistic(format!("{path}.running_var"), channels, 1.0);
                self.needs(cpu::norm::scratch_len(self.batch * input.height * input.width, channels));
                info(self, "batch norm".into(), input, 0, None);
                (Box::new(Norm::new(input, *eps, *momentum, [gamma, beta], [mean, variance])), input)
            }
            LayerSpec::Act { activation, layer_loss, target_rule, qrelu_form } => {
                let unit = HardUnit {
                    activation: activation.unwrap_or(self.defaults.activation),
                    layer_loss: layer_loss.unwrap_or(self.defaults.layer_loss),
                    rule: target_rule.unwrap_or(self.defaults.target_rule),
                    form: qrelu_form.unwrap_or(self.defaults.qrelu_form),
                    weighting: Weighting::Gradient,
                    progress: 0.0,
                };
                let len = input.len();
                let bits = Some(unit.activation.bits());
                if unit.activation.is_hard() {
                    info(self, format!("{}, {}", unit.activation, unit.layer_loss), input, 0, bits);
                    let layer = HardLayer { unit, weighted: self.defaults.weighted, len };
                    match &self.watch {
                        None => (Box::new(layer), input),
                        Some(watch) => {
                            let below = self.infos.iter().rev().find(|i| i.multiply_adds > 0);
                            let below = below.map_or("input", |i| &i.description);
                            (Box::new(Watched::new(layer, watch, path, below, before)), input)
                        }
                    }
                } else {
                    info(self, unit.activation.to_string(), input, 0, bits);
                    let saturated = unit.activation == crate::activation::Activation::SaturatedRelu;
                    (Box::new(SoftLayer { saturated, len }), input)
                }
            }
            LayerSpec::Dropout { p } | LayerSpec::ChannelDropout { p } => {
                if !(0.0..1.0).contains(p) {
                    return Err(value(format!("p must be at least 0 and below 1, not {p}")));
                }
                let by_channel = matches!(spec, LayerSpec::ChannelDropout { .. });
                self.dropouts += 1;
                info(self, format!("{} {p}", if by_channel { "channel dropout" } else { "dropout" }), input, 0, None);
                (Box::new(Dropout { shape: input, p: *p, by_channel, number: self.dropouts }), input)
            }
            LayerSpec::Residual { main, shortcut } => {
                if main.is_empty() {
                    return Err(value("the main path has no layers".into()));
                }
                let (main, output) = self.chain(main, input, &format!("{path}.main."))?;
                let (shortcut, beside) = self.chain(shortcut, input, &format!("{path}.shortcut."))?;
                if output != beside {
                    let (main, shortcut) = (output.to_string(), beside.to_string());
                    return Err(NnError::Residual { layer: name, main, shortcut });
                }
                self.infos.push(LayerInfo {
                    path: path.to_string(),
                    description: "residual sum".into(),
                    output,
                    parameters: 0,
                    multiply_adds: 0,
                    activation_bits: None,
                });
                (Box::new(Residual::new(main, shortcut, input.len(), output.len(), self.batch)), output)
            }
        })
    }

    /// Asks for as much memory as the layers so far need, and gives it back: better refused here than killed later.
    fn check_memory(&self, path: &str, spec: &LayerSpec) -> Result<(), NnError> {
        // Parameters, gradients and two moments; outputs; scratch.
        let floats =
            self.parameter_count().saturating_mul(4).saturating_add(self.activations).saturating_add(self.scratch);
        let bytes = floats.saturating_mul(4);
        Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| NnError::Value {
            layer: layer_name(path, spec),
            what: format!(
                "up to here the network needs {:.1} GB, more than there is; make it smaller, or train.batch",
                bytes as f64 / 1e9
            ),
        })
    }

    fn parameter_count(&self) -> usize {
        self.parameters.last().map_or(0, |p| p.range.end)
    }

    fn parameter(&mut self, name: String, kind: ParameterKind, len: usize) -> Range<usize> {
        let start = self.parameter_count();
        let range = start..start + len;
        self.parameters.push(Parameter { name, kind, range: range.clone() });
        range
    }

    fn statistic(&mut self, name: String, len: usize, initial: f32) -> Range<usize> {
        let start = self.statistics.last().map_or(0, |s| s.range.end);
        let range = start..start + len;
        self.statistics.push(Statistic { name, range: range.clone(), initial });
        range
    }

    fn needs(&mut self, scratch: usize) {
        self.scratch = self.scratch.max(scratch);
    }
}

fn layer_name(path: &str, spec: &LayerSpec) -> String {
    format!("layer {path} ({})", spec.kind())
}

fn pool_geometry(input: Shape, kernel: usize, stride: usize, pad: usize) -> Result<PoolGeometry, TensorError> {
    let Shape { height, width, channels } = input;
    PoolGeometry { height, width, channels, kernel, stride, pad }.checked()
}

fn pool_output(g: &PoolGeometry) -> Shape {
    Shape { height: g.out_height(), width: g.out_width(), channels: g.channels }
}

fn pool_text(what: &str, g: &PoolGeometry) -> String {
    let mut text = format!("{what} {}×{}", g.kernel, g.kernel);
    if g.stride != g.kernel {
        text += &format!(" stride {}", g.stride);
    }
    if g.pad != 0 {
        text += &format!(" pad {}", g.pad);
    }
    text
}
