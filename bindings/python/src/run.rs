//! Trained networks: predictions, measurements, exports, pictures.

use crate::arrays::{Numbers, fill};
use crate::border::{Kind, OrRaise, free, guarded, raise};
use crate::data::{Out, split, wrong_shape};
use crate::metrics::metrics_dict;
use crate::place::{shared_cpu, shared_place};
use ftprop::data::{Dataset, Loader, LoaderConfig, Split};
use ftprop::export::{onnx, packed, torch};
use ftprop::lab::pictures::picture;
use ftprop::nn::engine::NetworkState;
use ftprop::nn::{Graph, Shape, Tally};
use ftprop::runtime::pack::WeightFormat;
use ftprop::tensor::Cpu;
use ftprop::train::Error;
use ftprop::train::checkpoint::{self, Checkpoint, Contents, ModelInfo, State};
use ftprop::train::choice::DeviceChoice;
use ftprop::train::device::Place;
use ftprop::train::evaluate::{Predictor, evaluate, predictor};
use ftprop::train::files;
use ftprop::train::model::{Model, Which};
use ftprop::train::recipe::Recipe;
use ftprop::train::run::{EpochMetrics, RunFolder, Scores, Summary, refuse_own_file};
use ftprop::train::trainer::Trainer;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parameters and running statistics; clones share them.
pub(crate) type Weights = Arc<(Vec<f32>, Vec<f32>)>;

/// The most examples that go through a network together when it is used.
const BATCH: usize = 256;

/// A network that is ready for batches up to a size.
struct Ready {
    /// The process that it was made in.
    process: u32,
    which: Which,
    batch: usize,
    cpu: Arc<Cpu>,
    network: Box<dyn Predictor>,
}

/// What was trained, and how that went.
#[pyclass(frozen, module = "ftprop._native")]
pub(crate) struct Run {
    pub(crate) recipe: Recipe,
    pub(crate) info: ModelInfo,
    state: State,
    best: Weights,
    last: Weights,
    metrics: Vec<EpochMetrics>,
    summary: Option<Summary>,
    folder: Option<PathBuf>,
    /// What it was trained on, where that was in this process.
    dataset: Option<Dataset>,
    place: Place,
    threads: usize,
    ready: Mutex<Option<Ready>>,
}

impl Run {
    /// What a trainer has come to.
    pub(crate) fn of(
        trainer: &Trainer,
        dataset: Dataset,
        place: Place,
        summary: Option<Summary>,
        folder: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let threads = trainer.recipe().train.threads;
        let whole = trainer.state().best.is_some_and(|best| best.epoch + 1 == trainer.state().epoch);
        let last = weights(trainer.network(Which::Last)?);
        // The best network is the last one where the last epoch was the best and nothing was learned since.
        let best = match whole && trainer.state().batch == 0 {
            true => last.clone(),
            false => weights(trainer.network(Which::Best)?),
        };
        Ok(Run {
            recipe: Recipe::clone(trainer.recipe()),
            info: trainer.info().clone(),
            state: *trainer.state(),
            best,
            last,
            metrics: trainer.metrics().to_vec(),
            summary,
            folder,
            dataset: Some(dataset),
            // The threads that it was trained by end with the trainer.
            place: Place { cpu: shared_cpu(threads)?, ..place },
            threads,
            ready: Mutex::new(None),
        })
    }

    /// A network that was not trained here.
    pub(crate) fn made(recipe: Recipe, info: ModelInfo, made: Weights, place: Place) -> Self {
        Run {
            recipe,
            info,
            state: State::start(),
            best: made.clone(),
            last: made,
            metrics: Vec::new(),
            summary: None,
            folder: None,
            dataset: None,
            threads: place.cpu.threads(),
            place,
            ready: Mutex::new(None),
        }
    }

    /// The network as it was at the end, to go on from.
    pub(crate) fn last_numbers(&self) -> Weights {
        self.last.clone()
    }

    /// The network, on the CPU, for batches of at most `batch`.
    pub(crate) fn model(&self, which: Which, batch: usize) -> Result<Model, Error> {
        let (state, cpu) = (state_of(self.weights(which)), shared_cpu(self.threads)?);
        Model::new(self.recipe.clone(), self.info.clone(), &state, cpu, batch)
    }

    fn weights(&self, which: Which) -> &Weights {
        if which == Which::Best { &self.best } else { &self.last }
    }

    pub(crate) fn graph(&self) -> Result<Arc<Graph>, Error> {
        let [height, width, channels] = self.info.input;
        Ok(self.recipe.graph(Shape { height, width, channels }, self.info.classes.len())?)
    }

    /// The network in use, made for batches of at least so many.
    fn ready(&self, which: Which, examples: usize) -> Result<MutexGuard<'_, Option<Ready>>, Error> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = examples.clamp(1, BATCH.min(self.recipe.train.batch.max(64)));
        let process = std::process::id();
        if let Some(parents) = ready.take_if(|ready| ready.process != process) {
            // A forked process has its parent's memory without its threads: ending them would wait for ever.
            std::mem::forget(parents);
        }
        if ready.as_ref().is_none_or(|ready| ready.which != which || ready.batch < batch) {
            // The old one goes first: two may not fit a device.
            *ready = None;
            let model = self.model(which, batch)?;
            let cpu = model.network.cpu().clone();
            let network = predictor(model, &self.place, batch)?;
            *ready = Some(Ready { process, which, batch, cpu, network });
        }
        Ok(ready)
    }

    /// Takes examples through the network; `watch` sees each batch's labels and logits.
    fn through(
        &self,
        split: &Split,
        which: Which,
        watch: &mut (dyn FnMut(&[u32], &[f32]) + Send),
    ) -> Result<Tally, Error> {
        let mut guard = self.ready(which, split.len())?;
        let Some(ready) = guard.as_mut() else { unreachable!("it was made above") };
        let batch = ready.batch.min(split.len());
        let workers = usize::from(split.len() > 4 * batch);
        let config = LoaderConfig { workers, ..LoaderConfig::evaluation(batch, self.info.normalize()) };
        let (loader, criterion) = (Loader::new(split, config)?, self.recipe.criterion()?);
        let Ready { cpu, network, .. } = ready;
        cpu.enter(|| evaluate(&mut **network, &loader, &criterion, &mut |seen| watch(seen.labels, seen.logits)))
    }

    /// An array's examples, without labels or with them.
    fn examples(&self, examples: &Bound<'_, PyAny>, labels: Option<Vec<u32>>) -> PyResult<Split> {
        let (numbers, shape) = (Numbers::of(examples)?, self.info.shape());
        if numbers.len() % shape.size() != 0 {
            return Err(wrong_shape(numbers.len(), shape));
        }
        let labels = labels.unwrap_or_else(|| vec![0; numbers.len() / shape.size()]);
        if labels.iter().any(|&label| label as usize >= self.info.classes.len()) {
            return Err(PyValueError::new_err("expected labels that are classes of the network"));
        }
        free(examples.py(), || split(numbers, shape, labels))?
    }

    /// A part of the data that it was trained on.
    fn part(&self, part: &str) -> PyResult<Split> {
        let Some(dataset) = &self.dataset else {
            return Err(PyValueError::new_err("the run was loaded, so its data is not here; give X and y"));
        };
        let (train, validation) = self.recipe.data.hold_out(&dataset.train, self.recipe.train.seed).or_raise()?;
        match part {
            "train" => Ok(train),
            "test" => Ok(dataset.test.clone()),
            "validation" => validation
                .ok_or_else(|| PyValueError::new_err("the run held out no validation part (its data.validation is 0)")),
            _ => Err(PyValueError::new_err("expected the part train, validation or test")),
        }
    }
}

fn weights(network: NetworkState<'_>) -> Weights {
    Arc::new((network.values.into_owned(), network.statistics.into_owned()))
}

/// The same as engines take it.
pub(crate) fn state_of(weights: &Weights) -> NetworkState<'_> {
    NetworkState { values: Cow::from(&weights.0), statistics: Cow::from(&weights.1) }
}

fn which(name: &str) -> PyResult<Which> {
    match name {
        "best" => Ok(Which::Best),
        "last" => Ok(Which::Last),
        _ => Err(PyValueError::new_err("expected which=\"best\" or which=\"last\"")),
    }
}

#[pymethods]
impl Run {
    /// Fills `out` with the logits of an array's examples.
    fn logits(&self, py: Python<'_>, examples: &Bound<'_, PyAny>, which_one: &str, out: &Out<'_>) -> PyResult<()> {
        let (which, examples) = (which(which_one)?, self.examples(examples, None)?);
        fill(out, |logits| {
            if logits.len() != examples.len() * self.info.classes.len() {
                return Err(PyValueError::new_err("expected as many rows of logits as examples"));
            }
            let mut at = 0;
            let mut write = |_: &[u32], batch: &[f32]| {
                logits[at..at + batch.len()].copy_from_slice(batch);
                at += batch.len();
            };
            free(py, || self.through(&examples, which, &mut write))?.or_raise()?;
            Ok(())
        })
    }

    /// Loss, top-1 and top-5 of an array's examples.
    fn evaluate(
        &self,
        py: Python<'_>,
        examples: &Bound<'_, PyAny>,
        labels: &Bound<'_, PyArray1<u32>>,
        which_one: &str,
    ) -> PyResult<(f64, f64, f64)> {
        let (which, examples) = (which(which_one)?, self.examples(examples, Some(labels.to_vec()?))?);
        let tally = free(py, || self.through(&examples, which, &mut |_, _| {}))?.or_raise()?;
        let Scores { loss, top1, top5 } = Scores::from(&tally);
        Ok((loss, top1, top5))
    }

    /// The same of a part of the data that it was trained on; also how often class i was taken for class j.
    fn evaluate_part(&self, py: Python<'_>, part: &str, which_one: &str) -> PyResult<((f64, f64, f64), Vec<u64>)> {
        let (which, examples, classes) = (which(which_one)?, self.part(part)?, self.info.classes.len());
        let mut counts = vec![0u64; classes * classes];
        let mut count = |labels: &[u32], logits: &[f32]| {
            for (&label, logits) in labels.iter().zip(logits.chunks_exact(classes)) {
                // The first of the largest, as numpy's argmax has it.
                let best = (1..classes).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
                counts[label as usize * classes + best] += 1;
            }
        };
        let tally = free(py, || self.through(&examples, which, &mut count))?.or_raise()?;
        let Scores { loss, top1, top5 } = Scores::from(&tally);
        Ok(((loss, top1, top5), counts))
    }

    /// The network for other programs: `packed`, `onnx` or `torch`.
    fn export(&self, py: Python<'_>, format: &str, weights: &str, which_one: &str) -> PyResult<Vec<u8>> {
        let weights = match weights {
            "int8" => WeightFormat::Int8,
            "int4" => WeightFormat::Int4,
            "f32" => WeightFormat::F32,
            _ => return Err(PyValueError::new_err("expected weights=\"int8\", \"int4\" or \"f32\"")),
        };
        let which = which(which_one)?;
        free(py, || {
            let model = self.model(which, 1)?;
            match format {
                "onnx" => onnx::to_bytes(&model),
                "torch" => torch::to_bytes(&model.recipe, &model.network),
                _ => packed::pack(&model, weights),
            }
        })?
        .or_raise()
    }

    /// Writes a file, whole or not at all.
    #[staticmethod]
    fn write(py: Python<'_>, path: PathBuf, bytes: &[u8]) -> PyResult<()> {
        free(py, || refuse_own_file(&path).and_then(|()| Ok(files::write(&path, bytes)?)))?.or_raise()
    }

    /// The learning curves as SVG.
    fn svg(&self) -> PyResult<String> {
        guarded(|| Ok(picture(&[(self.recipe.name.clone(), self.metrics.clone())], &self.recipe.name).svg()))
    }

    /// The learning curves as PNG.
    fn png<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        guarded(|| {
            let drawn = picture(&[(self.recipe.name.clone(), self.metrics.clone())], &self.recipe.name).png();
            Ok(PyBytes::new(py, &drawn.map_err(|e| raise(Kind::Other, e))?))
        })
    }

    /// One dict an epoch.
    #[getter]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.metrics.iter().map(|epoch| metrics_dict(py, epoch)).collect()
    }

    /// The epochs' lines as the run folder has them, for keeping them with the network.
    fn metrics_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.metrics).map_err(|e| raise(Kind::Other, e))
    }

    #[getter]
    fn toml(&self) -> PyResult<String> {
        self.recipe.to_toml().or_raise()
    }

    #[getter]
    fn name(&self) -> String {
        self.recipe.name.clone()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.recipe.train.seed
    }

    #[getter]
    fn epochs(&self) -> u32 {
        self.recipe.train.epochs
    }

    #[getter]
    fn classes(&self) -> Vec<String> {
        self.info.classes.clone()
    }

    /// Rows, columns and channels.
    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        let [height, width, channels] = self.info.input;
        (height, width, channels)
    }

    /// What counts as 1, and each channel's mean and deviation.
    #[getter]
    fn normalize(&self) -> (f32, Vec<f32>, Vec<f32>) {
        (self.info.full, self.info.mean.clone(), self.info.std.clone())
    }

    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        self.folder.clone()
    }

    #[getter]
    fn device(&self) -> String {
        self.place.describe()
    }

    /// The best epoch, if one is finished.
    #[getter]
    fn best_epoch(&self) -> Option<u32> {
        self.state.best.map(|best| best.epoch)
    }

    /// Whether all epochs are done.
    #[getter]
    fn finished(&self) -> bool {
        self.summary.is_some() || (!self.metrics.is_empty() && self.metrics.len() >= self.recipe.train.epochs as usize)
    }

    /// How many numbers were learned.
    #[getter]
    fn parameters(&self) -> usize {
        self.last.0.len()
    }

    /// The network as a checkpoint for use, and its recipe with what belongs to this machine.
    fn checkpoint<'py>(&self, py: Python<'py>, which_one: &str) -> PyResult<Bound<'py, PyBytes>> {
        let graph = self.graph().or_raise()?;
        let contents = Contents::for_use(&graph, state_of(self.weights(which(which_one)?)));
        Ok(PyBytes::new(py, &checkpoint::pack(&self.recipe, &self.info, &self.state, &contents).or_raise()?))
    }

    /// A run from the checkpoints of its best and its last network and its epochs.
    #[staticmethod]
    fn restored(py: Python<'_>, best: Vec<u8>, last: Vec<u8>, metrics: &str, threads: usize) -> PyResult<Self> {
        let metrics = serde_json::from_str(metrics).map_err(|e| raise(Kind::Model, e))?;
        free(py, || {
            let place = shared_place(DeviceChoice::Cpu, threads)?;
            let named = Path::new("the pickled run");
            let (recipe, info, state, best) = used(&Checkpoint::parse(named, best)?)?;
            let (.., last) = used(&Checkpoint::parse(named, last)?)?;
            Ok::<_, Error>(Run { state, best, metrics, ..Run::made(recipe, info, last, place) })
        })?
        .or_raise()
    }
}

/// What a checkpoint holds for use.
fn used(saved: &Checkpoint) -> Result<(Recipe, ModelInfo, State, Weights), Error> {
    let (recipe, info) = (saved.recipe()?, saved.header.model.clone());
    let [height, width, channels] = info.input;
    let graph = recipe.graph(Shape { height, width, channels }, info.classes.len())?;
    let network = saved.contents(&graph)?.used();
    Ok((recipe, info, saved.header.state, weights(network)))
}

/// A run folder or a checkpoint file, on a device.
#[pyfunction]
pub(crate) fn load_run(py: Python<'_>, path: PathBuf, device: &str, threads: usize) -> PyResult<Run> {
    let device = device.parse::<DeviceChoice>().or_raise()?;
    free(py, || {
        let place = shared_place(device, threads)?;
        if !path.is_dir() {
            let (recipe, info, state, only) = used(&Checkpoint::read(&path)?)?;
            return Ok(Run { state, ..Run::made(recipe, info, only, place) });
        }
        let folder = RunFolder::open(&path)?;
        if !folder.best().exists() || !folder.checkpoint().exists() {
            return Err(Error::NoEpoch { path });
        }
        let (_, info, _, best) = used(&Checkpoint::read(&folder.best())?)?;
        let (.., state, last) = used(&Checkpoint::read(&folder.checkpoint())?)?;
        // The folder's recipe knows where the data is; the checkpoint's does not.
        let recipe = folder.recipe()?;
        let metrics = folder.metrics()?;
        Ok(Run { state, best, metrics, folder: Some(path), ..Run::made(recipe, info, last, place) })
    })?
    .or_raise()
}
