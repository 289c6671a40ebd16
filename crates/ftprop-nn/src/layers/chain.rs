//! Layers one after another: a whole network, or one path of a residual block.

use super::above::{Above, AboveInChain};
use super::{Layer, Pass, Slopes};
use ftprop_tensor::Buffer;
use std::time::Instant;

/// A layer with its name and its kind.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) layer: Box<dyn Layer>,
}

/// Layers with their outputs' buffers.
pub(crate) struct Chain {
    layers: Vec<Link>,
    outputs: Vec<Buffer>,
    /// The first layer with parameters: below it nothing needs slopes, unless the caller does.
    first_learned: usize,
}

impl Link {
    fn timed(&mut self, pass: &mut Pass<'_>, backward: bool, f: impl FnOnce(&mut dyn Layer, &mut Pass<'_>)) {
        // A layer made of layers leaves the timing to those.
        if pass.breakdown.is_none() || !self.layer.inner().is_empty() {
            return f(&mut *self.layer, pass);
        }
        let started = Instant::now();
        f(&mut *self.layer, pass);
        if let Some(breakdown) = &mut pass.breakdown {
            breakdown.add(self.kind, backward, started.elapsed());
        }
    }
}

impl Chain {
    /// Named layers, compiled for a batch.
    pub(crate) fn new(layers: Vec<Link>, batch: usize) -> Self {
        let outputs = layers.iter().map(|l| Buffer::zeros(batch * l.layer.out_len())).collect();
        let first_learned = layers.iter().position(|l| l.layer.learns()).unwrap_or(layers.len());
        Chain { layers, outputs, first_learned }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    pub(crate) fn learns(&self) -> bool {
        self.first_learned < self.layers.len()
    }

    /// The last layer's output; an empty chain hands its input on.
    pub(crate) fn forward<'a>(&'a mut self, pass: &mut Pass<'_>, x: &'a [f32]) -> &'a [f32] {
        for i in 0..self.layers.len() {
            let (before, after) = self.outputs.split_at_mut(i);
            let link = &mut self.layers[i];
            let x = before.last().map_or(x, |b| &b[..]);
            let y = &mut after[0][..pass.n * link.layer.out_len()];
            link.timed(pass, false, |layer, pass| layer.forward(pass, x, y));
        }
        self.output(pass.n).unwrap_or(x)
    }

    /// What the last layer gave for a batch of n, unless there is none.
    pub(crate) fn output(&self, n: usize) -> Option<&[f32]> {
        let last = self.layers.last()?;
        self.outputs.last().map(|y| &y[..n * last.layer.out_len()])
    }

    /// The way back; `above` is asked what is above this chain, where a target rule wants to know.
    pub(crate) fn backward(
        &mut self,
        pass: &mut Pass<'_>,
        x: &[f32],
        slopes: &mut Slopes,
        needs_input: bool,
        mut above: Option<&mut dyn Above>,
    ) {
        for i in (0..self.layers.len()).rev() {
            if !needs_input && i < self.first_learned {
                break;
            }
            let (below, outputs) = self.outputs.split_at_mut(i);
            let (layers, layers_above) = self.layers.split_at_mut(i + 1);
            let (x, link) = (below.last().map_or(x, |b| &b[..]), &mut layers[i]);
            let needs_input = needs_input || i > self.first_learned;
            if let Some(curvature) = slopes.curvature.as_deref_mut().filter(|_| needs_input) {
                link.layer.carry_curvature(pass, x, curvature);
            }
            match &mut above {
                None => link.timed(pass, true, |layer, pass| layer.backward(pass, x, slopes, needs_input)),
                Some(next) => {
                    let mut above = AboveInChain::new(layers_above, &mut outputs[1..], &mut **next);
                    link.timed(pass, true, |layer, pass| {
                        layer.backward_below(pass, x, slopes, needs_input, &mut above)
                    });
                }
            }
        }
    }

    /// Takes part in what others do on the way forward, or back, without examples.
    pub(crate) fn attend(&mut self, pass: &mut Pass<'_>, backward: bool) {
        let attend = |link: &mut Link| link.layer.attend(pass, backward);
        match backward {
            false => self.layers.iter_mut().for_each(attend),
            true => self.layers.iter_mut().rev().for_each(attend),
        }
    }

    /// What the activations of the last pass were of, in the order of the graph's nodes; x went in.
    pub(crate) fn pre_activations<'a>(&'a self, n: usize, x: &'a [f32], all: &mut Vec<&'a [f32]>) {
        for (i, link) in self.layers.iter().enumerate() {
            let x = if i == 0 { x } else { &self.outputs[i - 1][..] };
            link.layer.inner().into_iter().for_each(|chain| chain.pre_activations(n, x, all));
            if link.layer.activates() {
                all.push(&x[..n * link.layer.out_len()]);
            }
        }
    }

    /// The last layer's output, to be put right after others were tried.
    pub(crate) fn output_mut(&mut self) -> Option<&mut Buffer> {
        self.outputs.last_mut()
    }

    /// The name of the first layer whose output is not finite.
    pub(crate) fn first_non_finite(&self, n: usize) -> Option<&str> {
        for (Link { name, layer, .. }, output) in self.layers.iter().zip(&self.outputs) {
            let inside = layer.inner().into_iter().find_map(|chain| chain.first_non_finite(n));
            if inside.is_some() {
                return inside;
            }
            if output[..n * layer.out_len()].iter().any(|v| !v.is_finite()) {
                return Some(name);
            }
        }
        None
    }
}
