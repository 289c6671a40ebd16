//! Pooling layers.

use super::{Layer, Pass, Slopes};
use crate::spec::PoolKind;
use ftprop_tensor::cpu::pool;
use ftprop_tensor::geometry::PoolGeometry;

/// The largest value, or the mean, of each window.
pub(crate) struct Pool {
    pub(crate) kind: PoolKind,
    pub(crate) geometry: PoolGeometry,
}

impl Layer for Pool {
    fn out_len(&self) -> usize {
        self.geometry.out_len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        match self.kind {
            PoolKind::Max => pool::max_forward(pass.cpu, &self.geometry, pass.n, x, y),
            PoolKind::Average => pool::average_forward(pass.cpu, &self.geometry, pass.n, x, y),
        }
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, _: bool) {
        let (dy, dx) = slopes.both();
        match self.kind {
            PoolKind::Max => pool::max_backward(pass.cpu, &self.geometry, pass.n, x, dy, dx),
            PoolKind::Average => pool::average_backward(pass.cpu, &self.geometry, pass.n, dy, dx),
        }
        slopes.advance();
    }

    fn max_pool(&self) -> Option<PoolGeometry> {
        (self.kind == PoolKind::Max).then_some(self.geometry)
    }
}
