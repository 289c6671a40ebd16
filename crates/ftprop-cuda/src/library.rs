//! NVIDIA's libraries, looked for before anything calls into them.
//!
//! Each is loaded from the folders that the user names, the system's own places, or where installers put it, and asked for
//! every function that is called: a strange library under the right name is an error. cuDNN and cuBLASLt are called through
//! what was opened here (`bound`). cudarc calls the driver: it loads it at the first call, by its name, and panics where there
//! is none, or where it lacks what is called, so it is looked for here first.
//!
//! Folders in the environment count only if they are absolute: nothing is loaded because it lies in the current folder.

mod bound;
mod functions;

pub(crate) use bound::{cublas_lt, cudnn};

use crate::CudaError;
use crate::environment;
use crate::nvrtc::{self, Missing, Nvrtc};
use functions::DRIVER;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Those that were opened, for good.
static HANDLES: [OnceLock<libloading::Library>; 4] = [const { OnceLock::new() }; 4];

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
            Library::Cudnn => cudnn::NAMES,
            Library::Cublas => cublas_lt::NAMES,
        }
    }

    /// The first of these functions that would not be found. Called only where it is loaded.
    fn missing(self, functions: &'static [&'static str]) -> Option<&'static str> {
        let lacks = |name: &str| match self {
            // SAFETY: the driver is there, so this does not panic; the address is looked at and not called.
            Library::Driver => unsafe { driver_function::<unsafe extern "C" fn()>(name) }.is_none(),
            Library::Nvrtc => false,
            // SAFETY: the address is looked at and not called.
            Library::Cudnn | Library::Cublas => unsafe {
                self.handle().is_none_or(|library| library.get::<unsafe extern "C" fn()>(name.as_bytes()).is_err())
            },
        };
        functions.iter().copied().find(|name| lacks(name))
    }

    /// What was opened, for those that are called through it.
    fn handle(self) -> Option<&'static libloading::Library> {
        HANDLES[self as usize].get()
    }

    /// A function of a library that is loaded and has it, which [`load`](Self::load) made sure of.
    ///
    /// # Safety
    /// `T` is the function's type.
    unsafe fn function<T: Copy>(self, name: &str) -> T {
        let library = self.handle().unwrap_or_else(|| panic!("{} is called before it is loaded", self.name()));
        // SAFETY: the caller's promise.
        match unsafe { library.get::<T>(name.as_bytes()) } {
            Ok(function) => *function,
            Err(_) => panic!("{} has no {name}, though it was asked for it", self.name()),
        }
    }

    /// Whether cudarc finds the driver, by its name.
    fn is_found_by_name(self) -> bool {
        // SAFETY: initialisers of these libraries have no requirements of their own.
        self != Library::Driver || unsafe { cudarc::driver::sys::is_culib_present() }
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
            let Some(library) = first_that_opens(&environment::library_paths(self.file_names())) else {
                return Found::Nothing;
            };
            let _ = HANDLES[self as usize].set(library);
            if !self.is_found_by_name() {
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

/// Opens the first of these files that can be, its names visible to others.
fn first_that_opens(paths: &[PathBuf]) -> Option<libloading::Library> {
    paths.iter().find_map(|path| {
        #[cfg(unix)]
        {
            use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
            // SAFETY: these libraries' initialisers have no requirements of their own.
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.ok().map(Into::into)
        }
        #[cfg(not(unix))]
        {
            // SAFETY: as above.
            unsafe { libloading::Library::new(path) }.ok()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library whose only function says which it is, made by the compiler that links this test.
    #[cfg(target_os = "linux")]
    fn numbered(path: &std::path::Path, number: u32) -> bool {
        let source = path.with_extension("c");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&source, format!("int which(void) {{ return {number}; }}\n")).unwrap();
        let mut compiler = std::process::Command::new("cc");
        let status = compiler.args(["-shared", "-fPIC", "-o"]).arg(path).arg(&source).status();
        status.is_ok_and(|status| status.success())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn functions_are_those_of_the_first_file_whatever_else_has_its_name() {
        let folder = std::env::temp_dir().join(format!("ftprop-which-{}", std::process::id()));
        let (named, system) = (folder.join("named/libwhich.so.9"), folder.join("system/libwhich.so"));
        if !numbered(&named, 1) || !numbered(&system, 2) {
            println!("skipped: no C compiler");
            return;
        }
        let which = |library: &libloading::Library| {
            // SAFETY: the function is as it was written above.
            unsafe { library.get::<unsafe extern "C" fn() -> i32>(b"which").unwrap()() }
        };
        // One without a number is in the process already, as the system's would be.
        let other = first_that_opens(&[folder.join("nowhere/libwhich.so"), system.clone()]).unwrap();
        let first = first_that_opens(&[named, system]).unwrap();
        assert_eq!((which(&other), which(&first)), (2, 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }

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
