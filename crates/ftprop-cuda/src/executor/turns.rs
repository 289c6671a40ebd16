//! Steps in a row: while one is on its way back, the next one's batch is made at the other place.

use super::Executor;
use crate::CudaError;
use crate::batch::Turn;
use crate::data::ResidentData;

impl Executor {
    /// So many whole steps, each on n examples of a batch of resident data. A full batch has `full` examples.
    pub(crate) fn learn_in_turn(
        &self,
        data: &ResidentData,
        (n, full): (usize, usize),
        steps: usize,
    ) -> Result<(), CudaError> {
        let done = (0..steps).try_for_each(|step| {
            if n > 0 && (step == 0 || self.next.is_none()) {
                self.gather(data, n, full)?;
            }
            if n == 0 || self.next.is_none() || step + 1 == steps {
                return self.learn(n);
            }
            self.learn_and(n, Some(&|| self.gather_next(data, n, full)))?;
            self.batch.turn_to(1 - self.batch.current());
            Ok(())
        });
        // Whatever comes after finds its batch where it is looked for first.
        self.batch.turn_to(0);
        done
    }

    /// Makes the batch after the one that the step names. The step goes on only after that.
    fn gather_next(&self, data: &ResidentData, n: usize, full: usize) -> Result<(), CudaError> {
        let Some(next) = &self.next else { return Ok(()) };
        let stream = next.fork_from(&self.stream)?;
        self.batch.gather(stream, &self.arena, self.step.step(&self.arena), data, (n, full, Turn::Next))
    }
}
