//! NVIDIA's libraries, looked for before anything calls into them.
//!
//! cudarc loads a library at the first call into it and panics where there is none. So each is loaded here
//! first, from the system's own places or from the folders where installers put it; a library that is
//! already in the process is then found by its name.

use crate::CudaError;
use std::path::PathBuf;
use std::sync::OnceLock;

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
            (Library::Driver, false) => &["libcuda.so.1", "libcuda.so"],
            (Library::Nvrtc, false) => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            (Library::Cudnn, false) => &["libcudnn.so.9", "libcudnn.so"],
            (Library::Cublas, false) => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
            (Library::Driver, true) => &["nvcuda.dll"],
            (Library::Nvrtc, true) => &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
            (Library::Cudnn, true) => &["cudnn64_9.dll"],
            (Library::Cublas, true) => &["cublasLt64_13.dll", "cublasLt64_12.dll"],
        }
    }

    /// Loads it, once; the answer stays the same for the life of the process.
    pub fn load(self) -> Result<(), CudaError> {
        static FOUND: [OnceLock<bool>; 4] = [const { OnceLock::new() }; 4];
        let found = FOUND[self as usize].get_or_init(|| {
            let folders = folders();
            let paths = self.file_names().iter().flat_map(|name| {
                std::iter::once(PathBuf::from(name)).chain(folders.iter().map(move |folder| folder.join(name)))
            });
            paths.into_iter().any(|path| keep_loaded(&path))
        });
        if *found {
            return Ok(());
        }
        let places: Vec<String> = folders().iter().map(|f| f.display().to_string()).collect();
        Err(CudaError::Library {
            library: self.name(),
            purpose: self.purpose(),
            names: self.file_names().join(", "),
            places: format!("the system's library path, {}", places.join(", ")),
        })
    }
}

/// Where libraries may be beside the system's own places.
fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(named) = std::env::var_os("FTPROP_CUDA_LIBRARIES") {
        folders.extend(std::env::split_paths(&named));
    }
    for home in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(home) = std::env::var_os(home) {
            folders.push(PathBuf::from(&home).join("lib64"));
            folders.push(PathBuf::from(&home).join("bin"));
        }
    }
    if cfg!(unix) {
        folders.extend(
            ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"]
                .map(PathBuf::from),
        );
    }
    folders
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
