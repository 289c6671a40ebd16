//! What a step asks beside its own way forward and back: a teacher, and the layers above what other outputs would do.

use super::{Executor, OutputTensor};
use crate::CudaError;
use crate::abi::DevicePtr;
use crate::loss::Purpose;
use crate::passes::Statistics;

impl Executor {
    /// Where what its activations are of is kept.
    pub(super) fn taught(&self) -> Vec<DevicePtr> {
        self.pre_activations.iter().map(|&tensor| self.arena.at(self.values(tensor))).collect()
    }

    /// Keeps the logits, or puts them back, where passes are run again with other outputs below.
    pub(super) fn keep_logits(&self, n: usize, back: bool) -> Result<(), CudaError> {
        let OutputTensor { tensor, classes, is_f32, precision, .. } = self.output;
        let bytes = n * classes * if is_f32 { 4 } else { precision.activation_bytes() };
        self.further.keep_logits(&self.arena, &self.stream, (self.values(tensor), bytes), back)
    }

    /// Has the layers above a pass see other outputs, and takes each example's loss with them. By now the slopes have come
    /// down from there, so that nothing there is needed any more but by gradients beside, which are waited for.
    pub(super) fn try_above(&self, number: usize, n: usize) -> Result<(), CudaError> {
        let context = self.context(n, Statistics::Again);
        if let Some(side) = &self.side {
            side.fork_from(&self.stream)?;
            side.join_into(&self.stream)?;
        }
        self.passes[number].try_outputs(&context, &self.stream)?;
        self.passes[number + 1..].iter().try_for_each(|pass| pass.forward(&context, &self.stream))?;
        let [_, losses] = context.further.losses;
        self.take_loss(n, Purpose::Try { losses })?;
        self.hear_losses(n, losses)
    }

    /// Adds what the teacher says to each example's loss, where both are asked for.
    fn hear_losses(&self, n: usize, losses: DevicePtr) -> Result<(), CudaError> {
        let Some((teacher, pass)) = self.teacher.as_ref().filter(|_| !losses.is_null()) else { return Ok(()) };
        let logits = self.context(n, Statistics::Batch).values(self.output.tensor);
        let said = teacher.context(n, Statistics::Running).values(teacher.output.tensor);
        pass.add_losses(&self.stream, [logits, said, losses], n)
    }

    /// Has what target rules look at beside their units' numbers ready for the way back.
    pub(super) fn look_further(&self, n: usize) -> Result<(), CudaError> {
        let (context, output) = (self.context(n, Statistics::Batch), self.output.tensor);
        self.further.prepare(&self.passes, &context, (output, self.loss.weights()), &self.stream)
    }

    /// Has the teacher see the batch that is in place, in this executor's stream.
    pub(super) fn ask_teacher(&self, n: usize) -> Result<(), CudaError> {
        let Some((teacher, pass)) = &self.teacher else { return Ok(()) };
        let (own, other) = (self.batch.images(&self.arena), teacher.batch.images(&teacher.arena));
        pass.copy(&self.stream, own, other, self.batch.example(), n)?;
        teacher.forward_in(&self.stream, n, Statistics::Running)
    }

    /// Mixes what the teacher said into the slopes by the logits.
    pub(super) fn hear_teacher(&self, n: usize) -> Result<(), CudaError> {
        let Some((teacher, pass)) = &self.teacher else { return Ok(()) };
        let (context, output) = (self.context(n, Statistics::Batch), self.output.tensor);
        let said = teacher.context(n, Statistics::Running).values(teacher.output.tensor);
        pass.mix(&self.stream, [context.values(output), said, context.slopes(output), context.step], n)?;
        self.hear_losses(n, context.further.losses[0])
    }
}
