//! From the text of kernels to machine code: assembled with the numbers of one layer, compiled by NVRTC at first use, and kept on
//! disk. The key of a kept kernel is its whole text, the compiler's options, with the GPU's architecture, and its version.

use crate::CudaError;
use crate::abi;
use crate::cache::{cache_folder, hash, keep_image, kept_image};
use crate::environment::tries;
use crate::library::Library;
use crate::nvrtc::{Nvrtc, Target};
use crate::precision::Precision;
use ftprop_nn::trace::called_functions;
use std::fmt::{self, Write as _};
use std::path::PathBuf;

macro_rules! headers {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../kernels/", $name)))),*] };
}

/// What files of kernels include, each once, before which it may stand.
const HEADERS: [(&str, &str); 14] = headers!(
    "common.cuh",
    "warpgroup.cuh",
    "shifted.cuh",
    "shifted_streamed.cuh",
    "shifted_tiles.cuh",
    "shifted_kept.cuh",
    "shifted_held.cuh",
    "sample.cuh",
    "order.cuh",
    "logits.cuh",
    "column_reduction.cuh",
    "epilogue.cuh",
    "epilogue.cu",
    "pictures.cuh"
);
/// The header that the host writes.
const FORMULAS: &str = "formulas.cuh";

/// A file of kernels; the module that compiles it has it as a constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KernelFile {
    /// In `kernels`.
    pub(crate) name: &'static str,
    /// As it is, with what it includes by name.
    pub(crate) text: &'static str,
}

impl fmt::Debug for KernelFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A file of kernels with the numbers that it is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Source {
    file: KernelFile,
    precision: Precision,
    macros: String,
    functions: String,
}

impl Source {
    pub(crate) fn file(&self) -> KernelFile {
        self.file
    }

    pub(crate) fn new(file: KernelFile, precision: Precision) -> Self {
        Source { file, precision, macros: String::new(), functions: String::new() }
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

    /// Adds functions that the file calls.
    pub(crate) fn functions(mut self, text: &str) -> Self {
        self.functions += text;
        self
    }

    fn text(&self) -> String {
        let precision = match self.precision {
            Precision::F32 => "PRECISION_F32",
            Precision::Tf32 => "PRECISION_TF32",
            Precision::Bf16 => "PRECISION_BF16",
        };
        let sizes: String = abi::SIZES.iter().map(|(name, bytes)| format!("#define {name} {bytes}\n")).collect();
        let exact = if self.precision == Precision::F32 { called_functions() } else { String::new() };
        let mut text = format!("#define PRECISION {precision}\n{sizes}{}", self.macros);
        let formulas = format!("#include \"common.cuh\"\n{exact}{}\n", self.functions);
        include(self.file.name, self.file.text, &formulas, &mut Vec::new(), &mut text);
        text
    }

    /// The code for a GPU of that compute capability, from the folder of kept kernels or from the compiler.
    pub(crate) fn image(&self, capability: (u32, u32)) -> Result<Vec<u8>, CudaError> {
        let nvrtc = compiler()?;
        let target = nvrtc.target(capability);
        let kept = self.kept_at(nvrtc, &target);
        if let Some(image) = kept.as_ref().and_then(|path| kept_image(path)) {
            return Ok(image);
        }
        self.compiled_and_kept(nvrtc, &target, kept)
    }

    /// The same from the compiler, whatever was kept.
    pub(crate) fn compile_again(&self, capability: (u32, u32)) -> Result<Vec<u8>, CudaError> {
        let nvrtc = compiler()?;
        let target = nvrtc.target(capability);
        self.compiled_and_kept(nvrtc, &target, self.kept_at(nvrtc, &target))
    }

    /// Where it is kept, if anything is.
    fn kept_at(&self, nvrtc: &Nvrtc, target: &Target) -> Option<PathBuf> {
        let (text, (major, minor)) = (self.text(), nvrtc.version);
        let key = format!("{} {} nvrtc {major}.{minor}\n{text}", target.architecture(), self.options().join(" "));
        let file = format!("{:016x}{:016x}.cubin", hash(&key, 1), hash(&key, 2));
        cache_folder().map(|folder| folder.join("kernels").join(file))
    }

    fn compiled_and_kept(&self, nvrtc: &Nvrtc, target: &Target, at: Option<PathBuf>) -> Result<Vec<u8>, CudaError> {
        let image = self.compiled(nvrtc, target)?;
        if let Some(path) = at {
            keep_image(&path, &image);
        }
        Ok(image)
    }

    /// The code from the compiler.
    #[cfg(test)]
    pub(crate) fn compile(&self, capability: (u32, u32)) -> Result<Vec<u8>, CudaError> {
        let nvrtc = compiler()?;
        self.compiled(nvrtc, &nvrtc.target(capability))
    }

    /// What the compiler is told beside the text and the architecture. Where numbers are rounded to tf32 or bf16 anyway, a
    /// quotient may be off by two units in its last place and what is below 10⁻³⁸ be zero, for half of the instructions.
    fn options(&self) -> Vec<&'static str> {
        let mut options = vec!["-std=c++17", "-diag-suppress=128,177"];
        if self.precision != Precision::F32 {
            options.extend(["-prec-div=false", "-ftz=true"]);
        }
        // For profilers: which line an instruction is of.
        if tries("lineinfo") {
            options.push("-lineinfo");
        }
        options
    }

    fn compiled(&self, nvrtc: &Nvrtc, target: &Target) -> Result<Vec<u8>, CudaError> {
        let (kernel, arch) = (self.file.name.to_string(), target.architecture().to_string());
        nvrtc.compile(self.file.name, &self.text(), target, &self.options()).map_err(|log| CudaError::Compile {
            kernel,
            arch,
            log,
        })
    }
}

/// Writes a file down with what it includes in place, each file once. What tools are told by a compiler stays true: lines
/// have the numbers and the names that they have in their files.
fn include(name: &str, text: &str, formulas: &str, known: &mut Vec<String>, to: &mut String) {
    let _ = writeln!(to, "#line 1 \"{name}\"");
    for (number, line) in text.lines().enumerate() {
        let included = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        let Some(header) = included else {
            // Each file is here once anyway.
            let _ = writeln!(to, "{}", if line == "#pragma once" { "" } else { line });
            continue;
        };
        if known.iter().any(|one| one == header) {
            let _ = writeln!(to);
            continue;
        }
        known.push(header.into());
        let text = match HEADERS.iter().find(|(name, _)| *name == header) {
            Some((_, text)) => text,
            None if header == FORMULAS => formulas,
            None => panic!("{name} includes {header}, which is none of the headers"),
        };
        include(header, text, formulas, known, to);
        let _ = writeln!(to, "#line {} \"{name}\"", number + 2);
    }
}

fn compiler() -> Result<&'static Nvrtc, CudaError> {
    Library::Nvrtc.load()?;
    Ok(Nvrtc::get().unwrap_or_else(|_| unreachable!("it was loaded above")))
}

/// Whether kernels for GPUs of that compute capability can have what `warpgroup.cuh` is about.
pub(crate) fn has_warpgroups(capability: (u32, u32)) -> bool {
    compiler().is_ok_and(|nvrtc| nvrtc.target(capability).architecture().ends_with("90a"))
}

pub(crate) fn nvrtc_version() -> Result<(i32, i32), CudaError> {
    Ok(compiler()?.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_kernels_opens_by_itself() {
        if let Err(why) = Library::Nvrtc.load() {
            println!("skipped: {why}");
            return;
        }
        let (folder, nvrtc) = (std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"), compiler().unwrap());
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let (name, text) = (path.file_name().unwrap().to_str().unwrap(), std::fs::read_to_string(&path).unwrap());
            if !name.ends_with(".cu") {
                continue;
            }
            let formulas = std::fs::read_to_string(folder.join(FORMULAS)).unwrap();
            let mut whole = String::new();
            include(name, &text, &formulas, &mut Vec::new(), &mut whole);
            let image = nvrtc.compile(name, &whole, &nvrtc.target((9, 0)), &["-std=c++17", "-lineinfo"]);
            assert!(image.unwrap_or_else(|log| panic!("{name}: {log}")).starts_with(b"\x7fELF"));
        }
    }

    #[test]
    fn what_a_file_includes_is_there_once_with_its_own_lines() {
        let mut text = String::new();
        let file = "// Some.\n#include \"order.cuh\"\n#include \"formulas.cuh\"\nint last;\n";
        include("any.cu", file, "#include \"common.cuh\"\nint formula;\n", &mut Vec::new(), &mut text);
        assert_eq!(text.matches("u64 shuffled(").count(), 1);
        assert_eq!(text.matches("struct DeviceTally {").count(), 1);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}"));
        assert!(at("struct DeviceTally") < at("u64 shuffled(") && at("u64 shuffled(") < at("int formula;"));
        assert!(text.ends_with("#line 4 \"any.cu\"\nint last;\n"), "{}", &text[text.len() - 60..]);
    }

    #[test]
    fn the_text_holds_the_numbers_and_the_precision_and_so_does_the_key() {
        let file = KernelFile { name: "any.cu", text: "" };
        let source = Source::new(file, Precision::Tf32).int("BM", 64).float("EPS", 1e-8);
        let text = source.text();
        assert!(text.starts_with("#define PRECISION PRECISION_TF32\n") && text.contains("#define BM 64\n"));
        assert!(text.contains("#define EPS 1e-8f\n"));
        assert_ne!(hash(&text, 1), hash(&text, 2));
        assert_ne!(hash(&text, 1), hash(source.clone().int("BN", 64).text(), 1));
    }
}
