//! The optimizers' formulas, PyTorch's, so that its results come back: one small type each.

use super::UpdateRule;
use crate::number::Number;

/// Stochastic gradient descent.
#[derive(Clone, Debug)]
pub(super) struct Sgd {
    pub(super) weight_decay: f64,
}

impl UpdateRule for Sgd {
    fn moments(&self) -> usize {
        0
    }

    fn scalars(&self, _: u64, lr: f64) -> [f32; 4] {
        [lr as f32, 0.0, 0.0, 0.0]
    }

    #[inline(always)]
    fn update<N: Number>(&self, w: N, g: N, moments: [N; 2], [lr, ..]: [N; 4]) -> (N, [N; 2]) {
        (w - lr * (g + N::of(self.weight_decay as f32) * w), moments)
    }
}

/// Stochastic gradient descent with momentum, Nesterov's or not.
#[derive(Clone, Debug)]
pub(super) struct Momentum {
    pub(super) momentum: f64,
    pub(super) nesterov: bool,
    pub(super) weight_decay: f64,
}

impl UpdateRule for Momentum {
    fn moments(&self) -> usize {
        1
    }

    fn scalars(&self, _: u64, lr: f64) -> [f32; 4] {
        [lr as f32, 0.0, 0.0, 0.0]
    }

    #[inline(always)]
    fn update<N: Number>(&self, w: N, g: N, [m, none]: [N; 2], [lr, ..]: [N; 4]) -> (N, [N; 2]) {
        let momentum = N::of(self.momentum as f32);
        let g = g + N::of(self.weight_decay as f32) * w;
        let m = momentum * m + g;
        (w - lr * if self.nesterov { g + momentum * m } else { m }, [m, none])
    }
}

/// Adam, and AdamW where weight decay shrinks the weights by itself.
#[derive(Clone, Debug)]
pub(super) struct Adam {
    pub(super) beta1: f64,
    pub(super) beta2: f64,
    pub(super) eps: f64,
    pub(super) weight_decay: f64,
    pub(super) decoupled: bool,
}

impl UpdateRule for Adam {
    fn moments(&self) -> usize {
        2
    }

    /// The rate and the root with the bias of the first steps taken out, and what a weight keeps.
    fn scalars(&self, t: u64, lr: f64) -> [f32; 4] {
        let t = i32::try_from(t).unwrap_or(i32::MAX);
        let rate = lr / (1.0 - self.beta1.powi(t));
        let root = 1.0 / (1.0 - self.beta2.powi(t)).sqrt();
        let keep = if self.decoupled { 1.0 - lr * self.weight_decay } else { 1.0 };
        [rate as f32, root as f32, keep as f32, 0.0]
    }

    #[inline(always)]
    fn update<N: Number>(&self, w: N, g: N, [m, v]: [N; 2], [rate, root, keep, _]: [N; 4]) -> (N, [N; 2]) {
        let of = |value: f64| N::of(value as f32);
        let g = g + of(if self.decoupled { 0.0 } else { self.weight_decay }) * w;
        let m = of(self.beta1) * m + of(1.0 - self.beta1) * g;
        let v = of(self.beta2) * v + of(1.0 - self.beta2) * g * g;
        (w * keep - rate * m / (v.sqrt() * root + of(self.eps)), [m, v])
    }
}

/// RMSprop.
#[derive(Clone, Debug)]
pub(super) struct Rmsprop {
    pub(super) alpha: f64,
    pub(super) momentum: f64,
    pub(super) eps: f64,
    pub(super) weight_decay: f64,
}

impl UpdateRule for Rmsprop {
    fn moments(&self) -> usize {
        1 + usize::from(self.momentum != 0.0)
    }

    fn scalars(&self, _: u64, lr: f64) -> [f32; 4] {
        [lr as f32, 0.0, 0.0, 0.0]
    }

    #[inline(always)]
    fn update<N: Number>(&self, w: N, g: N, [v, m]: [N; 2], [lr, ..]: [N; 4]) -> (N, [N; 2]) {
        let of = |value: f64| N::of(value as f32);
        let g = g + of(self.weight_decay) * w;
        let v = of(self.alpha) * v + of(1.0 - self.alpha) * g * g;
        if self.momentum == 0.0 {
            return (w - lr * g / (v.sqrt() + of(self.eps)), [v, m]);
        }
        let m = of(self.momentum) * m + g / (v.sqrt() + of(self.eps));
        (w - lr * m, [v, m])
    }
}
