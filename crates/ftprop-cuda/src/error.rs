//! What can go wrong on a GPU.

use cudarc::driver::sys::CUresult;
use ftprop_data::DataError;
use ftprop_nn::{NnError, Shape};
use ftprop_tensor::TensorError;

/// An error of this crate; each says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// One of NVIDIA's libraries is missing.
    #[error(
        "{library} was not found ({purpose}); looked for {names} in {places}; install it or name its folder in FTPROP_CUDA_LIBRARIES"
    )]
    Library {
        /// What a person calls it.
        library: &'static str,
        /// What it is needed for.
        purpose: &'static str,
        /// Its files' names.
        names: String,
        /// Where they were looked for.
        places: String,
    },
    /// Something has the name of one of NVIDIA's libraries and is another.
    #[error(
        "what was found as {library} has no {function}: it is another library or an unsuitable version; install the right one or name its folder in FTPROP_CUDA_LIBRARIES"
    )]
    StrangeLibrary {
        /// What a person calls it.
        library: &'static str,
        /// A function that it lacks.
        function: &'static str,
    },
    /// A product was to be computed by a library that is not in use.
    #[error("{library} was chosen but is not loaded")]
    NotLoaded {
        /// The library.
        library: &'static str,
    },
    /// There is no GPU of that number.
    #[error("there is no device cuda:{ordinal}; {found}")]
    NoDevice {
        /// The number.
        ordinal: usize,
        /// What there is instead.
        found: String,
    },
    /// The driver is older than what this crate calls.
    #[error("the GPU's driver can run CUDA {}.{}, and {}.{} is needed; install a newer driver", found.0, found.1, needed.0, needed.1)]
    OldDriver {
        /// The newest CUDA that it can run.
        found: (i32, i32),
        /// The oldest that will do.
        needed: (i32, i32),
    },
    /// The GPU is older than what the kernels are written for.
    #[error("{name} is too old: compute capability {}.{}, and {}.{} is needed; use the CPU", found.0, found.1, needed.0, needed.1)]
    OldDevice {
        /// The GPU's name.
        name: String,
        /// Its compute capability.
        found: (u32, u32),
        /// The oldest that will do.
        needed: (u32, u32),
    },
    /// The driver refused something.
    #[error("CUDA could not {doing}: {reason}")]
    Driver {
        /// What was asked of it.
        doing: String,
        /// What it said.
        reason: String,
    },
    /// Something does not fit into the GPU's memory.
    #[error(
        "the GPU has {free} free of {total}, but {needed} more are needed for {what}; lower the batch size, use precision = \"bf16\", or end other programs on the GPU"
    )]
    Memory {
        /// What it takes.
        needed: String,
        /// What is free.
        free: String,
        /// What the GPU has.
        total: String,
        /// What it is for.
        what: String,
    },
    /// The driver ran out of the GPU's memory.
    #[error(
        "the GPU's memory is full, so CUDA could not {doing}; lower the batch size, use precision = \"bf16\", or end other programs on the GPU"
    )]
    Full {
        /// What was asked of it.
        doing: String,
    },
    /// A kernel failed, or the GPU is gone: nothing more can be done with it in this process.
    #[error("the GPU was lost ({reason}); the last checkpoint is good, start again from it")]
    Lost {
        /// What the driver said.
        reason: String,
    },
    /// NCCL refused something.
    #[error("NCCL could not {doing}: {reason}")]
    Nccl {
        /// What was asked of it.
        doing: &'static str,
        /// What it said.
        reason: String,
    },
    /// Others that share batches, of whom something was asked on the way.
    #[error(transparent)]
    Others(Box<ftprop_nn::EngineError>),
    /// NVRTC refused a kernel.
    #[error("kernel {kernel} could not be compiled for {arch}: {log}")]
    Compile {
        /// The kernel's file.
        kernel: String,
        /// The GPU's architecture.
        arch: String,
        /// What NVRTC said.
        log: String,
    },
    /// cuDNN refused something.
    #[error("cuDNN could not {doing}: {reason}")]
    Cudnn {
        /// What was asked of it.
        doing: &'static str,
        /// What it said.
        reason: String,
    },
    /// cuBLASLt refused something.
    #[error("cuBLASLt could not {doing}: {reason}")]
    Cublas {
        /// What was asked of it.
        doing: &'static str,
        /// What it said.
        reason: String,
    },
    /// A name that stands for nothing.
    #[error("unknown {what} '{name}'; known are {known}")]
    UnknownName {
        /// What it should be the name of.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: &'static str,
    },
    /// A network for batches of nothing.
    #[error("a batch needs at least one example")]
    EmptyBatch,
    /// A tensor of a full batch has more numbers than a kernel counts.
    #[error("a batch of {batch} examples of {shape} is too large for one kernel; lower the batch size")]
    BatchTooLarge {
        /// Examples in a batch.
        batch: usize,
        /// What one of them is somewhere in the network.
        shape: Shape,
    },
    /// Images and labels do not make a batch.
    #[error("{values} values and {labels} labels are no batch of at most {most} examples of {input}")]
    NoBatch {
        /// Numbers of all images.
        values: usize,
        /// How many labels there are.
        labels: usize,
        /// The most examples in a batch.
        most: usize,
        /// What an example is.
        input: Shape,
    },
    /// A number of examples that no batch of the network has.
    #[error("{n} examples are no batch of a network for 1 to {most}")]
    BatchSize {
        /// The number.
        n: usize,
        /// The most examples in a batch.
        most: usize,
    },
    /// A label that is no class.
    #[error("label {label} is not below {classes} classes")]
    Label {
        /// The label.
        label: u32,
        /// How many classes there are.
        classes: usize,
    },
    /// Data whose examples a network does not take.
    #[error("the data has examples of {data}, the network takes {network}")]
    DataShape {
        /// An example of the data.
        data: Shape,
        /// An example as the network takes it.
        network: Shape,
    },
    /// A target rule that no kernel follows.
    #[error("the target rule {rule} looks at more of the network than a GPU shows it; train with it on the CPU")]
    FurtherRule {
        /// The rule.
        rule: String,
    },
    /// A target rule that looks at whole batches, where they are shared.
    #[error("the target rule {rule} looks at whole batches, which cannot be shared or taken in parts then")]
    SharedRule {
        /// The rule.
        rule: String,
    },
    /// Data that is not in memory as bytes.
    #[error("these examples are not bytes in memory, so they cannot live on the GPU; stream them")]
    NotBytes,
    /// Means and deviations that do not fit the data.
    #[error("normalising has {means} means for {channels} channels")]
    Normalize {
        /// How many means there are.
        means: usize,
        /// Channels of the data.
        channels: usize,
    },
    /// A span of steps beyond the end of an epoch.
    #[error("batches {first} to {end} of an epoch that has {batches}")]
    PastEpoch {
        /// The span's first batch.
        first: usize,
        /// One past its last.
        end: usize,
        /// Batches in an epoch.
        batches: usize,
    },
    /// A span of more steps than can be announced.
    #[error("{steps} steps are too many to stream at a time; announce at most {most}")]
    LongSpan {
        /// Its steps.
        steps: usize,
        /// The most that it can have.
        most: usize,
    },
    /// A streamed batch without a step.
    #[error("more batches than steps were announced")]
    NotAnnounced,
    /// Values of another network.
    #[error("{got} {what} where this network has {expected}; they are of another network")]
    Length {
        /// What they are.
        what: &'static str,
        /// How many were given.
        got: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Layers, an optimizer or a loss that make no network.
    #[error(transparent)]
    Network(#[from] NnError),
    /// The CPU's network, which lays out the parameters, could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Made-up data could not be made.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// What a driver's call returned, as an error that says what was asked of it.
pub(crate) fn check(code: CUresult, doing: impl FnOnce() -> String) -> Result<(), CudaError> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::driver(doing(), code)) }
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
        CudaError::of(code, doing.into(), reason)
    }

    /// Some errors leave nothing to do with a GPU in this process.
    fn of(code: CUresult, doing: String, reason: String) -> Self {
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
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUresult::CUDA_ERROR_DEINITIALIZED
            | CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
            | CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUresult::CUDA_ERROR_MPS_CONNECTION_FAILED
            | CUresult::CUDA_ERROR_MPS_SERVER_NOT_READY
            | CUresult::CUDA_ERROR_SYSTEM_NOT_READY
            | CUresult::CUDA_ERROR_UNKNOWN => CudaError::Lost { reason },
            _ => CudaError::Driver { doing, reason },
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
        assert!(!CudaError::EmptyBatch.is_memory());
    }

    #[test]
    fn a_gpu_that_will_not_answer_any_more_is_lost() {
        use super::{CUresult, CudaError};
        for code in [
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            CUresult::CUDA_ERROR_CONTAINED,
            CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED,
            CUresult::CUDA_ERROR_UNKNOWN,
        ] {
            let reason = format!("{code:?}");
            assert!(matches!(CudaError::of(code, "train".into(), reason), CudaError::Lost { .. }), "{code:?}");
        }
        let other = CudaError::of(CUresult::CUDA_ERROR_INVALID_VALUE, "train".into(), "invalid".into());
        assert!(matches!(other, CudaError::Driver { .. }));
    }

    #[test]
    fn bytes_are_readable() {
        assert_eq!(readable(512), "512 bytes");
        assert_eq!(readable(3 << 19), "1.5 MiB");
        assert_eq!(readable(139 << 30), "139.0 GiB");
    }
}
