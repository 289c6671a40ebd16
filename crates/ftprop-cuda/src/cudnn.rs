//! cuDNN's convolutions, which win on large images: by one of its engines, or by its usual algorithm, for batches of the size
//! that it was chosen for. Either gives the same bits every time.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::cudnn_engines::{CudnnEngine, EngineList, check};
use crate::device::Device;
use crate::gemm::{Gemm, Mode, Operands};
use crate::library::{Library, cudnn as api};
use crate::precision::Precision;
use crate::stream::CudaStream;
use cudarc::cudnn::sys;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// cuDNN in use; clones share it.
#[derive(Clone)]
pub(crate) struct Cudnn {
    handle: Arc<CudnnHandle>,
    /// Bytes that one algorithm may have beside the operands.
    most_workspace: usize,
}

struct CudnnHandle {
    device: Device,
    raw: sys::cudnnHandle_t,
    /// The engines of products that were asked for.
    known: Mutex<HashMap<String, Arc<EngineList>>>,
}

// SAFETY: a network owns its handle and is used by one thread at a time.
unsafe impl Send for CudnnHandle {}
// SAFETY: as above.
unsafe impl Sync for CudnnHandle {}

impl Drop for CudnnHandle {
    fn drop(&mut self) {
        // EngineList must not outlive what they were made with.
        self.known.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        if self.device.enter().is_ok() {
            // SAFETY: made in `Cudnn::new`, destroyed once.
            let _ = unsafe { api::cudnnDestroy(self.raw) };
        }
    }
}

impl Cudnn {
    /// For one of so many that share the GPU's memory.
    pub(crate) fn new(device: &Device, concurrent: usize) -> Result<Self, CudaError> {
        Library::Cudnn.load()?;
        device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is loaded and this thread has a context.
        check(unsafe { api::cudnnCreate(&mut raw) }, "start")?;
        let most_workspace = device.memory()?.1 / (SHARE * concurrent);
        let handle = CudnnHandle { device: device.clone(), raw, known: Mutex::default() };
        Ok(Cudnn { handle: Arc::new(handle), most_workspace })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.handle.device
    }

    pub(crate) fn version(&self) -> usize {
        // SAFETY: the library is loaded.
        unsafe { api::cudnnGetVersion() }
    }

    /// How many algorithms it may have for a product: the usual one, then engines.
    pub(crate) fn algorithms(&self, gemm: &Gemm, n: usize) -> usize {
        1 + self.engines(gemm, n).map_or(0, |engines| engines.count())
    }

    /// The algorithm of that number, ready to run; `None` is the usual one.
    pub(crate) fn engine(&self, gemm: &Gemm, n: usize, number: usize) -> Result<Option<Arc<CudnnEngine>>, CudaError> {
        let Some(place) = number.checked_sub(1) else { return Ok(None) };
        let engine = self.engines(gemm, n)?.engine(self.handle.raw, place)?;
        self.bounded(engine.bytes)?;
        Ok(Some(engine))
    }

    fn engines(&self, gemm: &Gemm, n: usize) -> Result<Arc<EngineList>, CudaError> {
        let mut known = self.handle.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = gemm.key(n);
        if let Some(engines) = known.get(&key) {
            return Ok(engines.clone());
        }
        self.handle.device.enter()?;
        let engines = Arc::new(EngineList::new(self.handle.raw, gemm, n)?);
        known.insert(key, engines.clone());
        Ok(engines)
    }

    /// Bytes of workspace that the usual one needs for a batch of n, or why it cannot compute a product.
    fn workspace(&self, gemm: &Gemm, n: usize) -> Result<usize, CudaError> {
        if gemm.joined().is_some() {
            let reason = "pixels are joined for its engines only".into();
            return Err(CudaError::Cudnn { doing: "find the workspace of a convolution", reason });
        }
        let d = ConvolutionDescriptors::new(gemm, n)?;
        let (handle, mut bytes) = (self.handle.raw, 0);
        // SAFETY: the descriptors are set and live.
        let status = unsafe {
            match gemm.mode {
                Mode::Forward => {
                    api::cudnnGetConvolutionForwardWorkspaceSize(handle, d.x, d.w, d.conv, d.y, FORWARD, &mut bytes)
                }
                Mode::Input => {
                    api::cudnnGetConvolutionBackwardDataWorkspaceSize(handle, d.w, d.y, d.conv, d.x, INPUT, &mut bytes)
                }
                Mode::Weights => api::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                    handle, d.x, d.y, d.conv, d.w, WEIGHTS, &mut bytes,
                ),
            }
        };
        check(status, "find the workspace of a convolution")?;
        self.bounded(bytes)
    }

    /// Bytes of workspace to set aside for an algorithm.
    pub(crate) fn bytes_to_set_aside(&self, gemm: &Gemm, n: usize, number: usize) -> Result<usize, CudaError> {
        match self.engine(gemm, n, number)? {
            Some(engine) => Ok(engine.bytes),
            None => self.workspace(gemm, n),
        }
    }

    fn bounded(&self, bytes: usize) -> Result<usize, CudaError> {
        if bytes > self.most_workspace {
            let reason = format!("it would need {} MiB of workspace", bytes >> 20);
            return Err(CudaError::Cudnn { doing: "find the workspace of a convolution", reason });
        }
        Ok(bytes)
    }

    /// out = left · right, added to what is there where the product adds.
    ///
    /// # Safety
    /// The addresses hold the n examples of the product's operands that the algorithm was made for, and the workspace has the
    /// bytes that were to be set aside.
    pub(crate) unsafe fn run(
        &self,
        gemm: &Gemm,
        engine: Option<&CudnnEngine>,
        n: usize,
        stream: &CudaStream,
        operands: Operands,
        (workspace, bytes): (DevicePtr, usize),
    ) -> Result<(), CudaError> {
        let (handle, adds) = (self.handle.raw, gemm.adds);
        let [left, right, out, workspace] =
            [operands.left, operands.right, operands.out, workspace].map(DevicePtr::as_void);
        // SAFETY: both live, on the same device.
        check(unsafe { api::cudnnSetStream(handle, stream.raw().cast()) }, "use a stream")?;
        if let Some(engine) = engine {
            let operands = match gemm.mode {
                Mode::Forward => [left, right, out],
                Mode::Input => [out, right, left],
                Mode::Weights => [right, out, left],
            };
            // SAFETY: the caller's promise.
            return unsafe { engine.run(handle, operands, workspace) };
        }
        let d = ConvolutionDescriptors::new(gemm, n)?;
        let (one, old) = (1.0f32, if adds { 1.0f32 } else { 0.0f32 });
        let (alpha, beta) = ((&raw const one).cast(), (&raw const old).cast());
        // SAFETY: the descriptors are set and live; the caller's promise covers the memory.
        let status = unsafe {
            match gemm.mode {
                Mode::Forward => api::cudnnConvolutionForward(
                    handle, alpha, d.x, left, d.w, right, d.conv, FORWARD, workspace, bytes, beta, d.y, out,
                ),
                Mode::Input => api::cudnnConvolutionBackwardData(
                    handle, alpha, d.w, right, d.y, left, d.conv, INPUT, workspace, bytes, beta, d.x, out,
                ),
                Mode::Weights => api::cudnnConvolutionBackwardFilter(
                    handle, alpha, d.x, right, d.y, left, d.conv, WEIGHTS, workspace, bytes, beta, d.w, out,
                ),
            }
        };
        check(status, "run a convolution")
    }
}

/// The share of a GPU's memory that a convolution may have as its workspace.
const SHARE: usize = 32;

/// The usual algorithms: those that run on the matrix units and are reproducible. For channels that come last cuDNN's older
/// interface has no others worth the name.
const FORWARD: sys::cudnnConvolutionFwdAlgo_t =
    sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
const INPUT: sys::cudnnConvolutionBwdDataAlgo_t = sys::cudnnConvolutionBwdDataAlgo_t::CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
const WEIGHTS: sys::cudnnConvolutionBwdFilterAlgo_t =
    sys::cudnnConvolutionBwdFilterAlgo_t::CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;

/// The shapes of one convolution; making them touches no device.
struct ConvolutionDescriptors {
    x: sys::cudnnTensorDescriptor_t,
    y: sys::cudnnTensorDescriptor_t,
    w: sys::cudnnFilterDescriptor_t,
    conv: sys::cudnnConvolutionDescriptor_t,
}

impl ConvolutionDescriptors {
    fn new(gemm: &Gemm, n: usize) -> Result<Self, CudaError> {
        use sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        use sys::cudnnDataType_t::{CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT};
        use sys::cudnnTensorFormat_t::CUDNN_TENSOR_NHWC;
        let (x, y) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut d = ConvolutionDescriptors { x, y, w: std::ptr::null_mut(), conv: std::ptr::null_mut() };
        let g = &gemm.geometry;
        let int = |v: usize| v as i32;
        let kind = if gemm.precision == Precision::Bf16 { CUDNN_DATA_BFLOAT16 } else { CUDNN_DATA_FLOAT };
        let doing = "describe a convolution";
        // SAFETY: each descriptor is made before it is set; what is made is destroyed by `drop`.
        unsafe {
            check(api::cudnnCreateTensorDescriptor(&mut d.x), doing)?;
            check(api::cudnnCreateTensorDescriptor(&mut d.y), doing)?;
            check(api::cudnnCreateFilterDescriptor(&mut d.w), doing)?;
            check(api::cudnnCreateConvolutionDescriptor(&mut d.conv), doing)?;
            let (h, w, oh, ow) = (int(g.height), int(g.width), int(g.out_height()), int(g.out_width()));
            let format = CUDNN_TENSOR_NHWC;
            check(api::cudnnSetTensor4dDescriptor(d.x, format, kind, int(n), int(g.in_channels), h, w), doing)?;
            check(api::cudnnSetTensor4dDescriptor(d.y, format, kind, int(n), int(g.out_channels), oh, ow), doing)?;
            let (out, inside) = (int(g.out_channels), int(g.in_channels / g.groups));
            let (kh, kw) = (int(g.kernel_h), int(g.kernel_w));
            check(api::cudnnSetFilter4dDescriptor(d.w, kind, format, out, inside, kh, kw), doing)?;
            let (pad, stride) = (int(g.pad), int(g.stride));
            let mode = CUDNN_CROSS_CORRELATION;
            let set =
                api::cudnnSetConvolution2dDescriptor(d.conv, pad, pad, stride, stride, 1, 1, mode, CUDNN_DATA_FLOAT);
            check(set, doing)?;
            check(api::cudnnSetConvolutionGroupCount(d.conv, int(g.groups)), doing)?;
            let units = sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH;
            check(api::cudnnSetConvolutionMathType(d.conv, units), doing)?;
        }
        Ok(d)
    }
}

impl Drop for ConvolutionDescriptors {
    fn drop(&mut self) {
        // SAFETY: each was made once, or is null, which cuDNN refuses without harm.
        unsafe {
            let _ = api::cudnnDestroyTensorDescriptor(self.x);
            let _ = api::cudnnDestroyTensorDescriptor(self.y);
            let _ = api::cudnnDestroyFilterDescriptor(self.w);
            let _ = api::cudnnDestroyConvolutionDescriptor(self.conv);
        }
    }
}
