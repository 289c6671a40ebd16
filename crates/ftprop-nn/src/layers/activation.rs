//! Activation layers: hard ones set targets on the way back, soft ones pass the gradient.

use super::{Layer, Pass, Slopes};
use crate::activation::{Activation, qrelu, relu, saturated_relu, sign, step};
use crate::target::HardUnit;
use ftprop_tensor::Cpu;
use ftprop_tensor::cpu::elementwise;

/// h = g(z), compiled for each activation.
fn activate(cpu: &Cpu, activation: Activation, z: &[f32], h: &mut [f32]) {
    let z = &z[..h.len()];
    match activation {
        Activation::Sign => elementwise::map(cpu, z, h, sign),
        Activation::Step => elementwise::map(cpu, z, h, step),
        Activation::Qrelu { k } => {
            let k = k as f32;
            elementwise::map(cpu, z, h, |z| qrelu(z, k));
        }
        Activation::Relu => elementwise::map(cpu, z, h, relu),
        Activation::SaturatedRelu => elementwise::map(cpu, z, h, saturated_relu),
    }
}

/// A layer of hard-threshold units. What it must remember is its pre-activations, which are its input.
pub(crate) struct HardLayer {
    pub(crate) unit: HardUnit,
    /// Tells it from other hard layers.
    pub(crate) number: u64,
    pub(crate) len: usize,
}

impl Layer for HardLayer {
    fn out_len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, pass: &mut Pass<'_>, z: &[f32], h: &mut [f32]) {
        activate(pass.cpu, self.unit.activation, z, h);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool) {
        let len = pass.n * self.len;
        let moment = pass.moment(self.len, self.number);
        // The place for the next slopes is free: these are changed where they are.
        let (g, spare) = slopes.in_place();
        self.unit.slopes(pass.cpu, &moment, &mut g[..len], &z[..len], &mut spare[..len]);
    }
}

/// A full-precision activation: the gradient passes where the function rises.
pub(crate) struct SoftLayer {
    pub(crate) activation: Activation,
    pub(crate) len: usize,
}

impl Layer for SoftLayer {
    fn out_len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, pass: &mut Pass<'_>, z: &[f32], h: &mut [f32]) {
        activate(pass.cpu, self.activation, z, h);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool) {
        let len = pass.n * self.len;
        let slopes = &mut slopes.current()[..len];
        // With the activation known to the compiler, each loop has one formula in it.
        let passed = |activation: Activation| move |g: f32, z: f32| activation.passed(g, z).unwrap_or(0.0);
        match self.activation {
            Activation::Relu => elementwise::update(pass.cpu, slopes, &z[..len], passed(Activation::Relu)),
            Activation::SaturatedRelu => {
                elementwise::update(pass.cpu, slopes, &z[..len], passed(Activation::SaturatedRelu));
            }
            Activation::Sign | Activation::Step | Activation::Qrelu { .. } => {
                unreachable!("the graph gives hard activations a layer loss")
            }
        }
    }
}
