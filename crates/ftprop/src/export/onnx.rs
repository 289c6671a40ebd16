//! ONNX, with standard operators in float.
//!
//! The graph takes normalised pictures `[batch, channels, height, width]` (rows `[batch, columns]` where a table was
//! trained on) and gives `logits`. What normalising means, and the classes, stand in the model's metadata. Field
//! numbers are those of `onnx.proto`.

use super::layers::{Layer, Pool, layers};
use super::protobuf::Message;
use crate::error::Error;
use crate::model::Model;
use ftprop_nn::Activation;
use std::collections::BTreeSet;

/// Of June 2022: old enough to be known everywhere.
const OPSET: i64 = 17;
const IR_VERSION: i64 = 8;
/// `TensorProto.DataType`
const FLOAT: i64 = 1;
const INT64: i64 = 7;

/// The bytes of an ONNX file.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>, Error> {
    let [height, width, channels] = model.info.input.map(|n| n as i64);
    let table = model.info.preprocess().is_none();
    let input = if table { vec![channels] } else { vec![channels, height, width] };
    let mut graph = Graph::default();
    let end = graph.chain(&layers(model)?, Value { name: "input".into(), flat: table });
    let logits = graph.flatten(end);
    graph.node("Identity", &[&logits.name], "logits", vec![]);

    let body = Message::default()
        .each(&graph.nodes, |m, node| m.message(1, node))
        .text(2, &model.recipe.name)
        .each(&graph.initializers, |m, tensor| m.message(5, tensor))
        .message(11, &value_info("input", &input))
        .message(12, &value_info("logits", &[model.info.classes.len() as i64]));
    let numbers = |all: &[f32]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let classes = serde_json::to_string(&model.info.classes).map_err(|e| Error::Other(e.to_string()))?;
    let mut facts = vec![
        ("classes", classes),
        ("mean", numbers(&model.info.mean)),
        ("std", numbers(&model.info.std)),
        ("full", model.info.full.to_string()),
    ];
    facts.extend(model.info.resize.map(|resize| ("resize", resize.to_string())));
    Ok(Message::default()
        .number(1, IR_VERSION)
        .text(2, "ftprop")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(7, &body)
        .message(8, &Message::default().text(1, "").number(2, OPSET))
        .each(&facts, |m, (key, value)| m.message(14, &Message::default().text(1, key).text(2, value)))
        .into_bytes())
}

/// A tensor with a batch in front.
fn value_info(name: &str, shape: &[i64]) -> Message {
    let batch = Message::default().text(2, "batch");
    let shape =
        Message::default().message(1, &batch).each(shape, |m, &size| m.message(1, &Message::default().number(1, size)));
    let tensor = Message::default().number(1, FLOAT).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// A value of the graph.
#[derive(Clone)]
struct Value {
    name: String,
    /// Whether an example is a row; otherwise it is a picture.
    flat: bool,
}

#[derive(Default)]
struct Graph {
    nodes: Vec<Message>,
    initializers: Vec<Message>,
    /// Numbers that are written once and used often.
    constants: BTreeSet<String>,
    values: usize,
}

impl Graph {
    fn chain(&mut self, layers: &[Layer<'_>], input: Value) -> Value {
        layers.iter().fold(input, |value, layer| self.layer(layer, value))
    }

    fn layer(&mut self, layer: &Layer<'_>, input: Value) -> Value {
        match layer {
            Layer::Conv { geometry: g, weight, bias } => {
                let input = self.picture(input, g.in_channels);
                let shape = [g.out_channels, g.in_channels / g.groups, g.kernel_h, g.kernel_w];
                let mut inputs = vec![input.name, self.tensor("weight", &shape, &weight.channels_first())];
                inputs.extend(bias.map(|bias| self.tensor("bias", &[bias.len()], bias)));
                let attributes = vec![
                    ints("kernel_shape", &[g.kernel_h, g.kernel_w]),
                    ints("strides", &[g.stride; 2]),
                    ints("pads", &[g.pad; 4]),
                    int("group", g.groups as i64),
                ];
                self.operator("Conv", &inputs, attributes, false)
            }
            Layer::Fc { input: shape, outputs, weight, bias } => {
                let input = self.flatten(input);
                let mut inputs =
                    vec![input.name, self.tensor("weight", &[*outputs, shape.len()], &weight.channels_first())];
                inputs.extend(bias.map(|bias| self.tensor("bias", &[bias.len()], bias)));
                self.operator("Gemm", &inputs, vec![int("transB", 1)], true)
            }
            Layer::MaxPool(pool) => {
                let input = self.picture(input, pool.channels);
                self.operator("MaxPool", &[input.name], window(pool), false)
            }
            Layer::AvgPool(pool) => {
                let input = self.picture(input, pool.channels);
                let mut attributes = window(pool);
                attributes.push(int("count_include_pad", 1));
                self.operator("AveragePool", &[input.name], attributes, false)
            }
            Layer::BatchNorm { eps, gamma, beta, mean, variance } => {
                let mut inputs = vec![input.name];
                for (what, values) in [("gamma", gamma), ("beta", beta), ("mean", mean), ("variance", variance)] {
                    inputs.push(self.tensor(what, &[values.len()], values));
                }
                self.operator("BatchNormalization", &inputs, vec![float("epsilon", *eps)], input.flat)
            }
            Layer::Act(activation) => self.activation(*activation, input),
            Layer::Residual { main, shortcut } => {
                let mut ends = [self.chain(main, input.clone()), self.chain(shortcut, input)];
                let flat = ends.iter().any(|end| end.flat);
                if flat {
                    ends = ends.map(|end| self.flatten(end));
                }
                self.operator("Add", &ends.map(|end| end.name), vec![], flat)
            }
        }
    }

    fn activation(&mut self, activation: Activation, input: Value) -> Value {
        let flat = input.flat;
        match activation {
            Activation::Sign | Activation::Step => {
                let low = self.constant(if activation == Activation::Sign { -1.0 } else { 0.0 });
                let (zero, one) = (self.constant(0.0), self.constant(1.0));
                let above = self.operator("Greater", &[input.name, zero], vec![], flat);
                self.operator("Where", &[above.name, one, low], vec![], flat)
            }
            Activation::Qrelu { k } => {
                let (steps, zero, most) = (self.constant(k as f32 - 1.0), self.constant(0.0), self.constant(k as f32));
                let scaled = self.operator("Mul", &[input.name, steps], vec![], flat);
                let level = self.operator("Ceil", &[scaled.name], vec![], flat);
                let level = self.operator("Clip", &[level.name, zero, most.clone()], vec![], flat);
                self.operator("Div", &[level.name, most], vec![], flat)
            }
            Activation::Relu => self.operator("Relu", &[input.name], vec![], flat),
            Activation::SaturatedRelu => {
                let (zero, one) = (self.constant(0.0), self.constant(1.0));
                self.operator("Clip", &[input.name, zero, one], vec![], flat)
            }
        }
    }

    /// Each example as a row, channels slowest.
    fn flatten(&mut self, value: Value) -> Value {
        if value.flat { value } else { self.operator("Flatten", &[value.name], vec![int("axis", 1)], true) }
    }

    /// Each example as a picture; a row becomes one pixel.
    fn picture(&mut self, value: Value, channels: usize) -> Value {
        if !value.flat {
            return value;
        }
        let name = format!("pixel_{channels}");
        if self.constants.insert(name.clone()) {
            // A 0 keeps the batch.
            let sizes: Vec<u8> = [0, channels as i64, 1, 1].iter().flat_map(|n| n.to_le_bytes()).collect();
            let tensor = Message::default().number(1, 4).number(2, INT64).text(8, &name).bytes(9, &sizes);
            self.initializers.push(tensor);
        }
        self.operator("Reshape", &[value.name, name], vec![], false)
    }

    fn operator(&mut self, kind: &str, inputs: &[String], attributes: Vec<Message>, flat: bool) -> Value {
        self.values += 1;
        let name = format!("{}_{}", kind.to_lowercase(), self.values);
        self.node(kind, &inputs.iter().map(String::as_str).collect::<Vec<_>>(), &name, attributes);
        Value { name, flat }
    }

    fn node(&mut self, kind: &str, inputs: &[&str], output: &str, attributes: Vec<Message>) {
        let node = Message::default()
            .each(inputs, |m, input| m.text(1, input))
            .text(2, output)
            .text(3, &format!("make_{output}"))
            .text(4, kind)
            .each(&attributes, |m, attribute| m.message(5, attribute));
        self.nodes.push(node);
    }

    fn constant(&mut self, value: f32) -> String {
        let name = format!("constant_{value}");
        if self.constants.insert(name.clone()) {
            self.initializers.push(tensor(&name, &[], &[value]));
        }
        name
    }

    fn tensor(&mut self, what: &str, shape: &[usize], values: &[f32]) -> String {
        let name = format!("{what}_{}", self.initializers.len());
        self.initializers.push(tensor(&name, shape, values));
        name
    }
}

fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Message {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Message::default().each(shape, |m, &size| m.number(1, size as i64)).number(2, FLOAT).text(8, name).bytes(9, &bytes)
}

fn window(pool: &Pool) -> Vec<Message> {
    vec![ints("kernel_shape", &[pool.kernel; 2]), ints("strides", &[pool.stride; 2]), ints("pads", &[pool.pad; 4])]
}

/// An attribute; its type is field 20.
fn int(name: &str, value: i64) -> Message {
    Message::default().text(1, name).number(3, value).number(20, 2)
}

fn float(name: &str, value: f32) -> Message {
    Message::default().text(1, name).float(2, value).number(20, 1)
}

fn ints(name: &str, values: &[usize]) -> Message {
    Message::default().text(1, name).each(values, |m, &value| m.number(8, value as i64)).number(20, 7)
}
