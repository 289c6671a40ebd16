//! Batch normalisation, of channels (2-d) and of units (1-d: a pixel is the whole example).

use super::{Layer, Pass, Slopes, Statistics};
use ftprop_tensor::Shape;
use ftprop_tensor::cpu::norm;
use std::ops::Range;

/// Batch normalisation with its parameters, its running statistics and the batch's own.
pub(crate) struct Norm {
    pub(crate) shape: Shape,
    pub(crate) eps: f32,
    pub(crate) momentum: f32,
    pub(crate) gamma: Range<usize>,
    pub(crate) beta: Range<usize>,
    pub(crate) running_mean: Range<usize>,
    pub(crate) running_variance: Range<usize>,
    mean: Vec<f32>,
    inverse_deviation: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
}

impl Norm {
    pub(crate) fn new(
        shape: Shape,
        eps: f32,
        momentum: f32,
        [gamma, beta]: [Range<usize>; 2],
        [running_mean, running_variance]: [Range<usize>; 2],
    ) -> Self {
        let empty = || vec![0.0; shape.channels];
        Norm {
            shape,
            eps,
            momentum,
            gamma,
            beta,
            running_mean,
            running_variance,
            mean: empty(),
            inverse_deviation: empty(),
            scale: empty(),
            shift: empty(),
        }
    }
}

impl Layer for Norm {
    fn out_len(&self) -> usize {
        self.shape.len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        let channels = self.shape.channels;
        let rows = pass.n * self.shape.height * self.shape.width;
        // How much of the running statistics gives way to the batch's.
        let momentum = match pass.statistics {
            Statistics::Running => None,
            Statistics::Batch => Some(self.momentum),
            Statistics::Mean { before } => Some(1.0 / (before + 1) as f32),
            Statistics::Again => return norm::affine(pass.cpu, rows, channels, x, &self.scale, &self.shift, y),
        };
        if let Some(momentum) = momentum {
            // `inverse_deviation` holds the variance for a moment.
            let variance = &mut self.inverse_deviation;
            norm::statistics(pass.cpu, rows, channels, x, &mut self.mean, variance, pass.scratch);
            // The running variance is the unbiased one, as in PyTorch.
            let unbiased = if rows > 1 { rows as f32 / (rows - 1) as f32 } else { 1.0 };
            let blend = |running: &mut f32, now: f32| *running += momentum * (now - *running);
            pass.stats[self.running_mean.clone()].iter_mut().zip(&self.mean).for_each(|(r, &m)| blend(r, m));
            let running = &mut pass.stats[self.running_variance.clone()];
            running.iter_mut().zip(variance.iter()).for_each(|(r, &v)| blend(r, unbiased * v));
        } else {
            self.mean.copy_from_slice(&pass.stats[self.running_mean.clone()]);
            self.inverse_deviation.copy_from_slice(&pass.stats[self.running_variance.clone()]);
        }
        self.inverse_deviation.iter_mut().for_each(|v| *v = 1.0 / (*v + self.eps).sqrt());
        let (gamma, beta) = (&pass.params[self.gamma.clone()], &pass.params[self.beta.clone()]);
        for j in 0..channels {
            self.scale[j] = gamma[j] * self.inverse_deviation[j];
            self.shift[j] = beta[j] - self.mean[j] * self.scale[j];
        }
        norm::affine(pass.cpu, rows, channels, x, &self.scale, &self.shift, y);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let channels = self.shape.channels;
        let rows = pass.n * self.shape.height * self.shape.width;
        // Gamma and beta lie side by side in the flat buffers.
        let grads = &mut pass.grads[self.gamma.start..self.beta.end];
        let gamma = &pass.params[self.gamma.clone()];
        norm::backward(
            pass.cpu,
            rows,
            channels,
            self.eps,
            x,
            slopes.current(),
            (&self.mean, &self.inverse_deviation),
            gamma,
            grads.split_at_mut(channels),
            needs_input,
            pass.scratch,
        );
    }

    /// With the batch's statistics as they are: how they depend on a single example is left aside.
    fn carry_curvature(&mut self, pass: &mut Pass<'_>, _: &[f32], curvature: &mut Slopes) {
        let (rows, channels) = (pass.n * self.shape.height * self.shape.width, self.shape.channels);
        let scale: Vec<f32> = self.scale.iter().map(|s| s * s).collect();
        let (dy, dx) = curvature.both();
        norm::affine(pass.cpu, rows, channels, dy, &scale, &vec![0.0; channels], dx);
        curvature.advance();
    }

    fn learns(&self) -> bool {
        true
    }
}
