//! Optimizers: the step along the gradients, over flat buffers that belong to no network.
//!
//! A formula is an [`UpdateRule`]: what becomes of one weight, given its gradient and its moments. [`OptimizerSpec`] is
//! the choice of one by name, with its settings; [`ParameterGroups`] says which parameters it is for, since biases or
//! norms may have another. [`Optimizer`] holds the moments and makes the steps on the CPU; a GPU's engine makes them
//! from the same groups.
//!
//! | file | subject |
//! | --- | --- |
//! | `rules` | the formulas |
//! | `spec` | names and settings |
//! | `groups` | which parameters are learned how |
//! | `matrix` | optimizers of whole matrices |

mod groups;
mod matrix;
mod muon;
mod rules;
mod spec;

pub use groups::{Group, GroupSpec, ParameterClass, ParameterGroups, Span};
pub use matrix::{MatrixMethod, MatrixRule, NewtonSchulz};
pub use spec::{Key, OptimizerSpec, Setting};

use crate::NnError;
use crate::number::Number;
use crate::trace::{function, procedure};
use ftprop_tensor::cpu::{elementwise, reduce};
use ftprop_tensor::{Buffer, Cpu};
use matrix::{AnyMatrixRule, Workspace};
use std::fmt;
use std::sync::Arc;

/// What becomes of one weight.
pub trait UpdateRule: Clone + fmt::Debug + Send + Sync + 'static {
    /// How many moments a weight has, at most 2.
    fn moments(&self) -> usize;
    /// Numbers that are the same for all weights of step `t`, counted from 1, at a learning rate.
    fn scalars(&self, t: u64, lr: f64) -> [f32; 4];
    /// The weight and its moments after a step, written over any number so that it runs on every device. Mark it
    /// `#[inline(always)]`. Moments that the rule does not have are handed through.
    fn update<N: Number>(&self, w: N, g: N, moments: [N; 2], scalars: [N; 4]) -> (N, [N; 2]);
}

/// An [`UpdateRule`] without its type: each method is compiled for one rule.
pub(crate) trait AnyUpdate: fmt::Debug + Send + Sync {
    fn moments(&self) -> usize;
    fn scalars(&self, t: u64, lr: f64) -> [f32; 4];
    fn apply(&self, cpu: &Cpu, values: &mut [f32], grads: &[f32], moments: [&mut [f32]; 2], at: &At);
    fn device_update(&self, name: &str) -> String;
}

/// The numbers of one step.
pub(crate) struct At {
    scalars: [f32; 4],
    /// What gradients are multiplied by, where their norm is bounded.
    scale: f32,
}

impl<R: UpdateRule> AnyUpdate for R {
    fn moments(&self) -> usize {
        UpdateRule::moments(self)
    }

    fn scalars(&self, t: u64, lr: f64) -> [f32; 4] {
        UpdateRule::scalars(self, t, lr)
    }

    fn apply(&self, cpu: &Cpu, values: &mut [f32], grads: &[f32], [first, second]: [&mut [f32]; 2], at: &At) {
        let (s, scale) = (at.scalars, at.scale);
        // A loop's own copy: behind a reference its numbers would be read and converted again for every weight.
        let rule = self.clone();
        match UpdateRule::moments(self) {
            0 => elementwise::update(cpu, values, grads, move |w, g| rule.update(w, g * scale, [0.0; 2], s).0),
            1 => elementwise::update2(cpu, [values, first], grads, move |w, m, g| {
                let (w, [m, _]) = rule.update(w, g * scale, [m, 0.0], s);
                (w, m)
            }),
            _ => elementwise::update3(cpu, [values, first, second], grads, move |w, m, v, g| {
                let (w, [m, v]) = rule.update(w, g * scale, [m, v], s);
                (w, m, v)
            }),
        }
    }

    fn device_update(&self, name: &str) -> String {
        let inputs = &["g", "s0", "s1", "s2", "s3"];
        procedure(name, &["w", "m", "v"], inputs, |[w, m, v], [g, s0, s1, s2, s3]| {
            let (w, [m, v]) = self.update(w, g, [m, v], [s0, s1, s2, s3]);
            [w, m, v]
        })
    }
}

/// A weight's moving average after a step that left it at w: `rest` is what the average gives up of itself.
#[inline(always)]
pub fn moving_average<N: Number>(average: N, w: N, rest: N) -> N {
    average + rest * (w - average)
}

/// The moving average, for a GPU's compiler.
pub fn device_average(name: &str) -> String {
    function(name, &["average", "w", "rest"], |[average, w, rest]| moving_average(average, w, rest))
}

/// What a moving average gives up of itself at step `t`, counted from 1: less of the start while it is short.
pub fn average_rest(decay: f64, t: u64) -> f32 {
    let t = t as f64;
    (1.0 - decay.min((1.0 + t) / (10.0 + t))) as f32
}

/// How a group of parameters is learned.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// Each weight for itself.
    Elementwise(Arc<dyn AnyUpdate>),
    /// Each matrix as a whole.
    Matrix(Arc<dyn AnyMatrixRule>),
}

impl Method {
    fn moments(&self) -> usize {
        match self {
            Method::Elementwise(rule) => rule.moments(),
            Method::Matrix(_) => 1,
        }
    }
}

/// Parameters in groups with their moments, on the CPU.
pub struct Optimizer {
    groups: Arc<ParameterGroups>,
    moments: Vec<Buffer>,
    workspace: Workspace,
    steps: u64,
}

impl Optimizer {
    /// One optimizer for so many parameters.
    pub fn new(spec: &OptimizerSpec, parameters: usize) -> Result<Self, NnError> {
        Ok(Optimizer::for_groups(Arc::new(ParameterGroups::single(spec, parameters)?)))
    }

    /// An optimizer for each group of parameters.
    pub fn for_groups(groups: Arc<ParameterGroups>) -> Self {
        let moments = (0..groups.moments()).map(|_| Buffer::zeros(groups.parameters())).collect();
        Optimizer { workspace: Workspace::new(&groups), groups, moments, steps: 0 }
    }

    /// One step along the gradients, the learning rate scaled by `lr_factor`. `clip` is the largest norm that the whole
    /// gradient may have, but for what is frozen. Gives the gradient's norm back where it was needed.
    pub fn step(
        &mut self,
        cpu: &Cpu,
        values: &mut [f32],
        grads: &[f32],
        lr_factor: f64,
        clip: Option<f64>,
    ) -> Option<f64> {
        self.steps += 1;
        let squares = || match self.groups.unfrozen() {
            None => reduce::square_sum(cpu, grads),
            Some(ranges) => ranges.map(|range| reduce::square_sum(cpu, &grads[range])).sum(),
        };
        let norm = clip.map(|_| squares().sqrt());
        let scale = match (clip, norm) {
            (Some(most), Some(norm)) if norm > most => (most / norm) as f32,
            _ => 1.0,
        };
        let groups = self.groups.clone();
        for span in groups.spans() {
            let (group, range) = (&groups.groups()[span.group], span.range.clone());
            // At a rate of 0 some rules change weights all the same, such as one that scales them before the step.
            if group.is_frozen() {
                continue;
            }
            let mut moments = self.moments.iter_mut().map(|m| &mut m[range.clone()]);
            let moments = [moments.next().unwrap_or_default(), moments.next().unwrap_or_default()];
            let (values, grads) = (&mut values[range.clone()], &grads[range]);
            match &group.method {
                Method::Elementwise(rule) => {
                    let at = At { scalars: rule.scalars(self.steps, group.rate(lr_factor)), scale };
                    rule.apply(cpu, values, grads, moments, &at);
                }
                Method::Matrix(rule) => {
                    let [moment, _] = moments;
                    let at = At { scalars: rule.scalars(self.steps, group.rate(lr_factor), span.matrix), scale };
                    self.workspace.step(cpu, &**rule, span.matrix, [values, moment], grads, &at);
                }
            }
        }
        norm
    }

    /// Which parameters it learns how.
    pub fn groups(&self) -> &Arc<ParameterGroups> {
        &self.groups
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
            return Err(NnError::OtherOptimizer { have, got });
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

    fn after_three_steps(spec: &OptimizerSpec, clip: Option<f64>) -> [f32; 3] {
        let cpu = Cpu::new(1).unwrap();
        let mut values = [0.5, -1.25, 2.0];
        let mut optimizer = Optimizer::new(spec, 3).unwrap();
        for grads in GRADS {
            optimizer.step(&cpu, &mut values, &grads, 1.0, clip);
        }
        values
    }

    #[test]
    fn three_steps_end_where_pytorch_ends() {
        // torch.optim in float64, lr = 0.1, p.grad set by hand: SGD(weight_decay=0.01), the same with momentum=0.9,
        // with nesterov=True; Adam(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.01); AdamW(weight_decay=0.05);
        // RMSprop(alpha=0.9, weight_decay=0.01); RMSprop(alpha=0.9, momentum=0.5, eps=1e-7).
        let spec = |name, numbers: &[(&'static str, f64)]| {
            let mut settings = vec![("lr", Setting::Number(0.1))];
            settings.extend(numbers.iter().map(|(key, value)| (*key, Setting::Number(*value))));
            OptimizerSpec::new(name, &settings).unwrap()
        };
        let momentum = spec("sgd", &[("momentum", 0.9), ("weight_decay", 0.01)]);
        let nesterov = momentum.with("nesterov", Setting::Flag(true)).unwrap();
        let adam = [("beta1", 0.8), ("beta2", 0.95), ("eps", 1e-6), ("weight_decay", 0.01)];
        let rms = [("alpha", 0.9), ("weight_decay", 0.01)];
        let cases = [
            (spec("sgd", &[("weight_decay", 0.01)]), [0.458_481_5, -1.311_289, 1.994_126]),
            (momentum, [0.476_095_4, -1.278_364, 1.883_664]),
            (nesterov, [0.436_951, -1.336_914, 1.889_685]),
            (spec("adam", &adam), [0.420_276_6, -1.159_631, 1.813_405]),
            (spec("adamw", &[("weight_decay", 0.05)]), [0.416_096_7, -1.138_446, 1.781_772]),
            (spec("rmsprop", &rms), [0.213_739_6, -1.303_302, 1.654_712]),
            (
                spec("rmsprop", &[("alpha", 0.9), ("momentum", 0.5), ("eps", 1e-7)]),
                [0.131_894_9, -1.125_475, 1.277_095],
            ),
        ];
        for (spec, expected) in cases {
            let got = after_three_steps(&spec, None);
            for (x, e) in got.iter().zip(expected) {
                assert!((x - e).abs() < 2e-6, "{spec:?}: {got:?} for {expected:?}");
            }
        }
    }

    #[test]
    fn clipping_scales_the_whole_gradient() {
        // The same with torch.nn.utils.clip_grad_norm_([p], 0.5) before SGD(lr=0.1).
        let spec = OptimizerSpec::sgd(0.1, 0.0).unwrap();
        let got = after_three_steps(&spec, Some(0.5));
        for (x, e) in got.iter().zip([0.492_54, -1.262_177, 1.960_805]) {
            assert!((x - e).abs() < 2e-6, "{got:?}");
        }
    }

    #[test]
    fn a_restored_optimizer_goes_on_as_if_nothing_had_happened() {
        let cpu = Cpu::new(1).unwrap();
        let spec = OptimizerSpec::adam(0.1).unwrap();
        let (mut one, mut values) = (Optimizer::new(&spec, 3).unwrap(), [0.5, -1.25, 2.0]);
        one.step(&cpu, &mut values, &GRADS[0], 1.0, None);
        let mut two = Optimizer::new(&spec, 3).unwrap();
        let (steps, moments) = one.state();
        two.restore(steps, &moments.collect::<Vec<_>>()).unwrap();
        let mut other = values;
        one.step(&cpu, &mut values, &GRADS[1], 1.0, None);
        two.step(&cpu, &mut other, &GRADS[1], 1.0, None);
        assert_eq!(values, other);
        assert!(two.restore(1, &[&[0.0; 3]]).is_err());
    }

    #[test]
    fn nonsense_is_refused_with_the_setting_and_what_it_may_be() {
        let number = |key, value| (key, Setting::Number(value));
        type Settings<'a> = &'a [(&'a str, Setting)];
        let cases: [(&str, Settings<'_>, &str); 7] = [
            ("sgd", &[number("lr", 0.1), ("nesterov", Setting::Flag(true))], "momentum above 0"),
            ("adam", &[number("lr", -1.0)], "optimizer.lr must be at least 0, not -1"),
            ("adam", &[number("lr", f64::NAN)], "finite"),
            ("adam", &[number("lr", f64::INFINITY)], "optimizer.lr must be a finite number, not inf"),
            ("adam", &[number("lr", 0.1), number("beta1", 1.0)], "below 1"),
            ("adam", &[number("lr", 0.1), number("momentum", 0.5)], "unknown field `momentum`, expected one of `lr`"),
            ("adam", &[], "missing field `lr`"),
        ];
        for (name, settings, expected) in cases {
            let message = OptimizerSpec::new(name, settings).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let message = OptimizerSpec::new("adamm", &[]).unwrap_err().to_string();
        assert!(message.contains("known are sgd, adam"), "{message}");
    }

    #[test]
    fn an_optimizer_of_ones_own_has_a_name_like_the_others() {
        /// Steps of one size, whatever the gradient's.
        #[derive(Clone, Debug)]
        struct SignDescent;
        impl UpdateRule for SignDescent {
            fn moments(&self) -> usize {
                0
            }
            fn scalars(&self, _: u64, lr: f64) -> [f32; 4] {
                [lr as f32, 0.0, 0.0, 0.0]
            }
            #[inline(always)]
            fn update<N: Number>(&self, w: N, g: N, moments: [N; 2], [lr, ..]: [N; 4]) -> (N, [N; 2]) {
                (w + lr * g.opposite_sign(), moments)
            }
        }
        const KEYS: &[Key] = &[Key::LR];
        OptimizerSpec::register("sign_descent", KEYS, |_| SignDescent).unwrap();
        assert!(OptimizerSpec::register("sign_descent", KEYS, |_| SignDescent).is_err());
        assert!(OptimizerSpec::register("adam", KEYS, |_| SignDescent).is_err());
        let spec = OptimizerSpec::new("sign_descent", &[("lr", Setting::Number(0.5))]).unwrap();
        assert_eq!(after_three_steps(&spec, None), [0.0, -1.75, 1.5]);
    }

    #[test]
    fn what_cannot_be_chosen_is_not_registered() {
        /// Says of itself how many moments it has.
        #[derive(Clone, Debug)]
        struct Remembering(usize);
        impl UpdateRule for Remembering {
            fn moments(&self) -> usize {
                self.0
            }
            fn scalars(&self, _: u64, _: f64) -> [f32; 4] {
                [0.0; 4]
            }
            fn update<N: Number>(&self, w: N, _: N, moments: [N; 2], _: [N; 4]) -> (N, [N; 2]) {
                (w, moments)
            }
        }
        const NO_SHARE: &[Key] = &[Key::LR, Key::share("x", 2.0)];
        const TWICE: &[Key] = &[Key::LR, Key::number("x", 2.0), Key::flag("x", true)];
        const NAMED: &[Key] = &[Key::LR, Key::flag("name", true)];
        const SPACED: &[Key] = &[Key::LR, Key::flag("a b", true)];
        const FLAG: &[Key] = &[Key::flag("lr", true)];
        let register = |name, keys, moments| OptimizerSpec::register(name, keys, move |_| Remembering(moments));
        for (name, keys, words) in [
            ("", &[Key::LR][..], "letters, digits"),
            ("a b", &[Key::LR], "letters, digits"),
            ("own", &[], "no learning rate"),
            ("own", FLAG, "no learning rate"),
            ("own", NO_SHARE, "usual value"),
            ("own", TWICE, "two of its settings"),
            ("own", NAMED, "called name"),
            ("own", SPACED, "name of a setting"),
        ] {
            let refused = register(name, keys, 0).unwrap_err().to_string();
            assert!(refused.contains(words), "{name:?}: {refused}");
        }
        register("own", &[Key::LR], 3).unwrap();
        let refused = OptimizerSpec::new("own", &[("lr", Setting::Number(0.1))]).unwrap_err().to_string();
        assert!(refused.contains("own keeps 3 moments"), "{refused}");
    }
}
