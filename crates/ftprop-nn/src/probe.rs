//! Learning diagnostics: one training step, watched from within each hard layer.
//!
//! A [`Probe`] is a network of its own whose hard layers report what they see. It is given the state of the
//! network under training and makes the step that is about to be taken: forward, targets, backward,
//! optimizer, and forward once more over the same batch to see which targets came true. The network under
//! training is not touched, and has no code for it to pass through.
//!
//! What is counted are *steps*: a unit of `sign` or `step` has one, a unit of `qrelu:k` has k, and each of
//! them is either at its unit's target or not. Every unit counts once for each example.

use crate::activation::{Activation, qrelu};
use crate::layer_loss::LayerLoss;
use crate::layers::{HardLayer, Layer, Pass, Slopes};
use crate::network::{Network, Step};
use crate::optimizer::Optimizer;
use crate::output_loss::Criterion;
use crate::shape::Shape;
use crate::spec::{Defaults, LayerSpec};
use crate::target::HardUnit;
use crate::{NnError, Tally};
use ftprop_tensor::Cpu;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A slope below this share of the one at the threshold is faint.
pub const FAINT: f32 = 0.01;

/// What one step looked like from within a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The batch's loss before the step and after it.
    pub loss: f64,
    pub loss_after: f64,
    /// The hard layers, in the order of the forward pass.
    pub layers: Vec<LayerDiagnosis>,
}

/// What one step looked like from within a hard layer. Shares are fractions of 1, and missing where there is
/// nothing to take a share of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerDiagnosis {
    /// Its path in the network, such as `3` or `4.main.1`.
    pub layer: String,
    /// The layer whose products it thresholds, in words.
    pub below: String,
    /// Units of one example.
    pub units: usize,
    /// Of all units: those whose z is beyond the reach of the saturated hinge, whatever the layer's loss.
    pub beyond: f64,
    /// Of all units: those without a target.
    pub untargeted: f64,
    /// Of the units with a target: those that their own layer loss hardly pushes, with less than [`FAINT`] of
    /// its slope at the threshold.
    pub faint: Option<f64>,
    /// Of the steps with a target: those that are not at it.
    pub disagree: Option<f64>,
    /// Of those: the ones that are at it after the step.
    pub came_true: Option<f64>,
    /// Of the steps at their target: the ones that no longer are after the step.
    pub lost: Option<f64>,
    /// The norm of ∂L/∂h, which arrives at the layer from above.
    pub gradient: f64,
    /// The norm of ∂ℓ/∂z, which it passes on.
    pub slope: f64,
    /// The norm of the gradient by the parameters between this hard layer and the one before.
    pub weight_gradient: f64,
}

/// A network that is watched while it makes a step.
pub struct Probe {
    network: Network,
    watch: Watch,
}

impl Probe {
    /// The same network as [`Network::new`] would compile.
    pub fn new(
        cpu: Arc<Cpu>,
        layers: &[LayerSpec],
        defaults: Defaults,
        input: Shape,
        classes: usize,
        batch: usize,
    ) -> Result<Self, NnError> {
        let watch = Watch::default();
        let network = Network::compile(cpu, layers, defaults, input, classes, batch, Some(watch.clone()))?;
        Ok(Probe { network, watch })
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// For bringing it to the state from which the step is made.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Makes one step, of which the network and the optimizer keep the outcome. None if a number blew up.
    pub fn step(
        &mut self,
        optimizer: &mut Optimizer,
        (images, labels): (&[f32], &[u32]),
        criterion: &Criterion,
        step: &Step,
        (lr_factor, clip): (f64, Option<f64>),
    ) -> Option<Diagnosis> {
        self.watch.lock().stepped = false;
        let before = self.network.learn(images, labels, criterion, step);
        let norms: Vec<f64> = {
            let sights = &self.watch.lock().sights;
            sights.iter().map(|s| norm(&self.network.grads()[s.parameters.clone()])).collect()
        };
        optimizer.step(&mut self.network, lr_factor, clip);
        self.watch.lock().stepped = true;
        let after = self.network.rehearse(images, labels, criterion, step);
        let sights = &self.watch.lock().sights;
        // A hard layer below all parameters has nothing to learn: no gradient arrives there.
        let learned = sights.iter().zip(norms).filter(|(sight, _)| !sight.units.is_empty());
        let layers: Vec<_> = learned.map(|(sight, norm)| sight.diagnosis(norm)).collect();
        let sound = |l: &LayerDiagnosis| (l.gradient + l.slope + l.weight_gradient).is_finite();
        let loss = |tally: Tally| Some(tally.loss()).filter(|loss| loss.is_finite());
        let (loss, loss_after) = (loss(before)?, loss(after)?);
        layers.iter().all(sound).then_some(Diagnosis { loss, loss_after, layers })
    }
}

/// Where the hard layers of a network report to.
#[derive(Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Sights>>);

#[derive(Default)]
struct Sights {
    /// Whether the optimizer has made its step.
    stepped: bool,
    sights: Vec<Sight>,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Sights> {
        // What a panic left half counted is cleared before it is counted again.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a hard layer saw.
struct Sight {
    layer: String,
    below: String,
    len: usize,
    parameters: Range<usize>,
    /// Each unit's target, and how many of its steps were on.
    units: Vec<(i8, u8)>,
    beyond: usize,
    targeted: usize,
    faint: usize,
    /// Steps a unit has.
    steps: usize,
    disagreeing: usize,
    came_true: usize,
    lost: usize,
    gradient: f64,
    slope: f64,
}

impl Sight {
    /// The targets as they are set, on the way back; g arrives from above.
    fn see_targets(&mut self, unit: &HardUnit, g: &[f32], z: &[f32]) {
        let saturated = HardUnit { layer_loss: LayerLoss::SaturatedHinge, ..*unit };
        let faint = [-1.0, 1.0].map(|t| FAINT * unit.phi(t, threshold(unit.activation)));
        (self.beyond, self.targeted, self.faint, self.disagreeing) = (0, 0, 0, 0);
        self.steps = steps(unit.activation);
        self.units.clear();
        for (&g, &z) in g.iter().zip(z) {
            let (t, on) = (unit.rule.target(g), steps_on(unit.activation, z));
            self.beyond += usize::from(saturated.phi(1.0, z) == 0.0);
            if t != 0.0 {
                self.targeted += 1;
                self.faint += usize::from(unit.phi(t, z) < faint[usize::from(t > 0.0)]);
                self.disagreeing += if t > 0.0 { self.steps - usize::from(on) } else { usize::from(on) };
            }
            self.units.push((t as i8, on));
        }
        self.gradient = norm(g);
    }

    /// What became of the targets, on the way forward after the step.
    fn see_outcome(&mut self, activation: Activation, z: &[f32]) {
        (self.came_true, self.lost) = (0, 0);
        for (&(t, before), &z) in self.units.iter().zip(z) {
            // Steps that went on; thresholds are passed in order, so either all changes are ups or all downs.
            let up = i32::from(steps_on(activation, z)) - i32::from(before);
            let towards = up * i32::from(t);
            if towards > 0 {
                self.came_true += towards as usize;
            } else {
                self.lost += -towards as usize;
            }
        }
    }

    fn diagnosis(&self, weight_gradient: f64) -> LayerDiagnosis {
        let share = |part: usize, of: usize| (of > 0).then(|| part as f64 / of as f64);
        let (all, targeted) = (self.units.len(), self.targeted * self.steps);
        LayerDiagnosis {
            layer: self.layer.clone(),
            below: self.below.clone(),
            units: self.len,
            beyond: share(self.beyond, all).unwrap_or(0.0),
            untargeted: share(all - self.targeted, all).unwrap_or(0.0),
            faint: share(self.faint, self.targeted),
            disagree: share(self.disagreeing, targeted),
            came_true: share(self.came_true, self.disagreeing),
            lost: share(self.lost, targeted - self.disagreeing),
            gradient: self.gradient,
            slope: self.slope,
            weight_gradient,
        }
    }
}

/// A hard layer that reports what it sees.
pub(crate) struct Watched {
    layer: HardLayer,
    watch: Watch,
    /// Which sight is its own.
    index: usize,
}

impl Watched {
    /// `below` is the layer it thresholds, in words, and `parameters` how many there are up to here.
    pub(crate) fn new(layer: HardLayer, watch: &Watch, path: &str, below: &str, parameters: usize) -> Self {
        let sights = &mut watch.lock().sights;
        let index = sights.len();
        let start = sights.last().map_or(0, |s| s.parameters.end);
        sights.push(Sight {
            layer: path.to_string(),
            below: below.to_string(),
            len: layer.len,
            parameters: start..parameters,
            units: Vec::new(),
            beyond: 0,
            targeted: 0,
            faint: 0,
            steps: 1,
            disagreeing: 0,
            came_true: 0,
            lost: 0,
            gradient: 0.0,
            slope: 0.0,
        });
        Watched { layer, watch: watch.clone(), index }
    }
}

impl Layer for Watched {
    fn out_len(&self) -> usize {
        self.layer.out_len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, z: &[f32], h: &mut [f32]) {
        let mut sights = self.watch.lock();
        if sights.stepped {
            sights.sights[self.index].see_outcome(self.layer.unit.activation, &z[..h.len()]);
        }
        drop(sights);
        self.layer.forward(pass, z, h);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let len = pass.n * self.layer.len;
        let unit = HardUnit { progress: pass.progress, ..self.layer.unit };
        self.watch.lock().sights[self.index].see_targets(&unit, &slopes.current()[..len], &z[..len]);
        self.layer.backward(pass, z, slopes, needs_input);
        self.watch.lock().sights[self.index].slope = norm(&slopes.current()[..len]);
    }
}

/// Thresholds that a unit has.
fn steps(activation: Activation) -> usize {
    activation.levels().map_or(0, |levels| levels as usize - 1)
}

/// How many of them z has passed.
fn steps_on(activation: Activation, z: f32) -> u8 {
    match activation {
        Activation::Qrelu { k } => (qrelu(z, k as f32) * k as f32).round() as u8,
        _ => u8::from(z > 0.0),
    }
}

/// The middle of a unit's thresholds, where its layer loss is centred.
fn threshold(activation: Activation) -> f32 {
    if matches!(activation, Activation::Qrelu { .. }) { 0.5 } else { 0.0 }
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests;
