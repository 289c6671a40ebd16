//! NVIDIA's libraries, looked for before anything calls into them.
//!
//! cudarc loads a library at the first call into it and panics where there is none, or where it lacks what is called. So
//! each is loaded here first, from the folders that the user names, the system's own places, or where installers put it; a
//! library that is already in the process is then found by its name. And it is asked for every function that is called, in the very handle
//! that cudarc calls through: a strange library under the right name is an error, too.
//!
//! Folders in the environment count only if they are absolute: nothing is loaded because it lies in the current folder.

mod functions;

use crate::CudaError;
use crate::environment;
use crate::nvrtc::{self, Missing, Nvrtc};
use functions::{CUBLAS, CUDNN, DRIVER};
use std::path::PathBuf;
use std::sync::OnceLock;

/// What a look for a library came to.
enum Found {
    Library,
    /// Something of its name that lacks this function.
    Without(&'static str),
    Nothing,
}

/// A library that is loaded when it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver.
    Driver,
    /// The run-time compiler for kernels.
    Nvrtc,
    /// Convolutions for large images.
    Cudnn,
    /// Fully connected layers: cuBLASLt.
    Cublas,
}

impl Library {
    /// What a person calls it.
    pub fn name(self) -> &'static str {
        match self {
            Library::Driver => "the CUDA driver",
            Library::Nvrtc => "NVRTC",
            Library::Cudnn => "cuDNN",
            Library::Cublas => "cuBLASLt",
        }
    }

    fn purpose(self) -> &'static str {
        match self {
            Library::Driver => "every GPU needs it",
            Library::Nvrtc => "it compiles the kernels",
            Library::Cudnn => "it computes large convolutions",
            Library::Cublas => "it computes large fully connected layers",
        }
    }

    fn file_names(self) -> &'static [&'static str] {
        match (self, cfg!(windows)) {
            (Library::Nvrtc, _) => nvrtc::FILES,
            (Library::Driver, false) => &["libcuda.so.1", "libcuda.so"],
            (Library::Cudnn, false) => &["libcudnn.so.9", "libcudnn.so"],
            (Library::Cublas, false) => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
            (Library::Driver, true) => &["nvcuda.dll"],
            (Library::Cudnn, true) => &["cudnn64_9.dll"],
            (Library::Cublas, true) => &["cublasLt64_13.dll", "cublasLt64_12.dll"],
        }
    }

    /// What every version of it has. Which of its other functions there are is known once its version is, see
    /// [`Library::check_functions`].
    fn always(self) -> &'static [&'static str] {
        match self {
            Library::Driver => &["cuInit", "cuDriverGetVersion"],
            other => other.functions(),
        }
    }

    /// All functions of it that this crate calls.
    fn functions(self) -> &'static [&'static str] {
        match self {
            Library::Driver => DRIVER,
            // Its own module asks for them.
            Library::Nvrtc => &[],
            Library::Cudnn => CUDNN,
            Library::Cublas => CUBLAS,
        }
    }

    /// The first of these functions that cudarc would not find. Called only where [`Library::reaches_cudarc`].
    fn missing(self, functions: &'static [&'static str]) -> Option<&'static str> {
        use cudarc::{cublaslt, cudnn, driver};
        // SAFETY: the library is there, so this does not panic; initialisers have no requirements of their own.
        let library = unsafe {
            match self {
                Library::Driver => driver::sys::culib(),
                Library::Nvrtc => return None,
                Library::Cudnn => cudnn::sys::culib(),
                Library::Cublas => cublaslt::sys::culib(),
            }
        };
        // SAFETY: the addresses are looked at and not called.
        let lacks = |name: &str| unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err();
        functions.iter().copied().find(|name| lacks(name))
    }

    /// Whether cudarc finds what was loaded.
    fn reaches_cudarc(self) -> bool {
        use cudarc::{cublaslt, cudnn, driver};
        // SAFETY: initialisers of these libraries have no requirements of their own.
        unsafe {
            match self {
                Library::Driver => driver::sys::is_culib_present(),
                Library::Nvrtc => true,
                Library::Cudnn => cudnn::sys::is_culib_present(),
                Library::Cublas => cublaslt::sys::is_culib_present(),
            }
        }
    }

    fn strange(self, function: &'static str) -> CudaError {
        CudaError::StrangeLibrary { library: self.name(), function }
    }

    /// Refuses a library that lacks something that this crate calls.
    pub(crate) fn check_functions(self) -> Result<(), CudaError> {
        self.load()?;
        self.missing(self.functions()).map_or(Ok(()), |function| Err(self.strange(function)))
    }

    /// Loads it, once; the answer stays the same for the life of the process.
    pub fn load(self) -> Result<(), CudaError> {
        static FOUND: [OnceLock<Found>; 4] = [const { OnceLock::new() }; 4];
        let found = FOUND[self as usize].get_or_init(|| {
            if self == Library::Nvrtc {
                return match Nvrtc::get() {
                    Ok(_) => Found::Library,
                    Err(Missing::Without(function)) => Found::Without(function),
                    Err(Missing::Nothing) => Found::Nothing,
                };
            }
            let paths = environment::library_paths(self.file_names());
            if !paths.into_iter().any(|path| keep_loaded(&path)) || !self.reaches_cudarc() {
                return Found::Nothing;
            }
            self.missing(self.always()).map_or(Found::Library, Found::Without)
        });
        match found {
            Found::Library => return Ok(()),
            Found::Without(function) => return Err(self.strange(function)),
            Found::Nothing => {}
        }
        Err(CudaError::Library {
            library: self.name(),
            purpose: self.purpose(),
            names: self.file_names().join(", "),
            places: places(),
        })
    }
}

/// Opens the first library that has one of these names, for good.
pub(crate) fn open(names: &[&str]) -> Option<libloading::Library> {
    let folders = environment::library_folders();
    let paths = names.iter().flat_map(|name| {
        std::iter::once(PathBuf::from(name)).chain(folders.iter().map(move |folder| folder.join(name)))
    });
    // SAFETY: NVIDIA's libraries' initialisers have no requirements of their own.
    paths.into_iter().find_map(|path| unsafe { libloading::Library::new(path) }.ok())
}

/// Where libraries are looked for, in words.
pub(crate) fn places() -> String {
    let places: Vec<String> =
        environment::library_folders().iter().map(|folder| folder.display().to_string()).collect();
    format!("the system's library path, {}", places.join(", "))
}

/// A function of the driver that is not in every version of it under one name. The driver is loaded.
///
/// # Safety
/// `T` is the function's type.
pub(crate) unsafe fn driver_function<T: Copy>(name: &str) -> Option<T> {
    // SAFETY: the driver is there, so this does not panic; the caller's promise covers the type.
    unsafe { cudarc::driver::sys::culib().get::<T>(name.as_bytes()) }.ok().map(|function| *function)
}

/// Loads a library for good, its names visible to others.
fn keep_loaded(path: &std::path::Path) -> bool {
    #[cfg(unix)]
    {
        use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
        // SAFETY: these libraries' initialisers have no requirements of their own.
        match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => {
                std::mem::forget(library);
                true
            }
            Err(_) => false,
        }
    }
    #[cfg(not(unix))]
    {
        // SAFETY: as above.
        match unsafe { libloading::Library::new(path) } {
            Ok(library) => {
                std::mem::forget(library);
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_where_it_was_looked_for() {
        for library in [Library::Driver, Library::Nvrtc, Library::Cudnn, Library::Cublas] {
            match library.load() {
                Ok(()) => println!("{} is here; nothing to see", library.name()),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(library.name()) && text.contains(library.file_names()[0]), "{text}");
                    assert!(text.contains("FTPROP_CUDA_LIBRARIES") && !text.contains('\n'), "{text}");
                }
            }
        }
    }
}
