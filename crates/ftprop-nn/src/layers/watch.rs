//! A hard layer that reports what it sees, for diagnosing how targets fare.

use super::activation::Set;
use super::{Above, HardLayer, Layer, Pass, Slopes};
use crate::activation::{Activation, qrelu};
use crate::layer_loss::LayerLoss;
use crate::number::Number;
use crate::target::HardUnit;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A slope below this share of the one at the threshold is faint.
pub const FAINT: f32 = 0.01;

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
    /// As [`disagree`](Self::disagree), each step counted by its weight |g|.
    pub disagree_by_weight: Option<f64>,
    /// As [`came_true`](Self::came_true), by weight.
    pub came_true_by_weight: Option<f64>,
    /// As [`lost`](Self::lost), by weight.
    pub lost_by_weight: Option<f64>,
    /// The norm of ∂L/∂h, which arrives at the layer from above.
    pub gradient: f64,
    /// The norm of ∂ℓ/∂z, which it passes on.
    pub slope: f64,
    /// The norm of the gradient by the parameters between this hard layer and the one before.
    pub weight_gradient: f64,
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
    /// The next pass is the one before the optimizer's step, or the one after it.
    pub(crate) fn stepped(&self, stepped: bool) {
        self.lock().stepped = stepped;
    }

    /// The parameters between each hard layer and the one before.
    pub(crate) fn parameters(&self) -> Vec<Range<usize>> {
        self.lock().sights.iter().map(|sight| sight.parameters.clone()).collect()
    }

    /// What the hard layers saw, given the norms of their parameters' gradients. A hard layer below all parameters has
    /// nothing to learn, and is left out: no gradient arrives there.
    pub(crate) fn diagnoses(&self, norms: &[f64]) -> Vec<LayerDiagnosis> {
        let sights = &self.lock().sights;
        let learned = sights.iter().zip(norms).filter(|(sight, _)| !sight.units.is_empty());
        learned.map(|(sight, norm)| sight.diagnosis(*norm)).collect()
    }

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
    /// Each unit's gradient and target, and how many of its steps were on.
    units: Vec<(f32, f32, u8)>,
    beyond: usize,
    targeted: usize,
    faint: usize,
    agreeing: Steps,
    disagreeing: Steps,
    came_true: Steps,
    lost: Steps,
    gradient: f64,
    slope: f64,
}

/// A number of steps, and what they weigh.
#[derive(Clone, Copy, Default)]
struct Steps {
    count: usize,
    weight: f64,
}

impl Steps {
    fn add(&mut self, count: usize, g: f32) {
        self.count += count;
        self.weight += count as f64 * f64::from(g.abs());
    }

    fn and(self, others: Steps) -> Steps {
        Steps { count: self.count + others.count, weight: self.weight + others.weight }
    }

    /// The share of a whole, by count and by weight.
    fn of(self, whole: Steps) -> [Option<f64>; 2] {
        let (some, counts) = (whole.count > 0, whole.weight > 0.0);
        [some.then(|| self.count as f64 / whole.count as f64), counts.then(|| self.weight / whole.weight)]
    }
}

impl Sight {
    /// The targets as they are set, on the way back; g arrives from above, or is what a rule put in its place.
    fn see_targets(&mut self, unit: &HardUnit, progress: f32, [g, z, targets]: [&[f32]; 3]) {
        let saturated = HardUnit { layer_loss: LayerLoss::saturated_hinge(), ..*unit };
        let faint = [-1.0, 1.0].map(|t| FAINT * unit.phi(t, threshold(unit.activation), progress));
        (self.beyond, self.targeted, self.faint) = (0, 0, 0);
        (self.agreeing, self.disagreeing) = Default::default();
        let steps = steps(unit.activation);
        self.units.clear();
        for ((&g, &z), &t) in g.iter().zip(z).zip(targets) {
            let on = steps_on(unit.activation, z);
            self.beyond += usize::from(saturated.phi(1.0, z, progress) == 0.0);
            if t != 0.0 {
                self.targeted += 1;
                self.faint += usize::from(unit.phi(t, z, progress) < faint[usize::from(t > 0.0)]);
                let agreeing = if t > 0.0 { usize::from(on) } else { steps - usize::from(on) };
                self.agreeing.add(agreeing, g);
                self.disagreeing.add(steps - agreeing, g);
            }
            self.units.push((g, t, on));
        }
    }

    /// What became of the targets, on the way forward after the step.
    fn see_outcome(&mut self, unit: &HardUnit, z: &[f32]) {
        (self.came_true, self.lost) = Default::default();
        for (&(g, t, before), &z) in self.units.iter().zip(z) {
            let now = steps_on(unit.activation, z);
            // Thresholds are passed in order, so a unit's changes are all ups or all downs.
            let changed = usize::from(now.abs_diff(before));
            if t != 0.0 && changed > 0 {
                let kept = (now > before) == (t > 0.0);
                if kept { &mut self.came_true } else { &mut self.lost }.add(changed, g);
            }
        }
    }

    fn diagnosis(&self, weight_gradient: f64) -> LayerDiagnosis {
        let share = |part: usize, of: usize| (of > 0).then(|| part as f64 / of as f64);
        let all = self.units.len();
        let [disagree, disagree_by_weight] = self.disagreeing.of(self.agreeing.and(self.disagreeing));
        let [came_true, came_true_by_weight] = self.came_true.of(self.disagreeing);
        let [lost, lost_by_weight] = self.lost.of(self.agreeing);
        LayerDiagnosis {
            layer: self.layer.clone(),
            below: self.below.clone(),
            units: self.len,
            beyond: share(self.beyond, all).unwrap_or(0.0),
            untargeted: share(all - self.targeted, all).unwrap_or(0.0),
            faint: share(self.faint, self.targeted),
            disagree,
            came_true,
            lost,
            disagree_by_weight,
            came_true_by_weight,
            lost_by_weight,
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
            agreeing: Steps::default(),
            disagreeing: Steps::default(),
            came_true: Steps::default(),
            lost: Steps::default(),
            gradient: 0.0,
            slope: 0.0,
        });
        Watched { layer, watch: watch.clone(), index }
    }

    fn back(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, above: Option<&mut dyn Above>) {
        let len = pass.n * self.layer.len;
        // Before the rule, which may put something else in its place.
        self.watch.lock().sights[self.index].gradient = norm(&slopes.current()[..len]);
        let set = self.layer.set_targets(pass, z, slopes, above);
        let (g, spare) = slopes.in_place();
        let targets = match set {
            Set::Spare => spare[..len].to_vec(),
            Set::ByGradient => g[..len].iter().map(|g| g.opposite_sign()).collect(),
        };
        let seen = [&g[..len], &z[..len], &targets[..]];
        self.watch.lock().sights[self.index].see_targets(&self.layer.unit, pass.progress, seen);
        self.layer.take_slopes(pass, z, slopes, set);
        self.watch.lock().sights[self.index].slope = norm(&slopes.current()[..len]);
    }
}

impl Layer for Watched {
    fn out_len(&self) -> usize {
        self.layer.out_len()
    }

    fn forward(&mut self, pass: &mut Pass<'_>, z: &[f32], h: &mut [f32]) {
        let mut sights = self.watch.lock();
        if sights.stepped {
            sights.sights[self.index].see_outcome(&self.layer.unit, &z[..h.len()]);
        }
        drop(sights);
        self.layer.forward(pass, z, h);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool) {
        self.back(pass, z, slopes, None);
    }

    fn backward_below(&mut self, pass: &mut Pass<'_>, z: &[f32], slopes: &mut Slopes, _: bool, above: &mut dyn Above) {
        self.back(pass, z, slopes, Some(above));
    }

    fn carry_curvature(&mut self, pass: &mut Pass<'_>, z: &[f32], curvature: &mut Slopes) {
        self.layer.carry_curvature(pass, z, curvature);
    }

    fn activates(&self) -> bool {
        true
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

pub(crate) fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests;
