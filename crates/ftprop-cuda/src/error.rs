//! What can go wrong on a GPU.

use cudarc::driver::sys::CUresult;
use ftprop_nn::NnError;

/// An error of this crate; each says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    #[error(
        "{library} was not found ({purpose}); looked for {names} in {places}; install it or name its folder in FTPROP_CUDA_LIBRARIES"
    )]
    Library { library: &'static str, purpose: &'static str, names: String, places: String },
    #[error("there is no device cuda:{ordinal}; {found}")]
    NoDevice { ordinal: usize, found: String },
    #[error("CUDA could not {doing}: {reason}")]
    Driver { doing: String, reason: String },
    #[error(
        "the GPU has {free} free of {total}, but {needed} more are needed for {what}; lower the batch size, use precision = \"bf16\", or end other programs on the GPU"
    )]
    Memory { needed: String, free: String, total: String, what: String },
    #[error(
        "the GPU's memory is full, so CUDA could not {doing}; lower the batch size, use precision = \"bf16\", or end other programs on the GPU"
    )]
    Full { doing: String },
    #[error("the GPU was lost ({reason}); the last checkpoint is good, start again from it with --resume")]
    Lost { reason: String },
    #[error("kernel {kernel} could not be compiled for {arch}: {log}")]
    Compile { kernel: String, arch: String, log: String },
    #[error("cuDNN could not {doing}: {reason}")]
    Cudnn { doing: &'static str, reason: String },
    #[error("cuBLASLt could not {doing}: {reason}")]
    Cublas { doing: &'static str, reason: String },
    #[error("{0}")]
    Setting(String),
    #[error(transparent)]
    Network(#[from] NnError),
}

impl CudaError {
    /// Whether there was not enough memory on the GPU, whoever found out.
    pub fn is_memory(&self) -> bool {
        matches!(self, CudaError::Memory { .. } | CudaError::Full { .. })
    }

    pub(crate) fn driver(doing: impl Into<String>, code: CUresult) -> Self {
        if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return CudaError::Full { doing: doing.into() };
        }
        let error = cudarc::driver::DriverError(code);
        let reason = match (error.error_name(), error.error_string()) {
            (Ok(name), Ok(text)) => format!("{} ({})", text.to_string_lossy(), name.to_string_lossy()),
            _ => format!("error {}", code as u32),
        };
        match code {
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE => CudaError::Lost { reason },
            _ => CudaError::Driver { doing: doing.into(), reason },
        }
    }
}

/// A number of bytes as people read it.
pub(crate) fn readable(bytes: usize) -> String {
    const STEPS: [(&str, f64); 3] = [("GiB", 1073741824.0), ("MiB", 1048576.0), ("KiB", 1024.0)];
    let bytes = bytes as f64;
    match STEPS.iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes / size),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::readable;

    #[test]
    fn the_drivers_word_for_no_memory_counts_too() {
        use super::{CUresult, CudaError};
        assert!(CudaError::driver("prepare a step", CUresult::CUDA_ERROR_OUT_OF_MEMORY).is_memory());
        assert!(!CudaError::Setting("no".into()).is_memory());
    }

    #[test]
    fn bytes_are_readable() {
        assert_eq!(readable(512), "512 bytes");
        assert_eq!(readable(3 << 19), "1.5 MiB");
        assert_eq!(readable(139 << 30), "139.0 GiB");
    }
}
