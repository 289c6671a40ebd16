//! Muon: momentum made orthogonal, for the matrices of convolutions and fully connected layers.

use super::matrix::{MatrixRule, NewtonSchulz};
use crate::number::Number;

/// The step has the same size in every direction that the momentum has, √(rows / columns) of it where a matrix is tall.
#[derive(Debug)]
pub(super) struct Muon {
    pub(super) momentum: f64,
    pub(super) nesterov: bool,
    /// Shrinks the weights by itself.
    pub(super) weight_decay: f64,
    /// Newton–Schulz iterations.
    pub(super) iterations: u32,
    /// Whether weights are scaled to one length a row before each step, which makes the rate one of angles.
    pub(super) normalize: bool,
}

impl MatrixRule for Muon {
    fn scalars(&self, _: u64, lr: f64, [rows, columns]: [usize; 2]) -> [f32; 4] {
        let rate = lr * (rows as f64 / columns as f64).max(1.0).sqrt();
        [self.momentum as f32, rate as f32, (1.0 - lr * self.weight_decay) as f32, 0.0]
    }

    #[inline(always)]
    fn direction<N: Number>(&self, g: N, m: N, [momentum, ..]: [N; 4]) -> [N; 2] {
        let m = momentum * m + g;
        [if self.nesterov { g + momentum * m } else { m }, m]
    }

    fn orthogonal(&self) -> NewtonSchulz {
        // K. Jordan's coefficients: singular values of 0.01 and more end between 0.7 and 1.2 after five iterations.
        NewtonSchulz { steps: self.iterations, coefficients: [3.4445, -4.775, 2.0315], eps: 1e-7 }
    }

    fn weight_norm(&self, [rows, _]: [usize; 2]) -> Option<f32> {
        self.normalize.then(|| (rows as f32).sqrt())
    }

    #[inline(always)]
    fn update<N: Number>(&self, w: N, d: N, [_, rate, keep, _]: [N; 4]) -> N {
        w * keep - rate * d
    }
}

#[cfg(test)]
mod tests {
    use crate::optimizer::{GroupSpec, Optimizer, OptimizerSpec, ParameterClass, ParameterGroups, Setting};
    use crate::spec::{Defaults, LayerSpec};
    use crate::{Activation, Graph, LayerLoss};
    use ftprop_tensor::{Cpu, Shape};
    use std::sync::Arc;

    fn muon(more: &[(&str, Setting)]) -> OptimizerSpec {
        let settings = [&[("lr", Setting::Number(0.1)), ("momentum", Setting::Number(0.6))], more].concat();
        OptimizerSpec::new("muon", &settings).unwrap()
    }

    /// A fully connected layer of 2 outputs and 3 inputs without a bias.
    fn graph(bias: bool) -> Graph {
        let layers = [LayerSpec::Fc { out: None, bias: Some(bias) }];
        let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
        Graph::resolve(&layers, &defaults, Shape::vector(3), 2).unwrap()
    }

    #[test]
    fn two_steps_end_where_the_published_optimizer_ends() {
        // numpy in float64, K. Jordan's definition: momentum 0.6, Nesterov's, five iterations, lr 0.1, weight decay 0.5,
        // W = [[0.5, -1.25, 2], [0.25, 0, -0.75]], G1 = [[0.1, -0.2, 0.3], [-0.4, 0.05, 0.6]], G2 = [[0.7, 0.8, -0.9], [0, 0.3, 0.1]].
        let expected = [0.3553103, -1.1083454, 1.7998321, 0.2952333, -0.0932377, -0.7764864];
        let groups =
            ParameterGroups::resolve(&muon(&[("weight_decay", Setting::Number(0.5))]), &[], &graph(false)).unwrap();
        let mut optimizer = Optimizer::for_groups(Arc::new(groups));
        let mut values = [0.5, -1.25, 2.0, 0.25, 0.0, -0.75];
        for grads in [[0.1, -0.2, 0.3, -0.4, 0.05, 0.6], [0.7, 0.8, -0.9, 0.0, 0.3, 0.1]] {
            optimizer.step(&Cpu::new(1).unwrap(), &mut values, &grads, 1.0, None);
        }
        for (got, expected) in values.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{values:?} for {expected:?}");
        }
    }

    #[test]
    fn normalized_weights_have_one_length_a_row_before_each_step() {
        let spec = muon(&[("normalize", Setting::Flag(true))]).with("lr", Setting::Number(1e-9)).unwrap();
        let groups = ParameterGroups::resolve(&spec, &[], &graph(false)).unwrap();
        let mut values = [3.0, 0.0, 4.0, 0.0, 12.0, 0.0];
        Optimizer::for_groups(Arc::new(groups)).step(&Cpu::new(1).unwrap(), &mut values, &[0.5; 6], 1.0, None);
        let norm = values.iter().map(|v| v * v).sum::<f32>();
        assert!((norm - 2.0).abs() < 1e-5, "{values:?}");
    }

    #[test]
    fn what_is_no_matrix_needs_another_optimizer() {
        let message = ParameterGroups::resolve(&muon(&[]), &[], &graph(true)).unwrap_err().to_string();
        assert!(message.contains("0.bias is no matrix") && message.contains("group"), "{message}");
        let biases = GroupSpec {
            kind: Some(ParameterClass::Biases),
            pattern: None,
            lr_factor: 1.0,
            weight_decay: None,
            momentum: None,
            optimizer: OptimizerSpec::sgd(0.1, 0.9).ok(),
        };
        let groups = ParameterGroups::resolve(&muon(&[]), &[biases], &graph(true)).unwrap();
        assert_eq!(groups.spans().iter().map(|s| (s.group, s.matrix)).collect::<Vec<_>>(), [(1, [2, 3]), (0, [0, 0])]);
        assert!(ParameterGroups::single(&muon(&[]), 6).is_err());
    }
}
