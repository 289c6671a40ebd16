//! The convolution layer.

use super::{Layer, Pass, PooledConv, Slopes};
use ftprop_tensor::cpu::conv_pool::ConvPool;
use ftprop_tensor::cpu::{conv, reduce};
use ftprop_tensor::geometry::{ConvGeometry, PoolGeometry};
use std::ops::Range;

/// A convolution, with a bias or not.
#[derive(Clone)]
pub(crate) struct Conv {
    pub(crate) geometry: ConvGeometry,
    pub(crate) weight: Range<usize>,
    pub(crate) bias: Option<Range<usize>>,
}

impl Layer for Conv {
    fn out_len(&self) -> usize {
        self.geometry.out_len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        let bias = self.bias.clone().map(|b| &pass.params[b]);
        conv::forward(pass.cpu, &self.geometry, pass.n, x, &pass.params[self.weight.clone()], bias, y, pass.scratch);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let g = &self.geometry;
        let (dy, dx) = slopes.both();
        if let Some(bias) = self.bias.clone() {
            let rows = pass.n * g.out_height() * g.out_width();
            reduce::column_sums(pass.cpu, rows, g.out_channels, dy, &mut pass.grads[bias], pass.scratch);
        }
        conv::backward_weights(pass.cpu, g, pass.n, x, dy, &mut pass.grads[self.weight.clone()], pass.scratch);
        if needs_input {
            conv::backward_input(pass.cpu, g, pass.n, dy, &pass.params[self.weight.clone()], dx, pass.scratch);
            slopes.advance();
        }
    }

    fn carry_curvature(&mut self, pass: &mut Pass<'_>, _: &[f32], curvature: &mut Slopes) {
        let (dy, dx) = curvature.both();
        let w = &pass.squared[self.weight.clone()];
        conv::backward_input(pass.cpu, &self.geometry, pass.n, dy, w, dx, pass.scratch);
        curvature.advance();
    }

    fn learns(&self) -> bool {
        true
    }

    fn with_max_pool(&self, pool: PoolGeometry, batch: usize) -> Option<PooledConv> {
        ConvPool::new(self.geometry, pool).map(|geometry| PooledConv::new(self.clone(), geometry, batch))
    }
}
