//! Layers to operations.
//!
//! The walk keeps what a hard activation could still swallow: a linear layer whose sums nobody has read yet, the
//! norms behind it and one max-pool. An activation turns that into one operation with thresholds (and a pool of
//! levels); anything else makes it a value first.

use super::fold::{self, Line};
use super::network::{Connected, Convolution, FlattenOrder, FloatLayer, FloatNetwork, WeightLayout};
use super::quantize::{self, Row};
use super::{PackOptions, WeightFormat};
use crate::error::{Error, Result};
use crate::model::{Activation, Affine, Codec, Conv, Kind, Op, Shape, Stage, Value, Weights, Window};

/// The operations of a network.
pub(super) fn lower(network: &FloatNetwork, options: &PackOptions) -> Result<Vec<Op<'static>>> {
    let about = &network.preprocessing;
    let values = vec![Value { shape: about.input, kind: about.element.kind() }];
    if about.std.len() != about.input.channels || about.mean.len() != about.input.channels {
        return Err(Error::Pack {
            layer: "0".into(),
            what: format!("give a mean and a deviation for each of the {} channels", about.input.channels),
        });
    }
    let mut walk = Walk { weights: options.weights, std: &about.std, values, ops: Vec::new(), place: Vec::new() };
    let state = walk.layers(&network.layers, State::new(0))?;
    let logits = walk.value_of(state.current)?;
    if walk.values[logits].kind != Kind::Real {
        walk.map(logits, &[], None)?;
    }
    Ok(walk.ops)
}

/// A linear layer that nobody has read yet: `before` leads from its sums to what the pool sees, `after` from there on.
struct Linear {
    input: usize,
    window: Window,
    groups: usize,
    /// Output channel, kernel row, kernel column, input channel.
    weights: Vec<f32>,
    before: Vec<Line>,
    pool: Option<Window>,
    after: Vec<Line>,
}

/// Where the walk stands.
enum Current {
    Value(usize),
    Linear(Linear),
    /// A value with an affine map on top.
    Mapped(usize, Vec<Line>),
    Sum([usize; 2]),
}

struct State {
    current: Current,
    /// Set by a flatten layer for the next fully connected one.
    flattened: Option<FlattenOrder>,
}

impl State {
    fn new(value: usize) -> Self {
        State { current: Current::Value(value), flattened: None }
    }
}

struct Walk<'a> {
    weights: WeightFormat,
    std: &'a [f32],
    values: Vec<Value>,
    ops: Vec<Op<'static>>,
    /// The layer being lowered, for messages.
    place: Vec<String>,
}

impl Walk<'_> {
    fn fail<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::Pack { layer: self.place.join("."), what: what.into() })
    }

    fn layers(&mut self, layers: &[FloatLayer], mut state: State) -> Result<State> {
        for (number, layer) in layers.iter().enumerate() {
            self.place.push(number.to_string());
            state = self.layer(layer, state)?;
            self.place.pop();
        }
        Ok(state)
    }

    fn layer(&mut self, layer: &FloatLayer, state: State) -> Result<State> {
        let State { current, flattened } = state;
        let current = match layer {
            FloatLayer::Flatten(order) => return Ok(State { current, flattened: Some(*order) }),
            FloatLayer::Conv(conv) => self.conv(conv, current)?,
            FloatLayer::FullyConnected(connected) => {
                let current = self.connected(connected, current, flattened)?;
                return Ok(State { current, flattened: None });
            }
            FloatLayer::BatchNorm(norm) => {
                let channels = norm.gamma.len();
                let lengths = [norm.beta.len(), norm.mean.len(), norm.var.len(), self.channels(&current)];
                if lengths.iter().any(|&length| length != channels) {
                    return self.fail(format!("a norm over {channels} channels does not fit lengths {lengths:?}"));
                }
                self.norm(fold::lines(norm), current)?
            }
            FloatLayer::MaxPool(window) => match current {
                Current::Linear(linear) if linear.pool.is_none() => {
                    Current::Linear(Linear { pool: Some(*window), ..linear })
                }
                other => {
                    let input = self.value_of(other)?;
                    Current::Value(self.max_pool(input, *window, Vec::new())?)
                }
            },
            FloatLayer::AveragePool(window) => {
                let input = self.value_of(current)?;
                let shape = self.pooled(input, *window)?;
                let op = Op::AveragePool { input, window: *window };
                Current::Value(self.emit(op, shape, Kind::Real))
            }
            FloatLayer::Activation(activation) => Current::Value(self.activate(*activation, current)?),
            FloatLayer::Residual { main, shortcut } => {
                let input = self.value_of(current)?;
                let mut ends = [0; 2];
                for (end, (name, path)) in ends.iter_mut().zip([("main", main), ("shortcut", shortcut)]) {
                    self.place.push(name.into());
                    let state = self.layers(path, State::new(input))?;
                    *end = self.value_of(state.current)?;
                    self.place.pop();
                }
                let shapes = ends.map(|end| self.values[end].shape);
                if shapes[0] != shapes[1] {
                    return self
                        .fail(format!("its paths end in different shapes, {:?} and {:?}", shapes[0], shapes[1]));
                }
                Current::Sum(ends)
            }
        };
        Ok(State { current, flattened })
    }

    fn conv(&mut self, conv: &Convolution, current: Current) -> Result<Current> {
        let input = self.value_of(current)?;
        let channels = self.values[input].shape.channels;
        let [rows, columns] = conv.window.kernel;
        if conv.groups == 0 || !channels.is_multiple_of(conv.groups) || !conv.outputs.is_multiple_of(conv.groups) {
            return self.fail(format!("{} groups do not divide {channels} and {}", conv.groups, conv.outputs));
        }
        let inner = channels / conv.groups;
        self.expect("weights", conv.weights.len(), conv.outputs * inner * rows * columns)?;
        let weights = match conv.layout {
            WeightLayout::Ohwi => conv.weights.clone(),
            WeightLayout::Oihw => channels_last(&conv.weights, inner, rows * columns),
        };
        self.linear(input, conv.window, conv.groups, conv.outputs, weights, conv.bias.as_deref())
    }

    fn connected(&mut self, layer: &Connected, current: Current, order: Option<FlattenOrder>) -> Result<Current> {
        let input = self.value_of(current)?;
        let Shape { height, width, channels } = self.values[input].shape;
        self.expect("weights", layer.weights.len(), layer.outputs * height * width * channels)?;
        let weights = match order {
            Some(FlattenOrder::ChannelsFirst) => channels_last(&layer.weights, channels, height * width),
            None if height * width > 1 => {
                return self.fail("put a flatten layer before a fully connected one on a picture");
            }
            _ => layer.weights.clone(),
        };
        let window = Window { kernel: [height, width], stride: [1, 1], pad: [0, 0] };
        self.linear(input, window, 1, layer.outputs, weights, layer.bias.as_deref())
    }

    fn linear(
        &mut self,
        input: usize,
        window: Window,
        groups: usize,
        outputs: usize,
        weights: Vec<f32>,
        bias: Option<&[f32]>,
    ) -> Result<Current> {
        self.expect("bias", bias.map_or(outputs, <[f32]>::len), outputs)?;
        if !weights.iter().chain(bias.unwrap_or(&[])).all(|number| number.is_finite()) {
            return self.fail("a weight or bias is not finite");
        }
        let offset = |output| bias.map_or(0.0, |bias| bias[output] as f64);
        let before = (0..outputs).map(|output| Line { slope: 1.0, offset: offset(output) }).collect();
        let after = vec![Line::IDENTITY; outputs];
        Ok(Current::Linear(Linear { input, window, groups, weights, before, pool: None, after }))
    }

    fn norm(&mut self, lines: Vec<Line>, current: Current) -> Result<Current> {
        if !lines.iter().all(|line| line.slope.is_finite() && line.offset.is_finite()) {
            return self.fail("its statistics do not make a finite map");
        }
        let compose =
            |onto: &mut Vec<Line>| onto.iter_mut().zip(&lines).for_each(|(line, &next)| *line = line.then(next));
        Ok(match current {
            Current::Linear(mut linear) => {
                compose(if linear.pool.is_some() { &mut linear.after } else { &mut linear.before });
                Current::Linear(linear)
            }
            Current::Mapped(value, mut before) => {
                compose(&mut before);
                Current::Mapped(value, before)
            }
            other => Current::Mapped(self.value_of(other)?, lines),
        })
    }

    fn activate(&mut self, activation: Activation, current: Current) -> Result<usize> {
        if !activation.is_valid() {
            return self.fail(format!("{activation:?} needs between 2 and {} steps", crate::model::MAX_STEPS));
        }
        match current {
            Current::Linear(linear) => self.finish(linear, Some(activation)),
            Current::Sum(inputs) => {
                let shape = self.values[inputs[0]].shape;
                Ok(self.emit(Op::Add { inputs, activation: Some(activation) }, shape, kind_of(Some(activation))))
            }
            Current::Mapped(value, lines) => self.map(value, &lines, Some(activation)),
            Current::Value(value) => self.map(value, &[], Some(activation)),
        }
    }

    /// Makes what is pending a value.
    fn value_of(&mut self, current: Current) -> Result<usize> {
        match current {
            Current::Value(value) => Ok(value),
            Current::Mapped(value, lines) => self.map(value, &lines, None),
            Current::Sum(inputs) => {
                let shape = self.values[inputs[0]].shape;
                Ok(self.emit(Op::Add { inputs, activation: None }, shape, Kind::Real))
            }
            Current::Linear(linear) => self.finish(linear, None),
        }
    }

    /// A linear layer with its norms, its pool and the activation at its end, if any.
    fn finish(&mut self, linear: Linear, activation: Option<Activation>) -> Result<usize> {
        let whole = integers(self.weights, self.values[linear.input].kind).filter(|_| self.is_whole(linear.input));
        if let (Some(activation), Some(codec)) = (activation.filter(|hard| hard.steps().is_some()), whole) {
            return self.finish_hard(linear, activation, codec);
        }
        // Every activation rises, so without a norm between them it may change places with the pool.
        let together = linear.pool.is_none() || linear.after.iter().all(|&line| line == Line::IDENTITY);
        let lines: Vec<Line> = match together {
            true => linear.before.iter().zip(&linear.after).map(|(before, &after)| before.then(after)).collect(),
            false => linear.before.clone(),
        };
        let mut value = self.finish_real(&linear, &lines, activation.filter(|_| together))?;
        if let Some(window) = linear.pool {
            value = self.max_pool(value, window, Vec::new())?;
        }
        if together { Ok(value) } else { self.map(value, &linear.after, activation) }
    }

    /// Thresholds on integer sums, then a pool of levels. Where the map after the pool falls, the largest value has
    /// the lowest level: the layer then counts the steps not taken, and the pool turns the channel round again.
    fn finish_hard(&mut self, linear: Linear, activation: Activation, codec: Codec) -> Result<usize> {
        let outputs = linear.before.len();
        let inverted: Vec<bool> = linear.after.iter().map(|line| line.slope < 0.0).collect();
        let unit = match self.values[linear.input].kind {
            Kind::Levels(Activation::QRelu(k)) => 1.0 / k as f64,
            _ => 1.0,
        };
        let mut rows = self.rows(&linear, codec)?;
        let mut thresholds = vec![0; outputs * activation.steps().unwrap_or(0) as usize];
        for (output, row) in rows.iter_mut().enumerate() {
            let sum = Line { slope: row.scale * unit, offset: 0.0 };
            let line = sum.then(linear.before[output]).then(linear.after[output]);
            let channel = fold::channel(activation, line, inverted[output]);
            if channel.negated {
                row.integers.iter_mut().for_each(|q| *q = -*q);
            }
            for (i, &threshold) in channel.thresholds.iter().enumerate() {
                thresholds[i * outputs + output] = threshold;
            }
        }
        let weights = Weights { codec, bytes: quantize::encode(&rows, codec).into() };
        let value = self.emit_conv(&linear, weights, Stage::Thresholds { activation, thresholds })?;
        match linear.pool {
            Some(window) if inverted.contains(&true) => self.max_pool(value, window, inverted),
            Some(window) => self.max_pool(value, window, Vec::new()),
            None => Ok(value),
        }
    }

    fn finish_real(&mut self, linear: &Linear, lines: &[Line], activation: Option<Activation>) -> Result<usize> {
        let kind = self.values[linear.input].kind;
        let unit = match kind {
            Kind::Levels(Activation::QRelu(k)) => 1.0 / k as f64,
            _ => 1.0,
        };
        // The features of a table differ too much in what they mean to lose bits; they come first, and are few.
        let exact = linear.input == 0 && kind == Kind::Real;
        let (weights, scales) = match integers(self.weights, kind).filter(|_| !exact) {
            Some(codec) => {
                let rows = self.rows(linear, codec)?;
                let scales = rows.iter().map(|row| row.scale * unit).collect();
                (Weights { codec, bytes: quantize::encode(&rows, codec).into() }, scales)
            }
            None => {
                let bytes: Vec<u8> = linear.weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
                (Weights { codec: Codec::F32, bytes: bytes.into() }, vec![1.0; lines.len()])
            }
        };
        let affine = Affine {
            scale: lines.iter().zip(&scales).map(|(line, scale): (_, &f64)| (line.slope * scale) as f32).collect(),
            bias: lines.iter().map(|line| line.offset as f32).collect(),
            activation,
        };
        self.emit_conv(linear, weights, Stage::Affine(affine))
    }

    fn rows(&self, linear: &Linear, codec: Codec) -> Result<Vec<Row>> {
        let inputs = linear.weights.len() / linear.before.len().max(1);
        let mut rows = Vec::new();
        for (output, weights) in linear.weights.chunks_exact(inputs.max(1)).enumerate() {
            rows.push(match codec {
                Codec::Int4 => quantize::int4(weights),
                Codec::Int16 => {
                    let each = self.std.len() / linear.groups;
                    let first = output / (linear.before.len() / linear.groups) * each;
                    match quantize::int16(weights, &self.std[first..first + each]) {
                        Some(row) => row,
                        None => return self.fail("it has too many inputs for sums of 32 bits"),
                    }
                }
                _ => quantize::int8(weights),
            });
        }
        Ok(rows)
    }

    fn emit_conv(&mut self, linear: &Linear, weights: Weights<'static>, stage: Stage) -> Result<usize> {
        let Linear { input, window, groups, .. } = *linear;
        let outputs = linear.before.len();
        let shape = Shape { channels: outputs, ..self.pooled(input, window)? };
        let kind = match &stage {
            Stage::Thresholds { activation, .. } => Kind::Levels(*activation),
            Stage::Affine(affine) => kind_of(affine.activation),
        };
        Ok(self.emit(Op::Conv { input, conv: Conv { window, groups, outputs, weights, stage } }, shape, kind))
    }

    fn max_pool(&mut self, input: usize, window: Window, inverted: Vec<bool>) -> Result<usize> {
        let shape = self.pooled(input, window)?;
        let kind = self.values[input].kind;
        Ok(self.emit(Op::MaxPool { input, window, inverted }, shape, kind))
    }

    /// An affine map, the identity if `lines` is empty, and an activation.
    fn map(&mut self, input: usize, lines: &[Line], activation: Option<Activation>) -> Result<usize> {
        let shape = self.values[input].shape;
        let line = |c: usize| lines.get(c).copied().unwrap_or(Line::IDENTITY);
        let affine = Affine {
            scale: (0..shape.channels).map(|c| line(c).slope as f32).collect(),
            bias: (0..shape.channels).map(|c| line(c).offset as f32).collect(),
            activation,
        };
        Ok(self.emit(Op::Map { input, affine }, shape, kind_of(activation)))
    }

    fn emit(&mut self, op: Op<'static>, shape: Shape, kind: Kind) -> usize {
        self.ops.push(op);
        self.values.push(Value { shape, kind });
        self.values.len() - 1
    }

    /// The shape after a window slides over a value, channels unchanged.
    fn pooled(&self, input: usize, window: Window) -> Result<Shape> {
        let shape = self.values[input].shape;
        match window.output(shape.height, shape.width) {
            Ok([height, width]) => Ok(Shape { height, width, ..shape }),
            Err(what) => self.fail(what),
        }
    }

    fn channels(&self, current: &Current) -> usize {
        match current {
            Current::Value(value) | Current::Mapped(value, _) | Current::Sum([value, _]) => {
                self.values[*value].shape.channels
            }
            Current::Linear(linear) => linear.before.len(),
        }
    }

    fn is_whole(&self, value: usize) -> bool {
        self.values[value].kind != Kind::Real
    }

    fn expect(&self, what: &str, found: usize, wanted: usize) -> Result<()> {
        if found == wanted {
            Ok(())
        } else {
            self.fail(format!("{found} numbers for its {what} where {wanted} are wanted"))
        }
    }
}

/// How the integers of a layer on such a value are stored; none for float weights.
fn integers(format: WeightFormat, input: Kind) -> Option<Codec> {
    match (format, input) {
        (WeightFormat::F32, _) => None,
        (_, Kind::Image) => Some(Codec::Int16),
        (WeightFormat::Int8, _) => Some(Codec::Int8),
        (WeightFormat::Int4, _) => Some(Codec::Int4),
    }
}

fn kind_of(activation: Option<Activation>) -> Kind {
    match activation {
        Some(hard) if hard.steps().is_some() => Kind::Levels(hard),
        _ => Kind::Real,
    }
}

/// Moves the channel of each row from slowest to fastest.
fn channels_last(weights: &[f32], channels: usize, places: usize) -> Vec<f32> {
    let mut moved = Vec::with_capacity(weights.len());
    for row in weights.chunks_exact((channels * places).max(1)) {
        for place in 0..places {
            moved.extend((0..channels).map(|channel| row[channel * places + place]));
        }
    }
    moved
}
