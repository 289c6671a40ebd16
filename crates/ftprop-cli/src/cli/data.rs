//! Which data a command is about: what `--data` means for `train`, `sweep`, `import` and `eval`.

use crate::error::Error;
use crate::progress::tell;
use ftprop_data::{Found, Source};
use ftprop_export::zoo;
use ftprop_train::built_in::DIGITS;
use ftprop_train::config::Layers;
use ftprop_train::own_data::OwnData;
use ftprop_train::recipe::{Recipe, absolute};
use std::path::Path;

/// The recipe that a command begins with: the one that is named; without a name that of the digits, or, where there is
/// data, one that is written for it. `settings` may say what kind of data it is.
pub(super) fn recipe_layers(
    recipe: Option<&Path>,
    data: Option<&Path>,
    settings: &[String],
    quiet: bool,
) -> Result<Layers, Error> {
    let Some(data) = data.filter(|_| recipe.is_none()) else {
        return match recipe {
            Some(recipe) => Ok(Recipe::layers_of(recipe)?),
            // Whatever files are here.
            None => Ok(Recipe::defaults()?.text("the built-in recipe digits", DIGITS)?),
        };
    };
    let told = settings.iter().rev().find_map(|setting| setting.strip_prefix("data.source="));
    if let Some(source) = told.and_then(|name| name.parse::<Source>().ok()) {
        return Ok(OwnData::layers(data, source)?);
    }
    let own = OwnData::at(data)?;
    tell_found(data, &own.found, quiet);
    Ok(own.layers)
}

/// Puts the data where `--data` says, and everything where it is found from any folder. Says what was found.
pub(super) fn locate(recipe: &mut Recipe, data: Option<&Path>, quiet: bool) -> Result<(), Error> {
    let found = find(recipe, data)?;
    if let (Some(found), Some(data)) = (found, data) {
        tell_found(data, &found, quiet);
    }
    Ok(())
}

/// The same without a word.
pub(super) fn find(recipe: &mut Recipe, data: Option<&Path>) -> Result<Option<Found>, Error> {
    let found = data.map(|data| recipe.data.locate(data)).transpose()?.flatten();
    make_absolute(recipe);
    Ok(found)
}

/// The same for data that a network is to be measured on.
pub(super) fn find_others(recipe: &mut Recipe, data: Option<&Path>) -> Result<Option<Found>, Error> {
    let found = data.map(|data| recipe.data.locate_others(data)).transpose()?.flatten();
    make_absolute(recipe);
    Ok(found)
}

/// Whether data are not where they were.
pub(super) fn is_gone(error: &ftprop_train::Error) -> bool {
    matches!(error, ftprop_train::Error::File(file) if file.kind() == std::io::ErrorKind::NotFound)
}

fn make_absolute(recipe: &mut Recipe) {
    recipe.data.path = recipe.data.path.as_deref().map(absolute);
    recipe.data.csv.test_file = recipe.data.csv.test_file.as_deref().map(absolute);
}

/// A packed model remembers what it was trained on, but not where that lies, which is to be said unless it lies nowhere; `how`
/// is what to give.
pub(super) fn check_placed(model: &Path, source: Source, data: Option<&Path>, how: &str) -> Result<(), Error> {
    let of = match source {
        Source::Digits | Source::Arrays => return Ok(()),
        Source::Csv => "a table".to_string(),
        Source::Folder => "pictures in class folders".into(),
        Source::Prepared => "prepared pictures".into(),
        named => named.to_string(),
    };
    match data {
        Some(_) => Ok(()),
        None => Err(Error::Usage(format!(
            "{} is about {of}, and a packed model does not remember where its data lie: {how}",
            model.display()
        ))),
    }
}

/// Puts the networks that a recipe names, its teacher and the one to begin with, where they are found from any folder; they may be
/// of the zoo.
pub(super) fn place_networks(recipe: &mut Recipe) -> Result<(), ftprop_export::Error> {
    for network in [&mut recipe.train.teacher, &mut recipe.train.init_from].into_iter().flatten() {
        *network = absolute(&zoo::resolve_weights(network)?);
    }
    Ok(())
}

pub(super) fn tell_found(data: &Path, found: &Found, quiet: bool) {
    if !quiet {
        tell(&format!("{}: {found}", data.display()));
    }
}
