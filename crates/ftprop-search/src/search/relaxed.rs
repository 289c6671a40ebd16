//! FTPROP with its feasibility checks relaxed (the paper's Algorithm 2, on small problems as a whole).
//!
//! Where there are more inputs than instances almost any targets are feasible, and which of them generalise is the
//! question. So this search asks for targets that stay realised when the instances are shaken: each step jitters
//! them, sets every hidden target by the gradient-sign rule on the loss of the layer above, weighted by how much it
//! matters, and takes a small step on each layer's soft hinge loss. Pictures are also turned, stretched, slanted and
//! moved a little.

mod frame;
mod pictures;
mod trainer;

use self::frame::Frame;
use self::pictures::Pictures;
use self::trainer::Trainer;
use super::{Control, Found, Search, Setup, Stop, loss_of};
use crate::error::SearchError;
use crate::network::Network;
use crate::rng::Rng;

/// Relaxed FTPROP from one start.
#[derive(Clone, Debug)]
pub struct Relaxed {
    /// How many steps; the step size falls linearly to zero over them.
    pub steps: usize,
    /// The length of the jitter relative to the instances' mean distance from their centre.
    pub jitter: f64,
    /// The first step size (Adam).
    pub rate: f64,
    /// L2 regularisation of all weights.
    pub decay: f64,
    /// Hidden layers begin this many times as wide as asked for, and lose the unit that matters least again and again
    /// until the middle of the steps.
    pub widen: usize,
    /// How steep the soft hinge loss of hidden units is: 1 − tanh(steepness t z).
    pub steepness: f64,
}

impl Default for Relaxed {
    fn default() -> Self {
        Relaxed { steps: 2000, jitter: 1.0, rate: 0.03, decay: 1e-3, widen: 2, steepness: 4.0 }
    }
}

/// Most instances in a step.
const BATCH: usize = 100;
/// How often in a run the whole network is looked at.
const LOOKS: usize = 30;
/// Steps after which it is seen anew which instances are wrong, from the middle of the steps on.
const SEEN_ANEW: usize = 25;
/// The part of a step that then goes to wrong instances, as they are: it is those that must be right at the end.
const REPAIR: usize = 10;

impl Search for Relaxed {
    fn name(&self) -> &'static str {
        "relaxed"
    }

    fn uses_learner(&self) -> bool {
        false
    }

    fn run(&self, setup: &Setup<'_>, control: &Control<'_>) -> Result<Found, SearchError> {
        let mut rng = Rng::new(setup.seed);
        let pictures = setup.picture.and_then(|size| Pictures::new(setup.data, size, &mut rng));
        let frame = Frame::new(&setup.data.points, pictures.as_ref().map_or(&[], |pictures| pictures.varied()));
        let pictures = pictures.map(|pictures| pictures.placed(&frame));
        let mut trainer = Trainer::new(setup, frame.len(), self, &mut rng);
        let mut order: Vec<usize> = (0..frame.rows.len()).collect();
        let mut wrong: Vec<usize> = vec![];
        let mut best: Option<(f64, Network)> = None;
        let mut seen = vec![];
        for step in 0..=self.steps {
            let stop = control.stop().is_some();
            let widest = self.widen_at(step);
            for (depth, &width) in setup.hidden.iter().enumerate() {
                let width = if stop { width } else { (width as f64 * widest).round() as usize };
                trainer.narrow(depth, width);
            }
            if stop || step == self.steps || step % (self.steps / LOOKS).max(1) == 0 {
                self.look(&frame.network(&trainer.weights()), setup, control, &mut best);
            }
            if stop || step == self.steps {
                break;
            }
            if step * 2 >= self.steps && step % SEEN_ANEW == 0 {
                let is_wrong = |instance: &usize| trainer.class(&frame.rows[*instance]) != setup.data.labels[*instance];
                wrong = (0..frame.rows.len()).filter(is_wrong).collect();
            }
            rng.shuffle(&mut order);
            for (at, &instance) in order.iter().take(BATCH).enumerate() {
                let repaired =
                    (at < order.len().min(BATCH) / REPAIR && !wrong.is_empty()).then(|| wrong[rng.below(wrong.len())]);
                let instance = repaired.unwrap_or(instance);
                seen.clone_from(match pictures.as_ref().filter(|_| repaired.is_none()) {
                    Some(pictures) => pictures.draw(instance, &mut rng),
                    None => &frame.rows[instance],
                });
                let length = (self.jitter / (frame.len() as f64).sqrt()) as f32;
                seen.iter_mut().for_each(|x| *x += length * shake(&mut rng));
                trainer.gather(&seen, setup.data.labels[instance]);
            }
            let rate = self.rate * (1.0 - step as f64 / self.steps as f64);
            trainer.step(rate, self.decay, order.len().min(BATCH));
        }
        let (loss, network) = best.ok_or(SearchError::ZeroBudget)?;
        Ok(Found::unproved(setup, network, loss, control.stop().unwrap_or(Stop::Ended)))
    }
}

impl Relaxed {
    /// How many times as wide as asked for the hidden layers are at a step: from an eighth of the steps on it falls,
    /// until they have their width at the half.
    fn widen_at(&self, step: usize) -> f64 {
        let done = step as f64 / self.steps as f64;
        let left = ((0.5 - done) / 0.375).clamp(0.0, 1.0);
        (self.widen.max(1) as f64).powf(left)
    }

    /// Keeps the network if it is as good as the best so far.
    fn look(&self, network: &Network, setup: &Setup<'_>, control: &Control<'_>, best: &mut Option<(f64, Network)>) {
        control.count(1);
        if network.widths().iter().zip(setup.hidden).any(|(now, wanted)| now > wanted) {
            return;
        }
        let loss = loss_of(network, setup.data, setup.loss);
        if best.as_ref().is_none_or(|(least, _)| loss < *least) {
            control.improved(loss, setup.floor());
        }
        // Among equals the later one: its margins are larger.
        if best.as_ref().is_none_or(|(least, _)| loss <= *least) {
            *best = Some((loss, network.clone()));
        }
    }
}

/// Nearly normal, and much sooner there than what is: the sum of four uniform numbers, with variance 1.
fn shake(rng: &mut Rng) -> f32 {
    let bits = rng.next_u64();
    let sum: u64 = (0..4).map(|place| bits >> (16 * place) & 0xFFFF).sum();
    (sum as f32 / 65536.0 - 2.0) * 3f32.sqrt()
}

/// In eight sums, so that the compiler may use vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a_rest, b_rest) = (a.chunks_exact(8).remainder(), b.chunks_exact(8).remainder());
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        (0..8).for_each(|at| sums[at] += a[at] * b[at]);
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shakes_have_mean_zero_and_variance_one() {
        let mut rng = Rng::new(3);
        let draws: Vec<f64> = (0..20_000).map(|_| f64::from(shake(&mut rng))).collect();
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn dots_of_any_length() {
        for length in 0..20 {
            let (a, b): (Vec<f32>, Vec<f32>) = (0..length).map(|at| (at as f32, (at % 3) as f32)).unzip();
            let plain: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert_eq!(dot(&a, &b), plain, "{length}");
        }
    }
}
