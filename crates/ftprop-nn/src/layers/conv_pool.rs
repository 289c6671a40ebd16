//! A convolution with the max pooling right after it.

use super::{Conv, Layer, Pass, Slopes};
use ftprop_tensor::cpu::conv_pool::{self, ConvPool};
use ftprop_tensor::cpu::reduce;

/// Both as one layer: the map between them is never written to memory, and the way back goes through the places that
/// the pooling chose, alone.
pub(crate) struct PooledConv {
    conv: Conv,
    pub(crate) geometry: ConvPool,
    /// Which place of its window each output came from.
    chosen: Vec<u8>,
}

impl PooledConv {
    pub(crate) fn new(conv: Conv, geometry: ConvPool, batch: usize) -> Self {
        PooledConv { conv, geometry, chosen: vec![0; batch * geometry.out_len()] }
    }
}

impl Layer for PooledConv {
    fn out_len(&self) -> usize {
        self.geometry.out_len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        let bias = self.conv.bias.clone().map(|b| &pass.params[b]);
        let w = &pass.params[self.conv.weight.clone()];
        conv_pool::forward(pass.cpu, &self.geometry, pass.n, x, w, bias, y, &mut self.chosen, pass.scratch);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let (g, n, chosen) = (&self.geometry, pass.n, &self.chosen);
        let (dy, dx) = slopes.both();
        if let Some(bias) = self.conv.bias.clone() {
            let rows = n * g.windows();
            reduce::column_sums(pass.cpu, rows, g.out_channels(), dy, &mut pass.grads[bias], pass.scratch);
        }
        let weight = self.conv.weight.clone();
        conv_pool::backward_weights(pass.cpu, g, n, x, dy, chosen, &mut pass.grads[weight.clone()], pass.scratch);
        if needs_input {
            conv_pool::backward_input(pass.cpu, g, n, dy, chosen, &pass.params[weight], dx, pass.scratch);
            slopes.advance();
        }
    }

    fn carry_curvature(&mut self, pass: &mut Pass<'_>, _: &[f32], curvature: &mut Slopes) {
        let (dy, dx) = curvature.both();
        let w = &pass.squared[self.conv.weight.clone()];
        conv_pool::backward_input(pass.cpu, &self.geometry, pass.n, dy, &self.chosen, w, dx, pass.scratch);
        curvature.advance();
    }

    fn learns(&self) -> bool {
        true
    }
}
