//! cuDNN and cuBLASLt, function by function, from the very files that [`Library::load`] opened. cudarc has their types; its
//! own calls would go to whatever file without a number the system finds first.

use super::Library;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// Declares functions of a library, and their names.
macro_rules! functions {
    ($(#[$doc:meta])* $module:ident of $library:expr, types $types:path { $(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub(crate) mod $module {
            use super::*;
            use $types::*;

            /// All of them.
            pub(in crate::library) const NAMES: &[&str] = &[$(stringify!($name)),*];

            $(
                /// # Safety
                /// As the library's manual has it; the library is loaded.
                pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
                    type Function = unsafe extern "C" fn($($type),*) -> $result;
                    static FUNCTION: OnceLock<Function> = OnceLock::new();
                    // SAFETY: the library's header gives the function this type.
                    let function = FUNCTION.get_or_init(|| unsafe { $library.function(stringify!($name)) });
                    // SAFETY: the caller's promise.
                    unsafe { function($($arg),*) }
                }
            )*
        }
    };
}

functions! {
    /// cuDNN.
    cudnn of Library::Cudnn, types cudarc::cudnn::sys {
        fn cudnnBackendCreateDescriptor(descriptor_type: cudnnBackendDescriptorType_t, descriptor: *mut cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendDestroyDescriptor(descriptor: cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendExecute(handle: cudnnHandle_t, execution_plan: cudnnBackendDescriptor_t, variant_pack: cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendFinalize(descriptor: cudnnBackendDescriptor_t) -> cudnnStatus_t;
        fn cudnnBackendGetAttribute(descriptor: cudnnBackendDescriptor_t, attribute_name: cudnnBackendAttributeName_t, attribute_type: cudnnBackendAttributeType_t, requested_element_count: i64, element_count: *mut i64, array_of_elements: *mut c_void) -> cudnnStatus_t;
        fn cudnnBackendSetAttribute(descriptor: cudnnBackendDescriptor_t, attribute_name: cudnnBackendAttributeName_t, attribute_type: cudnnBackendAttributeType_t, element_count: i64, array_of_elements: *const c_void) -> cudnnStatus_t;
        fn cudnnConvolutionBackwardData(handle: cudnnHandle_t, alpha: *const c_void, w_desc: cudnnFilterDescriptor_t, w: *const c_void, dy_desc: cudnnTensorDescriptor_t, dy: *const c_void, conv_desc: cudnnConvolutionDescriptor_t, algo: cudnnConvolutionBwdDataAlgo_t, work_space: *mut c_void, work_space_size_in_bytes: usize, beta: *const c_void, dx_desc: cudnnTensorDescriptor_t, dx: *mut c_void) -> cudnnStatus_t;
        fn cudnnConvolutionBackwardFilter(handle: cudnnHandle_t, alpha: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, dy_desc: cudnnTensorDescriptor_t, dy: *const c_void, conv_desc: cudnnConvolutionDescriptor_t, algo: cudnnConvolutionBwdFilterAlgo_t, work_space: *mut c_void, work_space_size_in_bytes: usize, beta: *const c_void, dw_desc: cudnnFilterDescriptor_t, dw: *mut c_void) -> cudnnStatus_t;
        fn cudnnConvolutionForward(handle: cudnnHandle_t, alpha: *const c_void, x_desc: cudnnTensorDescriptor_t, x: *const c_void, w_desc: cudnnFilterDescriptor_t, w: *const c_void, conv_desc: cudnnConvolutionDescriptor_t, algo: cudnnConvolutionFwdAlgo_t, work_space: *mut c_void, work_space_size_in_bytes: usize, beta: *const c_void, y_desc: cudnnTensorDescriptor_t, y: *mut c_void) -> cudnnStatus_t;
        fn cudnnCreate(handle: *mut cudnnHandle_t) -> cudnnStatus_t;
        fn cudnnCreateConvolutionDescriptor(conv_desc: *mut cudnnConvolutionDescriptor_t) -> cudnnStatus_t;
        fn cudnnCreateFilterDescriptor(filter_desc: *mut cudnnFilterDescriptor_t) -> cudnnStatus_t;
        fn cudnnCreateTensorDescriptor(tensor_desc: *mut cudnnTensorDescriptor_t) -> cudnnStatus_t;
        fn cudnnDestroy(handle: cudnnHandle_t) -> cudnnStatus_t;
        fn cudnnDestroyConvolutionDescriptor(conv_desc: cudnnConvolutionDescriptor_t) -> cudnnStatus_t;
        fn cudnnDestroyFilterDescriptor(filter_desc: cudnnFilterDescriptor_t) -> cudnnStatus_t;
        fn cudnnDestroyTensorDescriptor(tensor_desc: cudnnTensorDescriptor_t) -> cudnnStatus_t;
        fn cudnnGetConvolutionBackwardDataWorkspaceSize(handle: cudnnHandle_t, w_desc: cudnnFilterDescriptor_t, dy_desc: cudnnTensorDescriptor_t, conv_desc: cudnnConvolutionDescriptor_t, dx_desc: cudnnTensorDescriptor_t, algo: cudnnConvolutionBwdDataAlgo_t, size_in_bytes: *mut usize) -> cudnnStatus_t;
        fn cudnnGetConvolutionBackwardFilterWorkspaceSize(handle: cudnnHandle_t, x_desc: cudnnTensorDescriptor_t, dy_desc: cudnnTensorDescriptor_t, conv_desc: cudnnConvolutionDescriptor_t, grad_desc: cudnnFilterDescriptor_t, algo: cudnnConvolutionBwdFilterAlgo_t, size_in_bytes: *mut usize) -> cudnnStatus_t;
        fn cudnnGetConvolutionForwardWorkspaceSize(handle: cudnnHandle_t, x_desc: cudnnTensorDescriptor_t, w_desc: cudnnFilterDescriptor_t, conv_desc: cudnnConvolutionDescriptor_t, y_desc: cudnnTensorDescriptor_t, algo: cudnnConvolutionFwdAlgo_t, size_in_bytes: *mut usize) -> cudnnStatus_t;
        fn cudnnGetVersion() -> usize;
        fn cudnnSetConvolution2dDescriptor(conv_desc: cudnnConvolutionDescriptor_t, pad_h: c_int, pad_w: c_int, u: c_int, v: c_int, dilation_h: c_int, dilation_w: c_int, mode: cudnnConvolutionMode_t, compute_type: cudnnDataType_t) -> cudnnStatus_t;
        fn cudnnSetConvolutionGroupCount(conv_desc: cudnnConvolutionDescriptor_t, group_count: c_int) -> cudnnStatus_t;
        fn cudnnSetConvolutionMathType(conv_desc: cudnnConvolutionDescriptor_t, math_type: cudnnMathType_t) -> cudnnStatus_t;
        fn cudnnSetFilter4dDescriptor(filter_desc: cudnnFilterDescriptor_t, data_type: cudnnDataType_t, format: cudnnTensorFormat_t, k: c_int, c: c_int, h: c_int, w: c_int) -> cudnnStatus_t;
        fn cudnnSetStream(handle: cudnnHandle_t, stream_id: cudaStream_t) -> cudnnStatus_t;
        fn cudnnSetTensor4dDescriptor(tensor_desc: cudnnTensorDescriptor_t, format: cudnnTensorFormat_t, data_type: cudnnDataType_t, n: c_int, c: c_int, h: c_int, w: c_int) -> cudnnStatus_t;
    }
}

functions! {
    /// cuBLASLt.
    cublas_lt of Library::Cublas, types cudarc::cublaslt::sys {
        fn cublasLtCreate(light_handle: *mut cublasLtHandle_t) -> cublasStatus_t;
        fn cublasLtDestroy(light_handle: cublasLtHandle_t) -> cublasStatus_t;
        fn cublasLtGetVersion() -> usize;
        fn cublasLtMatmul(light_handle: cublasLtHandle_t, compute_desc: cublasLtMatmulDesc_t, alpha: *const c_void, a: *const c_void, adesc: cublasLtMatrixLayout_t, b: *const c_void, bdesc: cublasLtMatrixLayout_t, beta: *const c_void, c: *const c_void, cdesc: cublasLtMatrixLayout_t, d: *mut c_void, ddesc: cublasLtMatrixLayout_t, algo: *const cublasLtMatmulAlgo_t, workspace: *mut c_void, workspace_size_in_bytes: usize, stream: cudaStream_t) -> cublasStatus_t;
        fn cublasLtMatmulAlgoGetHeuristic(light_handle: cublasLtHandle_t, operation_desc: cublasLtMatmulDesc_t, adesc: cublasLtMatrixLayout_t, bdesc: cublasLtMatrixLayout_t, cdesc: cublasLtMatrixLayout_t, ddesc: cublasLtMatrixLayout_t, preference: cublasLtMatmulPreference_t, requested_algo_count: c_int, heuristic_results_array: *mut cublasLtMatmulHeuristicResult_t, return_algo_count: *mut c_int) -> cublasStatus_t;
        fn cublasLtMatmulDescCreate(matmul_desc: *mut cublasLtMatmulDesc_t, compute_type: cublasComputeType_t, scale_type: cudaDataType_t) -> cublasStatus_t;
        fn cublasLtMatmulDescDestroy(matmul_desc: cublasLtMatmulDesc_t) -> cublasStatus_t;
        fn cublasLtMatmulDescSetAttribute(matmul_desc: cublasLtMatmulDesc_t, attr: cublasLtMatmulDescAttributes_t, buf: *const c_void, size_in_bytes: usize) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceCreate(pref: *mut cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceDestroy(pref: cublasLtMatmulPreference_t) -> cublasStatus_t;
        fn cublasLtMatmulPreferenceSetAttribute(pref: cublasLtMatmulPreference_t, attr: cublasLtMatmulPreferenceAttributes_t, buf: *const c_void, size_in_bytes: usize) -> cublasStatus_t;
        fn cublasLtMatrixLayoutCreate(mat_layout: *mut cublasLtMatrixLayout_t, kind: cudaDataType, rows: u64, cols: u64, ld: i64) -> cublasStatus_t;
        fn cublasLtMatrixLayoutDestroy(mat_layout: cublasLtMatrixLayout_t) -> cublasStatus_t;
    }
}
