//! A recipe for data that nobody wrote one for: a network that fits itself to the examples, for as long as suits their
//! number.

use crate::config::Layers;
use crate::error::Error;
use crate::recipe::{DataRecipe, Recipe};
use ftprop_data::{CsvTable, Found, Source};
use std::path::Path;

/// What photographs' shorter edges become, and the side of the window that is cut from them.
const USUAL: (usize, usize) = (72, 64);
/// Photographs with a shorter edge below this are seen whole.
const TINY: usize = 16;
/// Photographs are not made smaller than this.
const LEAST: usize = 8;

/// What a first model of some data is trained by.
#[derive(Clone, Debug)]
pub struct OwnData {
    /// What was found there.
    pub found: Found,
    /// The recipe, for settings to be laid over.
    pub layers: Layers,
}

impl OwnData {
    /// Finds out what a path holds and writes a recipe for it.
    ///
    /// ```
    /// # let folder = std::env::temp_dir().join(format!("ftprop-own-data-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # let path = folder.join("flowers.csv");
    /// use ftprop_train::own_data::OwnData;
    /// use ftprop_train::recipe::Recipe;
    /// std::fs::write(&path, "length,kind\n1.5,iris\n2.5,rose\n")?;
    /// let recipe: Recipe = OwnData::at(&path)?.layers.build()?;
    /// assert_eq!((recipe.name.as_str(), recipe.network.preset.as_deref()), ("flowers", Some("auto")));
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(path: &Path) -> Result<Self, Error> {
        let found = Source::detect(path)?;
        Ok(OwnData { layers: OwnData::layers(path, found.source)?, found })
    }

    /// The recipe for data of a known kind, for settings to be laid over.
    pub fn layers(path: &Path, source: Source) -> Result<Layers, Error> {
        let data = DataRecipe { source, path: Some(path.to_owned()), ..Recipe::default().data };
        let (examples, edge) = measured(&data, path)?;
        let text = text(&name_of(path), source, examples, edge);
        Ok(Recipe::defaults()?.text("the recipe for data of one's own", &text)?)
    }
}

/// About how many examples there are to learn from, and how long the shorter edge of photographs typically is.
fn measured(data: &DataRecipe, path: &Path) -> Result<(usize, Option<usize>), Error> {
    if data.source == Source::Csv {
        // Which column holds the labels is not known yet.
        return Ok((CsvTable::read(path, None)?.rows(), None));
    }
    let train = data.open()?.train;
    Ok((train.len(), train.typical_edge()))
}

/// What photographs' shorter edges become, and the side of the window: nothing is gained by making small ones larger.
fn sides(edge: Option<usize>) -> (usize, usize) {
    match edge {
        Some(edge) if edge < TINY => (edge.max(LEAST), edge.max(LEAST)),
        Some(edge) if edge < USUAL.1 => (edge, edge * USUAL.1 / USUAL.0),
        _ => USUAL,
    }
}

/// A run is called as its data are: `photos`, `flowers` for `flowers.csv.gz`.
fn name_of(path: &Path) -> String {
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.split('.').find(|part| !part.is_empty());
    stem.map_or_else(|| "run".into(), str::to_owned)
}

fn text(name: &str, source: Source, examples: usize, edge: Option<usize>) -> String {
    // Few examples are gone through often; the numbers suit two cores.
    let (seen, most) = if source == Source::Csv { (60_000, 200) } else { (24_000, 60) };
    let epochs = (seen / examples.max(1)).clamp(5, most);
    let batch = if examples < 10_000 { 32 } else { 64 };
    let data = match source {
        Source::Folder | Source::Prepared => {
            let (resize, crop) = sides(edge);
            format!("resize = {resize}\ncrop = {crop}\nrandom_crop = true\nflip = true\nworkers = 2")
        }
        Source::Cifar10 | Source::Cifar100 => "pad = 4\nrandom_crop = true\nflip = true".into(),
        Source::Mnist | Source::FashionMnist => "pad = 2\nrandom_crop = true".into(),
        Source::Csv => "csv.missing = \"indicator\"".into(),
        Source::Digits | Source::Arrays => String::new(),
    };
    let name = toml::Value::from(name);
    format!(
        "name = {name}\nactivation = \"qrelu:3\"\nlayer_loss = \"soft_hinge\"\n\
         [network]\npreset = \"auto\"\n\
         [data]\nsource = \"{source}\"\n{data}\n\
         [train]\nepochs = {epochs}\nbatch = {batch}\n\
         [optimizer]\nname = \"adamw\"\nlr = 2e-3\n\
         [schedule]\nkind = \"cosine\"\nwarmup = 1\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small photographs were made larger than they are, though it was said that the network fits itself to them.
    #[test]
    fn windows_are_no_larger_than_photographs() {
        for large in [None, Some(64), Some(72), Some(500)] {
            assert_eq!(sides(large), (72, 64), "{large:?}");
        }
        for (edge, expected) in [(63, (63, 56)), (32, (32, 28)), (16, (16, 14)), (15, (15, 15)), (1, (8, 8))] {
            assert_eq!(sides(Some(edge)), expected);
        }
    }

    /// A network is found for every window that there can be.
    #[test]
    fn every_window_has_its_network() {
        for edge in 1..=64 {
            let text = text("x", Source::Folder, 100, Some(edge));
            let recipe: Recipe = Recipe::defaults().unwrap().text("t", &text).unwrap().build().unwrap();
            let crop = recipe.data.crop.unwrap();
            recipe.graph(ftprop_nn::Shape { height: crop, width: crop, channels: 3 }, 2).unwrap();
        }
    }
}
