//! The network and the instances that `robust` and `verify` are asked about.

use crate::cli::data::check_placed;
use crate::error::Error;
use crate::progress::tell;
use ftprop_data::{Dataset, Split};
use ftprop_export::{exact, zoo};
use ftprop_nn::engine::Part;
use ftprop_runtime as packed;
use ftprop_search::{ExactNetwork, Points, Rational};
use ftprop_train::evaluate::check_data;
use ftprop_train::files::{self, is_packed};
use ftprop_train::measuring::{Asked, Measured, Measuring, WhichData, compare};
use ftprop_train::model::{Model, Which};
use ftprop_train::recipe::Recipe;
use std::path::Path;
use std::sync::Arc;

/// A network in exact numbers and a part of its data.
pub(in crate::cli) struct Subject {
    pub(in crate::cli) network: ExactNetwork,
    pub(in crate::cli) classes: Vec<String>,
    pub(in crate::cli) points: Points,
    pub(in crate::cli) labels: Vec<usize>,
    /// The values that inputs can have; none for a table.
    pub(in crate::cli) range: Option<(Rational, Rational)>,
}

/// Where data are, as the command line says it.
pub(in crate::cli) struct Place<'a> {
    pub(in crate::cli) data: Option<&'a Path>,
    pub(in crate::cli) source: Option<&'a str>,
    /// How it says that, for a message.
    pub(in crate::cli) how: &'static str,
    /// Training examples instead of those to test on.
    pub(in crate::cli) train: bool,
}

impl Place<'_> {
    fn asked(&self) -> Asked {
        Asked::Part(if self.train { Part::Train } else { Part::Test })
    }
}

impl Subject {
    pub(in crate::cli) fn open(model: &Path, which: Which, place: &Place<'_>) -> Result<Self, Error> {
        let model = &zoo::resolve(model)?;
        let (network, classes, data) =
            if is_packed(model) { packed_model(model, place)? } else { trained(model, which, place)? };
        let part = if place.train { &data.train } else { &data.test };
        let (points, range) = instances(part, data.normalize.full)?;
        let labels = (0..part.len()).map(|position| part.label(position) as usize).collect();
        Ok(Subject { network, classes, points, labels, range })
    }
}

fn trained(path: &Path, which: Which, place: &Place<'_>) -> Result<(ExactNetwork, Vec<String>, Dataset), Error> {
    if place.source.is_some() {
        return Err(Error::Usage("--source goes with a packed model; a run knows its data".into()));
    }
    let mut model = Model::load(path, which, Arc::new(ftprop_tensor::Cpu::new(1)?), 1)?;
    let network = exact::of_model(&model)?;
    let which = WhichData::of(place.data, model.recipe.data.path.as_deref());
    if let Some(data) = place.data {
        model.recipe.data.path = Some(data.to_path_buf());
    }
    let Measured { dataset, note, .. } = Measuring::of(&model.recipe, &model.info, which, place.asked()).open()?;
    note.iter().for_each(|note| tell(&note.to_string()));
    Ok((network, model.info.classes.clone(), dataset))
}

fn packed_model(path: &Path, place: &Place<'_>) -> Result<(ExactNetwork, Vec<String>, Dataset), Error> {
    let bytes = files::read(path)?;
    let refused =
        |why: packed::Error| ftprop_export::Error::NotAModel { path: path.to_path_buf(), why: why.to_string() };
    let model = packed::Model::parse(&bytes).map_err(refused)?;
    if model.preprocessing.element == packed::Element::Real {
        return Err(Error::Other(
            "proofs about a packed model are for pictures; give the run that it was made from".into(),
        ));
    }
    let network = exact::of_packed(&model)?;
    let remembered = model.notes.get(packed::note::SOURCE).map(String::as_str);
    let Some(source) = place.source.or(remembered) else {
        return Err(Error::Usage(
            "this packed model does not say what it was trained on; give --source, such as mnist, and --data".into(),
        ));
    };
    let mut recipe = Recipe::default();
    recipe.data.source = source.parse()?;
    check_placed(path, recipe.data.source, place.data, place.how)?;
    recipe.data.path = place.data.map(Path::to_path_buf);
    let dataset = recipe.data.open()?;
    let packed::Shape { height, width, channels } = model.preprocessing.input;
    let classes = if model.classes.is_empty() { dataset.classes.clone() } else { model.classes.clone() };
    check_data(&dataset, ftprop_data::Shape::new(height, width, channels), &classes)?;
    let trained_on = model.notes.get(packed::note::DATA).and_then(|text| serde_json::from_str(text).ok());
    let which = WhichData::of(place.data, None);
    let asked = place.asked();
    trained_on.map_or(Ok(None), |then| compare(&recipe.data, (which, asked), &then, &dataset))?;
    Ok((network, classes, dataset))
}

/// A part's examples as they are before normalising, and the range of pixels.
fn instances(part: &Split, full: f32) -> Result<(Points, Option<(Rational, Rational)>), Error> {
    let numbers = || (0..part.len()).map(|position| part.number(position));
    if let Some((bytes, shape)) = part.bytes() {
        if shape != part.shape() {
            return Err(Error::Other("the network sees a window of each picture; proofs are about whole ones".into()));
        }
        let size = shape.size();
        let values = numbers().flat_map(|number| &bytes[number * size..][..size]).map(|&b| i64::from(b)).collect();
        let range = Some((Rational::from(0), Rational::from(1)));
        return Ok((Points::from_ratios(size, values, full as u32)?, range));
    }
    let (values, columns) = part
        .features()
        .ok_or_else(|| Error::Other("pictures in files are resized on the way; proofs are about pixels".into()))?;
    let rows = numbers().flat_map(|number| &values[number * columns..][..columns]).map(|&x| f64::from(x)).collect();
    Ok((Points::new(columns, rows)?, None))
}
