//! The way back through a pool by its windows, see epilogue_windows.cu.

#[cfg(test)]
use super::epilogue_source::WINDOWS_FILE;
use crate::CudaError;
use crate::abi::{DevicePtr, NormBackward};
use crate::arena::Region;
use crate::arguments::kernels;
use crate::kernel::Kernel;
use crate::module::Module;
use crate::plan::Epilogue;
use ftprop_tensor::geometry::PoolGeometry;

kernels! {
    /// From the slopes by the output to those by the windows' largest pre-activations, in their place, or where
    /// its source says `TOGETHER` to those by the input.
    BackwardWindowsArgs = "epilogue_backward_windows" in WINDOWS_FILE {
        dout: DevicePtr,
        largest: DevicePtr,
        argmax: DevicePtr,
        dy: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        norm1: NormBackward,
        biased: i32,
        partial: DevicePtr,
        counter: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }

    /// From those to the slopes by the input.
    BackwardPlacesArgs = "epilogue_backward_places" in WINDOWS_FILE {
        dout: DevicePtr,
        y: DevicePtr,
        argmax: DevicePtr,
        coefficients1: DevicePtr,
        dy: DevicePtr,
        n: i32,
    }

    /// The first pass back where the pool follows such an activation.
    BackwardGroupsArgs = "epilogue_backward_groups" in WINDOWS_FILE {
        dout: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        argmax: DevicePtr,
        dz: DevicePtr,
        norm1: NormBackward,
        biased: i32,
        partial: DevicePtr,
        counter: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }
}

/// The kernels that go by windows.
pub(super) enum WindowKernels {
    /// For windows that have slopes of their own.
    Before {
        windows: Kernel<BackwardWindowsArgs>,
        places: Kernel<BackwardPlacesArgs>,
        /// The input's values at the largest of each window.
        largest: Region,
    },
    /// For a pool after an activation whose slopes follow from all windows of a place; the second pass back is the usual one.
    After(Kernel<BackwardGroupsArgs>),
}

impl WindowKernels {
    pub(super) fn find(module: &Module, epilogue: &Epilogue, largest: Region) -> Result<Self, CudaError> {
        match epilogue.has_slopes_by_windows() {
            false => Ok(WindowKernels::After(Kernel::find(module)?)),
            true => {
                Ok(WindowKernels::Before { windows: Kernel::find(module)?, places: Kernel::find(module)?, largest })
            }
        }
    }
}

/// Whether a pool's places lie in few windows each, and few places in the same.
pub(super) fn suit(pool: &PoolGeometry) -> bool {
    pool.kernel <= 2 * pool.stride && pool.stride <= 3
}

/// Groups of places that lie in the same windows, in one map.
pub(super) fn groups(pool: &PoolGeometry) -> usize {
    let along = |size: usize| (size + pool.pad - 1) / pool.stride + 1;
    along(pool.height) * along(pool.width)
}
