//! A network's layers for PyTorch, and networks from PyTorch's.

use crate::border::{Kind, OrRaise, guarded, raise};
use crate::place::shared_place;
use crate::recipe;
use crate::run::Run;
use ftprop::export::numbers::Numbers;
use ftprop::nn::graph::{Node, Op, ParameterId, StatisticId};
use ftprop::nn::spec::pool_words;
use ftprop::nn::{Graph, Shape};
use ftprop::train::checkpoint::ModelInfo;
use ftprop::train::choice::DeviceChoice;
use ftprop::train::model::Which;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::sync::Arc;

/// Writes nodes down as dicts.
struct Writer<'a, 'py> {
    py: Python<'py>,
    graph: &'a Graph,
    numbers: Numbers<'a>,
}

impl<'py> Writer<'_, 'py> {
    fn parameter(&self, id: ParameterId) -> PyResult<Bound<'py, PyAny>> {
        let flat = PyArray1::from_vec(self.py, self.numbers.channels_first(id));
        flat.call_method1("reshape", (self.graph.parameter(id).torch_shape(),))
    }

    fn statistic(&self, id: StatisticId) -> Bound<'py, PyAny> {
        PyArray1::from_slice(self.py, self.numbers.statistic(id)).into_any()
    }

    fn list(&self, nodes: &[Node]) -> PyResult<Bound<'py, PyList>> {
        PyList::new(self.py, nodes.iter().map(|node| self.node(node)).collect::<PyResult<Vec<_>>>()?)
    }

    fn node(&self, node: &Node) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(self.py);
        let bias = |id: Option<ParameterId>| id.map(|id| self.parameter(id)).transpose();
        dict.set_item("path", &node.path)?;
        dict.set_item("description", node.description())?;
        dict.set_item("input", (node.input.channels, node.input.height, node.input.width))?;
        dict.set_item("output", (node.output.channels, node.output.height, node.output.width))?;
        match &node.op {
            Op::Conv(conv) => {
                let g = &conv.geometry;
                dict.set_item("kind", "conv")?;
                dict.set_item("kernel", (g.kernel_h, g.kernel_w))?;
                dict.set_item("stride", g.stride)?;
                dict.set_item("pad", g.pad)?;
                dict.set_item("groups", g.groups)?;
                dict.set_item("weight", self.parameter(conv.weight)?)?;
                dict.set_item("bias", bias(conv.bias)?)?;
            }
            Op::Fc(fc) => {
                dict.set_item("kind", "fc")?;
                dict.set_item("weight", self.parameter(fc.weight)?)?;
                dict.set_item("bias", bias(fc.bias)?)?;
            }
            Op::Pool(kind, g) => {
                dict.set_item("kind", pool_words(*kind).1)?;
                dict.set_item("kernel", g.kernel)?;
                dict.set_item("stride", g.stride)?;
                dict.set_item("pad", g.pad)?;
            }
            Op::BatchNorm(norm) => {
                dict.set_item("kind", "batch_norm")?;
                dict.set_item("eps", norm.eps)?;
                dict.set_item("momentum", norm.momentum)?;
                dict.set_item("weight", self.parameter(norm.gamma)?)?;
                dict.set_item("bias", self.parameter(norm.beta)?)?;
                dict.set_item("mean", self.statistic(norm.mean))?;
                dict.set_item("variance", self.statistic(norm.variance))?;
            }
            Op::Affine(affine) => {
                dict.set_item("kind", "affine")?;
                dict.set_item("weight", bias(affine.scale)?)?;
                dict.set_item("bias", self.parameter(affine.shift)?)?;
            }
            Op::Hard(unit, layer) => {
                dict.set_item("kind", "act")?;
                dict.set_item("activation", unit.activation.to_string())?;
                dict.set_item("layer_loss", unit.layer_loss.to_string())?;
                dict.set_item("target_rule", unit.rule.to_string())?;
                dict.set_item("qrelu_form", unit.form.to_string())?;
                dict.set_item("weighted", unit.weighted)?;
                dict.set_item("layer", layer)?;
            }
            Op::Soft(activation) => {
                dict.set_item("kind", "act")?;
                dict.set_item("activation", activation.to_string())?;
            }
            Op::Dropout(dropout) => {
                dict.set_item("kind", if dropout.by_channel { "channel_dropout" } else { "dropout" })?;
                dict.set_item("p", dropout.p)?;
            }
            Op::Residual { main, shortcut } => {
                dict.set_item("kind", "residual")?;
                dict.set_item("main", self.list(main)?)?;
                dict.set_item("shortcut", self.list(shortcut)?)?;
            }
        }
        Ok(dict)
    }
}

/// The layers one after another, with their numbers as PyTorch lays them out.
#[pyfunction]
pub(crate) fn layers<'py>(py: Python<'py>, run: &Run, which_one: &str) -> PyResult<Bound<'py, PyList>> {
    guarded(|| {
        let which = if which_one == "last" { Which::Last } else { Which::Best };
        let model = run.model(which, 1).or_raise()?;
        let graph = model.network.graph().clone();
        Writer { py, graph: &graph, numbers: Numbers::of(&model.network) }.list(graph.nodes())
    })
}

/// A network from its recipe and from PyTorch's numbers, in the order of the network: a weight before its bias, a
/// residual block's main path before its shortcut; the same for running means and variances.
#[pyfunction]
pub(crate) fn assemble(
    made_by: &Bound<'_, PyAny>,
    shape: (usize, usize, usize),
    classes: Vec<String>,
    normalize: (f32, Vec<f32>, Vec<f32>),
    parameters: Vec<Bound<'_, PyArray1<f32>>>,
    statistics: Vec<Bound<'_, PyArray1<f32>>>,
) -> PyResult<Run> {
    let recipe = recipe::build(made_by, None)?;
    let input = Shape { height: shape.0, width: shape.1, channels: shape.2 };
    let graph = guarded(|| recipe.graph(input, classes.len()).or_raise())?;
    let other = |what: &str| raise(Kind::Model, format!("the module's {what} do not fit the network's"));
    if parameters.len() != graph.parameters().len() || statistics.len() != graph.statistics().len() {
        return Err(other("parameters and buffers"));
    }
    let mut values = vec![0.0; graph.parameter_count()];
    for (parameter, theirs) in graph.parameters().iter().zip(&parameters) {
        let theirs = theirs.to_vec()?;
        let ours = &mut values[parameter.range.clone()];
        if ours.len() != theirs.len() {
            return Err(other(&parameter.name));
        }
        ours.iter_mut().enumerate().for_each(|(i, value)| *value = theirs[parameter.torch_index(i)]);
    }
    let mut stats = vec![0.0; graph.statistic_count()];
    for (statistic, theirs) in graph.statistics().iter().zip(&statistics) {
        let theirs = theirs.to_vec()?;
        if statistic.range.len() != theirs.len() {
            return Err(other(&statistic.name));
        }
        stats[statistic.range.clone()].copy_from_slice(&theirs);
    }
    if normalize.1.len() != input.channels || normalize.2.len() != input.channels {
        return Err(other("mean and deviation"));
    }
    let place = shared_place(DeviceChoice::Cpu, 0).or_raise()?;
    Ok(Run::made(recipe, info(input, classes, normalize), Arc::new((values, stats)), place))
}

/// A recipe's network where training would start from.
#[pyfunction]
pub(crate) fn initial(made_by: &Bound<'_, PyAny>, shape: (usize, usize, usize), classes: Vec<String>) -> PyResult<Run> {
    let recipe = recipe::build(made_by, None)?.checked().or_raise()?.into_recipe();
    let input = Shape { height: shape.0, width: shape.1, channels: shape.2 };
    let graph = guarded(|| recipe.graph(input, classes.len()).or_raise())?;
    let start = Arc::new((graph.initial_values(recipe.train.seed), graph.initial_statistics()));
    let normalize = (1.0, vec![0.0; input.channels], vec![1.0; input.channels]);
    let place = shared_place(DeviceChoice::Cpu, 0).or_raise()?;
    Ok(Run::made(recipe, info(input, classes, normalize), start, place))
}

/// What a network needs to be used.
fn info(input: Shape, classes: Vec<String>, (full, mean, std): (f32, Vec<f32>, Vec<f32>)) -> ModelInfo {
    let picture = input.height * input.width > 1;
    let resize = picture.then_some(input.height.min(input.width));
    ModelInfo {
        classes,
        input: [input.height, input.width, input.channels],
        full,
        mean,
        std,
        resize,
        table: None,
        origin: Default::default(),
    }
}
