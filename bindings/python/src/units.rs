//! Hard units as Rust computes them, for comparing PyTorch's with them.

use crate::arrays::fill;
use crate::border::{Kind, OrRaise, free, raise};
use ftprop::nn::target::{HardUnit, Moment, QreluForm, TargetRule};
use ftprop::nn::{Activation, LayerLoss};
use ftprop::tensor::Cpu;
use numpy::{PyArrayDyn, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Turns the gradients by h into the slopes by z, in place, as training does.
#[pyfunction]
#[pyo3(signature = (activation, layer_loss, target_rule, qrelu_form, weighted, g, z, batch, progress, seed, step, layer))]
pub(crate) fn slopes(
    py: Python<'_>,
    activation: &str,
    layer_loss: &str,
    target_rule: &str,
    qrelu_form: &str,
    weighted: bool,
    g: &Bound<'_, PyArrayDyn<f32>>,
    z: &Bound<'_, PyArrayDyn<f32>>,
    batch: usize,
    progress: f32,
    seed: u64,
    step: u64,
    layer: u64,
) -> PyResult<()> {
    let unit = HardUnit {
        activation: activation.parse::<Activation>().or_raise()?,
        layer_loss: layer_loss.parse::<LayerLoss>().or_raise()?,
        rule: target_rule.parse::<TargetRule>().or_raise()?,
        form: qrelu_form.parse::<QreluForm>().or_raise()?,
        weighted,
    };
    let z = z.to_vec()?;
    let cpu = Cpu::new(1).map_err(|e| raise(Kind::Device, e))?;
    fill(g, |g| {
        if g.len() != z.len() || batch == 0 || g.len() % batch != 0 {
            return Err(PyValueError::new_err(
                "expected as many gradients as pre-activations, the same for each example",
            ));
        }
        let labels = vec![0; batch];
        let moment = Moment { seed, step, progress, labels: &labels, units: g.len() / batch, layer, portion: None };
        let mut spare = vec![0.0; g.len()];
        free(py, || unit.slopes(&cpu, &moment, g, &z, &mut spare))
    })
}

/// What units output, in the place of their pre-activations.
#[pyfunction]
pub(crate) fn values(activation: &str, z: &Bound<'_, PyArrayDyn<f32>>) -> PyResult<()> {
    let activation = activation.parse::<Activation>().or_raise()?;
    fill(z, |z| {
        z.iter_mut().for_each(|z| *z = activation.value(*z));
        Ok(())
    })
}

/// The names of every layer loss and every target rule.
#[pyfunction]
pub(crate) fn names() -> (Vec<String>, Vec<String>) {
    let losses = LayerLoss::all().iter().map(ToString::to_string).collect();
    (losses, TargetRule::all().iter().map(ToString::to_string).collect())
}

/// The names of a hard unit as they are usually written, or what is wrong with one of them.
#[pyfunction]
pub(crate) fn known_unit(
    activation: &str,
    layer_loss: &str,
    target_rule: &str,
    qrelu_form: &str,
) -> PyResult<(String, String, String, String)> {
    Ok((
        activation.parse::<Activation>().or_raise()?.to_string(),
        layer_loss.parse::<LayerLoss>().or_raise()?.to_string(),
        target_rule.parse::<TargetRule>().or_raise()?.to_string(),
        qrelu_form.parse::<QreluForm>().or_raise()?.to_string(),
    ))
}
