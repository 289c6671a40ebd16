//! What crosses the border between Rust and Python: errors, panics, the interpreter's lock, Ctrl-C.

use ftprop::data::DataError;
use ftprop::{export, nn, runtime, search, train};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The package's exceptions, by their names in `ftprop._errors`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Recipe,
    Data,
    Model,
    File,
    Device,
    Training,
    Search,
    Other,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Recipe => "RecipeError",
            Kind::Data => "DataError",
            Kind::Model => "ModelError",
            Kind::File => "FileError",
            Kind::Device => "DeviceError",
            Kind::Training => "TrainingError",
            Kind::Search => "SearchError",
            Kind::Other => "FtpropError",
        }
    }
}

/// An error of ours as Python's exception, with the same text.
pub(crate) fn raise(kind: Kind, error: impl ToString) -> PyErr {
    let text = error.to_string();
    Python::attach(|py| match py.import("ftprop._errors").and_then(|module| module.getattr(kind.name())) {
        Ok(class) => match class.call1((text,)) {
            Ok(exception) => PyErr::from_value(exception),
            Err(error) => error,
        },
        Err(error) => error,
    })
}

/// An error that knows which exception it becomes.
pub(crate) trait Raise {
    fn raise(self) -> PyErr;
}

/// The same for results.
pub(crate) trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T, E: Raise> OrRaise<T> for Result<T, E> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(Raise::raise)
    }
}

impl Raise for train::Error {
    fn raise(self) -> PyErr {
        use train::Error as E;
        let kind = match &self {
            E::Config(_) | E::Network(_) | E::Setting { .. } | E::NoRecipe { .. } => Kind::Recipe,
            E::Data(_)
            | E::SingleClass { .. }
            | E::OtherClasses { .. }
            | E::OtherShape { .. }
            | E::NoTable { .. }
            | E::NoPicture { .. }
            | E::NoColumns => Kind::Data,
            E::File(_)
            | E::NoTeacher { .. }
            | E::RunExists { .. }
            | E::Locked { .. }
            | E::OtherRecipe { .. }
            | E::SameFolder { .. } => Kind::File,
            E::NotACheckpoint { .. }
            | E::Damaged { .. }
            | E::OtherNetwork { .. }
            | E::Teacher { .. }
            | E::NotARun { .. }
            | E::NoEpoch { .. }
            | E::EpochsDiffer { .. }
            | E::Line { .. }
            | E::NotASummary { .. } => Kind::Model,
            E::Device { .. } | E::Tensor(_) | E::Cuda(_) => Kind::Device,
            E::Diverged { .. } => Kind::Training,
            // An engine refuses settings by name; the rest of what it can say is of its device.
            E::Engine(nn::EngineError::Network(_)) => Kind::Recipe,
            E::Engine(_) => Kind::Device,
            _ => Kind::Other,
        };
        raise(kind, self)
    }
}

impl Raise for export::Error {
    fn raise(self) -> PyErr {
        match self {
            export::Error::Train(error) => error.raise(),
            other => raise(Kind::Model, other),
        }
    }
}

impl Raise for runtime::Error {
    fn raise(self) -> PyErr {
        raise(Kind::Model, self)
    }
}

impl Raise for search::SearchError {
    fn raise(self) -> PyErr {
        raise(Kind::Search, self)
    }
}

impl Raise for DataError {
    fn raise(self) -> PyErr {
        train::Error::from(self).raise()
    }
}

impl Raise for nn::NnError {
    fn raise(self) -> PyErr {
        raise(Kind::Recipe, self)
    }
}

/// Computes without the interpreter's lock; a panic becomes `RuntimeError`.
pub(crate) fn free<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| panicked(&*panic))
}

/// Does something short, with the lock; a panic becomes `RuntimeError`.
pub(crate) fn guarded<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    PyRuntimeError::new_err(format!(
        "ftprop made a mistake: {}; please report it to the project, with this line, what you called and ftprop.__version__",
        said.unwrap_or("a panic without words").lines().collect::<Vec<_>>().join(" ")
    ))
}

/// How often the calling thread looks up from its waiting.
const TICK: Duration = Duration::from_millis(50);

/// What the calling thread does while the work goes on. It holds the interpreter's lock.
pub(crate) trait Attend<Message> {
    /// The work has something to say, and may wait for an answer.
    fn hear(&mut self, py: Python<'_>, message: Message);
    /// Some time has gone by.
    fn tick(&mut self, py: Python<'_>);
}

/// Does long work on a thread of its own, so that the calling one can answer it and hear of Ctrl-C: Python tells only its
/// main thread of that, and only if asked.
pub(crate) fn attended<Message: Send, T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Sender<Message>) -> T + Send,
    attendant: &mut dyn Attend<Message>,
) -> PyResult<T> {
    let (tell, mut heard): (_, Receiver<Message>) = channel();
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("ftprop-work".into());
        let worker = thread
            .spawn_scoped(scope, move || catch_unwind(AssertUnwindSafe(|| work(&tell))))
            .map_err(|why| raise(Kind::Device, format!("no thread could be started: {why}")))?;
        loop {
            let heard = &mut heard;
            match py.detach(move || heard.recv_timeout(TICK)) {
                Ok(message) => attendant.hear(py, message),
                Err(RecvTimeoutError::Timeout) => attendant.tick(py),
                // The work has dropped its end.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match py.detach(|| worker.join()) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(panic)) | Err(panic) => Err(panicked(&*panic)),
        }
    })
}
