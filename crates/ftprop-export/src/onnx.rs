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
use crate::layers::{Layer, Pool, layers};
use crate::protobuf::Message;
use ftprop_nn::Activation;
use ftprop_train::model::Model;
use graph::{Graph, Value, float, int, ints, listed};

/// The bytes of an ONNX file.
pub fn to_bytes(model: &Model) -> Result<Vec<u8>, Error> {
    let [height, width, channels] = model.info.input;
    let table = model.info.preprocess().is_none();
    let input = if table { vec![channels] } else { vec![channels, height, width] };
    let mut graph = Graph::default();
    let end = graph.chain(&layers(model)?, Value { name: "input".into(), flat: table });
    let mut facts = vec![
        ("mean", listed(&model.info.mean)),
        ("std", listed(&model.info.std)),
        ("full", model.info.full.to_string()),
    ];
    facts.extend(model.info.resize.map(|resize| ("resize", resize.to_string())));
    graph.finish(end, &model.recipe.name, &input, &model.info.classes, facts)
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
}

fn window(pool: &Pool) -> Vec<Message> {
    vec![ints("kernel_shape", &[pool.kernel; 2]), ints("strides", &[pool.stride; 2]), ints("pads", &[pool.pad; 4])]
}
