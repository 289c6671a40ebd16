//! Optimizers of whole matrices: a weight's step depends on all others of its layer.
//!
//! What they have in common is the nearest orthogonal matrix to a direction, which a few products of a Newton–Schulz
//! iteration come close to. A rule says what the direction is and what the step along it is; engines do the products.

use super::{At, Method, ParameterGroups};
use crate::number::Number;
use crate::trace::procedure;
use ftprop_tensor::cpu::{elementwise, linear, reduce};
use ftprop_tensor::{Buffer, Cpu};
use std::fmt;

/// What becomes of a matrix of weights. One moment a weight.
pub trait MatrixRule: fmt::Debug + Send + Sync + 'static {
    /// Numbers that are the same for all weights of a matrix of these rows and columns, at step `t`, counted from 1.
    fn scalars(&self, t: u64, lr: f64, matrix: [usize; 2]) -> [f32; 4];
    /// The direction and the moment after the step.
    fn direction<N: Number>(&self, g: N, m: N, scalars: [N; 4]) -> [N; 2];
    /// How the direction is made orthogonal.
    fn orthogonal(&self) -> NewtonSchulz;
    /// What weights are scaled to before a step: the norm of a matrix of these rows and columns. None leaves them alone.
    fn weight_norm(&self, matrix: [usize; 2]) -> Option<f32>;
    /// The weight after a step along the orthogonal direction d.
    fn update<N: Number>(&self, w: N, d: N, scalars: [N; 4]) -> N;
}

/// X ← X / (‖X‖ + ε), then so many times X ← aX + (bA + cA²)X with A = XXᵀ. Where X has more rows than columns, the same
/// from the other side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewtonSchulz {
    /// How often.
    pub steps: u32,
    /// a, b and c.
    pub coefficients: [f32; 3],
    /// ε
    pub eps: f32,
}

/// A [`MatrixRule`] without its type.
pub(crate) trait AnyMatrixRule: fmt::Debug + Send + Sync {
    fn scalars(&self, t: u64, lr: f64, matrix: [usize; 2]) -> [f32; 4];
    fn orthogonal(&self) -> NewtonSchulz;
    fn weight_norm(&self, matrix: [usize; 2]) -> Option<f32>;
    fn directions(&self, cpu: &Cpu, moment: &mut [f32], direction: &mut [f32], grads: &[f32], at: &At);
    fn apply(&self, cpu: &Cpu, values: &mut [f32], direction: &[f32], at: &At);
    fn device_direction(&self, name: &str) -> String;
    fn device_update(&self, name: &str) -> String;
}

impl<R: MatrixRule> AnyMatrixRule for R {
    fn scalars(&self, t: u64, lr: f64, matrix: [usize; 2]) -> [f32; 4] {
        MatrixRule::scalars(self, t, lr, matrix)
    }

    fn orthogonal(&self) -> NewtonSchulz {
        MatrixRule::orthogonal(self)
    }

    fn weight_norm(&self, matrix: [usize; 2]) -> Option<f32> {
        MatrixRule::weight_norm(self, matrix)
    }

    fn directions(&self, cpu: &Cpu, moment: &mut [f32], direction: &mut [f32], grads: &[f32], at: &At) {
        let (s, scale) = (at.scalars, at.scale);
        elementwise::update2(cpu, [direction, moment], grads, |_, m, g| {
            let [d, m] = self.direction(g * scale, m, s);
            (d, m)
        });
    }

    fn apply(&self, cpu: &Cpu, values: &mut [f32], direction: &[f32], at: &At) {
        let s = at.scalars;
        elementwise::update(cpu, values, direction, |w, d| self.update(w, d, s));
    }

    fn device_direction(&self, name: &str) -> String {
        procedure(name, &["d", "m"], &["g", "s0", "s1", "s2", "s3"], |[_, m], [g, s0, s1, s2, s3]| {
            self.direction(g, m, [s0, s1, s2, s3])
        })
    }

    fn device_update(&self, name: &str) -> String {
        procedure(name, &["w"], &["d", "s0", "s1", "s2", "s3"], |[w], [d, s0, s1, s2, s3]| {
            [self.update(w, d, [s0, s1, s2, s3])]
        })
    }
}

/// How a group learns its matrices, for engines that have products of their own.
pub struct MatrixMethod<'a> {
    pub(super) rule: &'a dyn AnyMatrixRule,
    pub(super) lr: f64,
}

impl MatrixMethod<'_> {
    /// The numbers of step `t`, counted from 1, for a matrix of these rows and columns.
    pub fn scalars(&self, t: u64, lr_factor: f64, matrix: [usize; 2]) -> [f32; 4] {
        self.rule.scalars(t, self.lr * lr_factor, matrix)
    }

    /// How the direction is made orthogonal.
    pub fn orthogonal(&self) -> NewtonSchulz {
        self.rule.orthogonal()
    }

    /// What a matrix of these rows and columns is scaled to before a step, if it is.
    pub fn weight_norm(&self, matrix: [usize; 2]) -> Option<f32> {
        self.rule.weight_norm(matrix)
    }

    /// The direction of one weight, for a GPU's compiler: a function of that name that sets d and changes m, given g and
    /// the four scalars.
    pub fn device_direction(&self, name: &str) -> String {
        self.rule.device_direction(name)
    }

    /// The step of one weight: a function of that name that changes w, given the orthogonal direction d and the four
    /// scalars.
    pub fn device_update(&self, name: &str) -> String {
        self.rule.device_update(name)
    }
}

/// What the products of the largest matrix need.
pub(super) struct Workspace {
    direction: Buffer,
    next: Buffer,
    gram: Buffer,
    polynomial: Buffer,
    scratch: Buffer,
}

impl Workspace {
    pub(super) fn new(groups: &ParameterGroups) -> Self {
        let matrices = || {
            let spans = groups.spans().iter().filter(|s| matches!(groups.groups()[s.group].method, Method::Matrix(_)));
            spans.map(|s| s.matrix)
        };
        let largest = matrices().map(|[rows, cols]| rows * cols).max().unwrap_or(0);
        let square = matrices().map(|[rows, cols]| rows.min(cols).pow(2)).max().unwrap_or(0);
        Workspace {
            direction: Buffer::zeros(largest),
            next: Buffer::zeros(largest),
            gram: Buffer::zeros(square),
            polynomial: Buffer::zeros(square),
            scratch: Buffer::zeros(0),
        }
    }

    /// One step of one matrix.
    pub(super) fn step(
        &mut self,
        cpu: &Cpu,
        rule: &dyn AnyMatrixRule,
        matrix: [usize; 2],
        [values, moment]: [&mut [f32]; 2],
        grads: &[f32],
        at: &At,
    ) {
        let len = values.len();
        rule.directions(cpu, moment, &mut self.direction[..len], grads, at);
        self.orthogonalise(cpu, rule.orthogonal(), matrix);
        if let Some(wanted) = rule.weight_norm(matrix) {
            let norm = reduce::square_sum(cpu, values).sqrt() as f32;
            let factor = if norm > 0.0 { wanted / norm } else { 1.0 };
            values.iter_mut().for_each(|w| *w *= factor);
        }
        rule.apply(cpu, values, &self.direction[..len], at);
    }

    fn orthogonalise(&mut self, cpu: &Cpu, how: NewtonSchulz, [rows, cols]: [usize; 2]) {
        let (len, side) = (rows * cols, rows.min(cols));
        let needed = linear::scratch_len(cpu, cols, side, rows).max(linear::scratch_len(cpu, side, side, side));
        if self.scratch.len() < needed {
            self.scratch = Buffer::zeros(needed);
        }
        let Workspace { direction, next, gram, polynomial, scratch } = self;
        let (gram, polynomial) = (&mut gram[..side * side], &mut polynomial[..side * side]);
        let norm = reduce::square_sum(cpu, &direction[..len]).sqrt() as f32;
        let scale = 1.0 / (norm + how.eps);
        direction[..len].iter_mut().for_each(|x| *x *= scale);
        let [a, b, c] = how.coefficients;
        for _ in 0..how.steps {
            let (x, y) = (&mut direction[..len], &mut next[..len]);
            // A symmetric factor is its own transpose, so the products of fully connected layers serve.
            if rows <= cols {
                linear::forward(cpu, rows, cols, rows, x, x, None, gram, scratch);
            } else {
                linear::backward_weights(cpu, rows, cols, cols, x, x, gram, scratch);
            }
            linear::forward(cpu, side, side, side, gram, gram, None, polynomial, scratch);
            elementwise::update(cpu, polynomial, gram, |square, a| c * square + b * a);
            if rows <= cols {
                linear::backward_input(cpu, rows, cols, rows, polynomial, x, y, scratch);
            } else {
                linear::forward(cpu, rows, cols, cols, x, polynomial, None, y, scratch);
            }
            elementwise::update(cpu, x, y, |x, bx| a * x + bx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::random::Stream;

    #[test]
    fn the_iteration_comes_close_to_an_orthogonal_matrix_of_either_shape() {
        let cpu = Cpu::new(2).unwrap();
        let how = NewtonSchulz { steps: 9, coefficients: [3.4445, -4.775, 2.0315], eps: 1e-7 };
        for (rows, cols) in [(5, 17), (17, 5), (16, 16), (1, 9), (40, 3)] {
            let s = Stream::numbered((100 * rows + cols) as u64);
            let mut work = Workspace {
                direction: Buffer::zeros(rows * cols),
                next: Buffer::zeros(rows * cols),
                gram: Buffer::zeros(rows.min(cols).pow(2)),
                polynomial: Buffer::zeros(rows.min(cols).pow(2)),
                scratch: Buffer::zeros(0),
            };
            work.direction.iter_mut().enumerate().for_each(|(i, v)| *v = s.normal(i as u64));
            work.orthogonalise(&cpu, how, [rows, cols]);
            let x = |r: usize, c: usize| f64::from(work.direction[r * cols + c]);
            // Singular values end between 0.7 and 1.2, so the Gram matrix of the shorter side is near the identity.
            let side = rows.min(cols);
            for i in 0..side {
                for j in 0..side {
                    let dot: f64 = if rows <= cols {
                        (0..cols).map(|c| x(i, c) * x(j, c)).sum()
                    } else {
                        (0..rows).map(|r| x(r, i) * x(r, j)).sum()
                    };
                    let expected = f64::from(u8::from(i == j));
                    assert!((dot - expected).abs() < 0.6, "{rows}×{cols}: {i}, {j}: {dot}");
                }
            }
        }
    }
}
