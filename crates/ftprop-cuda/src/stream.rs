//! Streams, events, captured graphs, and launching kernels into them.

use crate::CudaError;
use crate::compile::Kernels;
use crate::device::Device;
use crate::memory::{Pod, check};
use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUgraphExec, CUstream};
use std::ffi::c_void;

/// A queue of work on the device.
pub(crate) struct CudaStream {
    device: Device,
    raw: CUstream,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for CudaStream {}

impl CudaStream {
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        device.enter()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: this thread has a context.
        check(unsafe { sys::cuStreamCreate(&mut raw, flags) }, || "make a stream".into())?;
        Ok(CudaStream { device: device.clone(), raw })
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits until everything in it is done.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.device.enter()?;
        // SAFETY: the stream lives as long as `self`.
        check(unsafe { sys::cuStreamSynchronize(self.raw) }, || "wait for the GPU".into())
    }

    pub(crate) fn record(&self, event: &CudaEvent) -> Result<(), CudaError> {
        // SAFETY: both belong to this device.
        check(unsafe { sys::cuEventRecord(event.raw, self.raw) }, || "record an event".into())
    }

    pub(crate) fn wait_for(&self, event: &CudaEvent) -> Result<(), CudaError> {
        // SAFETY: both belong to this device.
        check(unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) }, || "wait for an event".into())
    }

    /// Milliseconds that the stream is busy with what `work` puts into it.
    pub(crate) fn time(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<f32, CudaError> {
        let (start, end) = (CudaEvent::new(&self.device)?, CudaEvent::new(&self.device)?);
        self.record(&start)?;
        work()?;
        self.record(&end)?;
        end.wait()?;
        end.since(&start)
    }

    /// Records what `work` puts into this stream instead of running it.
    pub(crate) fn capture(&self, work: impl FnOnce() -> Result<(), CudaError>) -> Result<CudaGraph, CudaError> {
        self.device.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`.
        check(unsafe { sys::cuStreamBeginCapture_v2(self.raw, mode) }, || "begin to capture a step".into())?;
        let outcome = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the capture began above.
        let ended = check(unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) }, || "capture a step".into());
        let mut raw = std::ptr::null_mut();
        let made = outcome.and(ended).and_then(|()| {
            // SAFETY: the graph was just captured.
            check(unsafe { sys::cuGraphInstantiateWithFlags(&mut raw, graph, 0) }, || "prepare a step".into())
        });
        if !graph.is_null() {
            // SAFETY: made above, destroyed once, when it is no longer needed.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
        made?;
        Ok(CudaGraph { device: self.device.clone(), raw })
    }

    /// Copies host bytes to the device in order with the stream. Pageable memory is read before this returns.
    ///
    /// # Safety
    /// PinnedBuffer memory must not change until the copy is done.
    pub(crate) unsafe fn copy_in<T>(&self, to: CUdeviceptr, from: &[T]) -> Result<(), CudaError> {
        // SAFETY: the caller's device buffer has room, and its promise covers the host side.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), size_of_val(from), self.raw) };
        check(code, || "copy to the GPU".into())
    }

    /// Waits for everything in the stream and copies device bytes to the host.
    pub(crate) fn copy_out<T: Pod>(&self, from: CUdeviceptr, to: &mut [T]) -> Result<(), CudaError> {
        self.device.enter()?;
        // SAFETY: callers pass a part of one of their buffers; the host's side is borrowed until the copy is done.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, size_of_val(to), self.raw) };
        check(code, || "copy from the GPU".into())?;
        self.wait()
    }

    pub(crate) fn clear(&self, at: CUdeviceptr, bytes: usize) -> Result<(), CudaError> {
        // SAFETY: callers pass a part of one of their buffers.
        check(unsafe { sys::cuMemsetD8Async(at, 0, bytes, self.raw) }, || "clear memory".into())
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: made in `new`, destroyed once.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A point in a stream.
pub(crate) struct CudaEvent {
    device: Device,
    raw: CUevent,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for CudaEvent {}

impl CudaEvent {
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: this thread has a context.
        check(unsafe { sys::cuEventCreate(&mut raw, 0) }, || "make an event".into())?;
        Ok(CudaEvent { device: device.clone(), raw })
    }

    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.device.enter()?;
        // SAFETY: the event lives as long as `self`.
        check(unsafe { sys::cuEventSynchronize(self.raw) }, || "wait for the GPU".into())
    }

    /// Milliseconds from an earlier event to this one; both must have happened.
    pub(crate) fn since(&self, earlier: &CudaEvent) -> Result<f32, CudaError> {
        let mut ms = 0.0;
        // SAFETY: both events live.
        check(unsafe { sys::cuEventElapsedTime_v2(&mut ms, earlier.raw, self.raw) }, || "time the GPU".into())?;
        Ok(ms)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: made in `new`, destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

/// A second queue, for what goes on beside the first.
pub(crate) struct SideStream {
    pub(crate) stream: CudaStream,
    forked: CudaEvent,
    joined: CudaEvent,
}

impl SideStream {
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        Ok(SideStream {
            stream: CudaStream::new(device)?,
            forked: CudaEvent::new(device)?,
            joined: CudaEvent::new(device)?,
        })
    }

    /// What is put here from now on waits for what is in the first queue by now.
    pub(crate) fn follow(&self, first: &CudaStream) -> Result<(), CudaError> {
        first.record(&self.forked)?;
        self.stream.wait_for(&self.forked)
    }

    /// What is put into the first queue from now on waits for what is here by now.
    pub(crate) fn lead(&self, first: &CudaStream) -> Result<(), CudaError> {
        self.stream.record(&self.joined)?;
        first.wait_for(&self.joined)
    }
}

/// A captured piece of work.
pub(crate) struct CudaGraph {
    device: Device,
    raw: CUgraphExec,
}

// SAFETY: a graph may be launched from any thread, one at a time, which `&self` of its single owner keeps to.
unsafe impl Send for CudaGraph {}

impl CudaGraph {
    /// Puts everything it needs on the device without running it.
    pub(crate) fn upload(&self, stream: &CudaStream) -> Result<(), CudaError> {
        // SAFETY: both live, on the same device.
        check(unsafe { sys::cuGraphUpload(self.raw, stream.raw) }, || "prepare a step".into())
    }

    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), CudaError> {
        // SAFETY: both live, on the same device.
        check(unsafe { sys::cuGraphLaunch(self.raw, stream.raw) }, || "start a step".into())
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: made in `capture`, destroyed once.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

/// A kernel's arguments, in order.
#[derive(Default)]
pub(crate) struct Args {
    slots: Vec<[u64; 6]>,
}

impl Args {
    /// As the driver takes them; they point into `self`.
    fn pointers(&self) -> Vec<*mut c_void> {
        self.slots.iter().map(|s| s.as_ptr().cast_mut().cast()).collect()
    }

    fn push(mut self, value: &[u64]) -> Self {
        let mut slot = [0; 6];
        slot[..value.len()].copy_from_slice(value);
        self.slots.push(slot);
        self
    }

    pub(crate) fn ptr(self, address: CUdeviceptr) -> Self {
        self.push(&[address])
    }

    /// A struct of addresses, of up to six.
    pub(crate) fn ptrs(self, addresses: &[CUdeviceptr]) -> Self {
        self.push(addresses)
    }

    pub(crate) fn int(self, value: usize) -> Self {
        self.push(&[value as u64])
    }

    pub(crate) fn double(self, value: f64) -> Self {
        self.push(&[value.to_bits()])
    }
}

/// How a kernel is spread over the device.
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

impl CudaStream {
    /// Puts a kernel into the stream.
    ///
    /// # Safety
    /// The arguments are the kernel's own, in order, and what they point to is large enough.
    pub(crate) unsafe fn launch(
        &self,
        kernels: &Kernels,
        number: usize,
        spread: LaunchConfig,
        args: &Args,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.start(kernels, number, spread, args, false) }
    }

    /// Puts a kernel into the stream whose blocks wait for each other: they all run at once, or it fails.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    pub(crate) unsafe fn launch_together(
        &self,
        kernels: &Kernels,
        number: usize,
        spread: LaunchConfig,
        args: &Args,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        unsafe { self.start(kernels, number, spread, args, true) }
    }

    /// # Safety
    /// As for [`launch`](Self::launch).
    unsafe fn start(
        &self,
        kernels: &Kernels,
        number: usize,
        LaunchConfig { grid: (x, y, z), threads, shared }: LaunchConfig,
        args: &Args,
        together: bool,
    ) -> Result<(), CudaError> {
        let (function, stream, mut pointers) = (kernels.function(number), self.raw, args.pointers());
        let (args, nothing) = (pointers.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the caller's promise; the pointers outlive the call.
        let code = unsafe {
            match together {
                true => sys::cuLaunchCooperativeKernel(function, x, y, z, threads, 1, 1, shared, stream, args),
                false => sys::cuLaunchKernel(function, x, y, z, threads, 1, 1, shared, stream, args, nothing),
            }
        };
        check(code, || "start a kernel".into())
    }
}
