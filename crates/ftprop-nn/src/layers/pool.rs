//! Pooling layers.

use super::{Layer, Pass, Slopes};
use ftprop_tensor::cpu::pool;
use ftprop_tensor::geometry::PoolGeometry;

/// Max pooling.
pub(crate) struct MaxPool {
    pub(crate) geometry: PoolGeometry,
}

impl Layer for MaxPool {
    fn out_len(&self) -> usize {
        self.geometry.out_len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        pool::max_forward(pass.cpu, &self.geometry, pass.n, x, y);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, _: bool) {
        let (dy, dx) = slopes.both();
        pool::max_backward(pass.cpu, &self.geometry, pass.n, x, dy, dx);
        slopes.advance();
    }

    fn max_pool(&self) -> Option<PoolGeometry> {
        Some(self.geometry)
    }
}

/// Average pooling.
pub(crate) struct AvgPool {
    pub(crate) geometry: PoolGeometry,
}

impl Layer for AvgPool {
    fn out_len(&self) -> usize {
        self.geometry.out_len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        pool::average_forward(pass.cpu, &self.geometry, pass.n, x, y);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, _: &[f32], slopes: &mut Slopes, _: bool) {
        let (dy, dx) = slopes.both();
        pool::average_backward(pass.cpu, &self.geometry, pass.n, dy, dx);
        slopes.advance();
    }
}
