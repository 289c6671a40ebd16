//! GPUs that CUDA reaches.

use super::Refusal;
use crate::gate::Gate;
use ftprop_cuda::{CudaError, Device, Library, ResidentData, Tuning};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU in use, with the data sets that live on it: several runs share them.
#[derive(Clone)]
pub struct Gpu {
    /// The device itself.
    pub device: Device,
    /// Where several runs train on it at the same time: how they take turns.
    gate: Option<Arc<Gate>>,
    resident: Arc<Mutex<HashMap<String, ResidentData>>>,
}

impl Gpu {
    /// A GPU that can really be used: what it needs is looked for before anything is begun.
    pub(super) fn open(ordinal: usize) -> Result<Self, Refusal> {
        let open = || -> Result<Self, CudaError> {
            let device = Device::open(ordinal)?;
            device.check()?;
            Library::Nvrtc.load()?;
            Ok(Gpu { device, gate: None, resident: Arc::default() })
        };
        open().map_err(|error| Refusal {
            why: error.to_string(),
            note: match Library::Driver.load() {
                Err(_) => "no GPU here (no CUDA driver was found), so the CPU is used".into(),
                Ok(()) => format!("the CPU is used instead of a GPU: {error}"),
            },
        })
    }

    /// `cuda:0 (NVIDIA H200)`
    pub(super) fn describe(&self) -> String {
        match (self.device.ordinal(), self.device.info()) {
            (ordinal, Ok(info)) => format!("cuda:{ordinal} ({})", info.name),
            (ordinal, Err(_)) => format!("cuda:{ordinal}"),
        }
    }

    /// How runs take turns on it, where several train at the same time.
    pub fn gate(&self) -> Option<&Arc<Gate>> {
        self.gate.as_ref()
    }

    /// Says whether it is shared from now on, and how.
    pub(crate) fn share(&mut self, gate: Option<Arc<Gate>>) {
        self.gate = gate;
    }

    /// Bytes that nobody uses; none where the driver does not say.
    pub(crate) fn free_memory(&self) -> Option<usize> {
        self.device.memory().ok().map(|(free, _)| free)
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

/// The driver's and the libraries' versions, as far as they are there.
pub fn versions() -> Vec<String> {
    ftprop_cuda::versions().named()
}
