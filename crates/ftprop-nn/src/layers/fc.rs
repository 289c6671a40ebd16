//! The fully connected layer.

use super::{Layer, Pass, Slopes};
use ftprop_tensor::cpu::{linear, reduce};
use std::ops::Range;

/// A fully connected layer, with a bias or not.
pub(crate) struct Fc {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Option<Range<usize>>,
}

impl Layer for Fc {
    fn out_len(&self) -> usize {
        self.outputs
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        let bias = self.bias.clone().map(|b| &pass.params[b]);
        let w = &pass.params[self.weight.clone()];
        linear::forward(pass.cpu, pass.n, self.inputs, self.outputs, x, w, bias, y, pass.scratch);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let (n, inputs, outputs) = (pass.n, self.inputs, self.outputs);
        let (dy, dx) = slopes.both();
        if let Some(bias) = self.bias.clone() {
            reduce::column_sums(pass.cpu, n, outputs, dy, &mut pass.grads[bias], pass.scratch);
        }
        let dw = &mut pass.grads[self.weight.clone()];
        linear::backward_weights(pass.cpu, n, inputs, outputs, x, dy, dw, pass.scratch);
        if needs_input {
            let w = &pass.params[self.weight.clone()];
            linear::backward_input(pass.cpu, n, inputs, outputs, dy, w, dx, pass.scratch);
            slopes.advance();
        }
    }

    fn carry_curvature(&mut self, pass: &mut Pass<'_>, _: &[f32], curvature: &mut Slopes) {
        let (dy, dx) = curvature.both();
        let w = &pass.squared[self.weight.clone()];
        linear::backward_input(pass.cpu, pass.n, self.inputs, self.outputs, dy, w, dx, pass.scratch);
        curvature.advance();
    }

    fn learns(&self) -> bool {
        true
    }
}
