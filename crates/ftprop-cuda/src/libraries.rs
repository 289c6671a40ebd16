//! NVIDIA's libraries, those that a network's products use.

use crate::CudaError;
use crate::cublas::{self, Cublas};
use crate::cudnn::Cudnn;
use crate::device::Device;
use crate::gemm::{Algorithm, Gemm};

/// Those that are in use. Without a library our own kernels do everything.
#[derive(Default)]
pub(crate) struct Libraries {
    cudnn: Option<Cudnn>,
    cublas: Option<Cublas>,
}

fn is_cudnn(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Cudnn(_))
}

fn is_cublas(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Cublas(_))
}

impl Libraries {
    /// Those that are asked for and installed. `concurrent` networks share the GPU's memory.
    pub(crate) fn open(device: &Device, cudnn: bool, cublas: bool, concurrent: usize) -> Self {
        Libraries {
            cudnn: cudnn.then(|| Cudnn::new(device, concurrent).ok()).flatten(),
            cublas: cublas.then(|| Cublas::new(device).ok()).flatten(),
        }
    }

    /// Lets go of those that none of the algorithms needs.
    pub(crate) fn retain(&mut self, algorithms: &[Algorithm]) {
        self.cudnn = self.cudnn.take().filter(|_| algorithms.iter().any(is_cudnn));
        self.cublas = self.cublas.take().filter(|_| algorithms.iter().any(is_cublas));
    }

    pub(crate) fn cudnn(&self) -> Result<&Cudnn, CudaError> {
        self.cudnn.as_ref().ok_or(CudaError::NotLoaded { library: "cuDNN" })
    }

    pub(crate) fn cublas(&self) -> Result<&Cublas, CudaError> {
        self.cublas.as_ref().ok_or(CudaError::NotLoaded { library: "cuBLASLt" })
    }

    /// The algorithms with which they can compute a product.
    pub(crate) fn algorithms(&self, gemm: &Gemm, n: usize) -> Vec<Algorithm> {
        let cudnn = self.cudnn.as_ref().filter(|_| gemm.suits_cudnn(n));
        let cudnn = (0..cudnn.map_or(0, |cudnn| cudnn.algorithms(gemm, n))).map(Algorithm::Cudnn);
        let cublas = (0..cublas::PROPOSALS).map(Algorithm::Cublas);
        cublas.chain(cudnn).filter(|&algorithm| self.can(algorithm, gemm, n)).collect()
    }

    /// The version of the library that an algorithm is of, 0 where it is not installed or the algorithm is ours.
    pub(crate) fn version(&self, algorithm: Algorithm) -> usize {
        match algorithm {
            Algorithm::Tiled(_) | Algorithm::Patch | Algorithm::Shifted(_) => 0,
            Algorithm::Cudnn(_) => self.cudnn.as_ref().map_or(0, Cudnn::version),
            Algorithm::Cublas(_) => self.cublas.as_ref().map_or(0, Cublas::version),
        }
    }

    /// Whether they can compute a product with an algorithm, where that is one of theirs.
    pub(crate) fn can(&self, algorithm: Algorithm, gemm: &Gemm, n: usize) -> bool {
        match algorithm {
            Algorithm::Tiled(_) | Algorithm::Patch | Algorithm::Shifted(_) => true,
            Algorithm::Cudnn(a) => {
                gemm.suits_cudnn(n) && self.cudnn.as_ref().is_some_and(|c| c.bytes_to_set_aside(gemm, n, a).is_ok())
            }
            Algorithm::Cublas(a) => {
                let known = |c: &Cublas| c.prepare(gemm, n).is_ok_and(|count| a < count);
                gemm.suits_cublas() && self.cublas.as_ref().is_some_and(known)
            }
        }
    }
}
