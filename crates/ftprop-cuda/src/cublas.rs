//! cuBLASLt's products, for fully connected layers: the bias is added on the way out.
//!
//! cuBLASLt counts columns first, we count rows first; so a matrix of ours is to it the transposed one, and it is
//! asked for the transposed result.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::device::Device;
use crate::gemm::{Gemm, Mode, Operands};
use crate::library::{Library, cublas_lt as api};
use crate::precision::Precision;
use crate::stream::CudaStream;
use cudarc::cublaslt::sys::{
    self, cublasLtMatmulDescAttributes_t as Attribute, cublasLtMatmulPreferenceAttributes_t as Preferred,
    cublasStatus_t, cudaDataType,
};
use cudarc::driver::sys::CUdeviceptr;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What it may use beside the operands; more than this much is of no use to it on today's GPUs.
pub(crate) const WORKSPACE: usize = 32 << 20;

/// Ways to compute a product that it is asked for.
pub(crate) const PROPOSALS: usize = 8;

/// `CUBLAS_OP_N` and `CUBLAS_OP_T`, which the bindings for cuBLASLt leave out.
const PLAIN: i32 = 0;
const TRANSPOSED: i32 = 1;

fn check(status: cublasStatus_t, doing: &'static str) -> Result<(), CudaError> {
    if status == cublasStatus_t::CUBLAS_STATUS_SUCCESS {
        return Ok(());
    }
    Err(CudaError::Cublas { doing, reason: format!("{status:?}") })
}

/// cuBLASLt in use; clones share it.
#[derive(Clone)]
pub(crate) struct Cublas {
    handle: Arc<CublasHandle>,
}

struct CublasHandle {
    device: Device,
    raw: sys::cublasLtHandle_t,
    /// How each product can be computed, what cuBLASLt holds to be best first: it must not be asked while a stream is
    /// captured.
    known: Mutex<HashMap<String, Vec<sys::cublasLtMatmulAlgo_t>>>,
}

// SAFETY: cuBLASLt's handles may be used from any thread.
unsafe impl Send for CublasHandle {}
// SAFETY: as above.
unsafe impl Sync for CublasHandle {}

impl Drop for CublasHandle {
    fn drop(&mut self) {
        if self.device.enter().is_ok() {
            // SAFETY: made in `Cublas::new`, destroyed once.
            let _ = unsafe { api::cublasLtDestroy(self.raw) };
        }
    }
}

/// A factor as cuBLASLt sees it, column by column.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MatrixOperand {
    rows: usize,
    cols: usize,
    transposed: bool,
}

/// D = A · B, where A is the right operand of a [`Gemm`] and B the left one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Matmul {
    a: MatrixOperand,
    b: MatrixOperand,
    rows: usize,
    cols: usize,
}

impl Matmul {
    /// For n examples of `inside` numbers each, from which `outside` numbers are made.
    fn new(mode: Mode, n: usize, inside: usize, outside: usize) -> Self {
        let plain = |rows, cols| MatrixOperand { rows, cols, transposed: false };
        let turned = |rows, cols| MatrixOperand { rows, cols, transposed: true };
        let (a, b, rows, cols) = match mode {
            // yᵀ = w xᵀ, dxᵀ = wᵀ dyᵀ, dwᵀ = xᵀ dy
            Mode::Forward => (turned(inside, outside), plain(inside, n), outside, n),
            Mode::Input => (plain(inside, outside), plain(outside, n), inside, n),
            Mode::Weights => (plain(inside, n), turned(outside, n), inside, outside),
        };
        Matmul { a, b, rows, cols }
    }
}

impl Cublas {
    pub(crate) fn new(device: &Device) -> Result<Self, CudaError> {
        Library::Cublas.load()?;
        device.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library is loaded and this thread has a context.
        check(unsafe { api::cublasLtCreate(&mut raw) }, "start")?;
        Ok(Cublas { handle: Arc::new(CublasHandle { device: device.clone(), raw, known: Mutex::default() }) })
    }

    pub(crate) fn version(&self) -> usize {
        // SAFETY: the library is loaded.
        unsafe { api::cublasLtGetVersion() }
    }

    /// Finds out how many algorithms there are for batches of n.
    pub(crate) fn prepare(&self, gemm: &Gemm, n: usize) -> Result<usize, CudaError> {
        // Where the bias will be does not matter yet, only that there is one.
        let bias = if gemm.bias_offset.is_some() { 256 } else { 0 };
        Ok(self.algorithms(gemm, n, &MatmulDescriptors::new(gemm, n, bias)?)?.len())
    }

    fn algorithms(
        &self,
        gemm: &Gemm,
        n: usize,
        d: &MatmulDescriptors,
    ) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, CudaError> {
        let key = gemm.key(n);
        let mut known = self.handle.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(algorithms) = known.get(&key) {
            return Ok(algorithms.clone());
        }
        self.handle.device.enter()?;
        // SAFETY: plain numbers, for which zeros will do.
        let mut found: [sys::cublasLtMatmulHeuristicResult_t; PROPOSALS] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        // SAFETY: the descriptors are set and live; there is room for as many answers as are asked for.
        let status = unsafe {
            api::cublasLtMatmulAlgoGetHeuristic(
                self.handle.raw,
                d.matmul,
                d.a,
                d.b,
                d.d,
                d.d,
                d.preference,
                PROPOSALS as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        check(status, "find a way to compute a product")?;
        let usable = |f: &&sys::cublasLtMatmulHeuristicResult_t| f.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        let algorithms: Vec<_> = found[..count as usize].iter().filter(usable).map(|f| f.algo).collect();
        if algorithms.is_empty() {
            return Err(CudaError::Cublas { doing: "compute a product", reason: "it knows no way".into() });
        }
        known.insert(key, algorithms.clone());
        Ok(algorithms)
    }

    /// out = left · right, plus the bias where the product has one, added to what is there where there is an addend; by the algorithm of that
    /// number, or in the first where there are fewer for this n.
    ///
    /// # Safety
    /// The addresses hold n examples of the product's operands, and the workspace has [`WORKSPACE`] bytes.
    pub(crate) unsafe fn run(
        &self,
        gemm: &Gemm,
        number: usize,
        n: usize,
        stream: &CudaStream,
        operands: Operands,
        workspace: DevicePtr,
    ) -> Result<(), CudaError> {
        let d = MatmulDescriptors::new(gemm, n, operands.bias.raw())?;
        let algorithms = self.algorithms(gemm, n, &d)?;
        let algorithm = algorithms.get(number).unwrap_or(&algorithms[0]);
        let (one, old) = (1.0f32, if operands.addend.is_null() { 0.0f32 } else { 1.0f32 });
        let (alpha, beta) = ((&raw const one).cast(), (&raw const old).cast());
        let [left, right, out, workspace] =
            [operands.left, operands.right, operands.out, workspace].map(DevicePtr::as_void);
        // SAFETY: the descriptors are set and live; the caller's promise covers the memory.
        let status = unsafe {
            api::cublasLtMatmul(
                self.handle.raw,
                d.matmul,
                alpha,
                right,
                d.a,
                left,
                d.b,
                beta,
                out,
                d.d,
                out,
                d.d,
                algorithm,
                workspace,
                WORKSPACE,
                stream.raw().cast(),
            )
        };
        check(status, "compute a product")
    }
}

/// The shapes of one product; making them touches no device.
struct MatmulDescriptors {
    matmul: sys::cublasLtMatmulDesc_t,
    a: sys::cublasLtMatrixLayout_t,
    b: sys::cublasLtMatrixLayout_t,
    d: sys::cublasLtMatrixLayout_t,
    preference: sys::cublasLtMatmulPreference_t,
}

impl MatmulDescriptors {
    fn new(gemm: &Gemm, n: usize, bias: CUdeviceptr) -> Result<Self, CudaError> {
        use cudaDataType::{CUDA_R_16BF, CUDA_R_32F};
        let (a, b) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (matmul, preference) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut d = MatmulDescriptors { matmul, a, b, d: std::ptr::null_mut(), preference };
        let product = Matmul::new(gemm.mode, n, gemm.geometry.in_channels, gemm.geometry.out_channels);
        let narrow = gemm.precision == Precision::Bf16;
        let kind = if narrow { CUDA_R_16BF } else { CUDA_R_32F };
        // Logits are f32 whatever the activations are.
        let wide = gemm.f32_output;
        let kind_out = if wide { CUDA_R_32F } else { kind };
        let compute = match gemm.precision {
            Precision::Tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let doing = "describe a product";
        let long = |v: usize| v as u64;
        // SAFETY: each descriptor is made before it is set; what is made is destroyed by `drop`.
        unsafe {
            check(api::cublasLtMatmulDescCreate(&mut d.matmul, compute, CUDA_R_32F), doing)?;
            let Matmul { a, b, rows, cols } = product;
            let layouts =
                [(&mut d.a, kind, a.rows, a.cols), (&mut d.b, kind, b.rows, b.cols), (&mut d.d, kind_out, rows, cols)];
            for (layout, kind, rows, cols) in layouts {
                check(api::cublasLtMatrixLayoutCreate(layout, kind, long(rows), long(cols), rows as i64), doing)?;
            }
            for (attribute, factor) in
                [(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, a), (Attribute::CUBLASLT_MATMUL_DESC_TRANSB, b)]
            {
                let turn = if factor.transposed { TRANSPOSED } else { PLAIN };
                d.set(attribute, &turn)?;
            }
            if bias != 0 {
                d.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS)?;
                d.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
                d.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &CUDA_R_32F)?;
            }
            check(api::cublasLtMatmulPreferenceCreate(&mut d.preference), doing)?;
            d.prefer(Preferred::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
            // Parameters begin anywhere in the flat buffer, everything else at multiples of 256 bytes.
            let alignment = |bytes: usize| 1u32 << ((gemm.weight_offset * bytes) | 16).trailing_zeros();
            let element = gemm.precision.activation_bytes();
            let weights = match gemm.mode {
                // In bf16 they are widened from a place of their own.
                Mode::Weights if narrow => (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 16),
                Mode::Weights => (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(4)),
                _ => (Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(element)),
            };
            d.prefer(weights.0, &weights.1)?;
            if gemm.mode == Mode::Weights {
                d.prefer(Preferred::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &weights.1)?;
            }
        }
        Ok(d)
    }

    /// # Safety
    /// The value has the type that the attribute wants.
    unsafe fn set<T>(&self, attribute: Attribute, value: &T) -> Result<(), CudaError> {
        let address = std::ptr::from_ref(value).cast();
        // SAFETY: the descriptor was made; the caller's promise covers the value.
        let status = unsafe { api::cublasLtMatmulDescSetAttribute(self.matmul, attribute, address, size_of::<T>()) };
        check(status, "describe a product")
    }

    /// # Safety
    /// As [`set`](Self::set).
    unsafe fn prefer<T>(&self, attribute: Preferred, value: &T) -> Result<(), CudaError> {
        let address = std::ptr::from_ref(value).cast();
        // SAFETY: the preference was made; the caller's promise covers the value.
        let status =
            unsafe { api::cublasLtMatmulPreferenceSetAttribute(self.preference, attribute, address, size_of::<T>()) };
        check(status, "describe a product")
    }
}

impl Drop for MatmulDescriptors {
    fn drop(&mut self) {
        // SAFETY: each was made once, or is null and left alone.
        unsafe {
            for layout in [self.a, self.b, self.d] {
                if !layout.is_null() {
                    let _ = api::cublasLtMatrixLayoutDestroy(layout);
                }
            }
            if !self.matmul.is_null() {
                let _ = api::cublasLtMatmulDescDestroy(self.matmul);
            }
            if !self.preference.is_null() {
                let _ = api::cublasLtMatmulPreferenceDestroy(self.preference);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What cuBLASLt is defined to compute: columns first, leading dimensions as many as rows.
    fn by_columns(m: &Matmul, a: &[f32], b: &[f32]) -> Vec<f32> {
        let at = |f: &MatrixOperand, v: &[f32], row: usize, col: usize| {
            if f.transposed { v[row * f.rows + col] } else { v[col * f.rows + row] }
        };
        let depth = if m.a.transposed { m.a.rows } else { m.a.cols };
        assert_eq!(depth, if m.b.transposed { m.b.cols } else { m.b.rows });
        let mut out = vec![0.0; m.rows * m.cols];
        for row in 0..m.rows {
            for col in 0..m.cols {
                out[col * m.rows + row] = (0..depth).map(|k| at(&m.a, a, row, k) * at(&m.b, b, k, col)).sum();
            }
        }
        out
    }

    #[test]
    fn the_three_products_of_a_fully_connected_layer() {
        let (n, inside, outside) = (3, 4, 5);
        let numbers = |count: usize, salt: usize| -> Vec<f32> {
            (0..count).map(|i| ((i * 7 + salt * 3) % 11) as f32 - 5.0).collect()
        };
        let (x, w, dy) = (numbers(n * inside, 1), numbers(outside * inside, 2), numbers(n * outside, 3));
        let (mut y, mut dx, mut dw) = (vec![0.0; n * outside], vec![0.0; n * inside], vec![0.0; outside * inside]);
        for e in 0..n {
            for o in 0..outside {
                for i in 0..inside {
                    y[e * outside + o] += x[e * inside + i] * w[o * inside + i];
                    dx[e * inside + i] += dy[e * outside + o] * w[o * inside + i];
                    dw[o * inside + i] += dy[e * outside + o] * x[e * inside + i];
                }
            }
        }
        let product = |mode| Matmul::new(mode, n, inside, outside);
        assert_eq!(by_columns(&product(Mode::Forward), &w, &x), y);
        assert_eq!(by_columns(&product(Mode::Input), &w, &dy), dx);
        assert_eq!(by_columns(&product(Mode::Weights), &x, &dy), dw);
    }
}
