//! A network that a search found, as one that was trained: in memory, or as a run folder.

use crate::checkpoint::{self, Contents, ModelInfo, State};
use crate::error::Error;
use crate::files;
use crate::recipe::{Recipe, absolute, input_shape};
use crate::run::RunFolder;
use ftprop_data::{Known, Normalize, Source, TableTransform};
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

/// Names of the tables that a run folder holds.
const POINTS: &str = "points.csv";
const TEST: &str = "test.csv";

/// Finds out whether a network for this problem could be saved there, before the search that makes it. Nothing is left
/// behind.
pub fn check(folder: &Path, problem: &Problem, origin: &Origin) -> Result<(), Error> {
    RunFolder::planned(folder)?;
    let own = [POINTS, TEST, "best.safetensors"].map(|name| folder.join(name));
    if let Some(path) = own.into_iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Error::InTheWay { path });
    }
    // Of folders that are not there yet the first is what could not be made.
    let missing = |path: &&Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err();
    let first = folder.ancestors().take_while(missing).last();
    files::try_writing(&first.map_or_else(|| folder.join("recipe.toml"), Path::to_path_buf))?;
    let tables = [Some(&problem.train), problem.test.as_ref()].into_iter().flatten();
    let all = tables.filter(|_| *origin == Origin::Table).flat_map(|data| data.points.rows().enumerate());
    for (row, values) in all {
        if let Some(column) = values.iter().position(|&value| !(value as f32).is_finite()) {
            return Err(Error::TooLarge { row: row + 1, column: column + 1, value: values[column] });
        }
    }
    Ok(())
}

/// Writes a run folder and gives how many training instances the network, in 32-bit arithmetic, answers differently than
/// the search found: those too near to a boundary. Tables, also made-up ones, are copied into the folder, digit for digit,
/// so that the network can be evaluated on them. Where something fails, nothing is left behind.
pub fn save(folder: &Path, problem: &Problem, origin: &Origin, solution: &Solution) -> Result<usize, Error> {
    check(folder, problem, origin)?;
    let existed = folder.exists();
    let recipe = recipe(folder, problem, origin, solution);
    let saved = RunFolder::create(folder, &recipe).and_then(|run| {
        write(&run, &recipe, problem, origin, solution).inspect_err(|_| {
            for file in [run.best(), run.checkpoint(), folder.join(POINTS), folder.join(TEST)] {
                // What cannot be removed is in the way later, and is named then.
                let _ = std::fs::remove_file(file);
            }
            run.take_back(existed);
        })
    });
    if saved.is_err() && !existed {
        // Goes only if it is empty: nobody else's run is in it.
        let _ = std::fs::remove_dir(folder);
    }
    saved
}

fn recipe(folder: &Path, problem: &Problem, origin: &Origin, solution: &Solution) -> Recipe {
    let mut recipe = Recipe { name: solution.problem.clone(), activation: Activation::Sign, ..Recipe::default() };
    recipe.network.preset = Some("mlp".into());
    recipe.network.widths = solution.hidden.clone();
    recipe.train.seed = solution.seed;
    match origin {
        Origin::Table => {
            recipe.data.source = Source::Csv;
            recipe.data.path = Some(absolute(&folder.join(POINTS)));
            let test = if problem.test.is_some() { TEST } else { POINTS };
            recipe.data.csv.test_file = Some(absolute(&folder.join(test)));
            recipe.data.csv.header = Some(false);
        }
        Origin::Pixels(source, path) => {
            recipe.data.source = *source;
            recipe.data.path.clone_from(path);
        }
    }
    recipe
}

/// Everything that is in the folder beside the recipe.
fn write(
    run: &RunFolder,
    recipe: &Recipe,
    problem: &Problem,
    origin: &Origin,
    solution: &Solution,
) -> Result<usize, Error> {
    let dataset = match origin {
        Origin::Table => {
            files::write(&run.path().join(POINTS), table(&problem.train).as_bytes())?;
            if let Some(test) = &problem.test {
                files::write(&run.path().join(TEST), table(test).as_bytes())?;
            }
            // Read by itself the table could have its classes in another order, or be refused where a search is not.
            let (columns, classes) = (columns(&problem.train), problem.train.classes.clone());
            let table = Some(TableTransform::of_numbers(columns, classes.clone()));
            recipe.data.open_for(Known { classes, table }, false)?
        }
        Origin::Pixels(..) => recipe.data.open()?,
    };
    if dataset.classes != problem.train.classes {
        return Err(Error::Searched { why: "the classes of the data are not those that it learned" });
    }
    let input = input_shape(dataset.shape);
    let graph = recipe.graph(input, dataset.classes.len())?;
    let cpu = Arc::new(Cpu::new(1)?);
    let mut network = Network::new(cpu.clone(), graph.clone(), 1)?;
    fill(&mut network, &solution.network, &dataset.normalize)?;
    let info = ModelInfo::of(&dataset);
    for file in [run.best(), run.checkpoint()] {
        let state = NetworkState { values: network.values().into(), statistics: network.stats().into() };
        checkpoint::save(&file, recipe, &info, &State::start(), &Contents::for_use(&graph, state))?;
    }
    // What the search claims is claimed about the exact network on the numbers as they were given.
    let wanted = solution.exact.predict(&problem.train.points).map_err(|why| Error::Outside(Box::new(why)))?;
    Ok(cpu.enter(|| changed(&mut network, problem, &wanted, &dataset.normalize)))
}

/// The numbers of each input.
fn columns(data: &Labelled) -> impl Iterator<Item = Vec<f32>> {
    (0..data.points.inputs()).map(|column| data.points.rows().map(|row| row[column] as f32).collect())
}

/// The instances digit for digit. Numbers without an end, which no table says, become the nearest float.
fn table(data: &Labelled) -> String {
    let mut text = String::new();
    for (at, &label) in data.labels.iter().enumerate() {
        for (exact, float) in data.points.exact_row(at).iter().zip(data.points.row(at)) {
            let _ = match exact.to_decimal() {
                Some(decimal) => write!(text, "{decimal},"),
                None => write!(text, "{float},"),
            };
        }
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
    if let Some((outputs, hidden)) = layers.split_last_mut() {
        hidden.iter_mut().flatten().for_each(|unit| into_range(std::slice::from_mut(unit)));
        into_range(outputs);
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
        if !values.iter().all(|value| value.is_finite()) {
            return Err(Error::Searched { why: "a weight is beyond what 32-bit numbers hold; scale the inputs" });
        }
        if place.len() != values.len() {
            return Err(Error::Searched { why: "a layer of the network has another size than the search found" });
        }
        place.copy_from_slice(&values);
    }
    Ok(())
}

/// Multiplies units by one power of two where they are too large or too small for 32 bits: neither a sign nor which output is
/// the largest depends on that.
fn into_range(units: &mut [Vec<f64>]) {
    let largest = units.iter().flatten().fold(0.0f64, |largest, w| largest.max(w.abs()));
    let fits = largest == 0.0 || (f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX)).contains(&largest);
    if !fits && largest.is_finite() {
        let times = 2f64.powi(-(largest.log2() as i32) / 2);
        units.iter_mut().flatten().for_each(|w| *w = *w * times * times);
    }
}

/// How many training instances the network in f32 gives another class than the wanted one.
fn changed(network: &mut Network, problem: &Problem, wanted: &[usize], normalize: &Normalize) -> usize {
    let channels = normalize.mean.len();
    let answers = problem.train.points.rows().map(|row| {
        let normal = |(input, &x): (usize, &f64)| {
            (x as f32 - normalize.mean[input % channels]) / normalize.std[input % channels]
        };
        let image: Vec<f32> = row.iter().enumerate().map(normal).collect();
        let logits = network.infer(&image);
        (0..logits.len()).reduce(|best, class| if logits[class] > logits[best] { class } else { best }).unwrap_or(0)
    });
    answers.zip(wanted).filter(|(found, wanted)| found != *wanted).count()
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
