//! The network and the instances that `robust` and `verify` are asked about.

use crate::cli::check_choice;
use crate::cli::data::check_placed;
use crate::error::Error;
use ftprop_data::{CsvTable, Dataset, Split, TableTransform};
use ftprop_export::{bytes_given, exact, zoo};
use ftprop_nn::engine::Part;
use ftprop_runtime as packed;
use ftprop_search::{ExactNetwork, Points, Rational};
use ftprop_train::evaluate::check_data;
use ftprop_train::files::{self, is_packed};
use ftprop_train::measuring::{Asked, DataNote, Measured, Measuring, WhichData, compare};
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
    /// What is to be said of how many it gets right.
    pub(in crate::cli) note: Option<DataNote>,
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
    /// Other data in one piece are meant as a whole.
    fn asked(&self) -> Asked {
        if self.train { Asked::Part(Part::Train) } else { Asked::Unseen }
    }

    fn part<'a>(&self, dataset: &'a Dataset) -> &'a Split {
        if self.train { &dataset.train } else { &dataset.test }
    }
}

impl Subject {
    pub(in crate::cli) fn open(model: &Path, which: Which, place: &Place<'_>) -> Result<Self, Error> {
        let model = &zoo::resolve(model)?;
        check_choice(model, which)?;
        if is_packed(model) { packed_model(model, place) } else { trained(model, which, place) }
    }

    fn new(
        network: ExactNetwork,
        classes: Vec<String>,
        part: &Split,
        (points, range): (Points, Option<(Rational, Rational)>),
    ) -> Self {
        let labels = (0..part.len()).map(|position| part.label(position) as usize).collect();
        Subject { network, classes, points, labels, range, note: None }
    }
}

fn trained(path: &Path, which: Which, place: &Place<'_>) -> Result<Subject, Error> {
    if place.source.is_some() {
        return Err(Error::Usage("--source goes with a packed model; a run knows its data".into()));
    }
    let mut model = Model::load(path, which, Arc::new(ftprop_tensor::Cpu::new(1)?), 1)?;
    let network = exact::of_model(&model)?;
    let which = WhichData::of(place.data, model.recipe.data.path.as_deref());
    if let Some(data) = place.data {
        model.recipe.data.path = Some(data.to_path_buf());
    }
    let Measured { dataset, whole, note } = Measuring::of(&model.recipe, &model.info, which, place.asked()).open()?;
    let part = place.part(&dataset);
    let instances = match &dataset.table {
        Some(transform) => {
            let data = &model.recipe.data;
            let test_file = data.csv.test_file.as_ref().filter(|_| !place.train && !whole);
            let file = test_file.or(data.path.as_ref()).ok_or_else(|| Error::Other("the table lies nowhere".into()))?;
            (rows(part, transform, &transform.read(file, data.csv.header)?)?, None)
        }
        None => pixels(part, dataset.normalize.full, |_, value| value)?,
    };
    Ok(Subject { note, ..Subject::new(network, model.info.classes.clone(), part, instances) })
}

fn packed_model(path: &Path, place: &Place<'_>) -> Result<Subject, Error> {
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
    let part = place.part(&dataset);
    // It takes bytes, whatever the data's values are.
    let given = bytes_given(&model.preprocessing, dataset.normalize.full);
    let instances = pixels(part, 255.0, |place, value| given[place % channels][usize::from(value)])?;
    Ok(Subject::new(network, classes, part, instances))
}

/// A part's pictures as the network is given them, `full` being 1, and the range of pixels. `given` is told a value and its
/// place in the picture.
fn pixels(
    part: &Split,
    full: f32,
    given: impl Fn(usize, u8) -> u8,
) -> Result<(Points, Option<(Rational, Rational)>), Error> {
    let (bytes, shape) = part
        .bytes()
        .ok_or_else(|| Error::Other("pictures in files are resized on the way; proofs are about pixels".into()))?;
    if shape != part.shape() {
        return Err(Error::Other("the network sees a window of each picture; proofs are about whole ones".into()));
    }
    let (size, numbers) = (shape.size(), (0..part.len()).map(|position| part.number(position)));
    let values = numbers.flat_map(|number| bytes[number * size..][..size].iter().enumerate());
    let values = values.map(|(place, &value)| i64::from(given(place, value))).collect();
    let range = Some((Rational::from(0), Rational::from(1)));
    Ok((Points::from_ratios(size, values, full as u32)?, range))
}

/// A part's rows as the table says them: the data set has them rounded to 32 bits, and proofs are about decimals.
fn rows(part: &Split, transform: &TableTransform, table: &CsvTable) -> Result<Points, Error> {
    if part.features().map(|(values, _)| values) != Some(transform.features(table)?.as_slice()) {
        return Err(Error::Other(format!("{} changed while it was read; try again", table.path().display())));
    }
    let chosen: Vec<usize> = (0..part.len()).map(|position| part.number(position)).collect();
    let table = table.select(&chosen);
    Ok(Points::from_written(transform.width(), &transform.written(&table)?)?)
}
