//! Whole steps, captured once and replayed: on data that lives on the GPU, or streamed from the host.

use crate::CudaError;
use crate::data::ResidentData;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::network::{CudaNetwork, TABLE};
use crate::step::{DeviceStep, StepScalars};
use crate::stream::{Args, CudaEvent, CudaGraph, CudaStream, LaunchConfig};
use ftprop_nn::Tally;

/// Full batches that are trained on by one graph: between graphs the device idles for a moment.
const UNROLLED: usize = 4;

/// Consecutive training steps of one epoch.
#[derive(Clone, Debug)]
pub struct StepSpan {
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

/// What a captured graph does, and for how many examples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GraphKey {
    Train { data: u64, n: usize, steps: usize },
    Evaluate { data: u64, n: usize },
    Streamed { n: usize },
}

impl GraphKey {
    fn examples(&self) -> usize {
        match *self {
            GraphKey::Train { n, .. } | GraphKey::Evaluate { n, .. } | GraphKey::Streamed { n } => n,
        }
    }
}

/// Two places for batches from the host: one is filled while the other is used.
pub(crate) struct StagingBuffers {
    pub(crate) images: DeviceBuffer,
    pub(crate) labels: DeviceBuffer,
    pinned: [(PinnedBuffer<f32>, PinnedBuffer<u32>); 2],
    copies: CudaStream,
    /// The copy into a place is done, and the step that used it is.
    copied: [CudaEvent; 2],
    used: [CudaEvent; 2],
    /// Batches streamed since the span began, and how many it has.
    done: usize,
    planned: usize,
    first: usize,
}

impl CudaNetwork {
    /// Asks for training steps on resident data and returns without waiting for them. The last batch of an
    /// epoch may be smaller. What they tally is added to what [`take_tally`](Self::take_tally) gives.
    pub fn train(&mut self, data: &ResidentData, span: &StepSpan) -> Result<(), CudaError> {
        self.check(data)?;
        let (batch, examples) = (self.config.batch, data.examples());
        let batches = examples.div_ceil(batch);
        if span.first_batch + span.steps.len() > batches {
            return Err(CudaError::Setting(format!(
                "batches {} to {} of an epoch that has {batches}",
                span.first_batch,
                span.first_batch + span.steps.len()
            )));
        }
        for (part, steps) in span.steps.chunks(TABLE).enumerate() {
            let (first, number) = (span.first_batch + part * TABLE, span.first_step + (part * TABLE) as u64);
            self.begin(DeviceStep::new(span.seed, span.epoch, number, first), steps)?;
            let mut i = 0;
            while i < steps.len() {
                let left = examples - (first + i) * batch;
                let unrolled = steps.len() - i >= UNROLLED && left >= UNROLLED * batch;
                let (n, together) = (left.min(batch), if unrolled { UNROLLED } else { 1 });
                let captured = GraphKey::Train { data: data.inner.id, n, steps: together };
                self.replay(captured, |network| {
                    (0..together).try_for_each(|_| {
                        network.gather(data, n)?;
                        network.learn_batch(n)
                    })
                })?;
                i += together;
            }
            self.steps += steps.len() as u64;
        }
        self.kept.entry(data.inner.id).or_insert_with(|| data.clone());
        Ok(())
    }

    /// Tallies a whole resident data set without learning from it; what training tallied is kept.
    pub fn evaluate_data(&mut self, data: &ResidentData) -> Result<Tally, CudaError> {
        self.check(data)?;
        let training = self.read_tally()?;
        self.clear_tally()?;
        self.set_step(DeviceStep::new(0, 0, 0, 0), &[StepScalars::default()])?;
        self.load_running_statistics()?;
        let (batch, examples) = (self.config.batch, data.examples());
        for first in (0..examples).step_by(batch) {
            let n = batch.min(examples - first);
            self.replay(GraphKey::Evaluate { data: data.inner.id, n }, |network| {
                network.gather(data, n)?;
                network.forward(n, false)?;
                network.apply_loss(n, false)?;
                let args = Args::default().ptr(network.arena.at(network.step));
                let one = LaunchConfig { grid: (1, 1, 1), threads: 1, shared: 0 };
                // SAFETY: the argument is that of `next_batch` in basic.cu.
                unsafe { network.main.launch(&network.basic, 2, one, &args) }
            })?;
        }
        self.kept.entry(data.inner.id).or_insert_with(|| data.clone());
        let tally = self.take_tally()?;
        self.write_tally(training)?;
        Ok(tally)
    }

    /// Has the kernels loaded that batches of these sizes need, in training and in evaluation. Otherwise they are loaded
    /// when they first run, and the driver waits for an idle GPU before it does that: where other networks train on
    /// it, that may be long. (For another size a library may still choose a kernel that was not loaded.)
    pub fn load(&mut self, training: &[usize], evaluation: &[usize]) -> Result<(), CudaError> {
        let sizes = training.iter().map(|&n| (n, true)).chain(evaluation.iter().map(|&n| (n, false)));
        for (n, learning) in sizes {
            if n == 0 || n > self.config.batch {
                return Err(CudaError::Setting(format!("{n} examples are no batch of this network")));
            }
            let graph = self.capture(n, |network| {
                if learning {
                    return network.learn_batch(n);
                }
                network.load_running_statistics()?;
                network.forward(n, false)?;
                network.apply_loss(n, false)
            })?;
            graph.upload(&self.main)?;
            self.main.wait()?;
        }
        Ok(())
    }

    /// Takes the memory that streaming needs, so that it is not missing later.
    pub fn reserve_streaming(&mut self) -> Result<(), CudaError> {
        self.staging().map(|_| ())
    }

    /// Announces steps whose batches the host brings, one [`stream_batch`](Self::stream_batch) each.
    pub fn begin_streaming(&mut self, span: &StepSpan) -> Result<(), CudaError> {
        if span.steps.len() > TABLE {
            return Err(CudaError::Setting(format!("stream at most {TABLE} steps at a time")));
        }
        self.staging()?;
        self.wait()?;
        self.begin(DeviceStep::new(span.seed, span.epoch, span.first_step, span.first_batch), &span.steps)?;
        let streaming = self.staging()?;
        (streaming.done, streaming.planned, streaming.first) = (0, span.steps.len(), span.first_batch);
        Ok(())
    }

    /// Trains on a batch from the host. Returns when the batch has been copied aside, not when the step is done:
    /// the copy to the GPU runs beside the step before.
    pub fn stream_batch(&mut self, images: &[f32], labels: &[u32]) -> Result<(), CudaError> {
        let (len, n) = (self.config.input.len(), labels.len());
        if n == 0 || n > self.config.batch || images.len() != n * len {
            return Err(CudaError::Setting(format!(
                "{} values and {n} labels are no batch of this network",
                images.len()
            )));
        }
        self.check_labels(labels)?;
        let (slot_images, slot_labels) = (self.config.batch * len, self.config.batch);
        let streaming = self.staging()?;
        if streaming.done >= streaming.planned {
            return Err(CudaError::Setting("more batches than steps were announced".into()));
        }
        let slot = (streaming.first + streaming.done) & 1;
        if streaming.done >= 2 {
            streaming.copied[slot].wait()?;
            streaming.copies.wait_for(&streaming.used[slot])?;
        }
        let (pinned_images, pinned_labels) = &mut streaming.pinned[slot];
        pinned_images.slice()[..images.len()].copy_from_slice(images);
        pinned_labels.slice()[..n].copy_from_slice(labels);
        // SAFETY: this pinned place is written again only after `copied` of this slot has happened.
        unsafe {
            let copies = &streaming.copies;
            copies.copy_in(streaming.images.at(4 * slot * slot_images), &pinned_images.slice()[..images.len()])?;
            copies.copy_in(streaming.labels.at(4 * slot * slot_labels), &pinned_labels.slice()[..n])?;
        }
        streaming.copies.record(&streaming.copied[slot])?;
        streaming.done += 1;
        self.main.wait_for(&self.streaming.as_ref().expect("made above").copied[slot])?;
        self.replay(GraphKey::Streamed { n }, |network| {
            network.load_staged(n)?;
            network.learn_batch(n)
        })?;
        self.steps += 1;
        self.main.record(&self.streaming.as_ref().expect("made above").used[slot])
    }

    /// A whole step on the batch that is in place.
    fn learn_batch(&self, n: usize) -> Result<(), CudaError> {
        self.forward(n, true)?;
        self.apply_loss(n, true)?;
        self.backward(n)?;
        self.apply_optimizer(true)
    }

    /// The numbers of the next steps, in order with what was asked for before.
    fn begin(&mut self, step: DeviceStep, steps: &[(f64, f32)]) -> Result<(), CudaError> {
        let optimizer = self.config.optimizer;
        let number = |i: usize| self.steps + 1 + i as u64;
        let scalars: Vec<StepScalars> = (steps.iter().enumerate())
            .map(|(i, &(factor, progress))| StepScalars::new(&optimizer, number(i), factor, progress))
            .collect();
        self.set_step(step, &scalars)
    }

    fn check(&self, data: &ResidentData) -> Result<(), CudaError> {
        if data.inner.window != self.config.input {
            return Err(CudaError::Setting(format!(
                "the data has examples of {}, the network takes {}",
                data.inner.window, self.config.input
            )));
        }
        self.check_labels(&[data.inner.largest_label])
    }

    /// Launches what was captured under a name, after capturing it the first time.
    fn replay(
        &mut self,
        captured: GraphKey,
        work: impl FnOnce(&CudaNetwork) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        if !self.graphs.contains_key(&captured) {
            let graph = self.capture(captured.examples(), work)?;
            self.graphs.insert(captured, graph);
        }
        self.graphs[&captured].launch(&self.main)
    }

    /// Captures work on batches of n; libraries are asked how they do it before, which they must not be meanwhile.
    fn capture(
        &self,
        n: usize,
        work: impl FnOnce(&CudaNetwork) -> Result<(), CudaError>,
    ) -> Result<CudaGraph, CudaError> {
        self.runs.iter().try_for_each(|run| run.prepare(n))?;
        self.main.capture(|| work(self))
    }

    /// Makes the batch that the step names from resident data.
    fn gather(&self, data: &ResidentData, n: usize) -> Result<(), CudaError> {
        let d = &*data.inner;
        let flag = |b: bool| usize::from(b);
        let args = Args::default()
            .ptr(d.pixels.at(0))
            .ptr(d.labels.at(0))
            .ptr(d.numbers.as_ref().map_or(0, |n| n.at(0)))
            .ptr(d.tables.at(0))
            .ptr(self.images())
            .ptr(self.arena.at(self.labels))
            .ptr(self.arena.at(self.step))
            .int(d.examples)
            .int(self.config.batch)
            .int(d.picture.height)
            .int(d.picture.width)
            .int(d.picture.channels)
            .int(self.stored)
            .int(d.window.height)
            .int(d.window.width)
            .int(d.augment.pad)
            .int(flag(d.shuffle))
            .int(flag(d.augment.crop))
            .int(flag(d.augment.flip));
        let per_example = d.window.len().div_ceil(4096).clamp(1, 64) as u32;
        let launch_config = LaunchConfig { grid: (n as u32, per_example, 1), threads: 256, shared: 0 };
        // SAFETY: the arguments are those of `gather_batch` in basic.cu.
        unsafe { self.main.launch(&self.basic, 0, launch_config, &args) }
    }

    /// Takes the batch that the host put into the step's place.
    pub(crate) fn load_staged(&self, n: usize) -> Result<(), CudaError> {
        let streaming = self.streaming.as_ref().expect("something was put there before it is taken");
        let len = self.config.input.len();
        let args = Args::default()
            .ptr(streaming.images.at(0))
            .ptr(streaming.labels.at(0))
            .ptr(self.images())
            .ptr(self.arena.at(self.labels))
            .ptr(self.arena.at(self.step))
            .int(self.config.batch * len)
            .int(self.config.batch)
            .int(n * len)
            .int(n)
            .int(self.config.input.channels)
            .int(self.stored);
        // SAFETY: the arguments are those of `take_batch` in basic.cu.
        unsafe { self.main.launch(&self.basic, 1, LaunchConfig::for_items(n * len), &args) }
    }

    /// The two places, made at first use.
    pub(crate) fn staging(&mut self) -> Result<&mut StagingBuffers, CudaError> {
        if self.streaming.is_none() {
            let (device, batch, len) = (&self.device, self.config.batch, self.config.input.len());
            let what = "batches from the host";
            let pinned =
                || Ok::<_, CudaError>((PinnedBuffer::new(device, batch * len)?, PinnedBuffer::new(device, batch)?));
            self.streaming = Some(StagingBuffers {
                images: DeviceBuffer::new(device, 2 * 4 * batch * len, what)?,
                labels: DeviceBuffer::new(device, 2 * 4 * batch, what)?,
                pinned: [pinned()?, pinned()?],
                copies: CudaStream::new(device)?,
                copied: [CudaEvent::new(device)?, CudaEvent::new(device)?],
                used: [CudaEvent::new(device)?, CudaEvent::new(device)?],
                done: 0,
                planned: 0,
                first: 0,
            });
        }
        Ok(self.streaming.as_mut().expect("made above"))
    }
}
