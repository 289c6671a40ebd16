//! ftprop for Python: the compiled half of the package.
//!
//! What people see is in `python/ftprop`; it checks arguments, keeps labels and draws progress bars. Here arrays become
//! slices, recipes are built, and everything that takes long runs without the interpreter's lock. Nothing here is public
//! to Python: `ftprop._native` may change at any time.
//!
//! | file | subject |
//! | --- | --- |
//! | `border` | what crosses the border: errors, panics, the lock, Ctrl-C |
//! | `arrays` | numpy's arrays as slices, without copying |
//! | `recipe` | recipes from names, files and dicts |
//! | `data` | data sets from arrays and from paths |
//! | `train`, `metrics` | training, with callbacks, and what they see |
//! | `place` | threads that runs share |
//! | `run` | trained networks: predictions, exports, pictures |
//! | `layers` | a network's layers for PyTorch, and networks from PyTorch's |
//! | `packed` | packed models |
//! | `exact` | separability, search and certificates |
//! | `units` | hard units, for comparing PyTorch's with ours |

#![warn(clippy::undocumented_unsafe_blocks)]

mod arrays;
mod border;
mod data;
mod exact;
mod layers;
mod metrics;
mod packed;
mod place;
mod recipe;
mod run;
mod train;
mod units;

use pyo3::prelude::*;
use std::ffi::OsString;
use std::process::ExitCode;

/// The program's command line, its own name first; gives the exit code.
#[pyfunction]
fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let code = border::free(py, || ftprop_cli::run(arguments))?;
    // Rust gives no way to read an exit code but to compare it.
    Ok((0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(1))
}

/// Ends in a panic, for the test that none crosses the border.
#[pyfunction]
fn panic_for_test(py: Python<'_>) -> PyResult<()> {
    border::free(py, || panic!("a wall fell over"))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(run_command, module)?)?;
    module.add_function(wrap_pyfunction!(panic_for_test, module)?)?;
    module.add_function(wrap_pyfunction!(recipe::recipe_toml, module)?)?;
    module.add_function(wrap_pyfunction!(recipe::recipe_names, module)?)?;
    module.add_function(wrap_pyfunction!(train::train, module)?)?;
    module.add_function(wrap_pyfunction!(run::load_run, module)?)?;
    module.add_function(wrap_pyfunction!(layers::layers, module)?)?;
    module.add_function(wrap_pyfunction!(layers::assemble, module)?)?;
    module.add_function(wrap_pyfunction!(layers::initial, module)?)?;
    module.add_function(wrap_pyfunction!(exact::separable, module)?)?;
    module.add_function(wrap_pyfunction!(exact::solve, module)?)?;
    module.add_function(wrap_pyfunction!(units::slopes, module)?)?;
    module.add_function(wrap_pyfunction!(units::values, module)?)?;
    module.add_function(wrap_pyfunction!(units::names, module)?)?;
    module.add_function(wrap_pyfunction!(units::known_unit, module)?)?;
    module.add_class::<data::Data>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<packed::Packed>()?;
    module.add_class::<exact::Certificate>()?;
    module.add_class::<exact::Solution>()?;
    Ok(())
}
