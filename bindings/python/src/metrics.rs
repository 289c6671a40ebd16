//! An epoch's figures for Python.

use ftprop::train::run::{EpochMetrics, Scores};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An epoch's figures by name.
pub(crate) fn metrics_dict<'py>(py: Python<'py>, metrics: &EpochMetrics) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("epoch", metrics.epoch)?;
    let parts = [("train", Some(metrics.train)), ("validation", metrics.validation), ("test", Some(metrics.test))];
    for (part, scores) in parts {
        if let Some(Scores { loss, top1, top5 }) = scores {
            for (name, value) in [("loss", loss), ("top1", top1), ("top5", top5)] {
                dict.set_item(format!("{part}_{name}"), value)?;
            }
        }
    }
    let EpochMetrics { learning_rate, images_per_s, waited, seconds, .. } = *metrics;
    let rest =
        [("learning_rate", learning_rate), ("images_per_s", images_per_s), ("waited", waited), ("seconds", seconds)];
    rest.into_iter().try_for_each(|(name, value)| dict.set_item(name, value))?;
    Ok(dict)
}
