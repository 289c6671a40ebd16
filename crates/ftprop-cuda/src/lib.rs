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
//! # fn run(config: ftprop_cuda::NetworkConfig, data: ftprop_data::Dataset) -> Result<(), ftprop_nn::EngineError> {
//! use ftprop_cuda::{CudaNetwork, Device, ResidentData};
//! use ftprop_data::Augment;
//! use ftprop_nn::engine::StepSpan;
//!
//! let device = Device::open(0)?;
//! let mut network = CudaNetwork::new(&device, config)?;
//! network.initialise(1)?;
//! let train = ResidentData::new(&device, &data.train, &data.normalize, Augment::CIFAR, true)?.unwrap();
//! let steps = train.examples().div_ceil(network.config().batch);
//! for epoch in 1..=10 {
//!     let first_step = (epoch - 1) * steps as u64;
//!     let rates = vec![(1.0, 0.0); steps];
//!     network.train(&train, &StepSpan { seed: 1, epoch, first_batch: 0, first_step, steps: rates, portion: None })?;
//!     println!("epoch {epoch}: loss {}", network.take_tally()?.loss());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Compiled kernels and timings are kept under `FTPROP_CACHE`, else in the user's cache folder; folders named in
//! `FTPROP_CUDA_LIBRARIES` are searched for NVIDIA's libraries before the usual ones. A kept kernel is loaded only if it is
//! the user's own and as it was written; otherwise it is compiled again, which [`take_notes`] tells. Folders that the
//! environment names count if they are absolute.
//!
//! | module | subject |
//! | --- | --- |
//! | `device`, `library`, `environment`, `error` | [`devices`], [`Device`], and the libraries behind them |
//! | `nvrtc`, `compile`, `module`, `cache` | kernels from text, compiled at first use and kept on disk |
//! | `abi`, `arguments`, `kernel` | what host and kernels agree on, how what a kernel takes is declared, and its launch |
//! | `stream`, `memory`, `arena` | streams, events, graphs and device memory |
//! | `plan` | from layers to passes: products, and the epilogue of each in one kernel |
//! | `gemm`, `patch`, `cudnn`, `cudnn_engines`, `cublas`, `libraries` | the algorithms for a product: tiled, from a patch, the libraries' |
//! | `compiled_gemm`, `tuning`, `tile_model`, `timing`, `tuning_cache` | a product with its algorithm, which ones are worth timing, which one is fastest, and that remembered |
//! | `parameters`, `step`, `batch`, `staging`, `passes`, `loss`, `distillation`, `optimizer`, `basic` | the parts of a step with their kernels and memory |
//! | `further`, `curvature` | what target rules look at beside a unit's own numbers |
//! | `executor`, `graphs` | a whole step, and steps that are captured |
//! | `nccl`, `exchange` | several GPUs that share batches: [`Communicator`], and gradients summed beside the backward pass |
//! | `picture_table` | where pictures of different sizes lie |
//! | `pictures`, `streamed` | batches of pictures of different sizes: [`StreamedPictures`], [`StreamedPixels`] |
//! | `network`, `data` | [`CudaNetwork`]: steps on batches from the host, spans of captured steps on [`ResidentData`] |
//! | `selftest`, `product_checks`, `bench`, `startup`, `work` | [`selftest`]: every kernel against the CPU's; [`bench()`]: milliseconds a step, and where the time before the first goes; what pieces of a step take beside the least they could |
//!
//! Words that are ours, or that the trade uses more loosely:
//!
//! | word | meaning |
//! | --- | --- |
//! | product | a convolution or a fully connected layer; its three products are `Forward`, `Input` (slopes by what came in) and `Weights` (gradients) |
//! | epilogue | all that follows a product until the next one and fits into one kernel: norm or bias, residual sum, pooling, activation, dropout |
//! | pass | what is run as one: a product, an epilogue, a layer that is neither |
//! | slopes | derivatives of the loss, or of a layer loss, by activations; gradients are those by parameters |
//! | patch | the part of an image that a block's pixels look at, kept in shared memory |
//! | tiling | the tile of a block, and over how many blocks the depth is split (split-K) |
//! | side stream | a second stream, for gradients that nothing further down waits for |
//! | span | consecutive training steps whose numbers are announced at once |
//! | region | a piece of the one allocation that a network's tensors and workspaces share |

#![deny(missing_docs)]

mod abi;
mod arena;
mod arguments;
mod basic;
mod batch;
mod bench;
mod cache;
mod compile;
mod compiled_gemm;
mod cublas;
mod cudnn;
mod cudnn_engines;
mod curvature;
mod data;
mod device;
mod distillation;
mod environment;
mod error;
mod exchange;
mod executor;
mod further;
mod gemm;
mod graphs;
mod joined;
mod kernel;
mod learned;
mod libraries;
mod library;
mod loss;
mod matrices;
mod memory;
mod module;
mod nccl;
mod network;
mod nvrtc;
mod optimizer;
mod parameters;
mod passes;
mod patch;
mod picture_table;
mod pictures;
mod plan;
mod precision;
mod product_checks;
mod scalars;
mod selftest;
mod shifted;
#[cfg(test)]
mod signatures;
mod staging;
mod startup;
mod step;
mod stream;
mod streamed;
mod tile_model;
mod timing;
mod tuning;
mod tuning_cache;
mod work;

pub use bench::{Bench, TimedPiece, bench, profile};
pub use cache::take_notes;
pub use data::ResidentData;
pub use device::{Device, DeviceInfo, Versions, devices, versions};
pub use error::CudaError;
pub use library::Library;
pub use nccl::{Breaker, Communicator, nccl_id, nccl_version};
pub use network::{CudaNetwork, NetworkConfig};
pub use precision::Precision;
pub use selftest::{SelftestPart, selftest};
pub use startup::StartupPart;
pub use streamed::{StreamedPictures, StreamedPixels};
pub use tuning::Tuning;
pub use work::{Roof, Work};
