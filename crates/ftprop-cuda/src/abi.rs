//! What the host and the kernels agree on byte by byte: addresses, and structs that both sides have. The host defines
//! each struct's size for the kernels, which refuse to compile where theirs has another.

use cudarc::driver::sys::CUdeviceptr;
use std::ffi::c_void;

/// Plain old data: may be copied byte by byte between host and device.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub(crate) unsafe trait Pod: Copy + Default {}
// SAFETY: numbers.
unsafe impl Pod for f32 {}
// SAFETY: numbers.
unsafe impl Pod for f64 {}
// SAFETY: numbers.
unsafe impl Pod for u32 {}
// SAFETY: numbers.
unsafe impl Pod for u16 {}
// SAFETY: numbers.
unsafe impl Pod for u8 {}

/// An address in device memory, as kernels take it. Having one is safe; what reads or writes there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct DevicePtr(CUdeviceptr);

impl DevicePtr {
    /// What stands for nothing.
    pub(crate) const NULL: DevicePtr = DevicePtr(0);

    pub(crate) fn new(raw: CUdeviceptr) -> Self {
        DevicePtr(raw)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address so many f32 further on.
    pub(crate) fn after_floats(self, count: usize) -> DevicePtr {
        DevicePtr(self.0 + (count * size_of::<f32>()) as CUdeviceptr)
    }

    /// The number, for the driver.
    pub(crate) fn raw(self) -> CUdeviceptr {
        self.0
    }

    /// As libraries take it.
    pub(crate) fn as_void(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// What a step depends on beside its batch; the last kernel of a step moves it on.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceStep {
    pub(crate) number: u64,
    pub(crate) dropout_base: u64,
    pub(crate) target_base: u64,
    pub(crate) shuffle_key: u64,
    pub(crate) augment_key: u64,
    pub(crate) flip_key: u64,
    pub(crate) epoch: u64,
    /// The row of the table of scalars.
    pub(crate) index: u32,
    /// The batch's number in its epoch.
    pub(crate) batch: u32,
    /// Of a batch that several GPUs share, which example is the first here.
    pub(crate) first: u32,
    /// And how many it has in all; 0 where all are here.
    pub(crate) of: u32,
}

// SAFETY: whole numbers without padding.
unsafe impl Pod for DeviceStep {}

/// A picture of a data set, in device memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct PictureEntry {
    /// Where its pixels begin.
    pub(crate) offset: u64,
    pub(crate) height: u32,
    pub(crate) width: u32,
    /// The size that it is resized to before a window is cut out of it.
    pub(crate) new_height: u32,
    pub(crate) new_width: u32,
}

// SAFETY: whole numbers without padding.
unsafe impl Pod for PictureEntry {}

/// Losses and hits so far.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct DeviceTally {
    pub(crate) loss_sum: f64,
    pub(crate) examples: u64,
    pub(crate) top1: u64,
    pub(crate) top5: u64,
}

// SAFETY: numbers without padding.
unsafe impl Pod for DeviceTally {}

/// What a norm comes with.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NormParameters {
    pub(crate) gamma: DevicePtr,
    pub(crate) beta: DevicePtr,
    pub(crate) running_mean: DevicePtr,
    pub(crate) running_variance: DevicePtr,
    pub(crate) eps: f32,
    pub(crate) momentum: f32,
}

/// What a norm's statistics give for the way back and for later passes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NormSaved {
    pub(crate) mean: DevicePtr,
    pub(crate) inverse: DevicePtr,
    pub(crate) scale: DevicePtr,
    pub(crate) shift: DevicePtr,
}

/// What a norm's way back reads and writes.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NormBackward {
    pub(crate) mean: DevicePtr,
    pub(crate) inverse: DevicePtr,
    pub(crate) gamma: DevicePtr,
    pub(crate) d_gamma: DevicePtr,
    pub(crate) d_beta: DevicePtr,
    pub(crate) coefficients: DevicePtr,
}

impl NormBackward {
    /// For an epilogue without this norm, whose kernels do not look at it.
    pub(crate) const ABSENT: NormBackward = {
        let nothing = DevicePtr::NULL;
        NormBackward {
            mean: nothing,
            inverse: nothing,
            gamma: nothing,
            d_gamma: nothing,
            d_beta: nothing,
            coefficients: nothing,
        }
    };
}

/// The macros that tell the kernels how large the host's structs are.
pub(crate) const SIZES: [(&str, usize); 6] = [
    ("DEVICE_STEP_BYTES", size_of::<DeviceStep>()),
    ("DEVICE_TALLY_BYTES", size_of::<DeviceTally>()),
    ("PICTURE_ENTRY_BYTES", size_of::<PictureEntry>()),
    ("NORM_PARAMETERS_BYTES", size_of::<NormParameters>()),
    ("NORM_SAVED_BYTES", size_of::<NormSaved>()),
    ("NORM_BACKWARD_BYTES", size_of::<NormBackward>()),
];

#[cfg(test)]
mod tests {
    use super::SIZES;

    #[test]
    fn sizes_are_those_of_the_kernels_structs() {
        assert_eq!(SIZES.map(|(_, size)| size), [72, 32, 24, 40, 32, 48]);
    }
}
