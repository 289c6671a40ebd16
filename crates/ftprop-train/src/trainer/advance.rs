//! How an epoch goes on: by a span of steps on data that lives on the device, by a batch from the host, or by as many
//! batches as make one step of the optimizer.

use super::Trainer;
use crate::error::Error;
use crate::run::EpochMetrics;
use ftprop_data::Epoch;
use ftprop_nn::engine::StepSpan;
use ftprop_nn::{Portion, Step, Tally};

/// Steps that are announced at once, at most.
pub(super) const ANNOUNCED: usize = 4096;

/// What came of going on.
pub(super) enum Advance {
    /// There was nothing left to learn from.
    Over,
    /// Steps were asked for; what they give is known when the engine finishes them.
    Asked,
    /// A step was made, and this is what it gave.
    Made(Tally),
}

impl Trainer {
    /// Goes on with the epoch; `announced` is the end of what was announced to the engine.
    pub(super) fn advance(&mut self, batches: Option<&mut Epoch>, announced: &mut usize) -> Result<Advance, Error> {
        let Some(batches) = batches else {
            let span = self.announce(self.state.batch, self.span);
            if let Some(resident) = self.engine.resident() {
                resident.train(&span)?;
            }
            self.state.batch += span.steps.len();
            self.state.step += span.steps.len() as u64;
            return Ok(Advance::Asked);
        };
        if self.recipe.train.accumulate > 1 {
            return self.accumulate(batches);
        }
        let Some(batch) = batches.next_batch()? else { return Ok(Advance::Over) };
        // A batch whose pictures were all skipped leaves a gap.
        if *announced <= batch.index || self.state.batch != batch.index {
            let span = self.announce(batch.index, ANNOUNCED);
            *announced = batch.index + span.steps.len();
            self.engine.begin(span)?;
        }
        match self.engine.takes_pixels() {
            false => self.engine.step(batch.images, batch.labels)?,
            true => self.engine.step_pixels(batch.pixels, batch.labels, batch.numbers)?,
        }
        self.state.batch = batch.index + 1;
        self.state.step += 1;
        Ok(Advance::Asked)
    }

    /// One step of the optimizer along the mean of the gradients of several batches, by their examples. It is made whole
    /// or not at all, so a checkpoint never lies within it. The sum is taken in the host's memory, whatever the device.
    fn accumulate(&mut self, batches: &mut Epoch) -> Result<Advance, Error> {
        let group = self.recipe.train.accumulate;
        // Of examples: those that were learned from here, and those of all ranks.
        let (mut sum, mut tally, mut all) = (Vec::new(), Tally::default(), 0);
        while let Some(batch) = batches.next_batch()? {
            let span = self.announce(batch.index, 1);
            let [(factor, progress)] = span.steps[..] else { break };
            let step = Step { seed: span.seed, number: span.first_step, progress };
            let seen = self.engine.learn_portion(batch.images, batch.labels, &step, span.portion)?;
            let gradients = self.engine.gradients()?;
            sum.resize(gradients.len(), 0.0f32);
            let examples = span.portion.map_or(seen.examples as usize, |portion| portion.of);
            sum.iter_mut().zip(&*gradients).for_each(|(sum, g)| *sum += examples as f32 * g);
            drop(gradients);
            all += examples;
            tally.add(&seen);
            self.state.batch = batch.index + 1;
            self.state.step += 1;
            if self.state.batch.is_multiple_of(group) || self.state.batch >= self.steps_per_epoch() {
                self.step_along(sum, all, &tally, factor)?;
                return Ok(Advance::Made(tally));
            }
        }
        // Pictures at the end that were skipped.
        if all == 0 {
            return Ok(Advance::Over);
        }
        let factor = self.factor(self.state.batch - 1);
        self.step_along(sum, all, &tally, factor)?;
        Ok(Advance::Made(tally))
    }

    /// Along the sum of the gradients of so many examples.
    fn step_along(&mut self, mut sum: Vec<f32>, examples: usize, tally: &Tally, factor: f64) -> Result<(), Error> {
        // A loss that is no number would spoil every parameter: the step is not taken, and the tally shows why.
        if tally.loss_sum.is_finite() {
            let share = 1.0 / examples as f32;
            sum.iter_mut().for_each(|sum| *sum *= share);
            self.engine.set_gradients(&sum)?;
            self.engine.optimize(factor)?;
        }
        Ok(())
    }

    /// What the learning rate is multiplied by at a step of the present epoch.
    pub(super) fn factor(&self, batch: usize) -> f64 {
        let steps = self.train.batches_per_epoch();
        self.cut() * self.recipe.schedule.factor_at(self.state.epoch, batch, steps, self.recipe.train.epochs)
    }

    /// What epochs without a better one on the validation part have made of the learning rate.
    pub(super) fn cut(&self) -> f64 {
        let scored = |metrics: &'_ EpochMetrics| Some((metrics.epoch, metrics.validation?.top1));
        let scores = self.metrics.iter().filter_map(scored);
        self.recipe.schedule.cut(scores.map(|(epoch, score)| (self.recipe.schedule_of(epoch), score)))
    }

    /// The next steps of the epoch, `most` of them at most.
    fn announce(&self, first_batch: usize, most: usize) -> StepSpan {
        let per_epoch = self.train.batches_per_epoch();
        let total = f64::from(self.recipe.train.epochs) * per_epoch as f64;
        let (batch, examples) = (self.recipe.train.batch, self.train.examples());
        let mut count = most.min(per_epoch - first_batch);
        let portion = self.team.as_ref().map(|team| {
            // The last batch, if it is smaller, is divided in another way and announced by itself.
            count = count.min((examples / batch).saturating_sub(first_batch).max(1));
            Portion::new(team.share(), batch.min(examples - first_batch * batch), batch)
        });
        let step = |i: usize| {
            let progress = ((self.state.step + i as u64) as f64 / total) as f32;
            (self.factor(first_batch + i), progress)
        };
        StepSpan {
            seed: self.recipe.train.seed,
            epoch: u64::from(self.state.epoch),
            first_batch,
            first_step: self.state.step,
            steps: (0..count).map(step).collect(),
            portion,
        }
    }
}
