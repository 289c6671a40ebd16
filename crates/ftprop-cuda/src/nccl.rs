//! NCCL: sums over several GPUs.
//!
//! Its few functions are looked up here and not by cudarc, which looks for `libnccl.so` alone, a name that only its
//! development package has.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::device::Device;
use crate::library;
use crate::stream::CudaStream;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const NAMES: &[&str] = &["libnccl.so.2", "libnccl.so"];
/// The oldest that can be captured into a graph together with our streams.
const OLDEST: i32 = 21_800;

/// What all ranks of a communicator are given by the first.
#[derive(Clone, Copy)]
#[repr(C)]
struct UniqueId([c_char; UNIQUE_ID]);

/// Bytes of what the first rank sends to the others.
const UNIQUE_ID: usize = 128;

type RawCommunicator = *mut c_void;

/// `ncclFloat32` and `ncclFloat64`
const FLOAT: c_int = 7;
const DOUBLE: c_int = 8;
/// `ncclSum` and `ncclAvg`
const SUM: c_int = 0;
const MEAN: c_int = 4;

/// The functions that are called.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    init_rank: unsafe extern "C" fn(*mut RawCommunicator, c_int, UniqueId, c_int) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, RawCommunicator, *mut c_void) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    abort: unsafe extern "C" fn(RawCommunicator) -> c_int,
    destroy: unsafe extern "C" fn(RawCommunicator) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: unsafe extern "C" fn(RawCommunicator) -> *const c_char,
    /// Keeps them in the process.
    _library: libloading::Library,
}

impl Functions {
    fn load() -> Result<Self, CudaError> {
        let Some(library) = library::open(NAMES) else {
            return Err(CudaError::Library {
                library: "NCCL",
                purpose: "it sums over several GPUs",
                names: NAMES.join(", "),
                places: library::places(),
            });
        };
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: these are the signatures of NCCL 2, which has not changed them.
                match unsafe { library.get($name) } {
                    Ok(function) => *function,
                    Err(_) => {
                        let function = $name.trim_ascii_end();
                        let function = std::str::from_utf8(function).unwrap_or_default().trim_end_matches('\0');
                        return Err(CudaError::StrangeLibrary { library: "NCCL", function });
                    }
                }
            };
        }
        Ok(Functions {
            version: function!(b"ncclGetVersion\0"),
            unique_id: function!(b"ncclGetUniqueId\0"),
            init_rank: function!(b"ncclCommInitRank\0"),
            all_reduce: function!(b"ncclAllReduce\0"),
            group_start: function!(b"ncclGroupStart\0"),
            group_end: function!(b"ncclGroupEnd\0"),
            abort: function!(b"ncclCommAbort\0"),
            destroy: function!(b"ncclCommDestroy\0"),
            error_string: function!(b"ncclGetErrorString\0"),
            last_error: function!(b"ncclGetLastError\0"),
            _library: library,
        })
    }

    /// The library, looked for once.
    fn get() -> Result<&'static Functions, CudaError> {
        static LOADED: OnceLock<Functions> = OnceLock::new();
        if let Some(functions) = LOADED.get() {
            return Ok(functions);
        }
        let functions = Functions::load()?;
        let functions = LOADED.get_or_init(|| functions);
        let version = functions.version()?;
        if version < OLDEST {
            let reason = format!("it is {}, and {} is needed", readable(version), readable(OLDEST));
            return Err(CudaError::Nccl { doing: "be used", reason });
        }
        Ok(functions)
    }

    fn version(&self) -> Result<i32, CudaError> {
        let mut version = 0;
        // SAFETY: it writes one number.
        self.check(unsafe { (self.version)(&mut version) }, "tell its version")?;
        Ok(version)
    }

    fn check(&self, code: c_int, doing: &'static str) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let text = |text: *const c_char| {
            // SAFETY: NCCL's texts end with a zero and stay where they are.
            if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
        };
        // SAFETY: any number is a code, and no communicator means the last error of all.
        let (reason, last) =
            unsafe { (text((self.error_string)(code)), text((self.last_error)(std::ptr::null_mut()))) };
        let last = last.lines().next().unwrap_or_default().trim().to_string();
        let reason = if last.is_empty() { reason } else { format!("{reason} ({last})") };
        Err(CudaError::Nccl { doing, reason })
    }
}

/// NCCL's version in words, where it is installed.
pub fn nccl_version() -> Result<String, CudaError> {
    Functions::get()?.version().map(readable)
}

fn readable(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// What the first of several ranks makes and sends to the others.
pub fn nccl_id() -> Result<Vec<u8>, CudaError> {
    let functions = Functions::get()?;
    let mut id = UniqueId([0; UNIQUE_ID]);
    // SAFETY: it writes so many bytes.
    functions.check(unsafe { (functions.unique_id)(&mut id) }, "begin a communicator")?;
    Ok(id.0.iter().map(|&byte| byte as u8).collect())
}

/// GPUs that sum together, one a rank.
pub struct Communicator {
    raw: Arc<Raw>,
    device: Device,
}

/// The communicator itself, which another thread may end.
struct Raw {
    functions: &'static Functions,
    raw: RawCommunicator,
    ended: AtomicBool,
}

// SAFETY: NCCL's communicators may be used from any thread, one call at a time but for ending them, which is made once.
unsafe impl Send for Raw {}
// SAFETY: as above; shared access is only to end it.
unsafe impl Sync for Raw {}

/// Ends a communicator from another thread, so that nobody waits for a rank that is gone.
pub struct Breaker(Arc<Raw>);

impl Breaker {
    /// Has everything that waits in the communicator give up; what it computed is of no use then.
    pub fn end(&self) {
        if !self.0.ended.swap(true, Ordering::Relaxed) {
            // SAFETY: made in `new`, ended once.
            let _ = unsafe { (self.0.functions.abort)(self.0.raw) };
        }
    }
}

impl Communicator {
    /// Joins rank `rank` of `ranks`, which all are given the first one's [`nccl_id`]. Waits for all of them.
    pub fn new(device: &Device, id: &[u8], rank: usize, ranks: usize) -> Result<Self, CudaError> {
        let functions = Functions::get()?;
        device.enter()?;
        let mut unique = UniqueId([0; UNIQUE_ID]);
        if id.len() != UNIQUE_ID {
            let reason = format!("its beginning has {} bytes, not {UNIQUE_ID}", id.len());
            return Err(CudaError::Nccl { doing: "join a communicator", reason });
        }
        unique.0.iter_mut().zip(id).for_each(|(to, &from)| *to = from as c_char);
        let mut raw = std::ptr::null_mut();
        // SAFETY: this thread has the device's context, and `raw` has room for a pointer.
        let code = unsafe { (functions.init_rank)(&mut raw, ranks as c_int, unique, rank as c_int) };
        functions.check(code, "join a communicator")?;
        Ok(Communicator {
            raw: Arc::new(Raw { functions, raw, ended: AtomicBool::new(false) }),
            device: device.clone(),
        })
    }

    /// To be kept by whoever learns first that a rank is gone.
    pub fn breaker(&self) -> Breaker {
        Breaker(self.raw.clone())
    }

    /// Several sums as one.
    pub(crate) fn together(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<(), CudaError> {
        let functions = self.raw.functions;
        // SAFETY: every start has its end, below.
        functions.check(unsafe { (functions.group_start)() }, "begin a sum")?;
        let outcome = work();
        // SAFETY: as above.
        let ended = functions.check(unsafe { (functions.group_end)() }, "sum over the GPUs");
        outcome.and(ended)
    }

    /// Each of `count` numbers becomes its sum over all ranks, or its mean, in order with the stream's work.
    ///
    /// # Safety
    /// There must be so many numbers at `at`, on this communicator's device, for as long as the stream works on them.
    pub(crate) unsafe fn reduce(
        &self,
        at: DevicePtr,
        count: usize,
        mean: bool,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.all_reduce(at, (count, FLOAT), if mean { MEAN } else { SUM }, stream) }
    }

    /// The same sum of f64.
    ///
    /// # Safety
    /// As of [`reduce`](Self::reduce).
    pub(crate) unsafe fn sum_doubles(&self, at: DevicePtr, count: usize, stream: &CudaStream) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.all_reduce(at, (count, DOUBLE), SUM, stream) }
    }

    /// # Safety
    /// As of [`reduce`](Self::reduce), for numbers of that kind.
    unsafe fn all_reduce(
        &self,
        at: DevicePtr,
        (count, kind): (usize, c_int),
        operation: c_int,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        if self.raw.ended.load(Ordering::Relaxed) {
            return Err(CudaError::Nccl { doing: "sum over the GPUs", reason: "another rank is gone".into() });
        }
        self.device.enter()?;
        let functions = self.raw.functions;
        let (data, stream) = (at.as_void(), stream.raw().cast());
        // SAFETY: the caller's promise; the stream is of the same device.
        let code = unsafe { (functions.all_reduce)(data, data, count, kind, operation, self.raw.raw, stream) };
        functions.check(code, "sum over the GPUs")
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if !self.ended.swap(true, Ordering::Relaxed) {
            // SAFETY: made in `Communicator::new`, ended once.
            let _ = unsafe { (self.functions.destroy)(self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_is_found_or_named_with_where_it_was_looked_for() {
        match nccl_version() {
            Ok(version) => assert!(version.starts_with("2."), "{version}"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("NCCL") && !text.contains('\n'), "{text}");
            }
        }
        assert_eq!(readable(22_803), "2.28.3");
    }
}
