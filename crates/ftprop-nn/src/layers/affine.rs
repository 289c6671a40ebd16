//! A learned factor and summand for each channel.

use super::{Layer, Pass, Slopes};
use ftprop_tensor::Shape;
use ftprop_tensor::cpu::{norm, reduce};
use std::ops::Range;

/// y = s x + t, channel by channel; without `scale`, s is 1.
pub(crate) struct Affine {
    pub(crate) shape: Shape,
    pub(crate) scale: Option<Range<usize>>,
    pub(crate) shift: Range<usize>,
    ones: Vec<f32>,
    zeros: Vec<f32>,
}

impl Affine {
    pub(crate) fn new(shape: Shape, scale: Option<Range<usize>>, shift: Range<usize>) -> Self {
        Affine { shape, scale, shift, ones: vec![1.0; shape.channels], zeros: vec![0.0; shape.channels] }
    }

    fn rows(&self, pass: &Pass<'_>) -> usize {
        pass.n * self.shape.height * self.shape.width
    }
}

impl Layer for Affine {
    fn out_len(&self) -> usize {
        self.shape.len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        let scale = self.scale.clone().map_or(&self.ones[..], |scale| &pass.params[scale]);
        let shift = &pass.params[self.shift.clone()];
        norm::affine(pass.cpu, self.rows(pass), self.shape.channels, x, scale, shift, y);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let (rows, channels) = (self.rows(pass), self.shape.channels);
        let Some(scale) = self.scale.clone() else {
            let d_shift = &mut pass.grads[self.shift.clone()];
            reduce::column_sums(pass.cpu, rows, channels, slopes.current(), d_shift, pass.scratch);
            return;
        };
        // As for a norm whose mean is 0 and whose deviation is 1, whatever the batch.
        let (d_scale, d_shift) = pass.grads[scale.start..self.shift.end].split_at_mut(channels);
        let dy = slopes.current();
        let fixed = (&self.zeros[..], &self.ones[..]);
        norm::affine_gradients(pass.cpu, rows, channels, x, dy, fixed, (d_scale, d_shift), pass.scratch);
        if needs_input {
            let (dy, dx) = slopes.both();
            norm::affine(pass.cpu, rows, channels, dy, &pass.params[scale], &self.zeros, dx);
            slopes.advance();
        }
    }

    fn carry_curvature(&mut self, pass: &mut Pass<'_>, _: &[f32], curvature: &mut Slopes) {
        let Some(scale) = self.scale.clone() else { return };
        let (dy, dx) = curvature.both();
        norm::affine(pass.cpu, self.rows(pass), self.shape.channels, dy, &pass.squared[scale], &self.zeros, dx);
        curvature.advance();
    }

    fn learns(&self) -> bool {
        true
    }
}
