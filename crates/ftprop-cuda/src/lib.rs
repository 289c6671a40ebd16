//! The networks of `ftprop` on an NVIDIA GPU: the same layers, the same parameters in the same places, whole
//! training steps as CUDA graphs.
//!
//! Nothing of CUDA is needed to build this crate: the driver, NVRTC and cuDNN are loaded when a device is
//! opened, and a missing one is an error that names it.
//!
//! ```
//! match ftprop_cuda::devices() {
//!     Ok(devices) => devices.iter().for_each(|d| println!("cuda:{} {}", d.ordinal, d.name)),
//!     Err(missing) => println!("no GPU: {missing}"),
//! }
//! ```
//!
//! A run on data that lives on the device:
//!
//! ```no_run
//! # fn run(config: ftprop_cuda::NetworkConfig, data: ftprop_data::Dataset) -> Result<(), ftprop_cuda::CudaError> {
//! use ftprop_cuda::{CudaNetwork, Device, ResidentData, StepSpan};
//! use ftprop_data::Augment;
//!
//! let device = Device::open(0)?;
//! let mut network = CudaNetwork::new(&device, config)?;
//! network.initialise(1)?;
//! let train = ResidentData::new(&device, &data.train, &data.normalize, Augment::CIFAR, true)?.unwrap();
//! let steps = train.examples().div_ceil(network.config().batch);
//! for epoch in 1..=10 {
//!     let first_step = (epoch - 1) * steps as u64;
//!     let rates = vec![(1.0, 0.0); steps];
//!     network.train(&train, &StepSpan { seed: 1, epoch, first_batch: 0, first_step, steps: rates })?;
//!     println!("epoch {epoch}: loss {}", network.take_tally()?.loss());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Compiled kernels and timings are kept under `FTPROP_CACHE`, else in the user's cache folder; folders named in
//! `FTPROP_CUDA_LIBRARIES` are searched for NVIDIA's libraries beside the usual ones.
//!
//! | module | subject |
//! | --- | --- |
//! | `device`, `library` | [`devices`], [`Device`], and the libraries behind them |
//! | `compile` | kernels from text, compiled at first use and kept on disk |
//! | `memory`, `arena`, `stream` | device memory, streams, events and graphs |
//! | `plan` | from layers to passes: products, and what follows each in one kernel |
//! | `gemm`, `patch`, `cudnn`, `cudnn_engines`, `cublas`, `tuning`, `tuning_cache` | how a product is cut into tiles, another way where channels are few, the libraries' ways, which is fastest, and that remembered |
//! | `passes` | each pass with its kernels |
//! | `network`, `state` | [`CudaNetwork`]: steps on batches from the host, and the values it holds |
//! | `training`, `data`, `step` | [`StepSpan`]es of captured steps on [`ResidentData`] or streamed batches |
//! | `selftest`, `product_checks`, `bench` | [`selftest`]: every kernel against the CPU's; [`bench`]: milliseconds a step |

mod arena;
mod bench;
mod compile;
mod cublas;
mod cudnn;
mod cudnn_engines;
mod data;
mod device;
mod error;
mod gemm;
mod library;
mod memory;
mod network;
mod passes;
mod patch;
mod plan;
mod precision;
mod product_checks;
mod selftest;
mod state;
mod step;
mod stream;
mod training;
mod tuning;
mod tuning_cache;

pub use bench::{Bench, bench, profile};
pub use data::ResidentData;
pub use device::{Device, DeviceInfo, Versions, devices, versions};
pub use error::CudaError;
pub use library::Library;
pub use network::{CudaNetwork, NetworkConfig};
pub use precision::Precision;
pub use selftest::{Check, selftest};
pub use training::StepSpan;
pub use tuning::Tuning;
