//! Streams, events and captured graphs.

use crate::CudaError;
use crate::device::Device;
use crate::error::check;
use crate::library::driver_function;
use cudarc::driver::sys::{self, CUevent, CUgraphExec, CUstream};

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

    /// One whose blocks come before those of others.
    pub(crate) fn urgent(device: &Device) -> Result<Self, CudaError> {
        device.enter()?;
        let (mut least, mut greatest, mut raw) = (0, 0, std::ptr::null_mut());
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: this thread has a context.
        check(unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }, || "make a stream".into())?;
        // SAFETY: as above.
        let status = unsafe { sys::cuStreamCreateWithPriority(&mut raw, flags, greatest) };
        check(status, || "make a stream".into())?;
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
        type Elapsed = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> sys::CUresult;
        // By its older name, which every driver has.
        // SAFETY: the function has this type.
        let elapsed: Elapsed = unsafe { driver_function("cuEventElapsedTime") }
            .ok_or_else(|| CudaError::driver("time the GPU", sys::CUresult::CUDA_ERROR_NOT_FOUND))?;
        // SAFETY: both events live.
        check(unsafe { elapsed(&mut ms, earlier.raw, self.raw) }, || "time the GPU".into())?;
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

/// A second stream, for what runs beside the first.
pub(crate) struct SideStream {
    stream: CudaStream,
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

    /// The stream, after what is in the first one by now.
    pub(crate) fn fork_from(&self, first: &CudaStream) -> Result<&CudaStream, CudaError> {
        first.record(&self.forked)?;
        self.stream.wait_for(&self.forked)?;
        Ok(&self.stream)
    }

    /// What is put into the first stream from now on waits for what is here by now.
    pub(crate) fn join_into(&self, first: &CudaStream) -> Result<(), CudaError> {
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
