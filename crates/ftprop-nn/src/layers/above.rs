//! The layers above a hard layer, asked which examples' loss is lower with other outputs.

use super::{Link, Pass, Statistics};
use crate::distillation::Distillation;
use crate::output_loss::Criterion;
use ftprop_tensor::Buffer;

/// What is above a place in the network. By the time that it is asked, the slopes have come down from there, so that its
/// buffers are free.
pub(crate) trait Above {
    /// For which examples the loss is lower than it was if `h` comes from below. Norms go by the statistics they had, so
    /// that examples do not depend on each other.
    fn helped(&mut self, pass: &mut Pass<'_>, h: &[f32]) -> Vec<bool>;
}

/// The layers further up in the same chain, and what is above it.
pub(super) struct AboveInChain<'a> {
    layers: &'a mut [Link],
    outputs: &'a mut [Buffer],
    next: &'a mut dyn Above,
}

impl<'a> AboveInChain<'a> {
    pub(super) fn new(layers: &'a mut [Link], outputs: &'a mut [Buffer], next: &'a mut dyn Above) -> Self {
        AboveInChain { layers, outputs, next }
    }
}

impl Above for AboveInChain<'_> {
    fn helped(&mut self, pass: &mut Pass<'_>, h: &[f32]) -> Vec<bool> {
        let statistics = std::mem::replace(&mut pass.statistics, Statistics::Again);
        for i in 0..self.layers.len() {
            let (below, outputs) = self.outputs.split_at_mut(i);
            let layer = &mut self.layers[i].layer;
            let len = pass.n * layer.out_len();
            layer.forward(pass, below.last().map_or(h, |b| &b[..]), &mut outputs[0][..len]);
        }
        pass.statistics = statistics;
        let last = self.layers.last().zip(self.outputs.last());
        let h = last.map_or(h, |(link, output)| &output[..pass.n * link.layer.out_len()]);
        self.next.helped(pass, h)
    }
}

/// The other path of a residual block, and what is above the block.
pub(super) struct Beside<'a> {
    pub(super) other: &'a [f32],
    pub(super) next: &'a mut dyn Above,
}

impl Above for Beside<'_> {
    fn helped(&mut self, pass: &mut Pass<'_>, h: &[f32]) -> Vec<bool> {
        let sum: Vec<f32> = h.iter().zip(self.other).map(|(a, b)| a + b).collect();
        self.next.helped(pass, &sum)
    }
}

/// The loss, above everything.
pub(crate) struct Output<'a> {
    pub(crate) criterion: &'a Criterion,
    pub(crate) labels: &'a [u32],
    /// The share of their own label that mixed examples keep.
    pub(crate) keep: f32,
    /// A teacher's logits.
    pub(crate) guide: Option<(&'a Distillation, &'a [f32])>,
    /// Each example's loss as it is.
    before: Vec<f64>,
}

impl<'a> Output<'a> {
    /// With the losses that these logits have.
    pub(crate) fn new(
        criterion: &'a Criterion,
        labels: &'a [u32],
        keep: f32,
        guide: Option<(&'a Distillation, &'a [f32])>,
        logits: &[f32],
    ) -> Self {
        let mut output = Output { criterion, labels, keep, guide, before: Vec::new() };
        output.before = output.losses(logits);
        output
    }

    fn losses(&self, logits: &[f32]) -> Vec<f64> {
        let mut losses = self.criterion.losses(logits, self.labels, self.keep);
        if let Some((distillation, teacher)) = self.guide {
            let classes = logits.len() / self.labels.len();
            let rows = logits.chunks_exact(classes).zip(teacher.chunks_exact(classes));
            losses.iter_mut().zip(rows).for_each(|(loss, (z, t))| *loss = distillation.loss(*loss, z, t));
        }
        losses
    }
}

impl Above for Output<'_> {
    fn helped(&mut self, _: &mut Pass<'_>, h: &[f32]) -> Vec<bool> {
        self.losses(h).into_iter().zip(&self.before).map(|(after, &before)| after < before).collect()
    }
}
