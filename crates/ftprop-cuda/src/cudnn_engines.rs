//! cuDNN's engines: its kernels for a convolution, by its graph interface. It proposes some for each shape, what
//! it holds to be best first; which one is fastest is found out by timing.

use crate::CudaError;
use crate::environment::tries;
use crate::gemm::{Gemm, Mode};
use crate::library::cudnn as api;
use crate::precision::Precision;
use crate::startup;
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type, cudnnBackendDescriptor_t as Raw,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Proposals, cudnnBackendNumericalNote_t as Note,
};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) fn check(status: sys::cudnnStatus_t, doing: &'static str) -> Result<(), CudaError> {
    if status == sys::cudnnStatus_t::CUDNN_STATUS_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Cudnn { doing, reason: format!("{status:?}") })
}

/// Of the proposals so many are kept.
const MOST: usize = 20;
/// Of those the first so many are asked unless all are asked for: later ones are seldom the best. Of all engines of five shapes
/// in tf32 at least one was wrong, and only among these first ones none.
pub(crate) const FEW_ENGINES: usize = 8;

/// One of the things that cuDNN's graphs are described with.
struct BackendDescriptor {
    raw: Raw,
}

// SAFETY: a descriptor may be used from any thread, one at a time, which its owner keeps to.
unsafe impl Send for BackendDescriptor {}
// SAFETY: as above; once finalized it is only read.
unsafe impl Sync for BackendDescriptor {}

impl BackendDescriptor {
    fn new(kind: Kind) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is loaded, since there is a handle.
        check(unsafe { api::cudnnBackendCreateDescriptor(kind, &mut raw) }, "make a descriptor")?;
        Ok(BackendDescriptor { raw })
    }

    /// The values are of the type that the attribute's says.
    fn set<T>(&self, name: Name, kind: Type, values: &[T]) -> Result<(), CudaError> {
        let (count, at) = (values.len() as i64, values.as_ptr().cast());
        // SAFETY: there are so many values; cuDNN copies them.
        check(unsafe { api::cudnnBackendSetAttribute(self.raw, name, kind, count, at) }, "describe a convolution")
    }

    fn ints(&self, name: Name, values: &[i64]) -> Result<(), CudaError> {
        self.set(name, Type::CUDNN_TYPE_INT64, values)
    }

    fn descriptor(&self, name: Name, value: &BackendDescriptor) -> Result<(), CudaError> {
        self.set(name, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR, &[value.raw])
    }

    fn finalized(self, doing: &'static str) -> Result<Self, CudaError> {
        // SAFETY: the descriptor lives.
        check(unsafe { api::cudnnBackendFinalize(self.raw) }, doing)?;
        Ok(self)
    }

    /// Reads up to `values.len()` values, and says how many there are.
    fn get<T>(&self, name: Name, kind: Type, values: &mut [T]) -> Result<usize, CudaError> {
        let (mut count, most) = (0, values.len() as i64);
        let to = if values.is_empty() { std::ptr::null_mut() } else { values.as_mut_ptr().cast() };
        // SAFETY: there is room for so many values.
        let status = unsafe { api::cudnnBackendGetAttribute(self.raw, name, kind, most, &mut count, to) };
        check(status, "ask for what it knows of a convolution")?;
        Ok(count as usize)
    }
}

impl Drop for BackendDescriptor {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        let _ = unsafe { api::cudnnBackendDestroyDescriptor(self.raw) };
    }
}

/// What a tensor of a graph is called when it runs: the input, the filters, the output.
const IDS: [i64; 3] = [1, 2, 3];

/// A convolution of batches of n as a graph of one operation, with all that it is described by.
struct OperationGraph {
    graph: BackendDescriptor,
    _parts: Vec<BackendDescriptor>,
}

impl OperationGraph {
    fn new(handle: sys::cudnnHandle_t, gemm: &Gemm, n: usize) -> Result<Self, CudaError> {
        use sys::cudnnDataType_t::{CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT};
        let g = &gemm.geometry;
        let kind = if gemm.precision == Precision::Bf16 { CUDNN_DATA_BFLOAT16 } else { CUDNN_DATA_FLOAT };
        // Channels come last, though cuDNN names them before height and width.
        let tensor = |id: i64, [n, channels, height, width]: [usize; 4]| {
            let sizes = [n, channels, height, width].map(|v| v as i64);
            let strides = [height * width * channels, 1, width * channels, channels].map(|v| v as i64);
            let t = BackendDescriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
            t.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[kind])?;
            t.ints(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &sizes)?;
            t.ints(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides)?;
            t.ints(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?;
            t.ints(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[16])?;
            t.finalized("describe a tensor")
        };
        // Where pixels are joined, a window moves by one of them.
        let joined = gemm.joined();
        let (width, channels, kernel_w) =
            joined.map_or((g.width, g.in_channels, g.kernel_w), |j| (j.width, j.channels, j.kernel_w));
        let (before, after) = joined.map_or((g.pad, g.pad), |j| (j.before, j.after));
        let across = if joined.is_some() { 1 } else { g.stride };
        let x = tensor(IDS[0], [n, channels, g.height, width])?;
        let w = tensor(IDS[1], [g.out_channels, channels / g.groups, g.kernel_h, kernel_w])?;
        let y = tensor(IDS[2], [n, g.out_channels, g.out_height(), g.out_width()])?;
        let conv = BackendDescriptor::new(Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?;
        let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        let [top_left, bottom_right, stride] =
            [[g.pad, before], [g.pad, after], [g.stride, across]].map(|two| two.map(|v| v as i64));
        conv.set(Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, Type::CUDNN_TYPE_DATA_TYPE, &[CUDNN_DATA_FLOAT])?;
        conv.set(Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE, Type::CUDNN_TYPE_CONVOLUTION_MODE, &[mode])?;
        conv.ints(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2])?;
        conv.ints(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &top_left)?;
        conv.ints(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &bottom_right)?;
        conv.ints(Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &stride)?;
        conv.ints(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &[1, 1])?;
        let conv = conv.finalized("describe a convolution")?;
        let (kind, [to_x, to_w, to_y, to_conv, alpha, beta]) = match gemm.mode {
            Mode::Forward => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                ],
            ),
            Mode::Input => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                ],
            ),
            Mode::Weights => (
                Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                [
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                    Name::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                ],
            ),
        };
        let operation = BackendDescriptor::new(kind)?;
        for (name, part) in [(to_x, &x), (to_w, &w), (to_y, &y), (to_conv, &conv)] {
            operation.descriptor(name, part)?;
        }
        operation.set(alpha, Type::CUDNN_TYPE_FLOAT, &[1.0f32])?;
        operation.set(beta, Type::CUDNN_TYPE_FLOAT, &[if gemm.adds { 1.0f32 } else { 0.0 }])?;
        let operation = operation.finalized("describe a convolution")?;
        let graph = BackendDescriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        graph.descriptor(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operation)?;
        graph.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?;
        let graph = graph.finalized("describe a convolution")?;
        Ok(OperationGraph { graph, _parts: vec![operation, conv, x, w, y] })
    }

    /// What cuDNN proposes, of one kind.
    fn proposals(&self, kind: Proposals) -> Result<Vec<BackendDescriptor>, CudaError> {
        let ask = BackendDescriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        ask.descriptor(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &self.graph)?;
        ask.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, Type::CUDNN_TYPE_HEUR_MODE, &[kind])?;
        let ask = ask.finalized("propose engines")?;
        let (name, one) = (Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, Type::CUDNN_TYPE_BACKEND_DESCRIPTOR);
        let count = ask.get::<Raw>(name, one, &mut [])?;
        let made = (0..count).map(|_| BackendDescriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        let mut configs = made.collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Raw> = configs.iter().map(|c| c.raw).collect();
        let given = ask.get(name, one, &mut raw)?;
        configs.truncate(given);
        Ok(configs)
    }
}

/// Whether an engine gives the same bits every time, computes with what it is given, and is there without being compiled
/// (`compiled` tries those that are not).
fn is_welcome(config: &BackendDescriptor) -> Result<bool, CudaError> {
    let engine = BackendDescriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
    let one = Type::CUDNN_TYPE_BACKEND_DESCRIPTOR;
    config.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, one, &mut [engine.raw])?;
    let unwelcome = [
        Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
        Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
        Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
    ]
    .map(|note| note as i32);
    let compiled = sys::cudnnBackendBehaviorNote_t::CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION as i32;
    // As numbers: a later cuDNN may have notes that are not known here.
    let mut notes = [0i32; 64];
    let numerical = Type::CUDNN_TYPE_NUMERICAL_NOTE;
    let count = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, numerical, &mut notes)?;
    if notes[..count.min(64)].iter().any(|note| unwelcome.contains(note)) {
        return Ok(false);
    }
    let behavior = Type::CUDNN_TYPE_BEHAVIOR_NOTE;
    let count = engine.get(Name::CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, behavior, &mut notes)?;
    Ok(tries("compiled") || !notes[..count.min(64)].contains(&compiled))
}

/// The engines proposed for a convolution of batches of n.
pub(crate) struct EngineList {
    graph: Arc<OperationGraph>,
    configs: Vec<Arc<BackendDescriptor>>,
    /// Those that were made ready.
    ready: Mutex<HashMap<usize, Arc<CudnnEngine>>>,
}

impl EngineList {
    pub(crate) fn new(handle: sys::cudnnHandle_t, gemm: &Gemm, n: usize) -> Result<Self, CudaError> {
        startup::during("cuDNN's proposals", || EngineList::proposed(OperationGraph::new(handle, gemm, n)?))
    }

    fn proposed(graph: OperationGraph) -> Result<Self, CudaError> {
        let mut configs = Vec::new();
        for kind in [Proposals::CUDNN_HEUR_MODE_A, Proposals::CUDNN_HEUR_MODE_FALLBACK] {
            // It may have none of a kind.
            for config in graph.proposals(kind).unwrap_or_default() {
                if configs.len() < MOST && is_welcome(&config)? {
                    configs.push(Arc::new(config));
                }
            }
        }
        Ok(EngineList { graph: Arc::new(graph), configs, ready: Mutex::default() })
    }

    pub(crate) fn count(&self) -> usize {
        self.configs.len()
    }

    /// The engine of that number, ready to run, or why it cannot.
    pub(crate) fn engine(&self, handle: sys::cudnnHandle_t, number: usize) -> Result<Arc<CudnnEngine>, CudaError> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = ready.get(&number) {
            return Ok(engine.clone());
        }
        let unknown = || CudaError::Cudnn { doing: "prepare a convolution", reason: "it knows no such engine".into() };
        let config = self.configs.get(number).ok_or_else(unknown)?;
        let plan = BackendDescriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, Type::CUDNN_TYPE_HANDLE, &[handle])?;
        plan.descriptor(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)?;
        let plan = startup::during("cuDNN's plans", || plan.finalized("prepare a convolution"))?;
        let mut bytes = [0i64];
        plan.get(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, Type::CUDNN_TYPE_INT64, &mut bytes)?;
        let (config, graph) = (config.clone(), self.graph.clone());
        let bytes = bytes[0].max(0) as usize;
        let engine = CudnnEngine { plan, _config: config, _graph: graph, bytes };
        Ok(ready.entry(number).or_insert(Arc::new(engine)).clone())
    }
}

/// An engine ready to run batches of n.
pub(crate) struct CudnnEngine {
    plan: BackendDescriptor,
    _config: Arc<BackendDescriptor>,
    _graph: Arc<OperationGraph>,
    /// Of workspace.
    pub(crate) bytes: usize,
}

impl CudnnEngine {
    /// # Safety
    /// The addresses are those of the convolution's input, filters and output; the workspace has the engine's bytes.
    pub(crate) unsafe fn run(
        &self,
        handle: sys::cudnnHandle_t,
        operands: [*mut c_void; 3],
        workspace: *mut c_void,
    ) -> Result<(), CudaError> {
        let pack = BackendDescriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        let addresses = Type::CUDNN_TYPE_VOID_PTR;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses, &operands)?;
        pack.ints(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &IDS)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, addresses, &[workspace])?;
        let pack = pack.finalized("run a convolution")?;
        // SAFETY: both are finalized; the caller's promise covers the memory.
        check(unsafe { api::cudnnBackendExecute(handle, self.plan.raw, pack.raw) }, "run a convolution")
    }
}
