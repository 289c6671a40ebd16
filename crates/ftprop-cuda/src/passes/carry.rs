//! The loss's curvature on its way down, where a target rule looks at it: as the slopes go, by squares. Hard units carry it
//! together with their slopes.

use super::BatchContext;
use super::epilogue::CompiledEpilogue;
use super::product::CompiledProduct;
use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::gemm::Operands;
use crate::kernel::{Kernel, LaunchConfig};
use crate::stream::CudaStream;

pub(super) const FILE: KernelFile =
    KernelFile { name: "epilogue_carry.cu", text: include_str!("../../kernels/epilogue_carry.cu") };

kernels! {
    /// Through an epilogue.
    EpilogueCarryArgs = "epilogue_carry" in FILE {
        curvature: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        y2: DevicePtr,
        scale2: DevicePtr,
        shift2: DevicePtr,
        argmax: DevicePtr,
        to: DevicePtr,
        to2: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }
}

/// The kernel that carries curvature through an epilogue.
pub(super) struct Carry {
    kernel: Kernel<EpilogueCarryArgs>,
    vector_width: usize,
}

impl Carry {
    pub(super) fn new(device: &Device, source: Source, vector_width: usize) -> Result<Self, CudaError> {
        Ok(Carry { kernel: Kernel::find(&device.module(source)?)?, vector_width })
    }
}

impl CompiledProduct {
    pub(super) fn carry(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let Some(input) = &self.input else { return Ok(()) };
        let p = &self.product;
        let to = batch.curvature(p.x);
        let mut operands = Operands::new(batch.curvature(p.y), batch.further.squared(p.weight.start), to);
        if p.adds {
            operands.addend = to;
        }
        input.run(stream, batch.arena, batch.n, operands)
    }
}

impl CompiledEpilogue {
    pub(super) fn carry(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let (f, curvature) = (&self.epilogue, batch.curvature(self.epilogue.out));
        let (to, to2) = (batch.curvature(f.y), self.residual(|tensor| batch.curvature(tensor)));
        let Some(carry) = &self.carry else { return Ok(()) };
        if curvature.is_null() || (to.is_null() && to2.is_null()) {
            return Ok(());
        }
        let affine = self.affine(batch);
        let args = EpilogueCarryArgs {
            curvature,
            y: batch.values(f.y),
            scale: affine.scale,
            shift: affine.shift,
            y2: self.residual(|tensor| batch.values(tensor)),
            scale2: affine.scale2,
            shift2: affine.shift2,
            argmax: batch.at(self.argmax),
            to,
            to2,
            step: batch.step,
            scalars: batch.scalars,
            labels: batch.labels,
            n: batch.n as i32,
        };
        let config = LaunchConfig::for_items(batch.n * self.shape.len() / carry.vector_width);
        // SAFETY: the tensors have room for a full batch.
        unsafe { carry.kernel.launch(stream, config, &args) }
    }
}
