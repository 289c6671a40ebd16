//! Separability, search and certificates.

use crate::border::{Attend, Kind, OrRaise, Raise, attended, free, guarded, raise};
use ftprop::search::{
    self, Answer, Budget, Known, Labelled, Points, Problem, Rational, SearchError, SeparableReport, SolveConfig,
    Verdict,
};
use ftprop::train::files;
use ftprop::train::run::refuse_own_file;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

/// Instances: an array of floats, or rows of fractions as text, such as `-1/3`.
#[derive(FromPyObject)]
pub(crate) enum Instances<'py> {
    Floats(Bound<'py, PyArray2<f64>>),
    Fractions(Vec<Vec<String>>),
}

fn points(instances: &Instances<'_>) -> PyResult<Points> {
    match instances {
        Instances::Floats(array) => {
            let inputs = array.shape()[1];
            Points::new(inputs, array.to_vec()?).or_raise()
        }
        Instances::Fractions(rows) => {
            let inputs = rows.first().map_or(0, Vec::len);
            let number = |text: &String| {
                text.parse::<Rational>().map_err(|why| PyValueError::new_err(format!("expected fractions: {why}")))
            };
            if rows.iter().any(|row| row.len() != inputs) {
                return Err(PyValueError::new_err("expected rows of the same length"));
            }
            let numbers = rows.iter().flatten().map(number).collect::<PyResult<Vec<_>>>()?;
            Points::from_rationals(inputs, &numbers).or_raise()
        }
    }
}

fn labelled(instances: &Instances<'_>, labels: &Bound<'_, PyArray1<u32>>, classes: Vec<String>) -> PyResult<Labelled> {
    guarded(|| labelled_unguarded(instances, labels, classes))
}

fn labelled_unguarded(
    instances: &Instances<'_>,
    labels: &Bound<'_, PyArray1<u32>>,
    classes: Vec<String>,
) -> PyResult<Labelled> {
    let labels: Vec<usize> = labels.to_vec()?.into_iter().map(|label| label as usize).collect();
    if labels.is_empty() || labels.iter().any(|&label| label >= classes.len()) {
        return Err(PyValueError::new_err("expected labels below the number of classes"));
    }
    Labelled::new(points(instances)?, labels, classes).or_raise()
}

/// Fractions as text, which Python's `Fraction` takes.
type Fractions = Vec<String>;

fn fractions(numbers: &[Rational]) -> Fractions {
    numbers.iter().map(ToString::to_string).collect()
}

/// A certificate.
#[pyclass(frozen, module = "ftprop._native")]
pub(crate) struct Certificate(search::Certificate);

#[pymethods]
impl Certificate {
    /// From its text.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        Ok(Certificate(free(py, || search::Certificate::from_json(text))?.or_raise()?))
    }

    /// From its file.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Certificate(free(py, || search::Certificate::read(&path))?.or_raise()?))
    }

    #[getter]
    fn json(&self) -> String {
        self.0.to_json()
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let write = || refuse_own_file(&path).and_then(|()| Ok(files::write(&path, self.0.to_json().as_bytes())?));
        free(py, write)?.or_raise()
    }

    /// Whether all was proved, what was, and what is on trust.
    fn verify(
        &self,
        py: Python<'_>,
        instances: Instances<'_>,
        labels: &Bound<'_, PyArray1<u32>>,
        classes: Vec<String>,
    ) -> PyResult<(bool, Vec<String>, Vec<String>)> {
        let data = labelled(&instances, labels, classes)?;
        let found = free(py, || self.0.verify(&data))?.or_raise()?;
        Ok((found.complete, found.proved, found.trusted))
    }
}

/// What is known of two classes: the answer, weights, margin, witness, why it is unknown, and the certificate.
type Verdicts = (Option<bool>, Option<Fractions>, Option<f64>, Option<Vec<usize>>, Option<String>, Option<Certificate>);

/// Decides whether two classes are linearly separable.
#[pyfunction]
pub(crate) fn separable(
    py: Python<'_>,
    instances: Instances<'_>,
    labels: &Bound<'_, PyArray1<u32>>,
    classes: Vec<String>,
    budget: &str,
) -> PyResult<Verdicts> {
    let (data, budget) = (labelled(&instances, labels, classes)?, budget.parse::<Budget>().or_raise()?);
    let report = free(py, || SeparableReport::new(&data, budget))?.or_raise()?;
    let certificate = search::Certificate::of_verdict(&data, &report.verdict).map(Certificate);
    let weights = match &report.verdict {
        Verdict::Separable(found) => Some(fractions(&found.exact)),
        _ => None,
    };
    let answer = match report.status {
        Answer::Unknown => None,
        _ => Some(matches!(report.verdict, Verdict::Separable(_))),
    };
    Ok((answer, weights, report.margin, report.witness, report.why, certificate))
}

/// What a search found.
#[pyclass(frozen, module = "ftprop._native")]
pub(crate) struct Solution {
    solution: search::Solution,
    data: Labelled,
}

#[pymethods]
impl Solution {
    /// The report, as JSON.
    #[getter]
    fn json(&self) -> PyResult<String> {
        serde_json::to_string(&self.solution).map_err(|e| raise(Kind::Other, e))
    }

    #[getter]
    fn text(&self) -> String {
        self.solution.to_string()
    }

    /// The exact weights, layer by layer and unit by unit, the bias last.
    #[getter]
    fn weights(&self) -> Vec<Vec<Fractions>> {
        let layer = |units: &Vec<Vec<Rational>>| units.iter().map(|unit| fractions(unit)).collect();
        self.solution.exact.layers.iter().map(layer).collect()
    }

    /// The classes of other instances, as numbers.
    fn predict(&self, py: Python<'_>, instances: Instances<'_>) -> PyResult<Vec<usize>> {
        let points = points(&instances)?;
        if points.inputs() != self.data.points.inputs() {
            let (found, expected) = (points.inputs(), self.data.points.inputs());
            return Err(PyValueError::new_err(format!("expected instances with {expected} inputs, found {found}")));
        }
        free(py, || self.solution.network.predict(&points))
    }

    fn certificate(&self, py: Python<'_>) -> PyResult<Certificate> {
        Ok(Certificate(free(py, || search::Certificate::of_solution(&self.data, &self.solution))?.or_raise()?))
    }
}

/// Waits for a search and ends it on Ctrl-C.
struct Waiting<'a> {
    stop: &'a AtomicBool,
    raised: Option<PyErr>,
}

impl Attend<()> for Waiting<'_> {
    fn hear(&mut self, py: Python<'_>, (): ()) {
        self.tick(py);
    }

    fn tick(&mut self, py: Python<'_>) {
        if let Err(error) = py.check_signals() {
            self.raised.get_or_insert(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Searches for a small network.
#[pyfunction]
#[pyo3(signature = (instances, labels, classes, hidden, search_kind, learner, loss, budget, nodes, seed, threads, resume))]
pub(crate) fn solve(
    py: Python<'_>,
    instances: Instances<'_>,
    labels: &Bound<'_, PyArray1<u32>>,
    classes: Vec<String>,
    hidden: Vec<usize>,
    search_kind: Option<&str>,
    learner: Option<&str>,
    loss: &str,
    budget: &str,
    nodes: Option<u64>,
    seed: u64,
    threads: usize,
    resume: Option<&Bound<'_, Certificate>>,
) -> PyResult<Solution> {
    let data = labelled(&instances, labels, classes)?;
    let known: Option<Known> = match resume {
        Some(certificate) => {
            let certificate = &certificate.get().0;
            Some(free(py, || certificate.known(&data, &hidden))?.or_raise()?)
        }
        None => None,
    };
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let config = SolveConfig {
        picture: None,
        hidden,
        search: search_kind.map(str::parse).transpose().map_err(|e: SearchError| e.raise())?,
        learner: learner.map(str::parse).transpose().map_err(|e: SearchError| e.raise())?,
        loss: loss.parse().map_err(|e: SearchError| e.raise())?,
        budget: Budget { nodes, ..budget.parse::<Budget>().or_raise()? },
        seed,
        threads,
        known,
    };
    let problem = Problem::new("arrays", data.clone(), None).or_raise()?;
    let stop = AtomicBool::new(false);
    let mut waiting = Waiting { stop: &stop, raised: None };
    let work = |_: &Sender<()>| search::solve(&problem, &config, &stop, &|_| {});
    let solution = attended(py, work, &mut waiting)?.or_raise()?;
    match waiting.raised {
        Some(error) => Err(error),
        None => Ok(Solution { solution, data }),
    }
}
