//! Optimizers: one pass over the flat buffers. The formulas are PyTorch's, so that its results come back.

use crate::NnError;
use crate::network::Network;
use ftprop_tensor::cpu::{elementwise, reduce};
use ftprop_tensor::{Buffer, Cpu};
use serde::{Deserialize, Serialize};

/// An optimizer as a recipe writes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
pub enum OptimizerSpec {
    Sgd {
        lr: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default)]
        nesterov: bool,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Weight decay is added to the gradient.
    Adam {
        lr: f64,
        #[serde(default = "beta1")]
        beta1: f64,
        #[serde(default = "beta2")]
        beta2: f64,
        #[serde(default = "eps")]
        eps: f64,
        #[serde(default)]
        weight_decay: f64,
    },
    /// Weight decay shrinks the weights by itself.
    Adamw {
        lr: f64,
        #[serde(default = "beta1")]
        beta1: f64,
        #[serde(default = "beta2")]
        beta2: f64,
        #[serde(default = "eps")]
        eps: f64,
        #[serde(default = "adamw_decay")]
        weight_decay: f64,
    },
    Rmsprop {
        lr: f64,
        #[serde(default = "alpha")]
        alpha: f64,
        #[serde(default)]
        momentum: f64,
        #[serde(default = "eps")]
        eps: f64,
        #[serde(default)]
        weight_decay: f64,
    },
}

fn beta1() -> f64 {
    0.9
}
fn beta2() -> f64 {
    0.999
}
fn eps() -> f64 {
    1e-8
}
fn adamw_decay() -> f64 {
    1e-2
}
fn alpha() -> f64 {
    0.99
}

impl OptimizerSpec {
    /// Adam with its usual constants and no weight decay.
    pub fn adam(lr: f64) -> Self {
        OptimizerSpec::Adam { lr, beta1: beta1(), beta2: beta2(), eps: eps(), weight_decay: 0.0 }
    }

    /// The learning rate that the schedule scales.
    pub fn lr(&self) -> f64 {
        match *self {
            OptimizerSpec::Sgd { lr, .. }
            | OptimizerSpec::Adam { lr, .. }
            | OptimizerSpec::Adamw { lr, .. }
            | OptimizerSpec::Rmsprop { lr, .. } => lr,
        }
    }

    fn check(&self) -> Result<(), NnError> {
        let ranges: &[(&str, f64, f64, f64)] = match *self {
            OptimizerSpec::Sgd { lr, momentum, weight_decay, .. } => &[
                ("lr", lr, 0.0, f64::MAX),
                ("momentum", momentum, 0.0, 1.0),
                ("weight_decay", weight_decay, 0.0, f64::MAX),
            ],
            OptimizerSpec::Adam { lr, beta1, beta2, eps, weight_decay }
            | OptimizerSpec::Adamw { lr, beta1, beta2, eps, weight_decay } => &[
                ("lr", lr, 0.0, f64::MAX),
                ("beta1", beta1, 0.0, 1.0),
                ("beta2", beta2, 0.0, 1.0),
                ("eps", eps, 0.0, f64::MAX),
                ("weight_decay", weight_decay, 0.0, f64::MAX),
            ],
            OptimizerSpec::Rmsprop { lr, alpha, momentum, eps, weight_decay } => &[
                ("lr", lr, 0.0, f64::MAX),
                ("alpha", alpha, 0.0, 1.0),
                ("momentum", momentum, 0.0, 1.0),
                ("eps", eps, 0.0, f64::MAX),
                ("weight_decay", weight_decay, 0.0, f64::MAX),
            ],
        };
        for &(key, value, low, high) in ranges {
            if !(low..high).contains(&value) {
                let range = if high == 1.0 { "at least 0 and below 1" } else { "at least 0" };
                return Err(NnError::Setting(format!("optimizer.{key} must be {range}, not {value}")));
            }
        }
        if let OptimizerSpec::Sgd { nesterov: true, momentum: 0.0, .. } = self {
            return Err(NnError::Setting("optimizer.nesterov needs a momentum above 0".into()));
        }
        Ok(())
    }
}

/// An optimizer with its moments.
pub struct Optimizer {
    spec: OptimizerSpec,
    moments: Vec<Buffer>,
    steps: u64,
}

impl Optimizer {
    /// For so many parameters.
    pub fn new(spec: &OptimizerSpec, parameters: usize) -> Result<Self, NnError> {
        spec.check()?;
        let moments = match spec {
            OptimizerSpec::Sgd { momentum: 0.0, .. } => 0,
            OptimizerSpec::Sgd { .. } | OptimizerSpec::Rmsprop { momentum: 0.0, .. } => 1,
            _ => 2,
        };
        Ok(Optimizer { spec: *spec, moments: (0..moments).map(|_| Buffer::zeros(parameters)).collect(), steps: 0 })
    }

    /// One step along the network's gradients, the learning rate scaled by `lr_factor`. `clip` is the
    /// largest norm that the whole gradient may have. Gives the gradient's norm back where it was needed.
    pub fn step(&mut self, network: &mut Network, lr_factor: f64, clip: Option<f64>) -> Option<f64> {
        let (cpu, values, grads) = network.values_and_grads();
        self.apply(cpu, values, grads, lr_factor, clip)
    }

    fn apply(
        &mut self,
        cpu: &Cpu,
        values: &mut [f32],
        grads: &[f32],
        lr_factor: f64,
        clip: Option<f64>,
    ) -> Option<f64> {
        self.steps += 1;
        let norm = clip.map(|_| reduce::square_sum(cpu, grads).sqrt());
        let scale = match (clip, norm) {
            (Some(most), Some(norm)) if norm > most => (most / norm) as f32,
            _ => 1.0,
        };
        let lr = self.spec.lr() * lr_factor;
        let mut moments = self.moments.iter_mut().map(|m| &mut m[..]);
        let mut moment = || moments.next().expect("an optimizer has the moments its kind needs");
        match self.spec {
            OptimizerSpec::Sgd { momentum: 0.0, weight_decay, .. } => {
                let (lr, decay) = (lr as f32, weight_decay as f32);
                elementwise::update(cpu, values, grads, |w, g| w - lr * (g * scale + decay * w));
            }
            OptimizerSpec::Sgd { momentum, nesterov, weight_decay, .. } => {
                let (lr, decay, momentum) = (lr as f32, weight_decay as f32, momentum as f32);
                elementwise::update2(cpu, [values, moment()], grads, |w, m, g| {
                    let g = g * scale + decay * w;
                    let m = momentum * m + g;
                    (w - lr * if nesterov { g + momentum * m } else { m }, m)
                });
            }
            OptimizerSpec::Adam { beta1, beta2, eps, weight_decay, .. }
            | OptimizerSpec::Adamw { beta1, beta2, eps, weight_decay, .. } => {
                let decoupled = matches!(self.spec, OptimizerSpec::Adamw { .. });
                let t = self.steps as i32;
                let rate = (lr / (1.0 - beta1.powi(t))) as f32;
                let root = (1.0 / (1.0 - beta2.powi(t)).sqrt()) as f32;
                let keep = if decoupled { (1.0 - lr * weight_decay) as f32 } else { 1.0 };
                let decay = if decoupled { 0.0 } else { weight_decay as f32 };
                let (b1, b2, eps) = (beta1 as f32, beta2 as f32, eps as f32);
                let (c1, c2) = ((1.0 - beta1) as f32, (1.0 - beta2) as f32);
                elementwise::update3(cpu, [values, moment(), moment()], grads, |w, m, v, g| {
                    let g = g * scale + decay * w;
                    let m = b1 * m + c1 * g;
                    let v = b2 * v + c2 * g * g;
                    (w * keep - rate * m / (v.sqrt() * root + eps), m, v)
                });
            }
            OptimizerSpec::Rmsprop { alpha, momentum, eps, weight_decay, .. } => {
                let (lr, decay, eps) = (lr as f32, weight_decay as f32, eps as f32);
                let (a, c) = (alpha as f32, (1.0 - alpha) as f32);
                let mean = moment();
                if momentum == 0.0 {
                    elementwise::update2(cpu, [values, mean], grads, |w, v, g| {
                        let g = g * scale + decay * w;
                        let v = a * v + c * g * g;
                        (w - lr * g / (v.sqrt() + eps), v)
                    });
                } else {
                    let momentum = momentum as f32;
                    elementwise::update3(cpu, [values, mean, moment()], grads, |w, v, m, g| {
                        let g = g * scale + decay * w;
                        let v = a * v + c * g * g;
                        let m = momentum * m + g / (v.sqrt() + eps);
                        (w - lr * m, v, m)
                    });
                }
            }
        }
        norm
    }

    /// Steps taken so far, and the moments: what a checkpoint keeps.
    pub fn state(&self) -> (u64, impl Iterator<Item = &[f32]>) {
        (self.steps, self.moments.iter().map(|m| &m[..]))
    }

    /// Goes on from a checkpoint's state; the moments' number and lengths must be this optimizer's.
    pub fn restore(&mut self, steps: u64, moments: &[&[f32]]) -> Result<(), NnError> {
        let lengths = |ms: &mut dyn Iterator<Item = usize>| ms.collect::<Vec<_>>();
        let (have, got) =
            (lengths(&mut self.moments.iter().map(|m| m.len())), lengths(&mut moments.iter().map(|m| m.len())));
        if have != got {
            return Err(NnError::Setting(format!(
                "the saved optimizer has moments of lengths {got:?}, this one needs {have:?}; it is of another optimizer or network"
            )));
        }
        self.steps = steps;
        self.moments.iter_mut().zip(moments).for_each(|(m, saved)| m.copy_from_slice(saved));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three steps from [0.5, −1.25, 2] along these gradients.
    const GRADS: [[f32; 3]; 3] = [[0.1, -0.2, 0.3], [-0.4, 0.05, 0.6], [0.7, 0.8, -0.9]];

    fn after_three_steps(spec: OptimizerSpec, clip: Option<f64>) -> [f32; 3] {
        let cpu = Cpu::new(1).unwrap();
        let mut values = [0.5, -1.25, 2.0];
        let mut optimizer = Optimizer::new(&spec, 3).unwrap();
        for grads in GRADS {
            optimizer.apply(&cpu, &mut values, &grads, 1.0, clip);
        }
        values
    }

    #[test]
    fn three_steps_end_where_pytorch_ends() {
        // torch.optim in float64, lr = 0.1, p.grad set by hand: SGD(weight_decay=0.01), the same with momentum=0.9,
        // with nesterov=True; Adam(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.01); AdamW(weight_decay=0.05);
        // RMSprop(alpha=0.9, weight_decay=0.01); RMSprop(alpha=0.9, momentum=0.5, eps=1e-7).
        let sgd = |momentum, nesterov| OptimizerSpec::Sgd { lr: 0.1, momentum, nesterov, weight_decay: 0.01 };
        let rms =
            |momentum, eps, weight_decay| OptimizerSpec::Rmsprop { lr: 0.1, alpha: 0.9, momentum, eps, weight_decay };
        let cases = [
            (sgd(0.0, false), [0.458_481_5, -1.311_289, 1.994_126]),
            (sgd(0.9, false), [0.476_095_4, -1.278_364, 1.883_664]),
            (sgd(0.9, true), [0.436_951, -1.336_914, 1.889_685]),
            (
                OptimizerSpec::Adam { lr: 0.1, beta1: 0.8, beta2: 0.95, eps: 1e-6, weight_decay: 0.01 },
                [0.420_276_6, -1.159_631, 1.813_405],
            ),
            (
                OptimizerSpec::Adamw { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.05 },
                [0.416_096_7, -1.138_446, 1.781_772],
            ),
            (rms(0.0, 1e-8, 0.01), [0.213_739_6, -1.303_302, 1.654_712]),
            (rms(0.5, 1e-7, 0.0), [0.131_894_9, -1.125_475, 1.277_095]),
        ];
        for (spec, expected) in cases {
            let got = after_three_steps(spec, None);
            for (x, e) in got.iter().zip(expected) {
                assert!((x - e).abs() < 2e-6, "{spec:?}: {got:?} for {expected:?}");
            }
        }
    }

    #[test]
    fn clipping_scales_the_whole_gradient() {
        // The same with torch.nn.utils.clip_grad_norm_([p], 0.5) before SGD(lr=0.1).
        let spec = OptimizerSpec::Sgd { lr: 0.1, momentum: 0.0, nesterov: false, weight_decay: 0.0 };
        let got = after_three_steps(spec, Some(0.5));
        for (x, e) in got.iter().zip([0.492_54, -1.262_177, 1.960_805]) {
            assert!((x - e).abs() < 2e-6, "{got:?}");
        }
    }

    #[test]
    fn a_restored_optimizer_goes_on_as_if_nothing_had_happened() {
        let cpu = Cpu::new(1).unwrap();
        let spec = OptimizerSpec::adam(0.1);
        let (mut one, mut values) = (Optimizer::new(&spec, 3).unwrap(), [0.5, -1.25, 2.0]);
        one.apply(&cpu, &mut values, &GRADS[0], 1.0, None);
        let mut two = Optimizer::new(&spec, 3).unwrap();
        let (steps, moments) = one.state();
        two.restore(steps, &moments.collect::<Vec<_>>()).unwrap();
        let mut other = values;
        one.apply(&cpu, &mut values, &GRADS[1], 1.0, None);
        two.apply(&cpu, &mut other, &GRADS[1], 1.0, None);
        assert_eq!(values, other);
        assert!(two.restore(1, &[&[0.0; 3]]).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        let sgd = OptimizerSpec::Sgd { lr: 0.1, momentum: 0.0, nesterov: true, weight_decay: 0.0 };
        for spec in [sgd, OptimizerSpec::adam(-1.0), OptimizerSpec::adam(f64::NAN)] {
            assert!(Optimizer::new(&spec, 1).is_err(), "{spec:?}");
        }
    }
}
