//! Dropout of values and of whole channels. The mask is a function of (seed, step, layer, place), so it is
//! computed again on the way back instead of remembered.

use super::{Layer, Pass, Slopes};
use crate::graph;
use ftprop_tensor::Shape;
use ftprop_tensor::cpu::elementwise;
use ftprop_tensor::random::{Purpose, Stream};

/// Sets values, or channels, to zero with probability p in training and scales the others by 1 / (1 − p).
pub(crate) struct Dropout {
    pub(crate) shape: Shape,
    pub(crate) dropout: graph::Dropout,
}

impl Dropout {
    fn masked(&self, pass: &Pass<'_>, values: &mut [f32]) {
        let stream = Stream::new(pass.seed, Purpose::Dropout, pass.step).fork(self.dropout.number);
        let graph::Dropout { p, by_channel, .. } = self.dropout;
        let keep = 1.0 / (1.0 - p);
        let (len, channels) = (self.shape.len(), self.shape.channels);
        let first = pass.portion.map_or(0, |portion| portion.first) * len;
        elementwise::update_places(pass.cpu, values, |at, v| {
            let at = first + at;
            let place = if by_channel { at / len * channels + at % channels } else { at };
            if stream.uniform(place as u64) < p { 0.0 } else { v * keep }
        });
    }
}

impl Layer for Dropout {
    fn out_len(&self) -> usize {
        self.shape.len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        y.copy_from_slice(&x[..y.len()]);
        if pass.drops() && self.dropout.p > 0.0 {
            self.masked(pass, y);
        }
    }

    fn backward(&mut self, pass: &mut Pass<'_>, _: &[f32], slopes: &mut Slopes, _: bool) {
        if self.dropout.p > 0.0 {
            self.masked(pass, &mut slopes.current()[..pass.n * self.shape.len()]);
        }
    }

    fn carry_curvature(&mut self, pass: &mut Pass<'_>, x: &[f32], curvature: &mut Slopes) {
        // Twice the same mask is its square.
        self.backward(pass, x, curvature, true);
        self.backward(pass, x, curvature, true);
    }
}
