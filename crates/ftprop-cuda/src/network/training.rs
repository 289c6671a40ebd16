//! Whole steps, captured once and replayed: on data that lives on the GPU, or streamed from the host.

use crate::CudaError;
use crate::abi::{DeviceStep, StepScalars};
use crate::data::ResidentData;
use crate::graphs::GraphKey;
use crate::network::CudaNetwork;
use crate::staging::StagingBuffers;
use crate::step::SCALAR_ROWS;
use ftprop_nn::Tally;

/// Full batches that are trained on by one graph: between graphs the device idles for a moment.
const UNROLLED: usize = 4;

/// Consecutive training steps of one epoch.
#[derive(Clone, Debug)]
pub struct StepSpan {
    /// Where the epoch's order, its augmentation and dropout come from.
    pub seed: u64,
    /// Which epoch's order and augmentation, as a [`Loader`](ftprop_data::Loader) counts it.
    pub epoch: u64,
    /// The first batch, counted in the epoch.
    pub first_batch: usize,
    /// The first step's number, counted over the whole run.
    pub first_step: u64,
    /// For each step what the learning rate is multiplied by, and the share of training done.
    pub steps: Vec<(f64, f32)>,
}

impl CudaNetwork {
    /// Asks for training steps on resident data and returns without waiting for them. The last batch of an
    /// epoch may be smaller. What they tally is added to what [`take_tally`](Self::take_tally) gives.
    pub fn train(&mut self, data: &ResidentData, span: &StepSpan) -> Result<(), CudaError> {
        self.check_data(data)?;
        let (batch, examples) = (self.config.batch, data.examples());
        let (batches, end) = (examples.div_ceil(batch), span.first_batch + span.steps.len());
        if end > batches {
            return Err(CudaError::PastEpoch { first: span.first_batch, end, batches });
        }
        for (part, steps) in span.steps.chunks(SCALAR_ROWS).enumerate() {
            let done = part * SCALAR_ROWS;
            let (first, number) = (span.first_batch + done, span.first_step + done as u64);
            self.begin(DeviceStep::new(span.seed, span.epoch, number, first), steps)?;
            let mut i = 0;
            while i < steps.len() {
                let left = examples - (first + i) * batch;
                let unrolled = steps.len() - i >= UNROLLED && left >= UNROLLED * batch;
                let (n, unrolled) = (left.min(batch), if unrolled { UNROLLED } else { 1 });
                let key = GraphKey::Train { data: data.id(), n, steps: unrolled };
                self.graphs.replay(&self.executor, key, |executor| {
                    (0..unrolled).try_for_each(|_| {
                        executor.gather(data, n)?;
                        executor.learn(n)
                    })
                })?;
                i += unrolled;
            }
            self.steps += steps.len() as u64;
        }
        self.graphs.keep(data);
        Ok(())
    }

    /// Tallies a whole resident data set without learning from it; what training tallied is kept.
    pub fn evaluate_data(&mut self, data: &ResidentData) -> Result<Tally, CudaError> {
        self.check_data(data)?;
        let training = self.executor.read_tally()?;
        self.executor.clear_tally()?;
        self.executor.set_step(DeviceStep::new(0, 0, 0, 0), &[StepScalars::default()])?;
        self.executor.load_running_statistics()?;
        let (batch, examples) = (self.config.batch, data.examples());
        for first in (0..examples).step_by(batch) {
            let n = batch.min(examples - first);
            self.graphs.replay(&self.executor, GraphKey::Evaluate { data: data.id(), n }, |executor| {
                executor.gather(data, n)?;
                executor.evaluate(n)?;
                executor.next_batch()
            })?;
        }
        self.graphs.keep(data);
        let tally = self.take_tally()?;
        self.executor.write_tally(training)?;
        Ok(tally)
    }

    /// Has the kernels loaded that batches of these sizes need, in training and in evaluation. Otherwise they are loaded
    /// when they first run, and the driver waits for an idle GPU before it does that: where other networks train on
    /// it, that may be long. (For another size a library may still choose a kernel that was not loaded.)
    pub fn load(&mut self, training: &[usize], evaluation: &[usize]) -> Result<(), CudaError> {
        let sizes = training.iter().map(|&n| (n, true)).chain(evaluation.iter().map(|&n| (n, false)));
        for (n, learning) in sizes {
            if n == 0 || n > self.config.batch {
                return Err(CudaError::BatchSize { n, most: self.config.batch });
            }
            let graph = self.executor.capture(n, |executor| {
                if learning {
                    return executor.learn(n);
                }
                executor.load_running_statistics()?;
                executor.evaluate(n)
            })?;
            graph.upload(self.executor.stream())?;
            self.wait()?;
        }
        Ok(())
    }

    /// Takes the memory that streaming needs, so that it is not missing later.
    pub fn reserve_streaming(&mut self) -> Result<(), CudaError> {
        if self.staging.is_none() {
            let (batch, len) = (self.config.batch, self.config.input.len());
            self.staging = Some(StagingBuffers::new(self.executor.device(), batch, len)?);
        }
        Ok(())
    }

    /// Announces steps whose batches the host brings, one [`stream_batch`](Self::stream_batch) each.
    pub fn begin_streaming(&mut self, span: &StepSpan) -> Result<(), CudaError> {
        let steps = span.steps.len();
        if steps > SCALAR_ROWS {
            return Err(CudaError::LongSpan { steps, most: SCALAR_ROWS });
        }
        self.reserve_streaming()?;
        self.wait()?;
        self.begin(DeviceStep::new(span.seed, span.epoch, span.first_step, span.first_batch), &span.steps)?;
        self.staging.as_mut().expect("made above").begin(span.first_batch, steps);
        Ok(())
    }

    /// Trains on a batch from the host. Returns when the batch has been copied aside, not when the step is done:
    /// the copy to the GPU runs beside the step before.
    pub fn stream_batch(&mut self, images: &[f32], labels: &[u32]) -> Result<(), CudaError> {
        let n = self.check_batch(images, labels)?;
        self.reserve_streaming()?;
        let staging = self.staging.as_mut().expect("made above");
        let slot = staging.push(self.executor.stream(), images, labels)?;
        let staging = &*staging;
        self.graphs.replay(&self.executor, GraphKey::Streamed { n }, |executor| {
            executor.load_staged(staging, n)?;
            executor.learn(n)
        })?;
        self.steps += 1;
        staging.release(self.executor.stream(), slot)
    }

    /// The numbers of the next steps, in order with what was asked for before.
    fn begin(&mut self, step: DeviceStep, steps: &[(f64, f32)]) -> Result<(), CudaError> {
        let optimizer = self.config.optimizer;
        let number = |i: usize| self.steps + 1 + i as u64;
        let scalars: Vec<StepScalars> = (steps.iter().enumerate())
            .map(|(i, &(factor, progress))| StepScalars::new(&optimizer, number(i), factor, progress))
            .collect();
        self.executor.set_step(step, &scalars)
    }

    fn check_data(&self, data: &ResidentData) -> Result<(), CudaError> {
        let (window, network) = (data.buffers().window, self.config.input);
        if window != network {
            return Err(CudaError::DataShape { data: window, network });
        }
        self.check_labels(&[data.buffers().largest_label])
    }
}
