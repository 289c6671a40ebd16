//! Where networks are computed: on the CPU, or on a GPU.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
pub use cuda::{Gpu, versions};
#[cfg(not(feature = "cuda"))]
mod none;
#[cfg(not(feature = "cuda"))]
pub use none::{Gpu, versions};

use crate::choice::DeviceChoice;
use crate::error::Error;
use crate::team::Team;
use crate::words::counted;
use ftprop_tensor::Cpu;
use std::sync::Arc;

/// What a [`DeviceChoice`] means on this machine. Clones share it.
#[derive(Clone)]
pub struct Place {
    /// Prepares data on every device, and trains where there is no GPU.
    pub cpu: Arc<Cpu>,
    /// The GPU in use.
    pub gpu: Option<Gpu>,
    /// Why `auto` took the CPU.
    pub note: Option<String>,
    /// The ranks that train one network together, where there are any.
    pub team: Option<Team>,
}

/// Why a GPU cannot be used.
struct Refusal {
    why: String,
    /// The same for one who did not ask for it.
    note: String,
}

impl Place {
    /// The CPU with so many threads, 0 for one a core, and the GPU that is asked for.
    pub fn open(device: DeviceChoice, threads: usize) -> Result<Self, Error> {
        let cpu = Arc::new(Cpu::new(threads)?);
        let (gpu, note) = match device {
            DeviceChoice::Cpu => (None, None),
            DeviceChoice::Auto => match Gpu::open(0) {
                Ok(gpu) => (Some(gpu), None),
                Err(refusal) => (None, Some(refusal.note)),
            },
            DeviceChoice::Cuda(ordinal) => {
                let refused = |refusal: Refusal| Error::Device { device: device.to_string(), why: refusal.why };
                (Some(Gpu::open(ordinal).map_err(refused)?), None)
            }
        };
        Ok(Place { cpu, gpu, note, team: None })
    }

    /// A few words on it: `cuda:0 (NVIDIA H200)`, or `2 threads (Avx512)`.
    pub fn describe(&self) -> String {
        match &self.gpu {
            Some(gpu) => gpu.describe(),
            None => format!("{} ({:?})", counted(self.cpu.threads() as u64, "thread"), self.cpu.isa()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_there_and_not() {
        assert!(Place::open(DeviceChoice::Cpu, 1).unwrap().gpu.is_none());
        let auto = Place::open(DeviceChoice::Auto, 1).unwrap();
        assert_eq!(auto.gpu.is_none(), auto.note.is_some());
        match Place::open(DeviceChoice::Cuda(99), 1) {
            Ok(_) => panic!("no machine has a hundred GPUs"),
            Err(error) => assert!(error.to_string().contains("cuda:99"), "{error}"),
        }
    }
}
