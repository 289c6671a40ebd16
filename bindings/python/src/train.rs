//! Training, with callbacks.

use crate::border::{Attend, OrRaise, attended, free};
use crate::metrics::metrics_dict;
use crate::run::{Run, state_of};
use crate::{data, recipe};
use ftprop::lab::pictures::Pictures;
use ftprop::train::device::Place;
use ftprop::train::error::Error;
use ftprop::train::observe::{Answer, Ending, Notice, Observer, RunView, StepReport, Together};
use ftprop::train::run::{EpochMetrics, RunFolder};
use ftprop::train::trainer::Trainer;
use ftprop::train::words::plain;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::CString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

/// An epoch is done; the run waits for an answer, whether to stop.
struct EpochDone {
    metrics: EpochMetrics,
    stop: SyncSender<bool>,
}

/// What training and the calling thread share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// The epoch under way and how far it is.
    step: Mutex<Option<(u32, StepReport)>>,
    /// What is to be warned of.
    warnings: Mutex<Vec<String>>,
}

/// The training thread's end.
struct Reporter<'a> {
    shared: &'a Shared,
    tell: Sender<EpochDone>,
    /// Whether anybody wants to hear of epochs, and of steps.
    epochs: bool,
    steps: bool,
}

impl Reporter<'_> {
    fn answer(&self) -> Answer {
        let stop = self.shared.stop.load(Ordering::Relaxed);
        Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

impl Observer for Reporter<'_> {
    fn begin(&mut self, _run: &RunView<'_>) -> Answer {
        self.answer()
    }

    fn step(&mut self, run: &RunView<'_>, step: &StepReport) -> Answer {
        if self.steps
            && let Ok(mut shown) = self.shared.step.lock()
        {
            *shown = Some((run.state.epoch, *step));
        }
        self.answer()
    }

    fn epoch(&mut self, run: &RunView<'_>) -> Answer {
        if self.epochs
            && let Some(&metrics) = run.metrics.last()
        {
            let (stop, answer) = sync_channel(1);
            // Nobody to answer is somebody who has left.
            if self.tell.send(EpochDone { metrics, stop }).is_err() || answer.recv().unwrap_or(true) {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.answer()
    }

    fn notice(&mut self, _run: &RunView<'_>, notice: &Notice) {
        // Other settings, and another network to begin with, are what the caller asked for.
        if !matches!(notice, Notice::Begun { .. } | Notice::Changed(_))
            && let Ok(mut warnings) = self.shared.warnings.lock()
        {
            warnings.push(notice.to_string());
        }
    }
}

/// The calling thread's end.
struct Attendant<'a, 'py> {
    shared: &'a Shared,
    /// How many there are to be.
    epochs: u32,
    on_epoch: Option<&'a Bound<'py, PyAny>>,
    on_step: Option<&'a Bound<'py, PyAny>>,
    /// The first thing that was raised; it ends the run.
    raised: Option<PyErr>,
}

impl Attendant<'_, '_> {
    /// Passes warnings on; one that Python makes an exception of ends the run.
    fn warn(&mut self, py: Python<'_>) {
        let warnings = self.shared.warnings.lock().map(|mut warnings| std::mem::take(&mut *warnings));
        for words in warnings.unwrap_or_default() {
            let words = CString::new(plain(&words).as_bytes()).unwrap_or_default();
            // The caller of `train`, which calls `_go`, which calls this.
            self.note(PyErr::warn(py, &py.get_type::<PyUserWarning>(), &words, 3));
        }
    }

    fn note<T>(&mut self, outcome: PyResult<T>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                self.raised.get_or_insert(error);
                self.shared.stop.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

impl Attend<EpochDone> for Attendant<'_, '_> {
    fn hear(&mut self, py: Python<'_>, message: EpochDone) {
        self.note(py.check_signals());
        self.warn(py);
        let epochs = self.epochs;
        let call = |f: &Bound<'_, PyAny>| {
            let figures = metrics_dict(py, &message.metrics)?;
            figures.set_item("epochs", epochs)?;
            f.call1((figures,))?.is_truthy()
        };
        // Once something was raised callbacks are over.
        let enough = match self.on_epoch.filter(|_| self.raised.is_none()) {
            Some(on_epoch) => self.note(call(on_epoch)),
            None => Some(false),
        };
        // The run may have ended for another reason, and not listen any more.
        let _ = message.stop.send(enough.unwrap_or(true));
    }

    fn tick(&mut self, py: Python<'_>) {
        self.note(py.check_signals());
        self.warn(py);
        let shown = self.shared.step.lock().ok().and_then(|mut step| step.take());
        if let (Some(on_step), Some((epoch, step)), None) = (self.on_step, shown, &self.raised) {
            self.note(on_step.call1((epoch, self.epochs, step.step, step.steps, step.loss, step.top1)).map(drop));
        }
    }
}

/// Trains, and gives the run with what was raised meanwhile: by a callback, or by Ctrl-C.
#[pyfunction]
#[pyo3(signature = (recipe, settings, epochs, data, device, threads, out, resume, start, on_epoch, on_step))]
pub(crate) fn train<'py>(
    py: Python<'py>,
    recipe: &Bound<'py, PyAny>,
    settings: Option<&Bound<'py, PyDict>>,
    epochs: Option<u32>,
    data: Option<&Bound<'py, PyAny>>,
    device: Option<&str>,
    threads: Option<usize>,
    out: Option<PathBuf>,
    resume: bool,
    start: Option<&Bound<'py, Run>>,
    on_epoch: Option<&Bound<'py, PyAny>>,
    on_step: Option<&Bound<'py, PyAny>>,
) -> PyResult<(Run, Option<Py<PyAny>>)> {
    let folder = match (&out, resume) {
        (Some(path), true) => Some(RunFolder::open(path).or_raise()?),
        (Some(path), false) => Some(RunFolder::planned(path).or_raise()?),
        (None, _) => None,
    };
    let mut recipe = match &folder {
        Some(folder) if resume => {
            let mut recipe = folder.recipe().or_raise()?;
            recipe.train.epochs = epochs.unwrap_or(recipe.train.epochs);
            recipe
        }
        _ => {
            let recipe = recipe::build(recipe, settings)?;
            // As the program does with --epochs.
            epochs.map_or_else(|| recipe.clone(), |epochs| recipe.scaled(epochs))
        }
    };
    if let Some(device) = device {
        recipe.train.device = device.parse::<ftprop::train::choice::DeviceChoice>().or_raise()?;
    }
    recipe.train.threads = threads.unwrap_or(recipe.train.threads);
    recipe.data.path = recipe.data.path.as_deref().map(recipe::absolute);
    recipe.data.csv.test_file = recipe.data.csv.test_file.as_deref().map(recipe::absolute);
    let dataset = data::open(&mut recipe, data)?;
    let recipe = recipe.checked().or_raise()?;
    let start = start.map(|run| run.get().last_numbers());
    let (place, mut trainer) = free(py, || {
        let place = Place::open(recipe.train.device, recipe.train.threads)?;
        let mut trainer = match &folder {
            Some(folder) => Trainer::in_folder(recipe.clone(), folder.clone(), &dataset, &place)?,
            None => Trainer::new(recipe.clone(), &dataset, &place)?,
        };
        if let Some(start) = &start {
            trainer.set_network(state_of(start))?;
        }
        // Everything that can be wrong with the data or the network was found before anything is written.
        trainer.claim()?;
        Ok::<_, Error>((place, trainer))
    })?
    .or_raise()?;

    let shared = Shared::default();
    let mut attendant =
        Attendant { shared: &shared, epochs: trainer.recipe().train.epochs, on_epoch, on_step, raised: None };
    let (epochs, steps) = (on_epoch.is_some(), on_step.is_some());
    let work = |tell: &Sender<EpochDone>| {
        let mut reporter = Reporter { shared: &shared, tell: tell.clone(), epochs, steps };
        let mut pictures = Pictures::default();
        trainer.run(&mut Together(vec![&mut pictures, &mut reporter]))
    };
    let ending = attended(py, work, &mut attendant)?.or_raise()?;
    attendant.warn(py);
    let raised = attendant.raised.map(|error| error.into_value(py).into_any());
    let summary = match ending {
        Ending::Finished(summary) => Some(summary),
        Ending::Interrupted { .. } => None,
    };
    let run = free(py, move || Run::of(&trainer, dataset, place, summary, out))?.or_raise()?;
    Ok((run, raised))
}
