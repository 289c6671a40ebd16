//! The flat buffers: parameters, gradients, the optimizer's moments and running statistics, laid out as the CPU's
//! network has them.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::basic;
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::memory::{DeviceBuffer, out_of_memory};
use crate::precision::Precision;
use crate::stream::CudaStream;
use ftprop_nn::{Graph, Learning};

kernels! {
    /// The rounded copy of the parameters.
    RoundValuesArgs = "round_values" in basic::FILE {
        values: DevicePtr,
        operands: DevicePtr,
        count: u32,
    }
}

pub(crate) struct ParameterBuffers {
    count: usize,
    stat_count: usize,
    values: DeviceBuffer,
    grads: DeviceBuffer,
    moments: Vec<DeviceBuffer>,
    /// The moving average of the values, where there is one.
    average: Option<DeviceBuffer>,
    stats: DeviceBuffer,
    operands: Option<OperandCopy>,
}

/// The parameters as matrix units read them, rounded to bf16 or tf32: left to the units, kernels and libraries would each
/// have their own way. The optimizer keeps it equal to the values.
struct OperandCopy {
    buffer: DeviceBuffer,
    /// Bytes of one.
    bytes: usize,
    round: Kernel<RoundValuesArgs>,
}

impl ParameterBuffers {
    /// For a graph's parameters and statistics, and what learning keeps of each parameter. All are zero.
    pub(crate) fn new(
        device: &Device,
        graph: &Graph,
        learning: &Learning,
        precision: Precision,
    ) -> Result<Self, CudaError> {
        let (count, stat_count) = (graph.parameter_count(), graph.statistic_count());
        let (moments, averaged) = (learning.groups.moments(), learning.average.is_some());
        let copied = if precision == Precision::F32 { 0 } else { precision.activation_bytes() };
        let (free, _) = device.memory()?;
        let bytes = (2 + moments + usize::from(averaged)) * 4 * count + copied * count;
        if bytes > free {
            return Err(out_of_memory(device, bytes, "the parameters"));
        }
        let flat = |what: &str| DeviceBuffer::new(device, 4 * count, what);
        let operands = || {
            let round = Kernel::find(&device.module(basic::source(precision))?)?;
            let buffer = DeviceBuffer::new(device, copied * count, "the parameters")?;
            Ok::<_, CudaError>(OperandCopy { buffer, bytes: copied, round })
        };
        Ok(ParameterBuffers {
            count,
            stat_count,
            values: flat("the parameters")?,
            grads: flat("the gradients")?,
            moments: (0..moments).map(|_| flat("the optimizer's moments")).collect::<Result<_, _>>()?,
            average: averaged.then(|| flat("the average of the parameters")).transpose()?,
            stats: DeviceBuffer::new(device, 4 * stat_count, "the running statistics")?,
            operands: (copied > 0).then(operands).transpose()?,
        })
    }

    /// How many parameters there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of values, gradients, moments and copies.
    pub(crate) fn bytes(&self) -> usize {
        let copied = self.operands.as_ref().map_or(0, |copy| copy.bytes);
        self.count * (4 * (2 + self.moments.len() + usize::from(self.average.is_some())) + copied)
    }

    /// Bytes that a step of the optimizer reads and writes.
    pub(crate) fn update_bytes(&self) -> usize {
        let changed = 1 + self.moments.len() + usize::from(self.average.is_some());
        let copied = self.operands.as_ref().map_or(0, |copy| copy.bytes);
        self.count * (4 + 8 * changed + copied)
    }

    /// Where parameter number `at` is.
    pub(crate) fn value(&self, at: usize) -> DevicePtr {
        self.values.at(4 * at)
    }

    /// The same as the matrix units read it: rounded, unless all is done in f32.
    pub(crate) fn operand(&self, at: usize) -> DevicePtr {
        self.operands.as_ref().map_or_else(|| self.value(at), |copy| copy.buffer.at(copy.bytes * at))
    }

    /// Where the rounded copy begins, null where there is none.
    pub(crate) fn operands(&self) -> DevicePtr {
        self.operands.as_ref().map_or(DevicePtr::NULL, |copy| copy.buffer.start())
    }

    /// Where the gradient of parameter number `at` is.
    pub(crate) fn grad(&self, at: usize) -> DevicePtr {
        self.grads.at(4 * at)
    }

    /// Where a moment begins, null where there are fewer.
    pub(crate) fn moment(&self, number: usize) -> DevicePtr {
        self.moments.get(number).map_or(DevicePtr::NULL, DeviceBuffer::start)
    }

    /// Where the moving average begins, null where there is none.
    pub(crate) fn average(&self) -> DevicePtr {
        self.average.as_ref().map_or(DevicePtr::NULL, DeviceBuffer::start)
    }

    /// Where running statistic number `at` is.
    pub(crate) fn stat(&self, at: usize) -> DevicePtr {
        self.stats.at(4 * at)
    }

    pub(crate) fn read_values(&self, stream: &CudaStream) -> Result<Vec<f32>, CudaError> {
        self.values.read(stream, 0, self.count)
    }

    pub(crate) fn write_values(&self, stream: &CudaStream, values: &[f32]) -> Result<(), CudaError> {
        expect_len("parameters", values.len(), self.count)?;
        self.values.write(stream, 0, values)?;
        let Some(OperandCopy { buffer, round, .. }) = &self.operands else { return Ok(()) };
        let (values, operands) = (self.values.start(), buffer.start());
        let args = RoundValuesArgs { values, operands, count: self.count as u32 };
        // SAFETY: both buffers have so many numbers.
        unsafe { round.launch(stream, LaunchConfig::for_items(self.count), &args)? };
        stream.wait()
    }

    pub(crate) fn read_grads(&self, stream: &CudaStream) -> Result<Vec<f32>, CudaError> {
        self.grads.read(stream, 0, self.count)
    }

    pub(crate) fn write_grads(&self, stream: &CudaStream, grads: &[f32]) -> Result<(), CudaError> {
        expect_len("gradients", grads.len(), self.count)?;
        self.grads.write(stream, 0, grads)
    }

    pub(crate) fn clear_grads(&self, stream: &CudaStream) -> Result<(), CudaError> {
        self.grads.clear(stream, 0, 4 * self.count)
    }

    /// How many running statistics there are.
    pub(crate) fn stat_count(&self) -> usize {
        self.stat_count
    }

    pub(crate) fn read_average(&self, stream: &CudaStream) -> Result<Option<Vec<f32>>, CudaError> {
        self.average.as_ref().map(|average| average.read(stream, 0, self.count)).transpose()
    }

    /// Does nothing where there is no average.
    pub(crate) fn write_average(&self, stream: &CudaStream, values: &[f32]) -> Result<(), CudaError> {
        expect_len("averaged weights", values.len(), self.count)?;
        self.average.as_ref().map_or(Ok(()), |average| average.write(stream, 0, values))
    }

    pub(crate) fn read_stats(&self, stream: &CudaStream) -> Result<Vec<f32>, CudaError> {
        self.stats.read(stream, 0, self.stat_count)
    }

    pub(crate) fn write_stats(&self, stream: &CudaStream, stats: &[f32]) -> Result<(), CudaError> {
        expect_len("statistics", stats.len(), self.stat_count)?;
        self.stats.write(stream, 0, stats)
    }

    pub(crate) fn read_moments(&self, stream: &CudaStream) -> Result<Vec<Vec<f32>>, CudaError> {
        self.moments.iter().map(|moment| moment.read(stream, 0, self.count)).collect()
    }

    pub(crate) fn write_moments(&self, stream: &CudaStream, moments: &[&[f32]]) -> Result<(), CudaError> {
        expect_len("moments", moments.len(), self.moments.len())?;
        for (buffer, saved) in self.moments.iter().zip(moments) {
            expect_len("moments", saved.len(), self.count)?;
            buffer.write(stream, 0, saved)?;
        }
        Ok(())
    }
}

fn expect_len(what: &'static str, got: usize, expected: usize) -> Result<(), CudaError> {
    if got == expected { Ok(()) } else { Err(CudaError::Length { what, got, expected }) }
}
