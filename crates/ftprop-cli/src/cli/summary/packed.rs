//! `ftprop summary MODEL.ftp`: what a packed model says of itself.

use super::{bytes, grouped};
use crate::cli::bench::infer::name;
use crate::cli::{say, say_json};
use crate::error::Error;
use ftprop_data::TableTransform;
use ftprop_runtime::{Activation, Codec, Element, Model, Op, Preprocessing, Stage, note};
use ftprop_train::files;
use ftprop_train::words::{counted, plain};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

#[derive(Serialize)]
struct Report {
    name: String,
    bytes: usize,
    /// Rows, columns, channels.
    input: [usize; 3],
    takes: &'static str,
    resize: Option<u32>,
    /// Of a table: the columns that the numbers are made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    columns: Vec<String>,
    mean: Vec<f32>,
    std: Vec<f32>,
    classes: Vec<String>,
    source: Option<String>,
    loss: Option<String>,
    multiply_adds: u64,
    layers: Vec<Layer>,
}

#[derive(Serialize)]
struct Layer {
    kind: String,
    output: [usize; 3],
    weights: u64,
    /// Of each weight; null where there are none.
    weight_bits: Option<u32>,
    /// Of each output; null for real numbers.
    activation_bits: Option<u32>,
}

/// Prints it.
pub(super) fn show(path: &Path, json: bool) -> Result<ExitCode, Error> {
    let file = files::read(path)?;
    let refused =
        |e: ftprop_runtime::Error| ftprop_export::Error::NotAModel { path: path.to_path_buf(), why: e.to_string() };
    let model = Model::parse(&file).map_err(refused)?;
    let report = Report::of(&model, file.len())?;
    if json {
        say_json(&report)?;
    } else {
        report.say(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn of(model: &Model<'_>, size: usize) -> Result<Self, Error> {
        let values = model.check()?;
        let Preprocessing { input, element, resize_shorter, mean, std, .. } = &model.preprocessing;
        let layer = |(op, made): (&Op<'_>, &ftprop_runtime::Value)| {
            let (kind, weights, weight_bits) = words(op, &values);
            let activation_bits = match made.kind {
                ftprop_runtime::Kind::Levels(activation) => Some(bits_of(activation)),
                _ => None,
            };
            let output = [made.shape.height, made.shape.width, made.shape.channels];
            Layer { kind, output, weights, weight_bits, activation_bits }
        };
        Ok(Report {
            name: model.name.clone(),
            bytes: size,
            input: [input.height, input.width, input.channels],
            takes: if *element == Element::Byte { "bytes" } else { "reals" },
            resize: *resize_shorter,
            columns: columns(model),
            mean: mean.clone(),
            std: std.clone(),
            classes: model.classes.clone(),
            source: model.notes.get(note::SOURCE).cloned(),
            loss: model.notes.get(note::LOSS).cloned(),
            multiply_adds: model.macs()?,
            layers: model.ops.iter().zip(&values[1..]).map(layer).collect(),
        })
    }

    fn say(&self, path: &Path) -> Result<(), Error> {
        let [height, width, channels] = self.input;
        let source = self.source.as_ref().map_or_else(String::new, |source| format!(", trained on {}", plain(source)));
        say(&format!("{}: {}, {}{source}", path.display(), plain(&self.name), bytes(self.bytes)))?;
        say(&match (self.takes, self.resize) {
            ("reals", _) if self.columns.is_empty() => format!("takes rows of {channels} numbers"),
            ("reals", _) => {
                let shown = self.columns.iter().take(10).map(|name| plain(name)).collect::<Vec<_>>().join(", ");
                let more = if self.columns.len() > 10 { ", …" } else { "" };
                let all = counted(self.columns.len() as u64, "column");
                format!("takes rows of {all}, which become {channels} numbers: {shown}{more}")
            }
            (_, Some(resize)) => {
                format!(
                    "takes pictures of {height}×{width}, {}, shorter edge first resized to {resize}",
                    counted(channels as u64, "channel")
                )
            }
            (_, None) => format!("takes pictures of {height}×{width}, {}", counted(channels as u64, "channel")),
        })?;
        if channels <= 4 {
            say(&format!("normalised by mean {:?}, deviation {:?}", self.mean, self.std))?;
        }
        let shown = self.classes.iter().take(10).map(|class| plain(class)).collect::<Vec<_>>().join(", ");
        let more = if self.classes.len() > 10 { ", …" } else { "" };
        say(&format!("{} classes: {shown}{more}", self.classes.len()))?;
        let width = self.layers.iter().map(|layer| layer.kind.chars().count()).max().unwrap_or(0);
        for layer in &self.layers {
            let [height, columns, channels] = layer.output;
            let weights = layer.weight_bits.map_or_else(String::new, |bits| {
                format!(", {} weights of {bits} bits", grouped(layer.weights as usize))
            });
            let outputs = layer.activation_bits.map_or_else(
                || "reals".into(),
                |bits| match bits {
                    1 => "1 bit".to_string(),
                    bits => format!("{bits} bits"),
                },
            );
            say(&format!("  {:<width$}  {channels}×{height}×{columns}, {outputs}{weights}", layer.kind))?;
        }
        say(&format!("{} multiply-adds for one example", grouped(self.multiply_adds as usize)))
    }
}

/// The columns of the table that a model was trained on, where it says so.
fn columns(model: &Model<'_>) -> Vec<String> {
    let table = model.notes.get(note::TABLE).and_then(|text| serde_json::from_str::<TableTransform>(text).ok());
    table.map_or_else(Vec::new, |table| table.columns.into_iter().map(|column| column.name).collect())
}

/// What an operation is, how many weights it has, and of how many bits.
fn words(op: &Op<'_>, values: &[ftprop_runtime::Value]) -> (String, u64, Option<u32>) {
    match op {
        Op::Conv { input, conv } => {
            let from = values[*input].shape;
            let [height, width] = conv.window.kernel;
            let kind = match (height, width) == (from.height, from.width) && conv.window.pad == [0, 0] {
                true => "fully connected".to_string(),
                false => format!("conv {height}×{width}"),
            };
            let act = match &conv.stage {
                Stage::Thresholds { activation, .. } => Some(*activation),
                Stage::Affine(affine) => affine.activation,
            };
            let act = act.map_or_else(String::new, |act| format!(", {}", activation(act)));
            let bits = match conv.weights.codec {
                Codec::F32 => 32,
                Codec::Int16 => 16,
                Codec::Int8 => 8,
                Codec::Int4 => 4,
            };
            (format!("{kind}{act}"), conv.inputs(from.channels) as u64 * conv.outputs as u64, Some(bits))
        }
        other => (name(other), 0, None),
    }
}

fn activation(activation: Activation) -> String {
    match activation {
        Activation::Sign => "sign".into(),
        Activation::Step => "step".into(),
        Activation::QRelu(k) => format!("qrelu:{k}"),
        Activation::Relu => "relu".into(),
        Activation::SaturatedRelu => "saturated_relu".into(),
    }
}

fn bits_of(activation: Activation) -> u32 {
    u32::from(activation.steps().unwrap_or(1)).ilog2() + 1
}
