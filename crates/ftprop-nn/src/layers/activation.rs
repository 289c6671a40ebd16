//! Activation layers: hard ones set targets on the way back, soft ones pass the gradient.

use super::{Above, Layer, Pass, Slopes};
use crate::activation::{Activation, qrelu, relu, saturated_relu, sign, step};
use crate::layer_loss::Targets;
use crate::target::{HardUnit, Needs, TargetRule};
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
    /// Outputs that are tried; taken when a rule first does.
    tried: Vec<f32>,
}

/// Where a layer's targets are, once they are set.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Set {
    /// They follow from g alone, t = sign(−g).
    ByGradient,
    /// In the place for the next slopes.
    Spare,
}

impl HardLayer {
    pub(crate) fn new(unit: HardUnit, number: u64, len: usize) -> Self {
        HardLayer { unit, number, len, tried: Vec::new() }
    }

    /// Sets the targets; a rule may put something else in the place of g.
    pub(super) fn set_targets(
        &mut self,
        pass: &mut Pass<'_>,
        z: &[f32],
        slopes: &mut Slopes,
        above: Option<&mut dyn Above>,
    ) -> Set {
        let (cpu, unit, len) = (pass.cpu, self.unit, pass.n * self.len);
        let z = &z[..len];
        let taught = pass.taught.get(self.number as usize).copied().flatten();
        match (unit.rule.needs(), &slopes.curvature, taught, above) {
            (Needs::Curvature, Some(_), ..) => {
                let (g, curvature) = slopes.with_curvature();
                unit.secants(cpu, &mut g[..len], &curvature[..len], z);
                Set::ByGradient
            }
            (Needs::Above { share }, .., Some(above)) => {
                let (g, spare) = slopes.in_place();
                self.tried.resize(len, 0.0);
                unit.propose(cpu, (share, pass.progress), self.len, [&g[..len], z], &mut self.tried);
                let helped = above.helped(pass, &self.tried);
                unit.verified(cpu, self.len, [&g[..len], z, &self.tried], &helped, &mut spare[..len]);
                Set::Spare
            }
            (Needs::Teacher, _, Some(teacher), _) => {
                unit.taught(cpu, teacher, z, &mut slopes.in_place().1[..len]);
                Set::Spare
            }
            _ if unit.rule == TargetRule::gradient_sign() => Set::ByGradient,
            _ => {
                let (g, spare) = slopes.in_place();
                unit.targets(cpu, &pass.moment(self.len, self.number), &mut g[..len], z, &mut spare[..len]);
                Set::Spare
            }
        }
    }

    /// Turns g into the slopes at the targets, and carries the curvature down where there is one.
    pub(super) fn take_slopes(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, set: Set) {
        let (len, moment) = (pass.n * self.len, pass.moment(self.len, self.number));
        let z = &z[..len];
        let mut curvature = slopes.curvature.take();
        // The place for the next slopes is free: these are changed where they are.
        let (g, spare) = slopes.in_place();
        let targets = match set {
            Set::ByGradient => Targets::GradientSign,
            Set::Spare => Targets::Given(&spare[..len]),
        };
        if let Some(curvature) = &mut curvature {
            let (c, spare) = curvature.in_place();
            self.unit.carry(pass.cpu, moment.progress, targets, [&g[..len], z], [&mut c[..len], &mut spare[..len]]);
        }
        self.unit.slopes_at(pass.cpu, &moment, targets, &mut g[..len], z);
        slopes.curvature = curvature;
    }
}

impl Layer for HardLayer {
    fn out_len(&self) -> usize {
        self.len
    }

    fn forward(&mut self, pass: &mut Pass<'_>, z: &[f32], h: &mut [f32]) {
        activate(pass.cpu, self.unit.activation, z, h);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool) {
        let set = self.set_targets(pass, z, slopes, None);
        self.take_slopes(pass, z, slopes, set);
    }

    fn backward_below(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool, above: &mut dyn Above) {
        let set = self.set_targets(pass, z, slopes, Some(above));
        self.take_slopes(pass, z, slopes, set);
    }

    /// Done with the slopes, which say where φ is taken.
    fn carry_curvature(&mut self, _: &mut Pass<'_>, _: &[f32], _: &mut Slopes) {}

    fn activates(&self) -> bool {
        true
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

    /// As the slopes: what they are multiplied by is 0 or 1, its own square.
    fn carry_curvature(&mut self, pass: &mut Pass<'_>, z: &[f32], curvature: &mut Slopes) {
        self.backward(pass, z, curvature, true);
    }

    fn activates(&self) -> bool {
        true
    }
}
