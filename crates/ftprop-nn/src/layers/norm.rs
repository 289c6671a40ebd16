//! Batch normalisation, of channels (2-d) and of units (1-d: a pixel is the whole example).

use super::{Layer, Others, Pass, Slopes, Statistics};
use ftprop_tensor::Shape;
use ftprop_tensor::cpu::{norm, shared_norm};
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
    shared: Shared,
}

/// What is known of a batch that others have parts of.
#[derive(Default)]
struct Shared {
    /// Rows of the whole batch.
    rows: usize,
    mean: Vec<f64>,
    /// The variance, then the inverse deviation.
    spread: Vec<f64>,
    /// What is summed with the others.
    sums: Vec<f64>,
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
            shared: Shared::default(),
        }
    }

    fn rows(&self, pass: &Pass<'_>) -> usize {
        pass.n * self.shape.height * self.shape.width
    }

    /// How much of the running statistics gives way to the batch's, where those count.
    fn gives_way(&self, pass: &Pass<'_>) -> Option<f32> {
        match pass.statistics {
            Statistics::Running | Statistics::Again => None,
            Statistics::Batch => Some(self.momentum),
            Statistics::Mean { before } => Some(1.0 / (before + 1) as f32),
        }
    }

    /// The batch's mean and, in the place of the inverse deviation, its variance; and how many rows they are of.
    fn take_statistics(&mut self, pass: &mut Pass<'_>, x: &[f32]) -> usize {
        let (rows, channels) = (self.rows(pass), self.shape.channels);
        let Some(others) = &mut pass.others else {
            let variance = &mut self.inverse_deviation;
            norm::statistics(pass.cpu, rows, channels, x, &mut self.mean, variance, pass.scratch);
            return rows;
        };
        self.shared.make_room(channels);
        if rows > 0 {
            shared_norm::moments(pass.cpu, rows, channels, x, &mut self.shared.sums, pass.scratch);
        }
        self.shared.sums[2 * channels] = rows as f64;
        self.shared.agree(*others, self.eps, (&mut self.mean, &mut self.inverse_deviation));
        self.shared.rows
    }

    fn move_running(&self, pass: &mut Pass<'_>, momentum: f32, rows: usize) {
        // The running variance is the unbiased one, as in PyTorch.
        let unbiased = if rows > 1 { rows as f32 / (rows - 1) as f32 } else { 1.0 };
        let blend = |running: &mut f32, now: f32| *running += momentum * (now - *running);
        pass.stats[self.running_mean.clone()].iter_mut().zip(&self.mean).for_each(|(r, &m)| blend(r, m));
        let running = &mut pass.stats[self.running_variance.clone()];
        running.iter_mut().zip(&self.inverse_deviation).for_each(|(r, &v)| blend(r, unbiased * v));
    }

    /// The way back by the sums over all rows, of which only some are here.
    fn backward_shared(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let (channels, rows) = (self.shape.channels, self.rows(pass));
        let Shared { rows: total, mean, spread: inverse, sums } = &mut self.shared;
        let (rows, sums) = ((rows, *total), &mut sums[..2 * channels]);
        shared_norm::slope_sums(pass.cpu, rows, channels, x, slopes.current(), mean, sums, pass.scratch);
        // The gradients of these rows alone: all gradients are summed later.
        let (d_gamma, d_beta) = pass.grads[self.gamma.start..self.beta.end].split_at_mut(channels);
        for j in 0..channels {
            d_beta[j] = sums[j] as f32;
            d_gamma[j] = (sums[channels + j] * inverse[j]) as f32;
        }
        if let Some(others) = &mut pass.others {
            others.sum(sums);
        }
        if needs_input {
            let (gamma, by) = (&pass.params[self.gamma.clone()], (&mean[..], &inverse[..]));
            shared_norm::input_slopes(pass.cpu, rows, channels, x, slopes.current(), by, gamma, sums, pass.scratch);
        }
    }
}

impl Shared {
    fn make_room(&mut self, channels: usize) {
        self.mean.resize(channels, 0.0);
        self.spread.resize(channels, 0.0);
        self.sums.clear();
        self.sums.resize(2 * channels + 1, 0.0);
    }

    /// Comes with the others to the statistics of the whole batch.
    fn agree(&mut self, others: &mut dyn Others, eps: f32, (mean, variance): (&mut [f32], &mut [f32])) {
        others.sum(&mut self.sums);
        self.rows = self.sums[2 * self.mean.len()] as usize;
        shared_norm::statistics(self.rows, &self.sums, &mut self.mean, &mut self.spread);
        for (j, spread) in self.spread.iter_mut().enumerate() {
            (mean[j], variance[j]) = (self.mean[j] as f32, *spread as f32);
            *spread = 1.0 / (*spread + f64::from(eps)).sqrt();
        }
    }
}

impl Layer for Norm {
    fn out_len(&self) -> usize {
        self.shape.len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        let (channels, rows) = (self.shape.channels, self.rows(pass));
        if pass.statistics == Statistics::Again {
            return norm::affine(pass.cpu, rows, channels, x, &self.scale, &self.shift, y);
        }
        if let Some(momentum) = self.gives_way(pass) {
            let of = self.take_statistics(pass, x);
            self.move_running(pass, momentum, of);
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
        if pass.others.is_some() {
            return self.backward_shared(pass, x, slopes, needs_input);
        }
        let (channels, rows) = (self.shape.channels, self.rows(pass));
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

    fn attend(&mut self, pass: &mut Pass<'_>, backward: bool) {
        match (backward, self.gives_way(pass)) {
            (false, Some(momentum)) => {
                let of = self.take_statistics(pass, &[]);
                self.move_running(pass, momentum, of);
            }
            (true, _) => {
                self.shared.make_room(self.shape.channels);
                if let Some(others) = &mut pass.others {
                    others.sum(&mut self.shared.sums[..2 * self.shape.channels]);
                }
            }
            (false, None) => {}
        }
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
