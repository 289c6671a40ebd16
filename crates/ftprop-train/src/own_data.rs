//! A recipe for data that nobody wrote one for: a network that fits itself to the examples, for as long as suits their
//! number.

use crate::config::Layers;
use crate::error::Error;
use crate::recipe::{DataRecipe, Recipe};
use ftprop_data::{CsvTable, Found, Source};
use std::path::Path;

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
        let text = text(&name_of(path), source, examples(&data, path)?);
        Ok(Recipe::defaults()?.text("the recipe for data of one's own", &text)?)
    }
}

/// About how many examples there are to learn from.
fn examples(data: &DataRecipe, path: &Path) -> Result<usize, Error> {
    match data.source {
        // Which column holds the labels is not known yet.
        Source::Csv => Ok(CsvTable::read(path, None)?.rows()),
        _ => Ok(data.open()?.train.len()),
    }
}

/// A run is called as its data are: `photos`, `flowers` for `flowers.csv.gz`.
fn name_of(path: &Path) -> String {
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.split('.').find(|part| !part.is_empty());
    stem.map_or_else(|| "run".into(), str::to_owned)
}

fn text(name: &str, source: Source, examples: usize) -> String {
    // Few examples are gone through often; the numbers suit two cores.
    let (seen, most) = if source == Source::Csv { (60_000, 200) } else { (24_000, 60) };
    let epochs = (seen / examples.max(1)).clamp(5, most);
    let batch = if examples < 10_000 { 32 } else { 64 };
    let data = match source {
        Source::Folder | Source::Prepared => "resize = 72\ncrop = 64\nrandom_crop = true\nflip = true\nworkers = 2",
        Source::Cifar10 | Source::Cifar100 => "pad = 4\nrandom_crop = true\nflip = true",
        Source::Mnist | Source::FashionMnist => "pad = 2\nrandom_crop = true",
        Source::Csv => "csv.missing = \"indicator\"",
        Source::Digits | Source::Arrays => "",
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
