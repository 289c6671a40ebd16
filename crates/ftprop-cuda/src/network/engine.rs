//! A network on the GPU as any engine.

use super::CudaNetwork;
use crate::CudaError;
use crate::data::ResidentData;
use crate::streamed::{StreamedPictures, StreamedPixels};
use ftprop_nn::engine::{
    Engine, EngineError, NetworkState, Part, Reducer, Resident, StepSpan, TrainingState, check_length,
};
use ftprop_nn::{Graph, Portion, Step, Tally};
use ftprop_tensor::Share;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

impl From<CudaError> for EngineError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Label { label, classes } => EngineError::Label { label, classes },
            CudaError::Length { what, got, expected } => EngineError::Length { what, got, expected },
            CudaError::NotAnnounced => EngineError::NotAnnounced,
            ranks @ CudaError::Nccl { .. } => EngineError::Ranks(Box::new(ranks)),
            CudaError::Others(error) => *error,
            memory if memory.is_memory() => EngineError::Memory(Box::new(memory)),
            other => EngineError::Device(Box::new(other)),
        }
    }
}

impl CudaNetwork {
    /// Has a part of the data live on the GPU, for [`Engine::resident`].
    pub fn attach(&mut self, part: Part, data: ResidentData) {
        self.resident.insert(part, data);
    }

    /// Has a part of the data stay on the host as bytes, of which the GPU makes the batches, for [`Engine::resident`].
    pub fn attach_streamed(&mut self, part: Part, data: StreamedPictures) {
        self.streamed.insert(part, data);
    }

    /// Has training pictures come as bytes, for [`Engine::step_pixels`].
    pub fn attach_pixels(&mut self, pixels: StreamedPixels) {
        self.pixels = Some(pixels);
    }
}

impl Engine for CudaNetwork {
    fn graph(&self) -> &Arc<Graph> {
        &self.config.graph
    }

    fn batch(&self) -> usize {
        self.config.batch
    }

    fn initialise(&mut self, seed: u64) -> Result<(), EngineError> {
        Ok(CudaNetwork::initialise(self, seed)?)
    }

    fn network(&self) -> Result<NetworkState<'_>, EngineError> {
        Ok(NetworkState { values: self.values()?.into(), statistics: self.stats()?.into() })
    }

    fn set_network(&mut self, state: &NetworkState<'_>) -> Result<(), EngineError> {
        // Both or none.
        check_length("statistics", state.statistics.len(), self.config.graph.statistic_count())?;
        self.set_values(&state.values)?;
        Ok(self.set_stats(&state.statistics)?)
    }

    fn state(&self) -> Result<TrainingState<'_>, EngineError> {
        let (steps, moments) = self.optimizer_state()?;
        let moments = moments.into_iter().map(Cow::from).collect();
        Ok(TrainingState { network: self.network()?, steps, moments, average: self.average()?.map(Cow::from) })
    }

    fn restore(&mut self, state: &TrainingState<'_>) -> Result<(), EngineError> {
        self.set_network(&state.network)?;
        let moments: Vec<&[f32]> = state.moments.iter().map(|m| &m[..]).collect();
        self.restore_optimizer(state.steps, &moments)?;
        Ok(self.set_average(state.average.as_deref().unwrap_or(&state.network.values))?)
    }

    fn learn_portion(
        &mut self,
        images: &[f32],
        labels: &[u32],
        step: &Step,
        portion: Option<Portion>,
    ) -> Result<Tally, EngineError> {
        CudaNetwork::learn_portion(self, images, labels, step, portion)
    }

    fn gradients(&self) -> Result<Cow<'_, [f32]>, EngineError> {
        Ok(self.grads()?.into())
    }

    fn set_gradients(&mut self, gradients: &[f32]) -> Result<(), EngineError> {
        Ok(self.set_grads(gradients)?)
    }

    fn optimize(&mut self, lr_factor: f64) -> Result<Option<f64>, EngineError> {
        Ok(CudaNetwork::optimize(self, lr_factor)?)
    }

    fn infer(&mut self, images: &[f32]) -> Result<Cow<'_, [f32]>, EngineError> {
        Ok(CudaNetwork::infer(self, images)?.into())
    }

    fn logits(&self) -> Result<Cow<'_, [f32]>, EngineError> {
        Ok(CudaNetwork::logits(self, self.last)?.into())
    }

    fn evaluate(&mut self, images: &[f32], labels: &[u32]) -> Result<Tally, EngineError> {
        CudaNetwork::evaluate(self, images, labels)
    }

    fn take_statistics(&mut self, images: &[f32], before: usize) -> Result<(), EngineError> {
        CudaNetwork::take_statistics(self, images, before)
    }

    fn begin(&mut self, span: StepSpan) -> Result<(), EngineError> {
        Ok(self.begin_streaming(&span)?)
    }

    fn step(&mut self, images: &[f32], labels: &[u32]) -> Result<(), EngineError> {
        self.stream_batch(images, labels)
    }

    fn takes_pixels(&self) -> bool {
        self.pixels.is_some()
    }

    fn step_pixels(&mut self, pixels: &[u8], labels: &[u32], numbers: &[u32]) -> Result<(), EngineError> {
        self.stream_pixels(pixels, labels, numbers)
    }

    fn finish(&mut self) -> Result<Tally, EngineError> {
        Ok(self.take_tally()?)
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn resident(&mut self) -> Option<&mut dyn Resident> {
        if self.resident.is_empty() && self.streamed.is_empty() { None } else { Some(self) }
    }

    fn set_reducer(&mut self, reducer: Box<dyn Reducer>) -> Result<(), EngineError> {
        let reducer = Arc::new(Mutex::new(reducer));
        self.executor.set_host_sums(reducer.clone());
        self.reducer = Some(reducer);
        Ok(())
    }

    fn first_non_finite(&self) -> Option<String> {
        // A GPU that does not answer any more has no culprit to name.
        CudaNetwork::first_non_finite(self, self.last.max(1)).ok().flatten()
    }
}

impl Resident for CudaNetwork {
    fn has(&self, part: Part) -> bool {
        self.resident.contains_key(&part) || self.streamed.contains_key(&part)
    }

    fn train(&mut self, span: &StepSpan) -> Result<(), EngineError> {
        let Some(mut streamed) = self.streamed.remove(&Part::Train) else {
            let data = self.part(Part::Train)?;
            return CudaNetwork::train(self, &data, span);
        };
        let trained = self.train_streamed(&mut streamed, span);
        self.streamed.insert(Part::Train, streamed);
        trained
    }

    fn evaluate(&mut self, part: Part, share: Share, batch: usize) -> Result<Tally, EngineError> {
        let Some(mut streamed) = self.streamed.remove(&part) else {
            let data = self.part(part)?;
            return Ok(self.evaluate_share(&data, share, batch)?);
        };
        let tally = self.evaluate_streamed(&mut streamed, share, batch);
        self.streamed.insert(part, streamed);
        Ok(tally?)
    }
}

impl CudaNetwork {
    fn part(&self, part: Part) -> Result<ResidentData, EngineError> {
        let missing =
            || EngineError::Unsupported { device: "the GPU", what: format!("find the part {part:?} in its memory") };
        self.resident.get(&part).cloned().ok_or_else(missing)
    }
}
