//! Compiled kernels as the driver has them.

use crate::CudaError;
use crate::error::check;
use crate::library::driver_function;
use cudarc::driver::sys::{self, CUfunction, CUmodule};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

/// A loaded file of kernels; clones share it. It stays loaded as long as the device's context does.
#[derive(Clone)]
pub(crate) struct Module {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    raw: CUmodule,
    /// Those that were asked for.
    functions: Mutex<HashMap<&'static str, CUfunction>>,
}

// SAFETY: module and function handles may be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Module {
    /// Loads code that NVRTC wrote into the current context; from PTX the driver makes machine code. `name` is for messages.
    pub(crate) fn load(name: &'static str, image: &[u8]) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the image is a whole cubin that NVRTC wrote, or PTX with the zero byte at its end.
        check(unsafe { sys::cuModuleLoadData(&mut raw, image.as_ptr().cast()) }, || format!("load {name}"))?;
        Ok(Module { inner: Arc::new(Inner { name, raw, functions: Mutex::default() }) })
    }

    /// The kernel of that name, ready to run.
    pub(crate) fn function(&self, entry: &'static str) -> Result<CUfunction, CudaError> {
        let mut functions = self.inner.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(entry) {
            return Ok(*function);
        }
        let mut function = std::ptr::null_mut();
        let c_entry = CString::new(entry).expect("no zero byte in a kernel's name");
        // SAFETY: the module is loaded.
        check(unsafe { sys::cuModuleGetFunction(&mut function, self.inner.raw, c_entry.as_ptr()) }, || {
            format!("find kernel {entry} in {}", self.inner.name)
        })?;
        // Now, not at its first launch: loading waits until the whole GPU is idle. Where it fails, that launch will.
        type Load = unsafe extern "C" fn(CUfunction) -> sys::CUresult;
        // SAFETY: the driver's function has this type, where there is one; the kernel was just found.
        unsafe { driver_function::<Load>("cuFuncLoad").map(|load| load(function)) };
        functions.insert(entry, function);
        Ok(function)
    }
}
