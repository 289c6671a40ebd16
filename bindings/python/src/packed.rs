//! Packed models.

use crate::arrays::{Numbers, fill};
use crate::border::{Kind, OrRaise, free, raise};
use crate::data::Out;
use ftprop::runtime::{Element, Engine, EngineOptions};
use ftprop::train::files;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A packed model that is ready. Calls from several threads take turns; each uses all of its threads.
#[pyclass(frozen, module = "ftprop._native")]
pub(crate) struct Packed {
    engine: Mutex<Engine>,
    #[pyo3(get)]
    name: String,
    /// Rows, columns and channels.
    #[pyo3(get)]
    shape: (usize, usize, usize),
    /// Whether it takes rows of a table; otherwise the bytes of pictures.
    #[pyo3(get)]
    takes_rows: bool,
    #[pyo3(get)]
    classes: Vec<String>,
    #[pyo3(get)]
    memory: u64,
    #[pyo3(get)]
    threads: usize,
    image_len: usize,
    outputs: usize,
}

#[pymethods]
impl Packed {
    /// A packed model's bytes, for so many threads, 0 for one a core; errors call it `path`.
    #[new]
    fn new(py: Python<'_>, bytes: &[u8], path: PathBuf, threads: usize) -> PyResult<Self> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let options = EngineOptions { threads, ..EngineOptions::default() };
        let engine = free(py, || Engine::load(bytes, &options))?
            .map_err(|e| raise(Kind::Model, format!("{}: {e}", path.display())))?;
        let input = engine.preprocessing().input;
        let classes = match engine.class_names() {
            [] => (0..engine.classes()).map(|class| class.to_string()).collect(),
            names => names.to_vec(),
        };
        Ok(Packed {
            name: engine.name().to_string(),
            shape: (input.height, input.width, input.channels),
            takes_rows: engine.preprocessing().element == Element::Real,
            classes,
            memory: engine.memory(),
            threads,
            image_len: engine.image_len(),
            outputs: engine.classes(),
            engine: Mutex::new(engine),
        })
    }

    /// The bytes of a packed model's file.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Vec<u8>> {
        free(py, || files::read(&path))?.map_err(ftprop::train::Error::from).or_raise()
    }

    /// Fills `out` with the logits of pictures of bytes, or of rows of floats, that lie one after the other.
    fn logits(&self, py: Python<'_>, examples: &Bound<'_, PyAny>, out: &Out<'_>) -> PyResult<()> {
        let examples = Numbers::of(examples)?;
        let len = match &examples {
            Numbers::Bytes(images) => images.as_ref().len(),
            Numbers::Floats(rows) => rows.as_ref().len(),
        };
        fill(out, |logits| {
            if len % self.image_len != 0 || logits.len() != len / self.image_len * self.outputs {
                return Err(PyValueError::new_err("expected as many rows of logits as examples"));
            }
            // A panic left the engine as it was before the call: it only reads what it was loaded with.
            let mut work = || {
                let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
                match &examples {
                    Numbers::Bytes(images) => engine.classify(images.as_ref(), logits),
                    Numbers::Floats(rows) => engine.classify_reals(rows.as_ref(), logits),
                }
            };
            free(py, &mut work)?.or_raise()
        })
    }
}
