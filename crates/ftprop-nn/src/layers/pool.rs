//! Pooling layers.

use super::{Layer, Pass, Slopes};
use ftprop_tensor::cpu::elementwise;
use ftprop_tensor::cpu::pool::{self, PoolKind};
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
        pool::forward(pass.cpu, self.kind, &self.geometry, pass.n, x, y);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, _: bool) {
        let (dy, dx) = slopes.both();
        pool::backward(pass.cpu, self.kind, &self.geometry, pass.n, x, dy, dx);
        slopes.advance();
    }

    fn carry_curvature(&mut self, pass: &mut Pass<'_>, x: &[f32], curvature: &mut Slopes) {
        self.backward(pass, x, curvature, true);
        // The way back has multiplied by each share once; curvature wants its square.
        let share = self.kind.share(self.geometry.kernel);
        if share != 1.0 {
            let len = pass.n * self.geometry.in_len();
            elementwise::update_places(pass.cpu, &mut curvature.current()[..len], |_, c| c * share);
        }
    }

    fn max_pool(&self) -> Option<PoolGeometry> {
        (self.kind == PoolKind::Max).then_some(self.geometry)
    }
}
