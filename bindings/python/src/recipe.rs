//! Recipes from names, files and dicts.

use crate::border::{Kind, OrRaise, guarded, raise};
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
    guarded(|| build_unguarded(recipe, settings))
}

fn build_unguarded(recipe: &Bound<'_, PyAny>, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Recipe> {
    let mut layers = match recipe.cast::<PyDict>() {
        Ok(dict) => lay(Recipe::defaults().or_raise()?, dict, "", DEEPEST)?,
        Err(_) => {
            let name: PathBuf = recipe.extract().map_err(|_| {
                PyTypeError::new_err("a recipe is a dict, the path of a TOML file or the name of a built-in one")
            })?;
            Recipe::layers_of(&name).or_raise()?
        }
    };
    if let Some(settings) = settings {
        layers = lay(layers, settings, "", DEEPEST)?;
    }
    layers.build().map_err(ftprop::train::Error::from).or_raise()
}

/// Dicts and lists within each other that a recipe may have; one that holds itself has no end.
const DEEPEST: usize = 32;

fn too_deep(path: &str) -> PyErr {
    let path: String = path.chars().take(60).collect();
    raise(Kind::Recipe, format!("the recipe's {path}: more than {DEEPEST} dicts and lists within each other"))
}

/// Lays a dict over what is there, each value under its dotted key, so that an error names the key.
fn lay(mut layers: Layers, dict: &Bound<'_, PyDict>, above: &str, room: usize) -> PyResult<Layers> {
    let room = room.checked_sub(1).ok_or_else(|| too_deep(above))?;
    for (key, value) in dict {
        let key: String = key.extract().map_err(|_| PyTypeError::new_err("a recipe's keys are strings"))?;
        let path = if above.is_empty() { key } else { format!("{above}.{key}") };
        if let Ok(table) = value.cast::<PyDict>() {
            layers = lay(layers, table, &path, room)?;
        } else if !value.is_none() {
            let words = format!("the recipe's {path}");
            layers = layers.flag(&words, &path, toml_of(&value, &path, room)?).map_err(|e| raise(Kind::Recipe, e))?;
        }
    }
    Ok(layers)
}

/// A plain Python value as TOML has it.
fn toml_of(value: &Bound<'_, PyAny>, path: &str, room: usize) -> PyResult<Value> {
    let room = room.checked_sub(1).ok_or_else(|| too_deep(path))?;
    let list = |items: Vec<Bound<'_, PyAny>>| {
        items.iter().map(|item| toml_of(item, path, room)).collect::<PyResult<Vec<_>>>().map(Value::Array)
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
                table.insert(key.extract()?, toml_of(&value, path, room)?);
            }
        }
        return Ok(Value::Table(table));
    }
    // numpy's scalars say what they are.
    if let Ok(item) = value.call_method0("item") {
        return toml_of(&item, path, room);
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
    guarded(|| build(recipe, settings)?.checked().or_raise()?.to_toml().or_raise())
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
