//! An ONNX graph under construction. Field numbers are those of `onnx.proto`.

use crate::error::Error;
use crate::protobuf::Message;
use std::collections::BTreeSet;

/// Of June 2022: old enough to be known everywhere.
const OPSET: i64 = 17;
const IR_VERSION: i64 = 8;
/// `TensorProto.DataType`
const FLOAT: i64 = 1;
const INT64: i64 = 7;
pub(super) const DOUBLE: i64 = 11;

/// A value of the graph.
#[derive(Clone)]
pub(super) struct Value {
    pub(super) name: String,
    /// Whether an example is a row; otherwise it is a picture.
    pub(super) flat: bool,
}

#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Message>,
    initializers: Vec<Message>,
    /// Numbers that are written once and used often.
    constants: BTreeSet<String>,
    values: usize,
}

impl Graph {
    /// The bytes of a file: the logits are `end`, and `facts` stand in the metadata beside the classes' names.
    pub(super) fn finish(
        mut self,
        end: Value,
        name: &str,
        input: &[usize],
        classes: &[String],
        facts: Vec<(&str, String)>,
    ) -> Result<Vec<u8>, Error> {
        let logits = self.flatten(end);
        self.node("Identity", &[&logits.name], "logits", vec![]);
        let body = Message::default()
            .each(&self.nodes, |m, node| m.message(1, node))
            .text(2, name)
            .each(&self.initializers, |m, tensor| m.message(5, tensor))
            .message(11, &value_info("input", input))
            .message(12, &value_info("logits", &[classes.len()]));
        let classes = serde_json::to_string(classes)
            .map_err(|e| Error::Unwritable { what: "the list of classes", why: e.to_string() })?;
        Ok(Message::default()
            .number(1, IR_VERSION)
            .text(2, "ftprop")
            .text(3, env!("CARGO_PKG_VERSION"))
            .message(7, &body)
            .message(8, &Message::default().text(1, "").number(2, OPSET))
            .message(14, &fact("classes", &classes))
            .each(&facts, |m, (key, value)| m.message(14, &fact(key, value)))
            .into_bytes())
    }

    /// Each example as a row, channels slowest.
    pub(super) fn flatten(&mut self, value: Value) -> Value {
        if value.flat { value } else { self.operator("Flatten", &[value.name], vec![int("axis", 1)], true) }
    }

    /// Each example as a picture; a row becomes one pixel.
    pub(super) fn picture(&mut self, value: Value, channels: usize) -> Value {
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

    pub(super) fn operator(&mut self, kind: &str, inputs: &[String], attributes: Vec<Message>, flat: bool) -> Value {
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

    pub(super) fn constant(&mut self, value: f32) -> String {
        let name = format!("constant_{value}");
        if self.constants.insert(name.clone()) {
            self.initializers.push(tensor(&name, &[], &[value]));
        }
        name
    }

    pub(super) fn tensor(&mut self, what: &str, shape: &[usize], values: &[f32]) -> String {
        let name = format!("{what}_{}", self.initializers.len());
        self.initializers.push(tensor(&name, shape, values));
        name
    }

    /// The same in double precision.
    pub(super) fn wide_tensor(&mut self, what: &str, shape: &[usize], values: &[f64]) -> String {
        let name = format!("{what}_{}", self.initializers.len());
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.initializers.push(raw_tensor(&name, shape, DOUBLE, &bytes));
        name
    }
}

fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Message {
    raw_tensor(name, shape, FLOAT, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
}

fn raw_tensor(name: &str, shape: &[usize], kind: i64, bytes: &[u8]) -> Message {
    Message::default().each(shape, |m, &size| m.number(1, size as i64)).number(2, kind).text(8, name).bytes(9, bytes)
}

/// Numbers, as metadata.
pub(super) fn listed(numbers: &[f32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn fact(key: &str, value: &str) -> Message {
    Message::default().text(1, key).text(2, value)
}

/// A tensor with a batch in front.
fn value_info(name: &str, shape: &[usize]) -> Message {
    let batch = Message::default().text(2, "batch");
    let shape = Message::default()
        .message(1, &batch)
        .each(shape, |m, &size| m.message(1, &Message::default().number(1, size as i64)));
    let tensor = Message::default().number(1, FLOAT).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

/// An attribute; its type is field 20.
pub(super) fn int(name: &str, value: i64) -> Message {
    Message::default().text(1, name).number(3, value).number(20, 2)
}

pub(super) fn float(name: &str, value: f32) -> Message {
    Message::default().text(1, name).float(2, value).number(20, 1)
}

pub(super) fn ints(name: &str, values: &[usize]) -> Message {
    Message::default().text(1, name).each(values, |m, &value| m.number(8, value as i64)).number(20, 7)
}
