//! Kernels as values: each knows its name and what it takes.

use crate::CudaError;
use crate::arguments::Arguments;
use crate::error::check;
use crate::module::Module;
use crate::stream::CudaStream;
use cudarc::driver::sys::{self, CUfunction};
use std::marker::PhantomData;

/// A kernel that takes `A`.
pub(crate) struct Kernel<A> {
    function: CUfunction,
    /// The function belongs to it.
    module: Module,
    arguments: PhantomData<fn(A)>,
}

impl<A> Clone for Kernel<A> {
    fn clone(&self) -> Self {
        Kernel { function: self.function, module: self.module.clone(), arguments: PhantomData }
    }
}

// SAFETY: function handles may be used from any thread.
unsafe impl<A> Send for Kernel<A> {}
// SAFETY: as above.
unsafe impl<A> Sync for Kernel<A> {}

/// How many blocks of how many threads run a kernel, and the bytes of dynamic shared memory that each block has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: (u32, u32, u32),
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

impl LaunchConfig {
    /// Enough blocks of 256 threads for so many items, which the kernel walks over if they are not enough.
    pub(crate) fn for_items(items: usize) -> Self {
        LaunchConfig { grid: (items.div_ceil(256).clamp(1, 4096) as u32, 1, 1), threads: 256, shared: 0 }
    }
}

impl<A: Arguments> Kernel<A> {
    /// The kernel of that name in a module.
    pub(crate) fn find(module: &Module) -> Result<Self, CudaError> {
        Ok(Kernel { function: module.function(A::ENTRY)?, module: module.clone(), arguments: PhantomData })
    }

    /// Lets the kernel use that much dynamic shared memory.
    pub(crate) fn allow_shared(&self, bytes: usize) -> Result<(), CudaError> {
        let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function belongs to a loaded module.
        check(unsafe { sys::cuFuncSetAttribute(self.function, attribute, bytes as i32) }, || {
            format!("give {} {bytes} bytes of shared memory", A::ENTRY)
        })
    }

    /// Puts the kernel into a stream.
    ///
    /// # Safety
    /// What the arguments point to is as large as the kernel, as it was compiled, and this configuration need.
    pub(crate) unsafe fn launch(
        &self,
        stream: &CudaStream,
        LaunchConfig { grid: (x, y, z), threads, shared }: LaunchConfig,
        arguments: &A,
    ) -> Result<(), CudaError> {
        let (mut pointers, nothing) = (arguments.pointers(), std::ptr::null_mut());
        // SAFETY: the caller's promise, and that of `Arguments`; the pointers outlive the call.
        let code = unsafe {
            let arguments = pointers.as_mut_ptr();
            sys::cuLaunchKernel(self.function, x, y, z, threads, 1, 1, shared, stream.raw(), arguments, nothing)
        };
        check(code, || format!("start {}", A::ENTRY))
    }

    /// Puts the kernel into a stream as a cooperative launch: its blocks may wait for each other, since they all run at
    /// once or the launch fails.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub(crate) unsafe fn launch_cooperative(
        &self,
        stream: &CudaStream,
        LaunchConfig { grid: (x, y, z), threads, shared }: LaunchConfig,
        arguments: &A,
    ) -> Result<(), CudaError> {
        let mut pointers = arguments.pointers();
        // SAFETY: the caller's promise, and that of `Arguments`; the pointers outlive the call.
        let code = unsafe {
            let arguments = pointers.as_mut_ptr();
            sys::cuLaunchCooperativeKernel(self.function, x, y, z, threads, 1, 1, shared, stream.raw(), arguments)
        };
        check(code, || format!("start {}", A::ENTRY))
    }
}
