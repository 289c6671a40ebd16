//! Memory on the device and pinned memory on the host.

use crate::CudaError;
use crate::abi::{DevicePtr, Pod};
use crate::device::Device;
use crate::error::{check, readable};
use crate::stream::CudaStream;
use cudarc::driver::sys::{self, CUdeviceptr};
use std::ffi::c_void;

/// A piece of device memory, zero at first, freed when dropped.
pub(crate) struct DeviceBuffer {
    device: Device,
    start: CUdeviceptr,
    bytes: usize,
}

impl DeviceBuffer {
    /// `what` it is for, for the message if there is not enough.
    pub(crate) fn new(device: &Device, bytes: usize, what: &str) -> Result<Self, CudaError> {
        device.enter()?;
        let bytes = bytes.next_multiple_of(256).max(256);
        let mut start = 0;
        // SAFETY: the driver is loaded and this thread has a context.
        let code = unsafe { sys::cuMemAlloc_v2(&mut start, bytes) };
        if code == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(out_of_memory(device, bytes, what));
        }
        check(code, || format!("allocate {} for {what}", readable(bytes)))?;
        let buffer = DeviceBuffer { device: device.clone(), start, bytes };
        // SAFETY: the buffer was just allocated with this size.
        check(unsafe { sys::cuMemsetD8_v2(start, 0, bytes) }, || "clear memory".into())?;
        wait_for_default()?;
        Ok(buffer)
    }

    /// A buffer with these values.
    pub(crate) fn of<T: Pod>(device: &Device, values: &[T], what: &str) -> Result<Self, CudaError> {
        let buffer = DeviceBuffer::new(device, size_of_val(values), what)?;
        // SAFETY: both sides have that many bytes.
        check(unsafe { sys::cuMemcpyHtoD_v2(buffer.start, values.as_ptr().cast(), size_of_val(values)) }, || {
            "copy to the GPU".into()
        })?;
        wait_for_default()?;
        Ok(buffer)
    }

    /// Copies bytes to a byte offset, before this returns. For memory that nothing uses yet.
    pub(crate) fn copy_in(&self, byte: usize, bytes: &[u8]) -> Result<(), CudaError> {
        let to = self.part(byte, bytes.len());
        self.device.enter()?;
        // SAFETY: both sides have that many bytes.
        check(unsafe { sys::cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len()) }, || "copy to the GPU".into())?;
        wait_for_default()
    }

    /// The address of its first byte.
    pub(crate) fn start(&self) -> DevicePtr {
        DevicePtr::new(self.start)
    }

    /// The address of a byte of it, or of its end.
    pub(crate) fn at(&self, byte: usize) -> DevicePtr {
        assert!(byte <= self.bytes, "an address past the end of a device buffer");
        DevicePtr::new(self.start + byte as u64)
    }

    /// The address of so many bytes, which lie in it.
    fn part(&self, byte: usize, bytes: usize) -> CUdeviceptr {
        assert!(byte + bytes <= self.bytes, "a copy past the end of a device buffer");
        self.start + byte as u64
    }

    /// Copies values to a byte offset, in order with the stream's work, and waits for that: the driver does not promise to
    /// have read memory that is not pinned when its call returns.
    pub(crate) fn write<T: Pod>(&self, stream: &CudaStream, byte: usize, values: &[T]) -> Result<(), CudaError> {
        self.device.enter()?;
        // SAFETY: the values are there until the copy is done, below.
        let copied = unsafe { self.write_async(stream, byte, values) };
        copied.and_then(|()| stream.wait())
    }

    /// Copies the first so many values of pinned memory to a byte offset, in order with the stream's work, and returns
    /// without waiting for the copy.
    ///
    /// # Safety
    /// The pinned memory must not change until the copy is done.
    pub(crate) unsafe fn write_pinned<T: Pod>(
        &self,
        stream: &CudaStream,
        byte: usize,
        values: &PinnedBuffer<T>,
        len: usize,
    ) -> Result<(), CudaError> {
        self.device.enter()?;
        // SAFETY: the caller's promise.
        unsafe { self.write_async(stream, byte, &values.as_slice()[..len]) }
    }

    /// # Safety
    /// The values must not change until the copy is done.
    unsafe fn write_async<T: Pod>(&self, stream: &CudaStream, byte: usize, values: &[T]) -> Result<(), CudaError> {
        let (to, bytes) = (self.part(byte, size_of_val(values)), size_of_val(values));
        // SAFETY: both sides have that many bytes; the caller's promise covers the host's.
        check(unsafe { sys::cuMemcpyHtoDAsync_v2(to, values.as_ptr().cast(), bytes, stream.raw()) }, || {
            "copy to the GPU".into()
        })
    }

    /// Waits for the stream's work and copies values from a byte offset.
    pub(crate) fn read<T: Pod>(&self, stream: &CudaStream, byte: usize, len: usize) -> Result<Vec<T>, CudaError> {
        let mut values = vec![T::default(); len];
        let bytes = size_of_val(&values[..]);
        let from = self.part(byte, bytes);
        self.device.enter()?;
        // SAFETY: both sides have that many bytes; the host's is there until the copy is done, below.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), from, bytes, stream.raw()) };
        check(code, || "copy from the GPU".into())?;
        stream.wait()?;
        Ok(values)
    }

    /// Copies bytes from one place to another, in order with the stream's work.
    pub(crate) fn copy_within(
        &self,
        stream: &CudaStream,
        from: usize,
        to: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        assert!(from + bytes <= to || to + bytes <= from, "a copy onto itself");
        let (from, to) = (self.part(from, bytes), self.part(to, bytes));
        self.device.enter()?;
        // SAFETY: both places lie in the buffer and do not overlap.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw()) }, || "copy on the GPU".into())
    }

    /// Clears bytes, in order with the stream's work.
    pub(crate) fn clear(&self, stream: &CudaStream, byte: usize, bytes: usize) -> Result<(), CudaError> {
        let at = self.part(byte, bytes);
        self.device.enter()?;
        // SAFETY: these bytes lie in the buffer.
        check(unsafe { sys::cuMemsetD8Async(at, 0, bytes, stream.raw()) }, || "clear memory".into())
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: allocated in `new`, freed once. A failure means that the device is lost, with its memory.
            let _ = unsafe { sys::cuMemFree_v2(self.start) };
        }
    }
}

/// Waits for the default stream. What is asked of it may still be on its way when the call returns, and the streams
/// that networks use do not wait for it: where many share a GPU, it would reach the memory long after they began to
/// use it.
fn wait_for_default() -> Result<(), CudaError> {
    // SAFETY: this thread has a context, and null is its default stream.
    check(unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) }, || "wait for the GPU".into())
}

pub(crate) fn out_of_memory(device: &Device, needed: usize, what: &str) -> CudaError {
    let (free, total) = device.memory().unwrap_or_default();
    CudaError::Memory { needed: readable(needed), free: readable(free), total: readable(total), what: what.into() }
}

/// Page-locked host memory: copies from it run beside kernels.
pub(crate) struct PinnedBuffer<T: Pod> {
    device: Device,
    start: *mut T,
    len: usize,
}

// SAFETY: the memory belongs to this value alone.
unsafe impl<T: Pod + Send> Send for PinnedBuffer<T> {}

impl<T: Pod> PinnedBuffer<T> {
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self, CudaError> {
        device.enter()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        let bytes = (len * size_of::<T>()).max(64);
        // SAFETY: this thread has a context.
        check(unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) }, || {
            format!("lock {} of host memory; lower the batch size", readable(bytes))
        })?;
        // SAFETY: the allocation has that many bytes; all zeros is a value of every plain type.
        unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        Ok(PinnedBuffer { device: device.clone(), start: start.cast(), len })
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: allocated with this length and initialised.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: allocated with this length and initialised.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T: Pod> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: allocated in `new`, freed once.
            let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
        }
    }
}
