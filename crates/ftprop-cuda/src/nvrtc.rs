//! NVRTC, the run-time compiler, by a handle of our own: of several that are installed it takes the newest whose code the
//! driver can load, and the folders that the user names come first. cudarc would take whichever the system finds.

use crate::environment::{self, tries};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Its files, the newest first.
pub(crate) const FILES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
};

type Program = *mut c_void;
type Sized = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// The compiler, loaded for good.
pub(crate) struct Nvrtc {
    /// Major and minor.
    pub(crate) version: (i32, i32),
    /// The compute capabilities that it has machine code for, such as 90.
    architectures: Vec<i32>,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    log: (Sized, Text),
    cubin: (Sized, Text),
    ptx: (Sized, Text),
}

/// Why there is no compiler.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missing {
    Nothing,
    /// Something of its name that lacks this function.
    Without(&'static str),
}

/// What a GPU's code is compiled to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Machine code, for `sm_90` and the like.
    Machine(String),
    /// PTX of an older architecture, from which the driver makes machine code for a GPU that the compiler does not know.
    Ptx(String),
}

impl Target {
    /// As the compiler is told.
    pub(crate) fn architecture(&self) -> &str {
        match self {
            Target::Machine(name) | Target::Ptx(name) => name,
        }
    }
}

impl Nvrtc {
    /// The compiler, loaded at the first call; the answer stays the same for the life of the process.
    pub(crate) fn get() -> Result<&'static Nvrtc, Missing> {
        static FOUND: OnceLock<Result<Nvrtc, Missing>> = OnceLock::new();
        FOUND.get_or_init(find).as_ref().map_err(|missing| *missing)
    }

    /// What to compile to for a GPU of that compute capability.
    pub(crate) fn target(&self, (major, minor): (u32, u32)) -> Target {
        match target(&self.architectures, (10 * major + minor) as i32) {
            // For the GPU in software, which knows what of these has only one architecture.
            Target::Ptx(name) if name == "compute_90" && tries("warpgroups") => Target::Ptx("compute_90a".into()),
            target => target,
        }
    }

    /// Compiles a text, or gives what the compiler said about it.
    pub(crate) fn compile(&self, name: &str, text: &str, target: &Target, options: &[&str]) -> Result<Vec<u8>, String> {
        let c = |s: &str| CString::new(s).map_err(|_| "a zero byte in the source".to_string());
        let (text, name) = (c(text)?, c(name)?);
        let architecture = format!("--gpu-architecture={}", target.architecture());
        let options: Vec<CString> =
            options.iter().copied().chain([&architecture[..]]).map(c).collect::<Result<_, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let (mut program, nothing) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: the texts outlive the calls; the program is made before it is used and destroyed once, below.
        let image = unsafe {
            said((self.create)(&mut program, text.as_ptr(), name.as_ptr(), 0, nothing, nothing), "create a program")?;
            let compiled = (self.compile)(program, options.len() as c_int, options.as_ptr());
            let image = match (compiled, target) {
                (0, Target::Machine(_)) => {
                    // Such as that products which could run beside others are run one by one.
                    let said = log_of(read(program, self.log).unwrap_or_default());
                    if tries("tell") && !said.is_empty() {
                        eprintln!("{}: {said}", name.to_string_lossy());
                    }
                    read(program, self.cubin)
                }
                (0, Target::Ptx(_)) => read(program, self.ptx),
                _ => Err(log_of(read(program, self.log).unwrap_or_default())),
            };
            (self.destroy)(&mut program);
            image
        };
        image.and_then(|image| if image.is_empty() { Err("it gave no code".into()) } else { Ok(image) })
    }
}

fn log_of(bytes: Vec<u8>) -> String {
    let text: Vec<u8> = bytes.into_iter().take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&text).trim().replace('\n', " | ")
}

fn said(code: c_int, doing: &str) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("it could not {doing}: error {code}")) }
}

/// # Safety
/// The program lives, and the two functions are a size and what has it.
unsafe fn read(program: Program, (size, text): (Sized, Text)) -> Result<Vec<u8>, String> {
    let mut bytes = 0;
    // SAFETY: the caller's promise; the buffer has the size that was asked for.
    unsafe {
        said(size(program, &mut bytes), "say how long its answer is")?;
        let mut buffer = vec![0u8; bytes];
        said(text(program, buffer.as_mut_ptr().cast()), "give its answer")?;
        Ok(buffer)
    }
}

/// Machine code where the compiler knows the GPU, else PTX of the newest that it knows below it.
fn target(known: &[i32], capability: i32) -> Target {
    // A compiler that does not say what it knows is taken at its word when it is asked.
    if known.is_empty() || known.contains(&capability) {
        // With what only this architecture has (warpgroup.cuh): its code runs nowhere else, but is made where it runs.
        let own = if capability == 90 { "a" } else { "" };
        return Target::Machine(format!("sm_{capability}{own}"));
    }
    match known.iter().copied().filter(|&one| one < capability).max() {
        Some(older) => Target::Ptx(format!("compute_{older}")),
        None => Target::Machine(format!("sm_{capability}")),
    }
}

/// The first that the driver can follow; if there is none, the first.
fn find() -> Result<Nvrtc, Missing> {
    let driver = driver_major();
    let (mut spare, mut missing) = (None, Missing::Nothing);
    for path in environment::library_paths(FILES) {
        match open(&path) {
            Some(Ok(found)) if driver.is_none_or(|driver| found.version.0 <= driver) => return Ok(found),
            Some(Ok(found)) => spare = spare.or(Some(found)),
            Some(Err(function)) => missing = Missing::Without(function),
            None => {}
        }
    }
    spare.ok_or(missing)
}

/// The compiler in a file: none where there is none, or the name of a function that it lacks.
fn open(path: &Path) -> Option<Result<Nvrtc, &'static str>> {
    // SAFETY: the library's initialisers have no requirements of their own.
    let library = unsafe { libloading::Library::new(path) }.ok()?;
    // Loaded for good: what it gives out points into it.
    let library: &'static libloading::Library = Box::leak(Box::new(library));
    Some(bind(library))
}

fn bind(library: &'static libloading::Library) -> Result<Nvrtc, &'static str> {
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the function has the type that NVRTC's header gives it, which is that of the place it goes to.
            unsafe { library.get($name.as_bytes()) }.map(|f| *f).map_err(|_| $name)?
        };
    }
    let version_of: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int = function!("nvrtcVersion");
    let count_of: unsafe extern "C" fn(*mut c_int) -> c_int = function!("nvrtcGetNumSupportedArchs");
    let architectures_of: unsafe extern "C" fn(*mut c_int) -> c_int = function!("nvrtcGetSupportedArchs");
    let (mut major, mut minor, mut count) = (0, 0, 0);
    // SAFETY: each writes what there is a place for.
    let architectures = unsafe {
        version_of(&mut major, &mut minor);
        count_of(&mut count);
        let mut all = vec![0; count.max(0) as usize];
        architectures_of(all.as_mut_ptr());
        all
    };
    Ok(Nvrtc {
        version: (major, minor),
        architectures,
        create: function!("nvrtcCreateProgram"),
        compile: function!("nvrtcCompileProgram"),
        destroy: function!("nvrtcDestroyProgram"),
        log: (function!("nvrtcGetProgramLogSize"), function!("nvrtcGetProgramLog")),
        cubin: (function!("nvrtcGetCUBINSize"), function!("nvrtcGetCUBIN")),
        ptx: (function!("nvrtcGetPTXSize"), function!("nvrtcGetPTX")),
    })
}

/// The major version of the newest CUDA that the driver can run, where there is a driver.
fn driver_major() -> Option<i32> {
    let files: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };
    let mut number = 0;
    let paths: Vec<PathBuf> = environment::library_paths(files);
    // SAFETY: the driver's initialisers have no requirements of their own, and the function has this type in every version.
    unsafe {
        let library = paths.iter().find_map(|path| libloading::Library::new(path).ok())?;
        let version: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> =
            library.get(c"cuDriverGetVersion".to_bytes_with_nul()).ok()?;
        let code = version(&mut number);
        std::mem::forget(library);
        (code == 0).then_some(number / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn a_gpu_newer_than_the_compiler_gets_ptx_of_the_newest_that_it_knows() {
        let known = [75, 80, 86, 89, 90, 100];
        assert_eq!(target(&known, 90), Target::Machine("sm_90a".into()));
        assert_eq!(target(&known, 89), Target::Machine("sm_89".into()));
        assert_eq!(target(&known, 103), Target::Ptx("compute_100".into()));
        assert_eq!(target(&known, 87), Target::Ptx("compute_86".into()));
        assert_eq!(target(&known, 120), Target::Ptx("compute_100".into()));
        assert_eq!(target(&[], 120), Target::Machine("sm_120".into()));
    }

    #[test]
    fn both_kinds_of_code_come_out_and_mistakes_are_told() {
        let Ok(nvrtc) = Nvrtc::get() else {
            println!("skipped: no NVRTC");
            return;
        };
        assert!(nvrtc.version.0 >= 12 && nvrtc.architectures.contains(&90), "{:?}", nvrtc.architectures);
        let text = "extern \"C\" __global__ void f(int* x) { *x = 1; }";
        let machine = nvrtc.compile("f.cu", text, &nvrtc.target((9, 0)), &["-std=c++17"]).unwrap();
        assert!(machine.starts_with(b"\x7fELF"));
        let newer = nvrtc.target((99, 0));
        let ptx = nvrtc.compile("f.cu", text, &newer, &["-std=c++17"]).unwrap();
        let ptx = CStr::from_bytes_with_nul(&ptx).unwrap().to_str().unwrap();
        assert!(matches!(newer, Target::Ptx(_)) && ptx.contains(".entry f"), "{ptx}");
        let wrong = nvrtc.compile("f.cu", "int f(", &nvrtc.target((9, 0)), &[]).unwrap_err();
        assert!(wrong.contains("f.cu") && !wrong.contains('\n'), "{wrong}");
    }
}
