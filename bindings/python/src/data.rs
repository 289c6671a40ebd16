//! Data sets from arrays and from paths.

use crate::arrays::Numbers;
use crate::border::{Kind, OrRaise, free, raise};
use crate::recipe::absolute;
use ftprop::data::{Dataset, HoldOut, Normalize, PassedOver, Shape, Source, Split};
use ftprop::train::recipe::Recipe;
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;

/// A split of an array's examples.
pub(crate) fn split(numbers: Numbers, shape: Shape, labels: Vec<u32>) -> PyResult<Split> {
    match numbers {
        Numbers::Bytes(bytes) => Split::from_pixels(shape, bytes, labels),
        Numbers::Floats(floats) => Split::from_floats(shape, floats, labels),
    }
    .or_raise()
}

/// Examples and labels, as numbers of classes.
type Part<'py> = (Bound<'py, PyAny>, Bound<'py, PyArray1<u32>>);

fn part((examples, labels): &Part<'_>, shape: Shape, classes: usize) -> PyResult<Split> {
    let labels = labels.to_vec()?;
    if labels.iter().any(|&label| label as usize >= classes) {
        return Err(PyValueError::new_err(format!("expected labels below {classes}, the number of classes")));
    }
    let numbers = Numbers::of(examples)?;
    // Floats are looked through for what is not finite, which takes a while.
    free(examples.py(), || split(numbers, shape, labels))?
}

/// A data set of arrays, which are not copied.
#[pyclass(frozen, module = "ftprop._native")]
pub(crate) struct Data {
    dataset: Dataset,
    source: Source,
}

#[pymethods]
impl Data {
    /// Rows, columns and channels; the training part; the test part, or the share of the training part that becomes it;
    /// how often each training example is seen in an epoch; what counts as 1; mean and deviation of each channel.
    #[new]
    #[pyo3(signature = (shape, classes, train, test, fraction, repeat, scale, moments, source))]
    fn new(
        py: Python<'_>,
        shape: (usize, usize, usize),
        classes: Vec<String>,
        train: Part<'_>,
        test: Option<Part<'_>>,
        fraction: f64,
        repeat: Option<&Bound<'_, PyArray1<u32>>>,
        scale: f32,
        moments: Option<(Vec<f32>, Vec<f32>)>,
        source: &str,
    ) -> PyResult<Self> {
        let shape = Shape::new(shape.0, shape.1, shape.2);
        let source: Source = source.parse().or_raise()?;
        let all = part(&train, shape, classes.len())?;
        let (train, test) = match test {
            Some(test) => (all, part(&test, shape, classes.len())?),
            None if fraction > 0.0 => all.divide_for_test(HoldOut::Fraction(fraction)).or_raise()?,
            // Training wants something to look at after each epoch; a batch of its own examples costs next to nothing.
            None => (all.clone(), all.select(&(0..all.len().min(64) as u32).collect::<Vec<_>>()).or_raise()?),
        };
        let train = match repeat {
            Some(positions) => train.select(&positions.to_vec()?).or_raise()?,
            None => train,
        };
        let normalize = match moments {
            Some((mean, std)) => Normalize { full: scale, mean, std },
            None => free(py, || train.statistics(scale))?
                .ok_or_else(|| PyValueError::new_err("expected examples in memory"))?,
        };
        let name = source.to_string();
        let passed_over = PassedOver::default();
        let dataset = Dataset { name, shape, classes, normalize, train, test, passed_over, table: None };
        Ok(Data { dataset, source })
    }

    /// How many examples are learned from, and how many are for measuring.
    fn counts(&self) -> (usize, usize) {
        (self.dataset.train.len(), self.dataset.test.len())
    }

    /// Mean and deviation of each channel.
    fn moments(&self) -> (Vec<f32>, Vec<f32>) {
        (self.dataset.normalize.mean.clone(), self.dataset.normalize.std.clone())
    }

    /// Where the training examples lie in memory, for the test that they are not copied.
    fn address(&self) -> Option<usize> {
        self.dataset.train.bytes().map(|(bytes, _)| bytes.as_ptr() as usize)
    }
}

/// The data of a run: arrays, a path, or what the recipe itself says.
pub(crate) fn open(recipe: &mut Recipe, data: Option<&Bound<'_, PyAny>>) -> PyResult<Dataset> {
    let Some(data) = data else { return recipe.data.open().or_raise() };
    if let Ok(arrays) = data.cast::<Data>() {
        let Data { dataset, source } = arrays.get();
        (recipe.data.source, recipe.data.path) = (*source, None);
        let dataset = dataset.clone();
        return match recipe.data.crop {
            Some(side) => dataset.crop_to(side).or_raise(),
            None => Ok(dataset),
        };
    }
    let path: PathBuf = data.extract().map_err(|_| PyValueError::new_err("expected data as arrays or as a path"))?;
    // The recipe's own kind of data, unless that is the digits, which are nowhere: then what the path holds.
    if recipe.data.source == Source::Digits {
        recipe.data.source = Source::detect(&path).or_raise()?.source;
    }
    recipe.data.path = Some(absolute(&path));
    recipe.data.open().or_raise()
}

/// An array of floats to be filled.
pub(crate) type Out<'py> = Bound<'py, PyArrayDyn<f32>>;

/// A shape in words.
pub(crate) fn wrong_shape(found: usize, shape: Shape) -> PyErr {
    let Shape { height, width, channels } = shape;
    raise(Kind::Data, format!("{found} values are no examples of {height}×{width}×{channels}"))
}
