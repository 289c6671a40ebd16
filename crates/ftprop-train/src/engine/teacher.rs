//! The network that a recipe has another one learn from.

use crate::device::Place;
use crate::error::Error;
use crate::files::is_packed;
use crate::model::{Model, Which};
use crate::recipe::Recipe;
use ftprop_data::{Dataset, TableTransform};
use ftprop_nn::engine::{NetworkState, Teacher};
use ftprop_tensor::Cpu;
use std::sync::Arc;

/// Reads the teacher, where the recipe has one, and checks that it knows the data's classes and sees the same numbers.
pub(crate) fn load(recipe: &Recipe, dataset: &Dataset, place: &Place) -> Result<Option<Arc<Teacher>>, Error> {
    load_by(recipe, dataset, place.cpu.clone())
}

/// The same without a place: what is read is numbers, whatever computes with them.
pub(crate) fn load_by(recipe: &Recipe, dataset: &Dataset, cpu: Arc<Cpu>) -> Result<Option<Arc<Teacher>>, Error> {
    let (Some(path), Some(distillation)) = (&recipe.train.teacher, recipe.distillation()?) else { return Ok(None) };
    let refused = |why: String| Error::Teacher { path: path.clone(), why };
    if !path.exists() {
        return Err(Error::NoTeacher { path: path.clone() });
    }
    if is_packed(path) {
        return Err(refused("a packed model cannot teach; give the run that it was packed from".into()));
    }
    let model = Model::load(path, Which::Best, cpu, 1).map_err(|e| refused(e.to_string()))?;
    if dataset.shape != model.info.shape() || dataset.classes != model.info.classes {
        return Err(refused("it was trained for examples of another shape, or for other classes".into()));
    }
    let (own, other) = (&dataset.normalize, model.info.normalize());
    let origins = |table: &Option<TableTransform>| table.as_ref().map(TableTransform::origins).unwrap_or_default();
    let counted_alike = origins(&dataset.table) == origins(&model.info.table);
    if !counted_alike || (own.full, &own.mean, &own.std) != (other.full, &other.mean, &other.std) {
        return Err(refused("its examples were normalised otherwise, so that it would see other numbers".into()));
    }
    let (values, statistics) = (model.network.values().to_vec(), model.network.stats().to_vec());
    let network = NetworkState { values: values.into(), statistics: statistics.into() };
    Ok(Some(Arc::new(Teacher { graph: model.network.graph().clone(), network, distillation })))
}
