//! Where networks are computed: on the CPU, or on a GPU.

use crate::error::Error;
use crate::gate::Gate;
use crate::words::counted;
use ftprop_cuda::{CudaError, Device, Library, ResidentData, Tuning};
use ftprop_tensor::Cpu;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What `--device` means on this machine. Clones share it.
#[derive(Clone)]
pub struct Place {
    /// Prepares data on every device, and trains where there is no GPU.
    pub cpu: Arc<Cpu>,
    pub gpu: Option<Gpu>,
    /// Why `auto` took the CPU.
    pub note: Option<String>,
}

/// A GPU in use, with the data sets that live on it: several runs share them.
#[derive(Clone)]
pub struct Gpu {
    pub device: Device,
    /// Where several runs train on it at the same time: how they take turns.
    pub gate: Option<Arc<Gate>>,
    resident: Arc<Mutex<HashMap<String, ResidentData>>>,
}

impl Place {
    /// `auto`, `cpu`, or `cuda:0` and so on.
    pub fn open(name: &str, threads: usize) -> Result<Self, Error> {
        let cpu = Arc::new(Cpu::new(threads)?);
        let refused = |why: String| Error::Device { device: name.into(), why };
        let (gpu, note) = match name {
            "cpu" => (None, None),
            "auto" => match Gpu::open(0) {
                Ok(gpu) => (Some(gpu), None),
                Err(error) => (None, Some(without_gpu(&error))),
            },
            _ => {
                let ordinal = match name.strip_prefix("cuda") {
                    Some("") => Some(0),
                    Some(rest) => rest.strip_prefix(':').and_then(|number| number.parse().ok()),
                    None => None,
                };
                let ordinal =
                    ordinal.ok_or_else(|| refused("known are auto, cpu and cuda:N, such as cuda:0".into()))?;
                (Some(Gpu::open(ordinal).map_err(|e| refused(e.to_string()))?), None)
            }
        };
        Ok(Place { cpu, gpu, note })
    }

    /// A few words on it: `cuda:0 (NVIDIA H200)`, or `2 threads (Avx512)`.
    pub fn describe(&self) -> String {
        match self.gpu.as_ref().map(|gpu| (gpu.device.ordinal(), gpu.device.info())) {
            Some((ordinal, Ok(info))) => format!("cuda:{ordinal} ({})", info.name),
            Some((ordinal, Err(_))) => format!("cuda:{ordinal}"),
            None => format!("{} ({:?})", counted(self.cpu.threads() as u64, "thread"), self.cpu.isa()),
        }
    }
}

/// Why there is no GPU, for one who did not ask for one.
fn without_gpu(error: &CudaError) -> String {
    match Library::Driver.load() {
        Err(_) => "no GPU here (no CUDA driver was found), so the CPU is used".into(),
        Ok(()) => format!("the CPU is used instead of a GPU: {error}"),
    }
}

impl Gpu {
    /// A GPU that can really be used: what it needs is looked for before anything is begun.
    fn open(ordinal: usize) -> Result<Self, CudaError> {
        let device = Device::open(ordinal)?;
        device.check()?;
        Library::Nvrtc.load()?;
        Ok(Gpu { device, gate: None, resident: Arc::default() })
    }

    /// How a network's products are chosen on it.
    pub fn tuning(&self, deterministic: bool) -> Tuning {
        match (deterministic, self.gate.is_some()) {
            (true, _) => Tuning::Fixed,
            (false, true) => Tuning::Shared,
            (false, false) => Tuning::Alone,
        }
    }

    /// The data that lives on this GPU under a name, put there at the first call; none where `make` gives none.
    pub fn resident(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Option<ResidentData>, CudaError>,
    ) -> Result<Option<ResidentData>, CudaError> {
        let mut known = self.resident.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(data) = known.get(name) {
            return Ok(Some(data.clone()));
        }
        let made = make()?;
        if let Some(data) = &made {
            known.insert(name.to_string(), data.clone());
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_name() {
        assert!(Place::open("cpu", 1).unwrap().gpu.is_none());
        let auto = Place::open("auto", 1).unwrap();
        assert_eq!(auto.gpu.is_none(), auto.note.is_some());
        for wrong in ["gpu", "cuda:", "cuda:x", "cuda:-1", ""] {
            let message = Place::open(wrong, 1).err().unwrap().to_string();
            assert!(message.contains("cuda:0") && !message.contains('\n'), "{message}");
        }
        match Place::open("cuda:99", 1) {
            Ok(_) => panic!("no machine has a hundred GPUs"),
            Err(error) => assert!(error.to_string().contains("cuda:99"), "{error}"),
        }
    }
}
