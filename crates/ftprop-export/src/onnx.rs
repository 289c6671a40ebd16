//! ONNX, with standard operators in float.
//!
//! The graph takes normalised pictures `[batch, channels, height, width]` (rows `[batch, columns]` where a table was
//! trained on) and gives `logits`. What normalising means, and the classes, stand in the model's metadata.
//!
//! There are two ways to it. [`to_bytes`] writes the trained network, layer by layer. Another program sums in another
//! order, so a hard unit whose sum lies within float rounding of its threshold may fall on the other side there.
//! [`packed::to_bytes`] writes a packed model, whose hard layers sum integers that a float holds exactly: every program
//! gets the same.

mod graph;
pub mod packed;

use crate::error::Error;
use crate::numbers::Numbers;
use crate::packed::table_note;
use ftprop_nn::Activation;
use ftprop_nn::graph::{Conv, Fc, Node, Op};
use ftprop_nn::spec::PoolKind;
use ftprop_nn::target::HardUnit;
use ftprop_runtime::note;
use ftprop_train::model::Model;
use graph::{Graph, Value, float, int, ints, listed};

/// The bytes of an ONNX file.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>, Error> {
    let [height, width, channels] = model.info.input;
    let table = model.info.preprocess().is_none();
    let input = if table { vec![channels] } else { vec![channels, height, width] };
    let mut graph = Graph::default();
    let numbers = Numbers::of(&model.network);
    let end = graph.chain(numbers, numbers.nodes(), Value { name: "input".into(), flat: table });
    let mut facts = vec![
        ("mean", listed(&model.info.mean)),
        ("std", listed(&model.info.std)),
        ("full", model.info.full.to_string()),
    ];
    facts.extend(model.info.resize.map(|resize| ("resize", resize.to_string())));
    facts.extend(table_note(&model.info)?.map(|text| (note::TABLE, text)));
    graph.finish(end, &model.recipe.name, &input, &model.info.classes, facts)
}

impl Graph {
    fn chain(&mut self, numbers: Numbers<'_>, nodes: &[Node], input: Value) -> Value {
        nodes.iter().fold(input, |value, node| self.layer(numbers, node, value))
    }

    fn layer(&mut self, numbers: Numbers<'_>, node: &Node, input: Value) -> Value {
        match &node.op {
            Op::Conv(Conv { geometry: g, weight, bias }) => {
                let input = self.picture(input, g.in_channels);
                let shape = [g.out_channels, g.in_channels / g.groups, g.kernel_h, g.kernel_w];
                let mut inputs = vec![input.name, self.tensor("weight", &shape, &numbers.channels_first(*weight))];
                inputs.extend(bias.map(|id| self.vector("bias", numbers.channels_last(id))));
                let attributes = vec![
                    ints("kernel_shape", &[g.kernel_h, g.kernel_w]),
                    ints("strides", &[g.stride; 2]),
                    ints("pads", &[g.pad; 4]),
                    int("group", g.groups as i64),
                ];
                self.operator("Conv", &inputs, attributes, false)
            }
            Op::Fc(Fc { outputs, weight, bias }) => {
                let input = self.flatten(input);
                let shape = [*outputs, node.input.len()];
                let mut inputs = vec![input.name, self.tensor("weight", &shape, &numbers.channels_first(*weight))];
                inputs.extend(bias.map(|id| self.vector("bias", numbers.channels_last(id))));
                self.operator("Gemm", &inputs, vec![int("transB", 1)], true)
            }
            Op::Pool(kind, g) => {
                let input = self.picture(input, g.channels);
                let mut attributes = vec![
                    ints("kernel_shape", &[g.kernel; 2]),
                    ints("strides", &[g.stride; 2]),
                    ints("pads", &[g.pad; 4]),
                ];
                match kind {
                    PoolKind::Max => self.operator("MaxPool", &[input.name], attributes, false),
                    PoolKind::Average => {
                        attributes.push(int("count_include_pad", 1));
                        self.operator("AveragePool", &[input.name], attributes, false)
                    }
                }
            }
            Op::BatchNorm(norm) => {
                let mut inputs = vec![input.name];
                for (what, values) in [
                    ("gamma", numbers.channels_last(norm.gamma)),
                    ("beta", numbers.channels_last(norm.beta)),
                    ("mean", numbers.statistic(norm.mean)),
                    ("variance", numbers.statistic(norm.variance)),
                ] {
                    inputs.push(self.vector(what, values));
                }
                self.operator("BatchNormalization", &inputs, vec![float("epsilon", norm.eps)], input.flat)
            }
            Op::Affine(affine) => {
                // A row a channel: it is spread over the picture.
                let shape = if input.flat { vec![node.input.channels] } else { vec![node.input.channels, 1, 1] };
                let mut value = input;
                let summands = numbers.channels_last(affine.shift);
                for (operator, what, numbers) in [
                    ("Mul", "scale", affine.scale.map(|id| numbers.channels_last(id))),
                    ("Add", "shift", Some(summands)),
                ] {
                    let Some(numbers) = numbers else { continue };
                    let tensor = self.tensor(what, &shape, numbers);
                    let flat = value.flat;
                    value = self.operator(operator, &[value.name, tensor], vec![], flat);
                }
                value
            }
            Op::Hard(HardUnit { activation, .. }, _) | Op::Soft(activation) => self.activation(*activation, input),
            Op::Dropout(_) => input,
            Op::Residual { main, shortcut } => {
                let mut ends = [self.chain(numbers, main, input.clone()), self.chain(numbers, shortcut, input)];
                let flat = ends.iter().any(|end| end.flat);
                if flat {
                    ends = ends.map(|end| self.flatten(end));
                }
                self.operator("Add", &ends.map(|end| end.name), vec![], flat)
            }
        }
    }

    fn vector(&mut self, what: &str, values: &[f32]) -> String {
        self.tensor(what, &[values.len()], values)
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
}
