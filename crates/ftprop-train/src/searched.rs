//! A network that a search found, as one that was trained: in memory, or as a run folder.

use crate::checkpoint::{self, Contents, ModelInfo, State};
use crate::error::Error;
use crate::files;
use crate::recipe::{Recipe, absolute, input_shape};
use crate::run::RunFolder;
use ftprop_data::{Normalize, Source};
use ftprop_nn::engine::NetworkState;
use ftprop_nn::parameter::ParameterKind;
use ftprop_nn::{Activation, Network};
use ftprop_search::{Labelled, Problem, Solution};
use ftprop_tensor::Cpu;
use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a problem's instances come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Numbers as they are.
    Table,
    /// Pixels of a data set, divided by their largest value, and where it lies.
    Pixels(Source, Option<PathBuf>),
}

/// Writes a run folder and gives how many training instances the network, in 32-bit arithmetic, answers differently than
/// the search found: those too near to a boundary. Tables, also made-up ones, are copied into the folder, so that the
/// network can be evaluated on them.
pub fn save(folder: &Path, problem: &Problem, origin: &Origin, solution: &Solution) -> Result<usize, Error> {
    let mut recipe = Recipe { name: solution.problem.clone(), activation: Activation::Sign, ..Recipe::default() };
    recipe.network.preset = Some("mlp".into());
    recipe.network.widths = solution.hidden.clone();
    recipe.train.seed = solution.seed;
    match origin {
        Origin::Table => {
            recipe.data.source = Source::Csv;
            recipe.data.path = Some(absolute(&folder.join("points.csv")));
            let test = if problem.test.is_some() { "test.csv" } else { "points.csv" };
            recipe.data.csv.test_file = Some(absolute(&folder.join(test)));
            recipe.data.csv.header = Some(false);
        }
        Origin::Pixels(source, path) => {
            recipe.data.source = *source;
            recipe.data.path.clone_from(path);
        }
    }
    let run = RunFolder::create(folder, &recipe)?;
    if matches!(origin, Origin::Table) {
        files::write(&folder.join("points.csv"), table(&problem.train).as_bytes())?;
        if let Some(test) = &problem.test {
            files::write(&folder.join("test.csv"), table(test).as_bytes())?;
        }
    }
    let dataset = recipe.data.open()?;
    if dataset.classes != problem.train.classes {
        return Err(Error::Searched {
            why: "the classes of the saved table come in another order than they were learned",
        });
    }
    let input = input_shape(dataset.shape);
    let graph = recipe.graph(input, dataset.classes.len())?;
    let cpu = Arc::new(Cpu::new(1)?);
    let mut network = Network::new(cpu.clone(), graph.clone(), 1)?;
    fill(&mut network, &solution.network, &dataset.normalize)?;
    let info = ModelInfo::of(&dataset);
    for file in [run.best(), run.checkpoint()] {
        let state = NetworkState { values: network.values().into(), statistics: network.stats().into() };
        checkpoint::save(&file, &recipe, &info, &State::start(), &Contents::for_use(&graph, state))?;
    }
    Ok(cpu.enter(|| changed(&mut network, problem, &solution.network, &dataset.normalize)))
}

fn table(data: &Labelled) -> String {
    let mut text = String::new();
    for (row, &label) in data.points.rows().zip(&data.labels) {
        row.iter().for_each(|x| {
            let _ = write!(text, "{x},");
        });
        let _ = writeln!(text, "{}", cell(&data.classes[label]));
    }
    text
}

/// A name as a cell of a table, in quotes where it would be taken for several.
fn cell(name: &str) -> Cow<'_, str> {
    let plain = !name.contains([',', ';', '\t', '"', '\n', '\r']) && name.trim() == name;
    if plain { name.into() } else { format!("\"{}\"", name.replace('"', "\"\"")).into() }
}

/// Puts a search's weights into a network of the same widths. Its inputs are normalised, those of the search were not:
/// the first layer takes that back. One output unit becomes two, of which the first always says zero.
pub fn fill(network: &mut Network, searched: &ftprop_search::Network, normalize: &Normalize) -> Result<(), Error> {
    let mut layers = searched.layers.clone();
    for unit in &mut layers[0] {
        let last = unit.len() - 1;
        let mut shift = 0.0;
        for (input, weight) in unit[..last].iter_mut().enumerate() {
            let channel = input % normalize.mean.len();
            shift += *weight * f64::from(normalize.mean[channel]);
            *weight *= f64::from(normalize.std[channel]);
        }
        unit[last] += shift;
    }
    if let Some(outputs) = layers.last_mut()
        && outputs.len() == 1
    {
        outputs.insert(0, vec![0.0; outputs[0].len()]);
    }
    let mut weights = layers.iter();
    let mut biases = layers.iter();
    let graph = network.graph().clone();
    for parameter in graph.parameters() {
        let (layer, is_bias) = match parameter.kind {
            ParameterKind::Fc { .. } => (weights.next(), false),
            _ => (biases.next(), true),
        };
        let layer =
            layer.ok_or_else(|| Error::Searched { why: "the network has more layers than the search found" })?;
        let values: Vec<f32> = layer
            .iter()
            .flat_map(|unit| {
                let (bias, linear) = unit.split_last().expect("a unit has a bias");
                if is_bias { vec![*bias as f32] } else { linear.iter().map(|&w| w as f32).collect() }
            })
            .collect();
        let place = &mut network.values_mut()[parameter.range.clone()];
        if place.len() != values.len() {
            return Err(Error::Searched { why: "a layer of the network has another size than the search found" });
        }
        place.copy_from_slice(&values);
    }
    Ok(())
}

/// How many training instances the network in f32 gives another class.
fn changed(
    network: &mut Network,
    problem: &Problem,
    searched: &ftprop_search::Network,
    normalize: &Normalize,
) -> usize {
    let wanted = searched.predict(&problem.train.points);
    let channels = normalize.mean.len();
    let answers = problem.train.points.rows().map(|row| {
        let normal = |(input, &x): (usize, &f64)| {
            (x as f32 - normalize.mean[input % channels]) / normalize.std[input % channels]
        };
        let image: Vec<f32> = row.iter().enumerate().map(normal).collect();
        let logits = network.infer(&image);
        (0..logits.len()).reduce(|best, class| if logits[class] > logits[best] { class } else { best }).unwrap_or(0)
    });
    answers.zip(wanted).filter(|(found, wanted)| found != wanted).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_cell() {
        assert_eq!(cell("a b"), "a b");
        assert_eq!(cell("a,b"), "\"a,b\"");
        assert_eq!(cell("say \"a\"\nb"), "\"say \"\"a\"\"\nb\"");
        assert_eq!(cell(" a"), "\" a\"");
    }
}
