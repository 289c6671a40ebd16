//! Hard units that stand alone, because their target rule looks further than at their own numbers.

use super::{BatchContext, CompileOptions, vector_width};
use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::plan::{FusionPlan, TargetLayer};
use crate::stream::CudaStream;
use ftprop_nn::Shape;
use ftprop_nn::target::Further;

const FILE: KernelFile = KernelFile { name: "targets.cu", text: include_str!("../../kernels/targets.cu") };

kernels! {
    /// What the units output.
    TargetForwardArgs = "target_forward" in FILE {
        z: DevicePtr,
        out: DevicePtr,
        not_numbers: DevicePtr,
        pass: u32,
        n: i32,
    }

    /// From g to slopes.
    TargetBackwardArgs = "target_backward" in FILE {
        dout: DevicePtr,
        z: DevicePtr,
        teacher: DevicePtr,
        tried: DevicePtr,
        before: DevicePtr,
        after: DevicePtr,
        curvature: DevicePtr,
        dz: DevicePtr,
        z_curvature: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }

    /// The batch's examples by class.
    OrderByClassArgs = "order_by_class" in FILE {
        labels: DevicePtr,
        order: DevicePtr,
        starts: DevicePtr,
        n: i32,
    }

    /// From g to slopes, where a rule goes by classes.
    TargetBackwardByClassArgs = "target_backward_by_class" in FILE {
        dout: DevicePtr,
        z: DevicePtr,
        curvature: DevicePtr,
        dz: DevicePtr,
        z_curvature: DevicePtr,
        order: DevicePtr,
        starts: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        n: i32,
    }

    /// Outputs that are to be tried.
    TargetTryArgs = "target_try" in FILE {
        dout: DevicePtr,
        z: DevicePtr,
        tried: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        n: i32,
    }
}

/// Threads that take an example where outputs are tried.
const TRY_THREADS: u32 = 256;

/// The most blocks that a launch has in its second dimension.
const MOST_ROWS: usize = 65_535;

/// Hard units with their kernels.
pub(crate) struct CompiledTargets {
    pub(super) layer: TargetLayer,
    /// Which pass it is, from 1.
    number: u32,
    pub(super) shape: Shape,
    classes: usize,
    vector_width: usize,
    forward: Kernel<TargetForwardArgs>,
    backward: Kernel<TargetBackwardArgs>,
    order: Kernel<OrderByClassArgs>,
    by_class: Kernel<TargetBackwardByClassArgs>,
    attempt: Kernel<TargetTryArgs>,
}

/// How many a thread takes.
fn width(units: usize) -> usize {
    vector_width(&[units])
}

impl CompiledTargets {
    /// The kernels of a plan's layer.
    pub(super) fn source(layer: &TargetLayer, plan: &FusionPlan, options: &CompileOptions) -> Source {
        let (units, unit) = (plan.tensors[layer.z].shape.len(), &layer.unit);
        let further = match unit.rule.further() {
            None => "FURTHER_NOTHING",
            Some(Further::ClassSum) => "FURTHER_CLASS_SUM",
            Some(Further::Curvature) => "FURTHER_CURVATURE",
            Some(Further::Teacher) => "FURTHER_TEACHER",
            Some(Further::Above) => "FURTHER_ABOVE",
        };
        Source::new(FILE, options.precision)
            .int("UNITS", units)
            .int("VEC", width(units))
            .int("CLASSES", plan.tensors[plan.output].shape.len())
            .name("FURTHER", further)
            .int("MOST", unit.rule.tried(units).unwrap_or(0))
            .int("CURVED", usize::from(plan.curved))
            .int("ACCUMULATE1", usize::from(layer.adds))
            .int("SCALARS", options.scalars.width())
            .int("LOSS_SCALAR", options.scalars.loss_at(Some(unit.layer_loss)))
            .int("HARD_LAYER", layer.number as usize)
            .functions(&unit.activation.device_value("activation"))
            .functions(&unit.device_pieces().expect("a network with another rule is refused"))
    }

    pub(super) fn new(
        device: &Device,
        (number, layer): (usize, TargetLayer),
        source: Source,
        [shape, output]: [Shape; 2],
    ) -> Result<Self, CudaError> {
        let module = device.module(source)?;
        Ok(CompiledTargets {
            layer,
            number: number as u32,
            shape,
            classes: output.len(),
            vector_width: width(shape.len()),
            forward: Kernel::find(&module)?,
            backward: Kernel::find(&module)?,
            order: Kernel::find(&module)?,
            by_class: Kernel::find(&module)?,
            attempt: Kernel::find(&module)?,
        })
    }

    pub(super) fn forward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let args = TargetForwardArgs {
            z: batch.values(self.layer.z),
            out: batch.values(self.layer.out),
            not_numbers: batch.not_numbers,
            pass: self.number,
            n: batch.n as i32,
        };
        // SAFETY: both tensors have room for a full batch.
        unsafe { self.forward.launch(stream, self.launch_config(batch.n), &args) }
    }

    /// Slopes, and the curvature where it comes down.
    pub(super) fn backward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let (z, out) = (self.layer.z, self.layer.out);
        let (dout, dz) = (batch.slopes(out), batch.slopes(z));
        if dout.is_null() || dz.is_null() {
            return Ok(());
        }
        let (curvature, z_curvature, z) = (batch.curvature(out), batch.curvature(z), batch.values(z));
        let (step, scalars, labels, n) = (batch.step, batch.scalars, batch.labels, batch.n as i32);
        if self.layer.unit.rule.further() != Some(Further::ClassSum) {
            let teacher = self.layer.followed.map_or(DevicePtr::NULL, |at| batch.further.taught[at]);
            let ([before, after], tried) = (batch.further.losses, batch.values(out));
            let args = TargetBackwardArgs {
                dout,
                z,
                teacher,
                tried,
                before,
                after,
                curvature,
                dz,
                z_curvature,
                step,
                scalars,
                labels,
                n,
            };
            // SAFETY: all tensors have room for a full batch, the teacher's too.
            return unsafe { self.backward.launch(stream, self.launch_config(batch.n), &args) };
        }
        let [order, starts] = batch.further.by_class;
        let args = TargetBackwardByClassArgs { dout, z, curvature, dz, z_curvature, order, starts, step, scalars, n };
        let columns = (self.shape.len() / self.vector_width).div_ceil(256);
        let grid = (columns as u32, self.classes.min(MOST_ROWS) as u32, 1);
        // SAFETY: as above; the batch was put in order.
        unsafe { self.by_class.launch(stream, LaunchConfig { grid, threads: 256, shared: 0 }, &args) }
    }

    /// Whether its rule asks what the layers above make of other outputs.
    pub(super) fn asks_above(&self) -> bool {
        self.layer.unit.rule.further() == Some(Further::Above)
    }

    /// Puts outputs that are to be tried in the place of its own.
    pub(super) fn try_outputs(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let (z, out) = (self.layer.z, self.layer.out);
        let (dout, z, tried) = (batch.slopes(out), batch.values(z), batch.values(out));
        let (step, scalars, n) = (batch.step, batch.scalars, batch.n as i32);
        let args = TargetTryArgs { dout, z, tried, step, scalars, n };
        let config = LaunchConfig { grid: (batch.n as u32, 1, 1), threads: TRY_THREADS, shared: 0 };
        // SAFETY: the tensors have room for a full batch, of which each block takes an example.
        unsafe { self.attempt.launch(stream, config, &args) }
    }

    /// Whether its rule needs the batch's examples by class.
    pub(super) fn goes_by_class(&self) -> bool {
        self.layer.unit.rule.further() == Some(Further::ClassSum)
    }

    /// Puts the batch's examples in order by class.
    pub(super) fn order(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let [order, starts] = batch.further.by_class;
        let args = OrderByClassArgs { labels: batch.labels, order, starts, n: batch.n as i32 };
        let blocks = batch.n.max(self.classes + 1).div_ceil(256);
        // SAFETY: there is room for the numbers of a full batch and for one more than there are classes.
        unsafe {
            self.order.launch(stream, LaunchConfig { grid: (blocks as u32, 1, 1), threads: 256, shared: 0 }, &args)
        }
    }

    fn launch_config(&self, n: usize) -> LaunchConfig {
        LaunchConfig::for_items(n * self.shape.len() / self.vector_width)
    }
}
