//! A packed model as ONNX: the sums of hard layers are integers below 2^24, which a float holds in whatever order they are
//! added, so every program finds the same levels. Only the logits are rounded, and what a residual network adds up
//! before its activations.
//!
//! The input is the normalised picture, as for the trained network; the first nodes turn it back into the bytes it was
//! made from. A row of a table is taken as it is. Levels of `sign` are −1 and 1 here, those of other activations 0 to k. Weights on the image have 16 bits,
//! so they become two convolutions, of their high and their low bytes, put together in double precision.

use super::graph::{DOUBLE, Graph, Value, int, ints, listed};
use crate::error::Error;
use crate::protobuf::Message;
use ftprop_runtime::{Activation, Affine, Codec, Conv, Element, Kind, Model, Op, Shape, Stage, Window, note};

/// Integers up to here are floats.
const EXACT: i64 = 1 << 24;
/// What the image's thresholds count in, see `docs/packed-format.md`.
const PIXEL_UNIT: i64 = 1 << 16;

/// The bytes of an ONNX file.
pub fn to_bytes(model: &Model<'_>) -> Result<Vec<u8>, Error> {
    let values = model.check()?;
    let mut writer = Writer { graph: Graph::default(), model, made: Vec::new() };
    let Shape { height, width, channels } = model.preprocessing.input;
    // A row of a table comes as a row, as for the trained network.
    let row = values[0].kind != Kind::Image && (height, width) == (1, 1);
    let input = Value { name: "input".into(), flat: row };
    let image = match values[0].kind {
        Kind::Image => writer.bytes_of(&input),
        _ => writer.graph.picture(input, channels),
    };
    writer.made.push(Made { value: image, kind: values[0].kind, shape: values[0].shape });
    for (op, about) in model.ops.iter().zip(&values[1..]) {
        let value = writer.operation(op, about.shape)?;
        writer.made.push(Made { value, kind: about.kind, shape: about.shape });
    }
    let end = &writer.made[values.len() - 1];
    let (logits, count) = (end.value.clone(), end.shape.channels);
    let classes =
        if model.classes.is_empty() { (0..count).map(|c| c.to_string()).collect() } else { model.classes.clone() };
    let about = &model.preprocessing;
    let full = if about.element == Element::Byte { 255 } else { 1 };
    let mut facts = vec![("mean", listed(&about.mean)), ("std", listed(&about.std)), ("full", full.to_string())];
    facts.extend(about.resize_shorter.map(|resize| ("resize", resize.to_string())));
    facts.extend(model.notes.get(note::TABLE).map(|text| (note::TABLE, text.clone())));
    let input = if row { vec![channels] } else { vec![channels, height, width] };
    writer.graph.finish(logits, &model.name, &input, &classes, facts)
}

/// A value that an operation made, in the form that integers are summed in.
struct Made {
    value: Value,
    kind: Kind,
    shape: Shape,
}

struct Writer<'a> {
    graph: Graph,
    model: &'a Model<'a>,
    made: Vec<Made>,
}

impl Writer<'_> {
    fn operator(&mut self, kind: &str, inputs: &[&str], attributes: Vec<Message>) -> String {
        let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
        self.graph.operator(kind, &inputs, attributes, false).name
    }

    /// A number for each channel, in the form of a picture.
    fn channels(&mut self, what: &str, values: &[f32]) -> String {
        self.graph.tensor(what, &[1, values.len(), 1, 1], values)
    }

    /// The bytes that a normalised picture was made from, by the steps of `Classifier::logits`, so that what was not made
    /// from bytes is rounded to the same ones.
    fn bytes_of(&mut self, picture: &Value) -> Value {
        let about = &self.model.preprocessing;
        let (deviation, mean) = (self.channels("deviation", &about.std), self.channels("mean", &about.mean));
        let (none, full) = (self.graph.constant(0.0), self.graph.constant(255.0));
        let scaled = self.operator("Mul", &[&picture.name, &deviation], vec![]);
        let moved = self.operator("Add", &[&scaled, &mean], vec![]);
        let bytes = self.operator("Mul", &[&moved, &full], vec![]);
        let bytes = self.operator("Round", &[&bytes], vec![]);
        Value { name: self.operator("Clip", &[&bytes, &none, &full], vec![]), flat: false }
    }

    /// A value as the reals it means.
    fn reals(&mut self, number: usize) -> String {
        let name = self.made[number].value.name.clone();
        match self.made[number].kind {
            Kind::Image => {
                let about = &self.model.preprocessing;
                let (deviation, mean) = (self.channels("deviation", &about.std), self.channels("mean", &about.mean));
                let full = self.graph.constant(255.0);
                let shares = self.operator("Div", &[&name, &full], vec![]);
                let moved = self.operator("Sub", &[&shares, &mean], vec![]);
                self.operator("Div", &[&moved, &deviation], vec![])
            }
            Kind::Levels(Activation::QRelu(k)) => {
                let most = self.graph.constant(f32::from(k));
                self.operator("Div", &[&name, &most], vec![])
            }
            Kind::Levels(_) | Kind::Real => name,
        }
    }

    fn operation(&mut self, op: &Op<'_>, output: Shape) -> Result<Value, Error> {
        let name = match op {
            Op::Conv { input, conv } => match (self.made[*input].kind, conv.weights.codec, &conv.stage) {
                (kind, codec, Stage::Affine(affine)) if codec == Codec::F32 || kind == Kind::Real => {
                    let reals = self.reals(*input);
                    let sums = self.convolution(&reals, conv, self.made[*input].shape.channels, |w| w);
                    self.affine(&sums, affine)
                }
                (Kind::Image, ..) => self.on_image(*input, conv, output)?,
                _ => self.on_levels(*input, conv)?,
            },
            Op::MaxPool { input, window, inverted } => {
                let Made { value, kind, .. } = &self.made[*input];
                let (name, kind) = (value.name.clone(), *kind);
                let most = self.operator("MaxPool", &[&name], attributes(window));
                match kind {
                    Kind::Levels(activation) if !inverted.is_empty() => {
                        // steps − level, which for −1 and 1 is a change of sign.
                        let steps = if activation == Activation::Sign { 0 } else { activation.steps().unwrap_or(0) };
                        let of = |on: f32, off: f32| -> Vec<f32> {
                            inverted.iter().map(|&inverted| if inverted { on } else { off }).collect()
                        };
                        let turn = self.channels("turn", &of(-1.0, 1.0));
                        let steps = self.channels("steps", &of(f32::from(steps), 0.0));
                        let turned = self.operator("Mul", &[&most, &turn], vec![]);
                        self.operator("Add", &[&turned, &steps], vec![])
                    }
                    _ => most,
                }
            }
            Op::AveragePool { input, window } => {
                let reals = self.reals(*input);
                let mut attributes = attributes(window);
                attributes.push(int("count_include_pad", 1));
                self.operator("AveragePool", &[&reals], attributes)
            }
            Op::Map { input, affine } => {
                let reals = self.reals(*input);
                self.affine(&reals, affine)
            }
            Op::Add { inputs, activation } => {
                let [a, b] = inputs.map(|input| self.reals(input));
                let sum = self.operator("Add", &[&a, &b], vec![]);
                self.activation(&sum, *activation)
            }
        };
        Ok(Value { name, flat: false })
    }

    /// The sums of a layer, with each weight changed on the way.
    fn convolution(&mut self, input: &str, conv: &Conv<'_>, channels: usize, change: impl Fn(f32) -> f32) -> String {
        let ([rows, columns], inner) = (conv.window.kernel, channels / conv.groups);
        let inputs = conv.inputs(channels);
        let mut weights = Vec::with_capacity(conv.outputs * inputs);
        for output in 0..conv.outputs {
            let row: Vec<f32> = conv.weights.reals(output, inputs).map(&change).collect();
            for channel in 0..inner {
                weights.extend((0..rows * columns).map(|tap| row[tap * inner + channel]));
            }
        }
        let weights = self.graph.tensor("weight", &[conv.outputs, inner, rows, columns], &weights);
        let mut attributes = attributes(&conv.window);
        attributes.push(int("group", conv.groups as i64));
        self.operator("Conv", &[input, &weights], attributes)
    }

    fn on_levels(&mut self, input: usize, conv: &Conv<'_>) -> Result<String, Error> {
        let Made { value, kind, shape } = &self.made[input];
        let (name, channels) = (value.name.clone(), shape.channels);
        let largest = match kind {
            Kind::Levels(activation) => i64::from(activation.steps().unwrap_or(1)),
            _ => 1,
        };
        within(conv, channels, largest, |q| q)?;
        let sums = self.convolution(&name, conv, channels, |q| q);
        Ok(match &conv.stage {
            Stage::Affine(affine) => self.affine(&sums, affine),
            Stage::Thresholds { activation, thresholds } => {
                let steps = thresholds.chunks_exact(conv.outputs).map(|step| {
                    // No sum goes so far.
                    step.iter().map(|&t| t.clamp(-EXACT, EXACT) as f32).collect::<Vec<_>>()
                });
                let steps: Vec<String> =
                    steps.collect::<Vec<_>>().iter().map(|t| self.channels("threshold", t)).collect();
                self.levels(&sums, &steps, *activation)
            }
        })
    }

    fn on_image(&mut self, input: usize, conv: &Conv<'_>, output: Shape) -> Result<String, Error> {
        let Made { value, shape, .. } = &self.made[input];
        let (name, shape) = (value.name.clone(), *shape);
        let channels = shape.channels;
        // A low byte is −128 to 127, and the high one what remains.
        let low = |q: f32| ((q as i32 + 128).rem_euclid(256) - 128) as f32;
        let high = |q: f32| (q - low(q)) / 256.0;
        within(conv, channels, 255, low)?;
        within(conv, channels, 255, high)?;
        let mut wide = |part: &dyn Fn(f32) -> f32| {
            let sums = self.convolution(&name, conv, channels, part);
            self.operator("Cast", &[&sums], vec![int("to", DOUBLE)])
        };
        let (lows, highs) = (wide(&low), wide(&high));
        let (high_unit, unit) =
            (self.graph.wide_tensor("high", &[], &[256.0]), self.graph.wide_tensor("unit", &[], &[PIXEL_UNIT as f64]));
        let highs = self.operator("Mul", &[&highs, &high_unit], vec![]);
        let sums = self.operator("Add", &[&highs, &lows], vec![]);
        let sums = self.operator("Mul", &[&sums, &unit], vec![]);
        // What the mean of the taps inside the image takes away, for each output.
        let offsets = self.offsets(conv, shape, output);
        let size = [1, output.channels, output.height, output.width];
        let offsets = self.graph.wide_tensor("offset", &size, &offsets);
        let sums = self.operator("Sub", &[&sums, &offsets], vec![]);
        Ok(match &conv.stage {
            Stage::Affine(affine) => {
                let scale: Vec<f64> = affine.scale.iter().map(|&scale| f64::from(scale)).collect();
                let bias: Vec<f64> = affine.bias.iter().map(|&bias| f64::from(bias)).collect();
                let scale = self.graph.wide_tensor("scale", &[1, scale.len(), 1, 1], &scale);
                let bias = self.graph.wide_tensor("bias", &[1, bias.len(), 1, 1], &bias);
                let scaled = self.operator("Mul", &[&sums, &scale], vec![]);
                let reals = self.operator("Add", &[&scaled, &bias], vec![]);
                let reals = self.operator("Cast", &[&reals], vec![int("to", 1)]);
                self.activation(&reals, affine.activation)
            }
            Stage::Thresholds { activation, thresholds } => {
                let steps = thresholds.chunks_exact(conv.outputs).map(|step| {
                    // A threshold that no sum reaches stays one when it is rounded.
                    let step: Vec<f64> = step.iter().map(|&t| t as f64).collect();
                    self.graph.wide_tensor("threshold", &[1, conv.outputs, 1, 1], &step)
                });
                let steps: Vec<String> = steps.collect();
                self.levels(&sums, &steps, *activation)
            }
        })
    }

    /// Σ q · offset over the taps inside the image: for each output channel, row and column.
    fn offsets(&self, conv: &Conv<'_>, input: Shape, output: Shape) -> Vec<f64> {
        let fixed = |mean: &f32| (f64::from(*mean) * 255.0 * PIXEL_UNIT as f64).round();
        let means: Vec<f64> = self.model.preprocessing.mean.iter().map(fixed).collect();
        let ([rows, columns], inner) = (conv.window.kernel, input.channels / conv.groups);
        let inside = |axis: usize, place: usize, tap: usize, side: usize| {
            (place * conv.window.stride[axis] + tap).checked_sub(conv.window.pad[axis]).is_some_and(|at| at < side)
        };
        let mut offsets = Vec::with_capacity(output.channels * output.height * output.width);
        for channel in 0..conv.outputs {
            let first = channel / (conv.outputs / conv.groups) * inner;
            let weights: Vec<f32> = conv.weights.reals(channel, rows * columns * inner).collect();
            let taps: Vec<f64> = weights
                .chunks_exact(inner)
                .map(|tap| tap.iter().zip(&means[first..]).map(|(&q, mean)| f64::from(q) * mean).sum())
                .collect();
            for y in 0..output.height {
                for x in 0..output.width {
                    let seen = (0..rows * columns).filter(|tap| {
                        inside(0, y, tap / columns, input.height) && inside(1, x, tap % columns, input.width)
                    });
                    offsets.push(seen.map(|tap| taps[tap]).sum());
                }
            }
        }
        offsets
    }

    /// How many of the thresholds a sum exceeds, as levels.
    fn levels(&mut self, sums: &str, thresholds: &[String], activation: Activation) -> String {
        let low = self.graph.constant(if activation == Activation::Sign { -1.0 } else { 0.0 });
        let one = self.graph.constant(1.0);
        let mut level: Option<String> = None;
        for threshold in thresholds {
            let above = self.operator("Greater", &[sums, threshold], vec![]);
            let step = self.operator("Where", &[&above, &one, &low], vec![]);
            level = Some(match level {
                None => step,
                Some(level) => self.operator("Add", &[&level, &step], vec![]),
            });
        }
        level.unwrap_or_else(|| sums.to_string())
    }

    fn affine(&mut self, sums: &str, affine: &Affine) -> String {
        let (scale, bias) = (self.channels("scale", &affine.scale), self.channels("bias", &affine.bias));
        let scaled = self.operator("Mul", &[sums, &scale], vec![]);
        let reals = self.operator("Add", &[&scaled, &bias], vec![]);
        self.activation(&reals, affine.activation)
    }

    fn activation(&mut self, reals: &str, activation: Option<Activation>) -> String {
        match activation {
            None => reals.to_string(),
            Some(Activation::Relu) => self.operator("Relu", &[reals], vec![]),
            Some(Activation::SaturatedRelu) => {
                let (zero, one) = (self.graph.constant(0.0), self.graph.constant(1.0));
                self.operator("Clip", &[reals, &zero, &one], vec![])
            }
            Some(hard) => {
                let threshold = |i: u8| match hard {
                    Activation::QRelu(k) => f32::from(i) / (f32::from(k) - 1.0),
                    _ => 0.0,
                };
                let thresholds: Vec<String> =
                    (0..hard.steps().unwrap_or(0)).map(|i| self.graph.constant(threshold(i))).collect();
                self.levels(reals, &thresholds, hard)
            }
        }
    }
}

/// Whether a float holds every sum of a layer: of its weights, changed, times inputs up to `largest`.
fn within(conv: &Conv<'_>, channels: usize, largest: i64, change: impl Fn(f32) -> f32) -> Result<(), Error> {
    let inputs = conv.inputs(channels);
    let sum = |output: usize| conv.weights.reals(output, inputs).map(|q| change(q).abs() as i64).sum::<i64>();
    match (0..conv.outputs).all(|output| sum(output) * largest <= EXACT) {
        true => Ok(()),
        false => Err(Error::SumsTooLarge),
    }
}

fn attributes(window: &Window) -> Vec<Message> {
    let [rows, columns] = window.pad;
    vec![
        ints("kernel_shape", &window.kernel),
        ints("strides", &window.stride),
        ints("pads", &[rows, columns, rows, columns]),
    ]
}
