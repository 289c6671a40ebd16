//! Activations: what a hidden unit outputs for its pre-activation z (the paper's g).
//!
//! Zero is on the low side, everywhere: `sign(0) = −1`, `step(0) = 0`.
//!
//! ```
//! use ftprop_nn::activation::Activation;
//! let g: Activation = "qrelu:3".parse().unwrap();
//! assert_eq!([-1.0, 0.1, 0.6, 2.0].map(|z| g.value(z)), [0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0]);
//! ```

use crate::NnError;
use crate::number::Number;
use crate::trace::function;
use std::fmt;
use std::str::FromStr;

/// An activation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// +1 if z > 0, else −1.
    Sign,
    /// 1 if z > 0, else 0.
    Step,
    /// The quantized ReLU: the mean of k steps at 0, 1/(k−1), …, 1.
    Qrelu {
        /// How many steps.
        k: u32,
    },
    /// max(0, z), a full-precision baseline.
    Relu,
    /// min(1, max(0, z)), a full-precision baseline.
    SaturatedRelu,
}

impl Activation {
    /// h = g(z)
    #[inline(always)]
    pub fn value<N: Number>(self, z: N) -> N {
        match self {
            Activation::Sign => sign(z),
            Activation::Step => step(z),
            Activation::Qrelu { k } => qrelu(z, k as f32),
            Activation::Relu => relu(z),
            Activation::SaturatedRelu => saturated_relu(z),
        }
    }

    /// What a full-precision activation makes of the gradient g by its output: g where the function rises, at the
    /// corners as PyTorch has it (relu is flat at 0, clamp still rises at 0 and at 1). None where no gradient passes.
    #[inline(always)]
    pub fn passed<N: Number>(self, g: N, z: N) -> Option<N> {
        let (zero, one) = (N::of(0.0), N::of(1.0));
        match self {
            Activation::Relu => Some(N::either(zero.less(z), g, zero)),
            Activation::SaturatedRelu => Some(N::either(N::both(zero.at_most(z), z.at_most(one)), g, zero)),
            Activation::Sign | Activation::Step | Activation::Qrelu { .. } => None,
        }
    }

    /// The activation as a function of z, for a GPU's compiler.
    pub fn device_value(self, name: &str) -> String {
        function(name, &["z"], |[z]| self.value(z))
    }

    /// What it makes of the gradient by its output, for a GPU's compiler: the arguments are those of
    /// [`HardUnit::device_slope`](crate::target::HardUnit::device_slope). None for a hard activation, whose layer loss decides.
    pub fn device_passed(self, name: &str) -> Option<String> {
        self.passed(0.0, 0.0)?;
        let inputs = &["g", "z", "label", "step", "random", "s", "share"];
        Some(function(name, inputs, |[g, z, ..]| self.passed(g, z).expect("it passes a gradient")))
    }

    /// Whether no gradient passes through it, so that its units need targets.
    pub fn is_hard(self) -> bool {
        self.levels().is_some()
    }

    /// How many values a hard activation can take.
    pub fn levels(self) -> Option<u32> {
        match self {
            Activation::Sign | Activation::Step => Some(2),
            Activation::Qrelu { k } => Some(k + 1),
            Activation::Relu | Activation::SaturatedRelu => None,
        }
    }

    /// Bits that store one output.
    pub fn bits(self) -> u32 {
        self.levels().map_or(32, |levels| u32::BITS - (levels - 1).leading_zeros())
    }
}

/// The paper's hard threshold.
#[inline(always)]
pub fn sign<N: Number>(z: N) -> N {
    N::either(N::of(0.0).less(z), N::of(1.0), N::of(-1.0))
}

/// (sign(z) + 1) / 2
#[inline(always)]
pub fn step<N: Number>(z: N) -> N {
    N::indicator(N::of(0.0).less(z))
}

/// (1/k) Σ step(z − i/(k−1)), i = 0 … k−1, in closed form.
#[inline(always)]
pub fn qrelu<N: Number>(z: N, k: f32) -> N {
    (z * N::of(k - 1.0)).ceil().clamp(N::of(0.0), N::of(k)) / N::of(k)
}

/// max(0, z)
#[inline(always)]
pub fn relu<N: Number>(z: N) -> N {
    N::either(z.less(N::of(0.0)), N::of(0.0), z)
}

/// min(1, max(0, z))
#[inline(always)]
pub fn saturated_relu<N: Number>(z: N) -> N {
    z.clamp(N::of(0.0), N::of(1.0))
}

impl FromStr for Activation {
    type Err = NnError;
    fn from_str(text: &str) -> Result<Self, NnError> {
        match text {
            "sign" => Ok(Activation::Sign),
            "step" => Ok(Activation::Step),
            "relu" => Ok(Activation::Relu),
            "saturated_relu" => Ok(Activation::SaturatedRelu),
            _ => match text.strip_prefix("qrelu:").map(str::parse) {
                Some(Ok(k)) if (2..=255).contains(&k) => Ok(Activation::Qrelu { k }),
                Some(_) => Err(NnError::Name {
                    what: "activation",
                    name: text.into(),
                    known: "qrelu:k takes a whole number k from 2 to 255 (the paper's 2-bit one is qrelu:3)".into(),
                }),
                None => Err(NnError::Name {
                    what: "activation",
                    name: text.into(),
                    known: "known are sign, step, qrelu:k, relu, saturated_relu".into(),
                }),
            },
        }
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activation::Sign => f.write_str("sign"),
            Activation::Step => f.write_str("step"),
            Activation::Qrelu { k } => write!(f, "qrelu:{k}"),
            Activation::Relu => f.write_str("relu"),
            Activation::SaturatedRelu => f.write_str("saturated_relu"),
        }
    }
}

crate::names::serde_by_name!(Activation);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_on_the_low_side() {
        assert_eq!(Activation::Sign.value(0.0), -1.0);
        assert_eq!(Activation::Step.value(0.0), 0.0);
        assert_eq!(Activation::Qrelu { k: 3 }.value(0.0), 0.0);
        assert_eq!(Activation::Sign.value(f32::MIN_POSITIVE), 1.0);
    }

    #[test]
    fn a_qrelu_is_a_mean_of_steps() {
        for k in 2..9u32 {
            for i in -30..60 {
                // Off the thresholds, where rounding could decide.
                let z = i as f32 / 31.0 + 0.001;
                let steps = (0..k).map(|i| step(z - i as f32 / (k - 1) as f32)).sum::<f32>() / k as f32;
                assert_eq!(Activation::Qrelu { k }.value(z), steps, "k = {k}, z = {z}");
            }
        }
    }

    #[test]
    fn names_go_both_ways_and_bits_are_just_enough() {
        for (name, bits) in [("sign", 1), ("step", 1), ("qrelu:3", 2), ("qrelu:5", 3), ("qrelu:4", 3), ("relu", 32)] {
            let a: Activation = name.parse().unwrap();
            assert_eq!((a.to_string().as_str(), a.bits()), (name, bits));
        }
        for bad in ["Sign", "qrelu", "qrelu:1", "qrelu:x", "qrelu:300", ""] {
            assert!(bad.parse::<Activation>().is_err(), "{bad}");
        }
    }
}
