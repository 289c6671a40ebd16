//! What a network on the GPU holds: parameters, statistics, moments, outputs, as the CPU's network has them.

use crate::error::readable;
use crate::{CudaError, CudaNetwork, Device, NetworkConfig};

impl CudaNetwork {
    /// The GPU that it is on.
    pub fn device(&self) -> &Device {
        self.executor.device()
    }

    /// What it was compiled for.
    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    /// Device memory in use by it, in words.
    pub fn memory_used(&self) -> String {
        readable(self.executor.bytes())
    }

    /// All parameters, in the CPU network's order and layout.
    pub fn values(&self) -> Result<Vec<f32>, CudaError> {
        self.executor.parameters().read_values(self.executor.stream())
    }

    /// Sets all parameters.
    pub fn set_values(&self, values: &[f32]) -> Result<(), CudaError> {
        self.executor.clear_not_numbers()?;
        self.executor.parameters().write_values(self.executor.stream(), values)
    }

    /// All gradients of the last [`learn`](Self::learn).
    pub fn grads(&self) -> Result<Vec<f32>, CudaError> {
        self.executor.parameters().read_grads(self.executor.stream())
    }

    /// Puts other gradients in their place.
    pub(super) fn set_grads(&self, grads: &[f32]) -> Result<(), CudaError> {
        self.executor.parameters().write_grads(self.executor.stream(), grads)
    }

    /// The moving average of the parameters, where there is one.
    pub(super) fn average(&self) -> Result<Option<Vec<f32>>, CudaError> {
        self.executor.parameters().read_average(self.executor.stream())
    }

    /// Sets it, where there is one.
    pub(super) fn set_average(&self, values: &[f32]) -> Result<(), CudaError> {
        self.executor.parameters().write_average(self.executor.stream(), values)
    }

    /// All running statistics.
    pub fn stats(&self) -> Result<Vec<f32>, CudaError> {
        self.executor.parameters().read_stats(self.executor.stream())
    }

    /// Sets all running statistics.
    pub fn set_stats(&self, stats: &[f32]) -> Result<(), CudaError> {
        self.executor.parameters().write_stats(self.executor.stream(), stats)
    }

    /// The optimizer's steps so far and its moments, as a checkpoint keeps them.
    pub fn optimizer_state(&self) -> Result<(u64, Vec<Vec<f32>>), CudaError> {
        Ok((self.steps, self.executor.parameters().read_moments(self.executor.stream())?))
    }

    /// Goes on from a checkpoint's state.
    pub fn restore_optimizer(&mut self, steps: u64, moments: &[&[f32]]) -> Result<(), CudaError> {
        self.executor.parameters().write_moments(self.executor.stream(), moments)?;
        self.steps = steps;
        Ok(())
    }

    /// The logits of the last batch, `[n, classes]`.
    pub fn logits(&self, n: usize) -> Result<Vec<f32>, CudaError> {
        self.executor.read_logits(n)
    }

    /// The first layer whose output for the last batch of n examples is not finite, else the first parameter
    /// that is not. Reads everything back, so this is for when something has gone wrong.
    pub fn first_non_finite(&self, n: usize) -> Result<Option<String>, CudaError> {
        if let Some(layer) = self.executor.first_non_finite(n.min(self.config.batch))? {
            return Ok(Some(layer.to_string()));
        }
        let values = self.values()?;
        let bad =
            self.config.graph.parameters().iter().find(|p| values[p.range.clone()].iter().any(|v| !v.is_finite()));
        Ok(bad.map(|p| format!("parameter {}", p.name)))
    }
}
