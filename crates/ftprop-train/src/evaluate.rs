//! Using a trained network: measuring it on data, and asking it about pictures.
//!
//! ```
//! use ftprop_train::choice::DeviceChoice;
//! use ftprop_train::device::Place;
//! use ftprop_train::evaluate::{evaluate, evaluation_loader};
//! use ftprop_train::model::Which;
//! use ftprop_train::recipe::Recipe;
//! use ftprop_train::trainer::Trainer;
//!
//! let mut recipe = Recipe::built_in("digits")?.into_recipe();
//! recipe.train.epochs = 1;
//! let (dataset, place) = (recipe.data.open()?, Place::open(DeviceChoice::Cpu, 1)?);
//! let mut trainer = Trainer::new(recipe.checked()?, &dataset, &place)?;
//! trainer.run(&mut ())?;
//!
//! let mut model = trainer.model(Which::Last, 64)?;
//! let loader = evaluation_loader(&dataset.test, &model.recipe, &dataset, 64)?;
//! let tally = evaluate(&mut model.network, &loader, &model.recipe.criterion()?, &mut |_| {})?;
//! assert_eq!(tally.top1_share(), trainer.metrics()[0].test.top1);
//! # Ok::<(), ftprop_train::Error>(())
//! ```

use crate::device::Place;
use crate::engine::{self, EngineConfig};
use crate::error::Error;
use crate::model::{Model, ranked};
use crate::observe::StepReport;
use crate::recipe::Recipe;
use ftprop_data::{CsvTable, Dataset, Loader, LoaderConfig, Preprocess, Shape, Split, TableTransform};
use ftprop_nn::engine::NetworkState;
use ftprop_nn::{Criterion, Engine, Network, Tally};
use ftprop_tensor::Share;
use std::path::Path;
use std::time::Instant;

/// A network that classifies, wherever and however it computes.
pub trait Predictor: Send {
    /// The logits of normalised examples, one after another.
    fn classify(&mut self, examples: &[f32]) -> Result<&[f32], Error>;

    /// Whether it normalises by itself, and so takes pictures as bytes too.
    fn takes_pixels(&self) -> bool {
        false
    }

    /// The logits of pictures as bytes; an error unless it [takes pixels](Predictor::takes_pixels).
    fn classify_pixels(&mut self, _pixels: &[u8]) -> Result<&[f32], Error> {
        Err(Error::NoPixels)
    }
}

impl Predictor for Network {
    fn classify(&mut self, examples: &[f32]) -> Result<&[f32], Error> {
        Ok(self.infer(examples))
    }
}

/// A network on any device, with its last answer.
struct OnDevice {
    engine: Box<dyn Engine>,
    logits: Vec<f32>,
}

impl Predictor for OnDevice {
    fn classify(&mut self, examples: &[f32]) -> Result<&[f32], Error> {
        self.logits = self.engine.infer(examples)?.into_owned();
        Ok(&self.logits)
    }
}

/// A model's network where it is to be computed, for batches of at most `batch`; on the CPU its own batch counts.
pub fn predictor(model: Model, place: &Place, batch: usize) -> Result<Box<dyn Predictor>, Error> {
    if place.gpu.is_none() {
        return Ok(Box::new(model.network));
    }
    let (graph, network) = (model.network.graph().clone(), &model.network);
    let mut engine = engine::compile(EngineConfig::of(&model.recipe, graph, batch)?, place)?;
    let (values, statistics) = (network.values().into(), network.stats().into());
    engine.set_network(&NetworkState { values, statistics })?;
    Ok(Box::new(OnDevice { engine, logits: Vec::new() }))
}

/// A loader of a part of the data as it is, in batches that the network can take.
pub fn evaluation_loader(split: &Split, recipe: &Recipe, dataset: &Dataset, batch: usize) -> Result<Loader, Error> {
    shared_loader(split, recipe, dataset, batch, Share::WHOLE)
}

/// The same for one of several processes that share the batches.
pub(crate) fn shared_loader(
    split: &Split,
    recipe: &Recipe,
    dataset: &Dataset,
    batch: usize,
    share: Share,
) -> Result<Loader, Error> {
    let config = LoaderConfig {
        workers: recipe.data.workers,
        bad_image: recipe.data.bad_image(),
        share,
        ..LoaderConfig::evaluation(batch.min(split.len()), dataset.normalize.clone())
    };
    Ok(Loader::new(split, config)?)
}

/// A batch that was evaluated.
pub struct Seen<'a> {
    /// The normalised examples.
    pub examples: &'a [f32],
    /// Their classes.
    pub labels: &'a [u32],
    /// What the network said of them.
    pub logits: &'a [f32],
    /// How it does so far.
    pub so_far: StepReport,
}

/// Tallies what a loader delivers; `watch` hears of each batch. Call it within [`Cpu::enter`](ftprop_tensor::Cpu::enter)
/// where a network's threads are to compute.
pub fn evaluate(
    predictor: &mut dyn Predictor,
    loader: &Loader,
    criterion: &Criterion,
    watch: &mut (dyn FnMut(&Seen<'_>) + Send),
) -> Result<Tally, Error> {
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut batches = loader.epoch(0, 0);
    while let Some(batch) = batches.next_batch()? {
        let logits = predictor.classify(batch.images)?;
        let classes = logits.len() / batch.labels.len();
        tally.add(&criterion.apply(logits, batch.labels, classes, None));
        let so_far = StepReport {
            step: batch.index + 1,
            steps: loader.batches_per_epoch(),
            loss: tally.loss(),
            top1: tally.top1_share(),
            images_per_s: tally.examples as f64 / started.elapsed().as_secs_f64(),
            ranks: 1,
        };
        watch(&Seen { examples: batch.images, labels: batch.labels, logits, so_far });
    }
    Ok(tally)
}

/// The classes of a picture file from the most to the least likely, as numbers with their confidences.
pub fn predict(
    predictor: &mut dyn Predictor,
    preprocess: &Preprocess,
    picture: &Path,
) -> Result<Vec<(usize, f32)>, Error> {
    let logits = if predictor.takes_pixels() {
        predictor.classify_pixels(&ftprop_data::load_pixels(picture, preprocess)?)
    } else {
        predictor.classify(&ftprop_data::load_image(picture, preprocess)?)
    };
    Ok(ranked(logits?))
}

/// The same for every row of a table, in order, `batch` at a time; a column of labels is passed over.
pub fn predict_rows(
    predictor: &mut dyn Predictor,
    transform: &TableTransform,
    table: &CsvTable,
    batch: usize,
) -> Result<Vec<Vec<(usize, f32)>>, Error> {
    let inputs = transform.inputs(table)?;
    let mut rows = Vec::with_capacity(table.rows());
    for some in inputs.chunks(batch.max(1) * transform.width()) {
        let logits = predictor.classify(some)?;
        rows.extend(logits.chunks_exact(transform.classes.len()).map(ranked));
    }
    Ok(rows)
}

/// Refuses data that a network cannot be measured on: with examples of another shape, or with other classes.
pub fn check_data(dataset: &Dataset, shape: Shape, classes: &[String]) -> Result<(), Error> {
    let text = |s: Shape| format!("{}×{}×{}", s.height, s.width, s.channels);
    if dataset.shape != shape {
        return Err(Error::OtherShape { data: text(dataset.shape), network: text(shape) });
    }
    if dataset.classes != classes {
        return Err(Error::OtherClasses { data: listed(&dataset.classes), network: listed(classes) });
    }
    Ok(())
}

/// The first few of a list of classes.
fn listed(classes: &[String]) -> String {
    let shown = classes.iter().take(4).map(String::as_str).collect::<Vec<_>>().join(", ");
    if classes.len() > 4 { format!("{shown}, … ({} in all)", classes.len()) } else { shown }
}
