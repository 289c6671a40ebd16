//! `ftprop summary`

mod packed;

use super::{load, say, say_json};
use crate::error::Error;
use crate::progress::tell;
use crate::terminal::Stream;
use clap::Args;
use ftprop_data::Source;
use ftprop_export::zoo;
use ftprop_lab::report::columns::width;
use ftprop_nn::Shape;
use ftprop_nn::graph::{Graph, Node};
use ftprop_tensor::Cpu;
use ftprop_train::built_in::{built_in, nearest};
use ftprop_train::files::is_packed;
use ftprop_train::model::Which;
use ftprop_train::recipe::Recipe;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Show a network's layers, shapes, parameters, multiply-adds and bits
#[derive(Args)]
#[command(after_help = "\
Examples:
  ftprop summary runs/digits
  ftprop summary digits.ftp
  ftprop summary convnet8-qrelu-ftpsh
  ftprop summary my.toml --input 3x64x64 --classes 20")]
pub(super) struct Summary {
    /// A run folder, a checkpoint file, a recipe, a packed model (.ftp) or one of the zoo (zoo:NAME)
    network: PathBuf,
    /// For a recipe: channels x height x width of the input, if its data is not at hand
    #[arg(long, value_name = "CxHxW", value_parser = parse_shape)]
    input: Option<Shape>,
    /// For a recipe: the number of classes, if its data is not at hand
    #[arg(long)]
    classes: Option<usize>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
pub(super) struct Report {
    input: String,
    /// Rows, columns, channels.
    input_shape: [usize; 3],
    classes: usize,
    layers: Vec<Row>,
    parameters: usize,
    multiply_adds: usize,
    weight_bits: usize,
    activation_bits: usize,
}

#[derive(Serialize)]
struct Row {
    layer: String,
    kind: String,
    output: String,
    /// Rows, columns, channels.
    output_shape: [usize; 3],
    parameters: usize,
    multiply_adds: usize,
    /// Of all its outputs for one example, where an activation decides it.
    activation_bits: Option<usize>,
}

impl Summary {
    pub(super) fn run(mut self) -> Result<ExitCode, Error> {
        self.network = zoo::resolve(&self.network)?;
        let is_built_in = || self.network.to_str().and_then(built_in).is_some() && !self.network.exists();
        let is_recipe = self.network.extension().is_some_and(|e| e == "toml") || is_built_in();
        if let Some(word) = self.network.to_str().filter(|_| !is_recipe && !self.network.exists())
            && nearest(word).is_some()
        {
            return Err(ftprop_train::Error::no_recipe(word).into());
        }
        if !is_recipe && (self.input.is_some() || self.classes.is_some()) {
            return Err(Error::Usage("--input and --classes go with a recipe; a trained network has its own".into()));
        }
        if is_packed(&self.network) {
            return packed::show(&self.network, self.json);
        }
        let graph = if is_recipe {
            let recipe: Recipe = Recipe::layers_of(&self.network)?.build()?;
            let (input, classes) = self.data_shape(&recipe)?;
            recipe.graph(input, classes)?
        } else {
            load(&self.network, Which::Best, Arc::new(Cpu::new(1)?), 1)?.network.graph().clone()
        };
        let report = Report::of(&graph);
        if self.json {
            say_json(&report)?;
        } else {
            report.lines(Stream::Out.columns().unwrap_or(usize::MAX)).iter().try_for_each(|line| say(line))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What the recipe's data looks like: as the options say, as its kind always is, or by opening it.
    fn data_shape(&self, recipe: &Recipe) -> Result<(Shape, usize), Error> {
        let side = recipe.data.crop;
        let square = |usual: usize, channels| {
            let side = side.unwrap_or(usual);
            Shape { height: side, width: side, channels }
        };
        let known = match recipe.data.source {
            Source::Digits => Some((square(8, 1), 10)),
            Source::Cifar10 => Some((square(32, 3), 10)),
            Source::Cifar100 => Some((square(32, 3), 100)),
            Source::Mnist | Source::FashionMnist => Some((square(28, 1), 10)),
            // The paper's folder is ImageNet.
            Source::Folder | Source::Prepared if recipe.data.path.is_none() => {
                if self.classes.is_none() {
                    tell(
                        "the recipe does not say where its images are, so ImageNet's 1000 classes are assumed; give --classes",
                    );
                }
                Some((square(224, 3), 1000))
            }
            _ => None,
        };
        match (self.input, self.classes, known) {
            (Some(input), Some(classes), _) => Ok((input, classes)),
            (input, classes, Some((known_input, known_classes))) => {
                Ok((input.unwrap_or(known_input), classes.unwrap_or(known_classes)))
            }
            _ => {
                let dataset = recipe.data.open()?;
                let input = self.input.unwrap_or_else(|| ftprop_train::recipe::input_shape(dataset.shape));
                Ok((input, self.classes.unwrap_or(dataset.classes.len())))
            }
        }
    }
}

fn parse_shape(text: &str) -> Result<Shape, String> {
    let numbers: Result<Vec<usize>, _> = text.split(['x', '×']).map(str::parse).collect();
    match numbers.as_deref() {
        Ok(&[channels, height, width]) => Ok(Shape { height, width, channels }),
        Ok(&[len]) => Ok(Shape::vector(len)),
        _ => Err("expected channels x height x width, such as 3x32x32".into()),
    }
}

impl Report {
    /// Of a network.
    pub(super) fn of(graph: &Graph) -> Self {
        let (nodes, parameters) = (graph.walk(), graph.parameter_count());
        Report {
            input: graph.input().to_string(),
            input_shape: sides(graph.input()),
            classes: graph.classes(),
            parameters,
            multiply_adds: nodes.iter().map(|node| node.multiply_adds()).sum(),
            weight_bits: 32 * parameters,
            activation_bits: nodes.iter().filter_map(|node| activation_bits(node)).sum(),
            layers: nodes.iter().map(|node| row(graph, node)).collect(),
        }
    }
}

fn sides(shape: Shape) -> [usize; 3] {
    [shape.height, shape.width, shape.channels]
}

fn activation_bits(node: &Node) -> Option<usize> {
    node.activation_bits().map(|bits| bits as usize * node.output.len())
}

fn row(graph: &Graph, node: &Node) -> Row {
    Row {
        layer: node.path.clone(),
        kind: node.description(),
        output: node.output.to_string(),
        output_shape: sides(node.output),
        parameters: node.parameters().map(|id| graph.parameter(id).range.len()).sum(),
        multiply_adds: node.multiply_adds(),
        activation_bits: activation_bits(node),
    }
}

impl Report {
    /// As a table with a line for each layer, or below each other where so many columns do not hold it.
    pub(super) fn lines(&self, room: usize) -> Vec<String> {
        let dash = |n: usize| if n == 0 { NONE.to_string() } else { grouped(n) };
        let mut rows = vec![
            HEAD.map(String::from),
            [String::new(), "input".into(), self.input.clone(), dash(0), dash(0), dash(0)],
        ];
        for r in &self.layers {
            rows.push([
                r.layer.clone(),
                r.kind.clone(),
                r.output.clone(),
                dash(r.parameters),
                dash(r.multiply_adds),
                dash(r.activation_bits.unwrap_or(0)),
            ]);
        }
        let [parameters, multiply_adds, bits] =
            [self.parameters, self.multiply_adds, self.activation_bits].map(grouped);
        rows.push(["".into(), "in all".into(), "".into(), parameters, multiply_adds, bits]);
        let mut lines = aligned(&rows);
        if lines.iter().any(|line| width(line) > room) {
            lines = rows[1..].iter().flat_map(|row| apart(row, room)).collect();
        }
        lines.push(format!(
            "weights {} in f32; activations of one example {}",
            bytes(self.weight_bits / 8),
            bytes(self.activation_bits.div_ceil(8))
        ));
        lines
    }
}

const HEAD: [&str; 6] = ["layer", "", "output", "parameters", "multiply-adds", "activation bits"];
const INDENT: &str = "    ";
/// Stands for what a layer has not.
const NONE: &str = "–";

/// A row as a line of words and one of figures, or one for each of them.
fn apart(row: &[String; 6], room: usize) -> Vec<String> {
    let [layer, kind, output, figures @ ..] = row;
    let words: Vec<&str> = [layer, kind, output].into_iter().map(String::as_str).filter(|t| !t.is_empty()).collect();
    let figures = figures.iter().zip(&HEAD[3..]).filter(|(figure, _)| *figure != NONE);
    let figures: Vec<String> = figures.map(|(figure, name)| format!("{figure} {name}")).collect();
    let together = figures.join(", ");
    let figures = if together.is_empty() || INDENT.len() + width(&together) > room { figures } else { vec![together] };
    std::iter::once(words.join("  ")).chain(figures.iter().map(|figures| format!("{INDENT}{figures}"))).collect()
}

/// Rows in columns: the first two to the left, the others to the right.
fn aligned(rows: &[[String; 6]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(i, (cell, &w))| if i < 2 { format!("{cell:<w$}") } else { format!("{cell:>w$}") });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn bytes(n: usize) -> String {
    match n {
        0..10_000 => format!("{n} bytes"),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}

/// Digits in groups of three.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_numbers_read_well() {
        assert_eq!(parse_shape("3x32x16"), Ok(Shape { height: 32, width: 16, channels: 3 }));
        assert!(parse_shape("3x32").is_err() && parse_shape("a").is_err());
        let row = ["3", "conv 64 3×3 pad 1", "64×8×8", "18,432", "1,179,648", NONE].map(String::from);
        assert_eq!(apart(&row, 47)[1..], ["    18,432 parameters, 1,179,648 multiply-adds"]);
        assert_eq!(
            apart(&row, 40),
            ["3  conv 64 3×3 pad 1  64×8×8", "    18,432 parameters", "    1,179,648 multiply-adds"]
        );
        assert_eq!((grouped(7), grouped(1234), grouped(1_000_000)), ("7".into(), "1,234".into(), "1,000,000".into()));
    }
}
