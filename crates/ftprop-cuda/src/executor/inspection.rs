//! A look into a network's passes: which of them blew up, and each piece of a step by itself.

use super::{Executor, Piece};
use crate::CudaError;
use crate::passes::{CompiledPass, Statistics};
use crate::precision::Precision;
use crate::work::Work;

impl Executor {
    /// Waits, and names the first pass that met something that is no number, else the first whose output for the last batch
    /// of n is not finite.
    pub(crate) fn first_non_finite(&self, n: usize) -> Result<Option<&str>, CudaError> {
        if let Some(pass) = self.loss.read_not_numbers(&self.stream, &self.arena)? {
            return Ok(self.passes.get(pass - 1).map(CompiledPass::name));
        }
        for (pass, shape) in self.passes.iter().zip(&self.output.pass_shapes) {
            let (tensor, len) = (pass.output(), n * shape.len());
            let region = self.values(tensor);
            let is_output = tensor == self.output.tensor;
            let finite = if self.output.precision != Precision::Bf16 || (is_output && self.output.is_f32) {
                self.arena.read::<f32>(&self.stream, region, len)?.iter().all(|v| v.is_finite())
            } else {
                // A bf16 is not finite where its eight exponent bits are all set.
                self.arena.read::<u16>(&self.stream, region, len)?.iter().all(|v| v & 0x7f80 != 0x7f80)
            };
            if !finite {
                return Ok(Some(pass.name()));
            }
        }
        Ok(None)
    }

    /// Gives each piece of a training step on batches of n to `visit`, in order, with a name and with what it does for a full
    /// batch where that is known, to be run any number of times.
    pub(crate) fn visit_pieces(
        &self,
        n: usize,
        visit: &mut dyn FnMut(String, Work, &Piece<'_>) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let (context, stream) = (&self.context(n, Statistics::Batch), &self.stream);
        if self.teacher.is_some() {
            visit("teacher".into(), Work::default(), &|| self.ask_teacher(n))?;
        }
        for (i, pass) in self.passes.iter().enumerate() {
            visit(format!("{i} {} forward", pass.kind()), self.work[i].forward, &|| pass.forward(context, stream))?;
        }
        visit("loss".into(), Work::default(), &|| self.apply_loss(n, true))?;
        visit("targets".into(), Work::default(), &|| self.look_further(n))?;
        for (i, pass) in self.passes.iter().enumerate().rev() {
            if matches!(pass, CompiledPass::Product(_)) {
                visit(format!("{i} {} gradients", pass.kind()), self.work[i].gradients, &|| {
                    pass.gradients(context, stream)?;
                    pass.end_gradients(context, stream)
                })?;
            }
            if context.further.curvature.is_some() {
                visit(format!("{i} {} curvature", pass.kind()), Work::default(), &|| pass.carry(context, stream))?;
            }
            visit(format!("{i} {} back", pass.kind()), self.work[i].back, &|| pass.backward(context, stream))?;
            if pass.has_partial_bias() {
                visit(format!("{i} {} gradients", pass.kind()), Work::default(), &|| {
                    pass.reduce_bias_gradient(context, stream)
                })?;
            }
        }
        let bytes = if self.optimizer.has_matrices() { 0 } else { self.parameters.update_bytes() };
        visit("optimizer".into(), Work { bytes, operations: 0 }, &|| self.optimize(false))
    }
}
