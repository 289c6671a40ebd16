//! Activation layers: hard ones set targets on the way back, soft ones pass the gradient.

use super::{Layer, Pass, Slopes};
use crate::activation::{Activation, qrelu, sign, step};
use crate::target::{HardUnit, Weighting};
use ftprop_tensor::cpu::elementwise;

/// A layer of hard-threshold units. What it must remember is its pre-activations, which are its input.
pub(crate) struct HardLayer {
    pub(crate) unit: HardUnit,
    /// Whether a target's loss is weighted by |g|.
    pub(crate) weighted: bool,
    pub(crate) len: usize,
}

impl Layer for HardLayer {
    fn out_len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, pass: &mut Pass<'_>, z: &[f32], h: &mut [f32]) {
        let z = &z[..h.len()];
        match self.unit.activation {
            Activation::Sign => elementwise::map(pass.cpu, z, h, sign),
            Activation::Step => elementwise::map(pass.cpu, z, h, step),
            Activation::Qrelu { k } => {
                let k = k as f32;
                elementwise::map(pass.cpu, z, h, |z| qrelu(z, k));
            }
            soft => elementwise::map(pass.cpu, z, h, |z| soft.value(z)),
        }
    }

    fn backward(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool) {
        let weighting = Weighting::new(self.weighted, pass.n);
        let unit = HardUnit { progress: pass.progress, weighting, ..self.unit };
        let len = pass.n * self.len;
        unit.slopes(pass.cpu, &mut slopes.current()[..len], &z[..len]);
    }
}

/// A full-precision activation: the gradient passes where the function rises.
pub(crate) struct SoftLayer {
    pub(crate) saturated: bool,
    pub(crate) len: usize,
}

impl Layer for SoftLayer {
    fn out_len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, pass: &mut Pass<'_>, z: &[f32], h: &mut [f32]) {
        let top = if self.saturated { 1.0 } else { f32::INFINITY };
        // `clamp` keeps a NaN, so that a network that blew up is seen.
        elementwise::map(pass.cpu, &z[..h.len()], h, |z| z.clamp(0.0, top));
    }

    fn backward(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool) {
        let len = pass.n * self.len;
        let slopes = &mut slopes.current()[..len];
        // At the corners as PyTorch has it: relu is flat at 0, clamp still rises at 0 and at 1.
        if self.saturated {
            elementwise::update(pass.cpu, slopes, &z[..len], |g, z| if (0.0..=1.0).contains(&z) { g } else { 0.0 });
        } else {
            elementwise::update(pass.cpu, slopes, &z[..len], |g, z| if z > 0.0 { g } else { 0.0 });
        }
    }
}
