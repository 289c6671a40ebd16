//! Kernels from text: assembled with the numbers of one layer, compiled by NVRTC at first use, and kept on
//! disk. The key of a kept kernel is its whole text, the GPU's architecture and the compiler's version.

use crate::CudaError;
use crate::library::Library;
use crate::memory::check;
use crate::precision::Precision;
use cudarc::driver::sys::{self, CUfunction, CUmodule};
use cudarc::nvrtc::{result as nvrtc, sys as nvrtc_sys};
use std::ffi::CString;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

const COMMON: &str = include_str!("../kernels/common.cuh");

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum File {
    Gemm,
    PatchForward,
    PatchGradient,
    PatchBackward,
    Epilogue,
    EpilogueCooperative,
    Norm,
    AveragePool,
    OutputLoss,
    Optimizer,
    Basic,
}

impl File {
    fn name(self) -> &'static str {
        match self {
            File::Gemm => "gemm.cu",
            File::PatchForward => "patch_forward.cu",
            File::PatchGradient => "patch_gradient.cu",
            File::PatchBackward => "patch_backward.cu",
            File::Epilogue => "epilogue.cu",
            File::EpilogueCooperative => "epilogue_cooperative.cu",
            File::Norm => "norm.cu",
            File::AveragePool => "average_pool.cu",
            File::OutputLoss => "output_loss.cu",
            File::Optimizer => "optimizer.cu",
            File::Basic => "basic.cu",
        }
    }

    fn text(self) -> &'static str {
        match self {
            File::Gemm => include_str!("../kernels/gemm.cu"),
            File::PatchForward => include_str!("../kernels/patch_forward.cu"),
            File::PatchGradient => include_str!("../kernels/patch_gradient.cu"),
            File::PatchBackward => include_str!("../kernels/patch_backward.cu"),
            File::Epilogue => {
                concat!(include_str!("../kernels/column_reduction.cuh"), include_str!("../kernels/epilogue.cu"))
            }
            File::EpilogueCooperative => concat!(
                include_str!("../kernels/column_reduction.cuh"),
                include_str!("../kernels/epilogue.cu"),
                include_str!("../kernels/epilogue_cooperative.cu")
            ),
            File::Norm => concat!(include_str!("../kernels/column_reduction.cuh"), include_str!("../kernels/norm.cu")),
            File::AveragePool => include_str!("../kernels/average_pool.cu"),
            File::OutputLoss => include_str!("../kernels/output_loss.cu"),
            File::Optimizer => include_str!("../kernels/optimizer.cu"),
            File::Basic => include_str!("../kernels/basic.cu"),
        }
    }

    fn entries(self) -> &'static [&'static str] {
        match self {
            File::Gemm => &["gemm"],
            File::PatchForward => &["patch_forward"],
            File::PatchGradient => &["patch_gradient", "patch_gradient_reduce"],
            File::PatchBackward => &["patch_backward"],
            File::Epilogue => &["epilogue_forward", "epilogue_backward", "epilogue_backward_input", "bias_gradient"],
            File::EpilogueCooperative => {
                &["epilogue_forward", "epilogue_forward_cooperative", "epilogue_backward_cooperative"]
            }
            File::Norm => &["norm_statistics", "norm_running", "column_sums"],
            File::AveragePool => &["average_pool_forward", "average_pool_backward"],
            File::OutputLoss => &["output_loss"],
            File::Optimizer => &["optimize"],
            File::Basic => &["gather_batch", "take_batch", "next_batch", "round_values", "clip", "widen_values"],
        }
    }
}

/// A file of kernels with the numbers that it is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Source {
    file: File,
    precision: Precision,
    macros: String,
}

impl Source {
    pub(crate) fn new(file: File, precision: Precision) -> Self {
        Source { file, precision, macros: String::new() }
    }

    /// Defines a whole number.
    pub(crate) fn int(mut self, name: &str, value: usize) -> Self {
        let _ = writeln!(self.macros, "#define {name} {value}");
        self
    }

    /// Defines a choice by its name in the kernels; they know its names and refuse any other.
    pub(crate) fn name(mut self, name: &str, value: &str) -> Self {
        let _ = writeln!(self.macros, "#define {name} {value}");
        self
    }

    /// Defines an f32, to the bit.
    pub(crate) fn float(mut self, name: &str, value: f32) -> Self {
        let _ = writeln!(self.macros, "#define {name} {value:e}f");
        self
    }

    fn text(&self) -> String {
        {
            let precision = match self.precision {
                Precision::F32 => "PRECISION_F32",
                Precision::Tf32 => "PRECISION_TF32",
                Precision::Bf16 => "PRECISION_BF16",
            };
            format!("#define PRECISION {precision}\n{COMMON}\n{}\n{}", self.macros, self.file.text())
        }
    }

    /// The machine code, from the folder of kept kernels or from the compiler.
    pub(crate) fn image(&self, arch: &str) -> Result<Vec<u8>, CudaError> {
        let text = self.text();
        let (major, minor) = nvrtc_version()?;
        let key = format!("{arch} nvrtc {major}.{minor}\n{text}");
        let kept = cache_folder()
            .map(|f| f.join("kernels").join(format!("{:016x}{:016x}.cubin", hash(&key, 1), hash(&key, 2))));
        if let Some(image) = kept.as_ref().and_then(|path| std::fs::read(path).ok()).filter(|i| !i.is_empty()) {
            return Ok(image);
        }
        let image = self.compile(arch)?;
        if let Some(path) = kept {
            keep(&path, &image);
        }
        Ok(image)
    }

    /// The machine code from the compiler.
    pub(crate) fn compile(&self, arch: &str) -> Result<Vec<u8>, CudaError> {
        let name = self.file.name();
        let failed = |log: String| CudaError::Compile { kernel: name.into(), arch: arch.into(), log };
        let c = |s: &str| CString::new(s).map_err(|_| failed("a zero byte in the source".into()));
        let (text, c_name) = (c(&self.text())?, c(name)?);
        let program = nvrtc::create_program(&text, Some(&c_name)).map_err(|e| failed(format!("{e:?}")))?;
        let options = [format!("--gpu-architecture={arch}"), "-std=c++17".into(), "-diag-suppress=128,177".into()];
        // SAFETY: the program was created above and is destroyed once, below.
        let outcome = unsafe {
            nvrtc::compile_program(program, &options).map_err(|_| {
                let log = nvrtc::get_program_log(program).unwrap_or_default();
                let log: Vec<u8> = log.into_iter().map(|b| b as u8).take_while(|&b| b != 0).collect();
                failed(String::from_utf8_lossy(&log).trim().replace('\n', " | "))
            })
        };
        // SAFETY: the program is compiled; the buffer has the size it asked for.
        let image = outcome.and_then(|()| unsafe {
            let mut size = 0;
            nvrtc_sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(|e| failed(format!("{e:?}")))?;
            let mut image = vec![0u8; size];
            let code = nvrtc_sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast());
            code.result().map_err(|e| failed(format!("{e:?}")))?;
            Ok(image)
        });
        // SAFETY: created above, destroyed once.
        let _ = unsafe { nvrtc::destroy_program(program) };
        image
    }
}

pub(crate) fn nvrtc_version() -> Result<(i32, i32), CudaError> {
    Library::Nvrtc.load()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded.
    let code = unsafe { nvrtc_sys::nvrtcVersion(&mut major, &mut minor) };
    match code.result() {
        Ok(()) => Ok((major, minor)),
        Err(e) => Err(CudaError::Driver { doing: "ask NVRTC for its version".into(), reason: format!("{e:?}") }),
    }
}

/// Where kernels and timings are kept: `FTPROP_CACHE`, else the user's cache folder; `None` where there is none.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("FTPROP_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|f| f.join("ftprop")))
        .or_else(|| set("HOME").map(|f| f.join(".cache").join("ftprop")))
        .or_else(|| set("LOCALAPPDATA").map(|f| f.join("ftprop")))
}

/// Writes a file aside and renames it, so that another process never reads half of it. A cache that cannot be
/// written costs time only, so failures are passed over.
pub(crate) fn keep(path: &std::path::Path, bytes: &[u8]) {
    let Some(folder) = path.parent() else { return };
    let aside = path.with_extension(format!("{}.{:?}.part", std::process::id(), std::thread::current().id()));
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&aside, bytes))
        .and_then(|()| std::fs::rename(&aside, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&aside);
    }
}

/// FNV-1a of the text, then scattered.
pub(crate) fn hash(text: &str, salt: u64) -> u64 {
    let fnv = text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ salt, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    ftprop_tensor::random::mix(fnv)
}

/// A loaded module's kernels, in the order the file lists them.
#[derive(Clone)]
pub(crate) struct Kernels {
    module: Arc<Module>,
}

struct Module {
    raw: CUmodule,
    functions: Vec<CUfunction>,
}

// SAFETY: module and function handles may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Kernels {
    /// Loads machine code into the current context, where it stays as long as the context does.
    pub(crate) fn load(source: &Source, image: &[u8]) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        let name = source.file.name();
        // SAFETY: the image is a whole cubin that NVRTC wrote.
        check(unsafe { sys::cuModuleLoadData(&mut raw, image.as_ptr().cast()) }, || format!("load {name}"))?;
        let mut functions = Vec::new();
        for entry in source.file.entries() {
            let mut function = std::ptr::null_mut();
            let c_entry = CString::new(*entry).expect("no zero byte in a kernel's name");
            // SAFETY: the module was just loaded.
            check(unsafe { sys::cuModuleGetFunction(&mut function, raw, c_entry.as_ptr()) }, || {
                format!("find kernel {entry} in {name}")
            })?;
            // Now, not at its first launch: loading waits until the whole GPU is idle. Where it fails, that launch will.
            // SAFETY: the function was just found.
            let _ = unsafe { sys::cuFuncLoad(function) };
            functions.push(function);
        }
        Ok(Kernels { module: Arc::new(Module { raw, functions }) })
    }

    pub(crate) fn function(&self, number: usize) -> CUfunction {
        debug_assert!(!self.module.raw.is_null());
        self.module.functions[number]
    }

    /// Lets a kernel use that much shared memory.
    pub(crate) fn allow_shared(&self, number: usize, bytes: usize) -> Result<(), CudaError> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function belongs to a loaded module.
        check(unsafe { sys::cuFuncSetAttribute(self.function(number), attribute, bytes as i32) }, || {
            format!("give a kernel {bytes} bytes of shared memory")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_holds_the_numbers_and_the_precision_and_so_does_the_key() {
        let source = Source::new(File::Gemm, Precision::Tf32).int("BM", 64).float("EPS", 1e-8);
        let text = source.text();
        assert!(text.starts_with("#define PRECISION PRECISION_TF32\n") && text.contains("#define BM 64\n"));
        assert!(text.contains("#define EPS 1e-8f\n"));
        assert_ne!(hash(&text, 1), hash(&text, 2));
        assert_ne!(hash(&text, 1), hash(&source.clone().int("BN", 64).text(), 1));
    }

    #[test]
    fn every_entry_stands_in_its_file() {
        let files = [
            File::Gemm,
            File::PatchForward,
            File::PatchGradient,
            File::PatchBackward,
            File::Epilogue,
            File::EpilogueCooperative,
            File::Norm,
            File::AveragePool,
            File::OutputLoss,
            File::Optimizer,
            File::Basic,
        ];
        for file in files {
            for entry in file.entries() {
                assert!(file.text().contains(&format!("{entry}(")), "{entry} in {}", file.name());
            }
        }
    }
}
