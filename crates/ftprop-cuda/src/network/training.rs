//! Whole steps, captured once and replayed: on data that lives on the GPU, or streamed from the host.

use crate::CudaError;
use crate::abi::DeviceStep;
use crate::data::ResidentData;
use crate::graphs::GraphKey;
use crate::network::CudaNetwork;
use crate::staging::StagingBuffers;
use crate::step::SCALAR_ROWS;
use crate::streamed::StreamedPictures;
use ftprop_nn::engine::{EngineError, StepSpan, check_batch};
use ftprop_nn::{Portion, Tally};
use ftprop_tensor::Share;

/// Full batches that are trained on by one graph: between graphs the device idles for a moment.
const UNROLLED: usize = 4;

impl CudaNetwork {
    /// Asks for training steps on resident data and returns without waiting for them. The last batch of an
    /// epoch may be smaller. What they tally is added to what [`take_tally`](Self::take_tally) gives.
    pub fn train(&mut self, data: &ResidentData, span: &StepSpan) -> Result<(), EngineError> {
        self.check_data(data)?;
        let examples = data.examples();
        // Examples of a full batch, of which all or a portion are learned from here.
        let full = span.portion.map_or(self.config.batch, |portion| portion.full);
        let (batches, end) = (examples.div_ceil(full), span.first_batch + span.steps.len());
        if end > batches {
            return Err(CudaError::PastEpoch { first: span.first_batch, end, batches }.into());
        }
        self.check_portion(span.portion)?;
        for (part, steps) in span.steps.chunks(SCALAR_ROWS).enumerate() {
            let done = part * SCALAR_ROWS;
            let (first, number) = (span.first_batch + done, span.first_step + done as u64);
            let at = DeviceStep::new(span.seed, span.epoch, number, first).within(span.portion);
            self.set_step(span.seed, at, steps)?;
            let mut i = 0;
            while i < steps.len() {
                let left = examples - (first + i) * full;
                let whole = self.reducer.is_none();
                let unrolled = whole && steps.len() - i >= UNROLLED && left >= UNROLLED * full;
                let n = span.portion.map_or(left.min(full), |portion| portion.count);
                let unrolled = if unrolled { UNROLLED } else { 1 };
                let key = GraphKey::Train { data: data.id(), n, full, steps: unrolled, whole };
                self.graphs.replay(&self.executor, key, |executor| {
                    if whole {
                        return executor.learn_in_turn(data, (n, full), unrolled);
                    }
                    if n > 0 {
                        executor.gather(data, n, full)?;
                    }
                    executor.take_gradients(n)
                })?;
                if !whole {
                    self.reduce()?;
                    self.executor.optimize(true)?;
                }
                i += unrolled;
            }
            self.steps += steps.len() as u64;
        }
        self.graphs.keep(data);
        Ok(())
    }

    /// Makes a batch of resident data and gives it as the network sees it, for tests: number `batch` of an epoch.
    pub fn gathered(
        &mut self,
        data: &ResidentData,
        seed: u64,
        epoch: u64,
        batch: usize,
    ) -> Result<Vec<f32>, CudaError> {
        self.check_data(data)?;
        let left = data.examples().saturating_sub(batch * self.config.batch);
        let n = left.min(self.config.batch);
        self.executor.set_step(DeviceStep::new(seed, epoch, 0, batch), &self.scalars.idle_row())?;
        self.executor.gather(data, n, self.config.batch)?;
        self.executor.read_batch(n)
    }

    /// Tallies a whole resident data set without learning from it; what training tallied is kept.
    pub fn evaluate_data(&mut self, data: &ResidentData) -> Result<Tally, CudaError> {
        self.evaluate_share(data, Share::WHOLE, self.config.batch)
    }

    /// The same of a share of each batch of so many examples.
    pub fn evaluate_share(&mut self, data: &ResidentData, share: Share, batch: usize) -> Result<Tally, CudaError> {
        self.check_data(data)?;
        if share.most(batch) > self.config.batch {
            return Err(CudaError::BatchSize { n: share.most(batch), most: self.config.batch });
        }
        let training = self.executor.read_tally()?;
        self.executor.clear_tally()?;
        self.executor.set_step(DeviceStep::default(), &self.scalars.idle_row())?;
        self.executor.load_running_statistics()?;
        let (examples, mut before) = (data.examples(), None);
        for (number, start) in (0..examples).step_by(batch).enumerate() {
            let portion = Portion::new(share, batch.min(examples - start), batch);
            // The last batch may be smaller, and then begins elsewhere.
            if before.replace(portion) != Some(portion) {
                let at = DeviceStep::new(0, 0, 0, number).within(Some(portion));
                self.executor.set_step(at, &self.scalars.idle_row())?;
            }
            let n = portion.count;
            if n == 0 {
                continue;
            }
            let key = GraphKey::Evaluate { data: data.id(), n, full: batch };
            self.graphs.replay(&self.executor, key, |executor| {
                executor.gather(data, n, batch)?;
                executor.evaluate(n)?;
                executor.next_batch()
            })?;
        }
        self.graphs.keep(data);
        let tally = self.take_tally()?;
        self.executor.write_tally(training)?;
        Ok(tally)
    }

    /// The same as [`train`](Self::train) on pictures that stay on the host: returns when the last of their bytes are on the
    /// way.
    pub fn train_streamed(&mut self, data: &mut StreamedPictures, span: &StepSpan) -> Result<(), EngineError> {
        self.check_shape(data.slots.window, data.largest_label())?;
        let full = span.portion.map_or(self.config.batch, |portion| portion.full);
        let (batches, end) = (data.examples().div_ceil(full), span.first_batch + span.steps.len());
        if end > batches {
            return Err(CudaError::PastEpoch { first: span.first_batch, end, batches }.into());
        }
        self.check_portion(span.portion)?;
        let whole = self.reducer.is_none();
        for (part, steps) in span.steps.chunks(SCALAR_ROWS).enumerate() {
            let done = part * SCALAR_ROWS;
            let (first, number) = (span.first_batch + done, span.first_step + done as u64);
            let at = DeviceStep::new(span.seed, span.epoch, number, first).within(span.portion);
            self.set_step(span.seed, at, steps)?;
            for i in 0..steps.len() {
                let start = (first + i) * full;
                let left = data.examples() - start;
                let own = span.portion.map_or(0..left.min(full), |p| p.first..p.first + p.count);
                let (n, own) = (own.len(), start + own.start..start + own.end);
                let slot = data.bring(self.executor.stream(), (span.seed, span.epoch), first + i, own)?;
                let key = GraphKey::Train { data: data.id(), n, full, steps: 1, whole };
                self.graphs.replay(&self.executor, key, |executor| {
                    if n > 0 {
                        executor.gather_streamed(&data.slots, n)?;
                    }
                    if whole { executor.learn(n) } else { executor.take_gradients(n) }
                })?;
                data.slots.release(self.executor.stream(), slot)?;
                if !whole {
                    self.reduce()?;
                    self.executor.optimize(true)?;
                }
            }
            self.steps += steps.len() as u64;
        }
        Ok(())
    }

    /// The same as [`evaluate_share`](Self::evaluate_share) on pictures that stay on the host.
    pub fn evaluate_streamed(
        &mut self,
        data: &mut StreamedPictures,
        share: Share,
        full: usize,
    ) -> Result<Tally, CudaError> {
        self.check_shape(data.slots.window, data.largest_label())?;
        if share.most(full) > self.config.batch {
            return Err(CudaError::BatchSize { n: share.most(full), most: self.config.batch });
        }
        let training = self.executor.read_tally()?;
        self.executor.clear_tally()?;
        self.executor.set_step(DeviceStep::new(0, 0, 0, 0), &self.scalars.idle_row())?;
        self.executor.load_running_statistics()?;
        for batch in 0..data.examples().div_ceil(full) {
            let start = batch * full;
            let own = share.of(full.min(data.examples() - start));
            let (n, own) = (own.len(), start + own.start..start + own.end);
            let slot = data.bring(self.executor.stream(), (0, 0), batch, own)?;
            let key = GraphKey::Evaluate { data: data.id(), n, full };
            self.graphs.replay(&self.executor, key, |executor| {
                if n > 0 {
                    executor.gather_streamed(&data.slots, n)?;
                    executor.evaluate(n)?;
                }
                executor.next_batch()
            })?;
            data.slots.release(self.executor.stream(), slot)?;
        }
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
            let (batch, len) = (self.config.batch, self.config.graph.input().len());
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
        self.check_portion(span.portion)?;
        self.portion = span.portion;
        let at = DeviceStep::new(span.seed, span.epoch, span.first_step, span.first_batch).within(span.portion);
        self.set_step(span.seed, at, &span.steps)?;
        self.staging.as_mut().expect("made above").begin(span.first_batch, steps);
        if let Some(pixels) = &mut self.pixels {
            pixels.begin(span.first_batch, steps);
        }
        Ok(())
    }

    /// Trains on a batch from the host. Returns when the batch has been copied aside, not when the step is done:
    /// the copy to the GPU runs beside the step before.
    pub fn stream_batch(&mut self, images: &[f32], labels: &[u32]) -> Result<(), EngineError> {
        let none = self.portion.is_some() && images.is_empty() && labels.is_empty();
        let n = if none { 0 } else { check_batch(&self.config.graph, self.config.batch, images, Some(labels))? };
        self.last = n;
        self.reserve_streaming()?;
        let staging = self.staging.as_mut().expect("made above");
        let slot = staging.push(self.executor.stream(), images, labels)?;
        let (staging, whole) = (&*staging, self.reducer.is_none());
        self.graphs.replay(&self.executor, GraphKey::Streamed { n, whole }, |executor| {
            if n > 0 {
                executor.load_staged(staging, n)?;
            }
            if whole { executor.learn(n) } else { executor.take_gradients(n) }
        })?;
        staging.release(self.executor.stream(), slot)?;
        if !whole {
            self.reduce()?;
            self.executor.optimize(true)?;
        }
        self.steps += 1;
        Ok(())
    }

    /// The same as [`stream_batch`](Self::stream_batch) on pictures as bytes, cut to the input's size.
    pub fn stream_pixels(&mut self, pixels: &[u8], labels: &[u32], numbers: &[u32]) -> Result<(), EngineError> {
        let (n, whole) = (labels.len(), self.reducer.is_none());
        let data = self.pixels.as_mut().ok_or(CudaError::NotBytes)?;
        let (window, network) = (data.slots.window, self.config.graph.input());
        if window != network {
            return Err(CudaError::DataShape { data: window, network }.into());
        }
        let classes = self.config.graph.classes();
        if let Some(&label) = labels.iter().find(|&&label| label as usize >= classes) {
            return Err(EngineError::Label { label, classes });
        }
        self.last = n;
        let slot = data.push(self.executor.stream(), pixels, labels, numbers)?;
        let slots = &data.slots;
        self.graphs.replay(&self.executor, GraphKey::Pixels { n, whole }, |executor| {
            if n > 0 {
                executor.gather_streamed(slots, n)?;
            }
            if whole { executor.learn(n) } else { executor.take_gradients(n) }
        })?;
        slots.release(self.executor.stream(), slot)?;
        if !whole {
            self.reduce()?;
            self.executor.optimize(true)?;
        }
        self.steps += 1;
        Ok(())
    }

    /// Checks that a part of a batch fits, and that nothing wants to see the whole of it.
    pub(super) fn check_portion(&self, portion: Option<Portion>) -> Result<(), CudaError> {
        let Some(Portion { count, .. }) = portion else { return Ok(()) };
        if count > self.config.batch {
            return Err(CudaError::BatchSize { n: count, most: self.config.batch });
        }
        let mut rules = self.config.graph.walk().into_iter().filter_map(|node| node.op.target_rule());
        match rules.find(|rule| rule.looks_at_batch()) {
            Some(rule) => Err(CudaError::SharedRule { rule: rule.to_string() }),
            None => Ok(()),
        }
    }

    fn check_data(&self, data: &ResidentData) -> Result<(), CudaError> {
        self.check_shape(data.buffers().window, data.buffers().largest_label)
    }

    fn check_shape(&self, window: ftprop_nn::Shape, label: u32) -> Result<(), CudaError> {
        let network = self.config.graph.input();
        if window != network {
            return Err(CudaError::DataShape { data: window, network });
        }
        let classes = self.config.graph.classes();
        if label as usize >= classes { Err(CudaError::Label { label, classes }) } else { Ok(()) }
    }
}
