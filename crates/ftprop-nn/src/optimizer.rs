//! Optimizers: one pass over the flat buffers. The formulas are PyTorch's, so that its results come back.

use crate::NnError;
use crate::network::Network;
use ftprop_tensor::Buffer;
use ftprop_tensor::cpu::{elementwise, reduce};
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
        self.steps += 1;
        let (cpu, values, grads) = network.values_and_grads();
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
