//! Recipes from names, files and dicts.

use crate::border::{Kind, OrRaise, raise};
use ftprop::train::built_in;
use ftprop::train::config::Layers;
use ftprop::train::recipe::Recipe;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::path::{Path, PathBuf};
use toml::Value;

/// A recipe: a dict, or the name of a file or of a built-in one; then the settings, a dict of dotted keys, over it.
pub(crate) fn build(recipe: &Bound<'_, PyAny>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Recipe> {
    let mut layers = match recipe.cast::<PyDict>() {
        Ok(dict) => lay(Recipe::defaults().or_raise()?, dict, "")?,
        Err(_) => {
            let name: PathBuf = recipe.extract().map_err(|_| {
                PyTypeError::new_err("a recipe is a dict, the path of a TOML file or the name of a built-in one")
            })?;
            Recipe::layers_of(&name).or_raise()?
        }
    };
    if let Some(settings) = settings {
        layers = lay(layers, settings, "")?;
    }
    layers.build().map_err(ftprop::train::Error::from).or_raise()
}

/// Lays a dict over what is there, each value under its dotted key, so that an error names the key.
fn lay(mut layers: Layers, dict: &Bound<'_, PyDict>, above: &str) -> PyResult<Layers> {
    for (key, value) in dict {
        let key: String = key.extract().map_err(|_| PyTypeError::new_err("a recipe's keys are strings"))?;
        let path = if above.is_empty() { key } else { format!("{above}.{key}") };
        if let Ok(table) = value.cast::<PyDict>() {
            layers = lay(layers, table, &path)?;
        } else if !value.is_none() {
            let words = format!("the recipe's {path}");
            layers = layers.flag(&words, &path, toml_of(&value, &path)?).map_err(|e| raise(Kind::Recipe, e))?;
        }
    }
    Ok(layers)
}

/// A plain Python value as TOML has it.
fn toml_of(value: &Bound<'_, PyAny>, path: &str) -> PyResult<Value> {
    let list = |items: Vec<Bound<'_, PyAny>>| {
        items.iter().map(|item| toml_of(item, path)).collect::<PyResult<Vec<_>>>().map(Value::Array)
    };
    if value.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        let number: i64 =
            value.extract().map_err(|_| raise(Kind::Recipe, format!("{path}: {value} is too large a number")))?;
        return Ok(Value::Integer(number));
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(Value::String(value.extract()?));
    }
    if let Ok(items) = value.cast::<PyList>() {
        return list(items.iter().collect());
    }
    if let Ok(items) = value.cast::<PyTuple>() {
        return list(items.iter().collect());
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        let mut table = toml::Table::new();
        for (key, value) in dict {
            if !value.is_none() {
                table.insert(key.extract()?, toml_of(&value, path)?);
            }
        }
        return Ok(Value::Table(table));
    }
    // numpy's scalars say what they are.
    if let Ok(item) = value.call_method0("item") {
        return toml_of(&item, path);
    }
    if let Ok(file) = value.extract::<PathBuf>() {
        return Ok(Value::String(file.display().to_string()));
    }
    Err(PyTypeError::new_err(format!("{path}: {} has no form in a recipe", value.get_type().name()?)))
}

/// A recipe as its TOML, checked.
#[pyfunction]
#[pyo3(signature = (recipe, settings=None))]
pub(crate) fn recipe_toml(recipe: &Bound<'_, PyAny>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<String> {
    build(recipe, settings)?.checked().or_raise()?.to_toml().or_raise()
}

/// The names of the built-in recipes.
#[pyfunction]
pub(crate) fn recipe_names() -> Vec<String> {
    built_in::names().map(String::from).collect()
}

/// A path that means the same from any folder, as a run folder keeps it.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    ftprop::train::recipe::absolute(path)
}
