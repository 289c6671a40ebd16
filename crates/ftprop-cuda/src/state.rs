//! What a network on the GPU holds: parameters, statistics, moments, outputs, as the CPU's network has them.

use crate::error::readable;
use crate::precision::Precision;
use crate::stream::{Args, LaunchConfig};
use crate::{CudaError, CudaNetwork, Device, NetworkConfig};
use ftprop_nn::LayerInfo;
use ftprop_nn::parameter::{Parameter, Statistic};

impl CudaNetwork {
    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn config(&self) -> &NetworkConfig {
        &self.config
    }

    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    pub fn statistics(&self) -> &[Statistic] {
        &self.statistics
    }

    /// Its layers in order, for a summary.
    pub fn layers(&self) -> &[LayerInfo] {
        &self.infos
    }

    /// Device memory in use by it, in words.
    pub fn memory_used(&self) -> String {
        let flat = 4 * self.count() * (2 + self.moments.len());
        readable(self.arena.bytes() + flat)
    }

    pub(crate) fn count(&self) -> usize {
        self.initial.values().len()
    }

    /// All parameters, in the CPU network's order and layout.
    pub fn values(&self) -> Result<Vec<f32>, CudaError> {
        self.values.read(&self.main, 0, self.count())
    }

    pub fn set_values(&self, values: &[f32]) -> Result<(), CudaError> {
        self.expect_len("parameters", values.len(), self.count())?;
        self.values.write(&self.main, 0, values)?;
        if let Some(copy) = &self.copy {
            let args = Args::default().ptr(self.values.at(0)).ptr(copy.at(0)).int(values.len());
            // SAFETY: the arguments are those of `round_values` in basic.cu.
            unsafe { self.main.launch(&self.basic, 3, LaunchConfig::for_items(values.len()), &args)? };
            self.main.wait()?;
        }
        Ok(())
    }

    /// All gradients of the last [`learn`](Self::learn).
    pub fn grads(&self) -> Result<Vec<f32>, CudaError> {
        self.grads.read(&self.main, 0, self.count())
    }

    /// All running statistics.
    pub fn stats(&self) -> Result<Vec<f32>, CudaError> {
        self.stats.read(&self.main, 0, self.initial.stats().len())
    }

    pub fn set_stats(&self, stats: &[f32]) -> Result<(), CudaError> {
        self.expect_len("statistics", stats.len(), self.initial.stats().len())?;
        self.stats.write(&self.main, 0, stats)
    }

    /// The optimizer's steps so far and its moments, as a checkpoint keeps them.
    pub fn optimizer_state(&self) -> Result<(u64, Vec<Vec<f32>>), CudaError> {
        let moments = self.moments.iter().map(|m| m.read(&self.main, 0, self.count())).collect::<Result<_, _>>()?;
        Ok((self.steps, moments))
    }

    /// Goes on from a checkpoint's state.
    pub fn restore_optimizer(&mut self, steps: u64, moments: &[&[f32]]) -> Result<(), CudaError> {
        self.expect_len("moments", moments.len(), self.moments.len())?;
        for (buffer, saved) in self.moments.iter().zip(moments) {
            self.expect_len("moments", saved.len(), self.count())?;
            buffer.write(&self.main, 0, saved)?;
        }
        self.steps = steps;
        Ok(())
    }

    /// The logits of the last batch, `[n, classes]`.
    pub fn logits(&self, n: usize) -> Result<Vec<f32>, CudaError> {
        let (at, len) = (self.arena.offset(self.tensors[self.output].values), n * self.config.classes);
        if self.logits_f32 {
            return self.arena.buffer.read(&self.main, at, len);
        }
        let halves: Vec<u16> = self.arena.buffer.read(&self.main, at, len)?;
        Ok(halves.into_iter().map(|h| f32::from_bits(u32::from(h) << 16)).collect())
    }

    /// The first layer whose output for the last batch of n examples is not finite, else the first parameter
    /// that is not. Reads everything back, so this is for when something has gone wrong.
    pub fn first_non_finite(&self, n: usize) -> Result<Option<String>, CudaError> {
        let n = n.min(self.config.batch);
        for (run, shape) in self.runs.iter().zip(&self.outputs) {
            let (tensor, len) = (run.output(), n * shape.len());
            let at = self.arena.offset(self.tensors[tensor].values);
            let wide = self.config.precision != Precision::Bf16 || (tensor == self.output && self.logits_f32);
            let finite = if wide {
                self.arena.buffer.read::<f32>(&self.main, at, len)?.iter().all(|v| v.is_finite())
            } else {
                // A bf16 is not finite where its eight exponent bits are all set.
                self.arena.buffer.read::<u16>(&self.main, at, len)?.iter().all(|v| v & 0x7f80 != 0x7f80)
            };
            if !finite {
                return Ok(Some(run.name().to_string()));
            }
        }
        let values = self.values()?;
        let bad = self.parameters.iter().find(|p| values[p.range.clone()].iter().any(|v| !v.is_finite()));
        Ok(bad.map(|p| format!("parameter {}", p.name)))
    }

    fn expect_len(&self, what: &str, got: usize, expected: usize) -> Result<(), CudaError> {
        if got == expected {
            return Ok(());
        }
        Err(CudaError::Setting(format!("{got} {what} where this network has {expected}; they are of another network")))
    }
}
