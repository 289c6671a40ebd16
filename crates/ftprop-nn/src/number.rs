//! What a formula is written over, so that it stands once.
//!
//! An activation, a layer loss, a target rule or an optimizer's update is a function of a few numbers. It is written
//! over any [`Number`]: with `f32` the compiler makes vector loops of it for the CPU; with
//! [`Traced`](crate::trace::Traced) it writes itself down as text for a GPU's compiler. What a reader checks is what
//! runs, on every device.
//!
//! ```
//! use ftprop_nn::number::Number;
//! fn hat<N: Number>(x: N) -> N {
//!     (N::of(1.0) - x.abs()).max(N::of(0.0))
//! }
//! assert_eq!(hat(0.25_f32), 0.75);
//! ```

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number of some device. Operations are those of `f32`: rounded once each, NaN where IEEE 754 has NaN; `max` and
/// `min` prefer a number to a NaN, comparisons with a NaN are false.
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// What a comparison gives.
    type Truth: Copy;

    /// A constant.
    fn of(value: f32) -> Self;
    /// |x|
    fn abs(self) -> Self;
    /// The larger of two.
    fn max(self, other: Self) -> Self;
    /// The smaller of two.
    fn min(self, other: Self) -> Self;
    /// √x
    fn sqrt(self) -> Self;
    /// The smallest whole number that is not below x.
    fn ceil(self) -> Self;
    /// x < y
    fn less(self, other: Self) -> Self::Truth;
    /// x ≤ y
    fn at_most(self, other: Self) -> Self::Truth;
    /// Both of two.
    fn both(one: Self::Truth, other: Self::Truth) -> Self::Truth;
    /// One of two numbers.
    fn either(truth: Self::Truth, yes: Self, no: Self) -> Self;
    /// 2ⁿ for x = n + 1.5 · 2²³: what is left of an exponential when its whole part has been rounded into the low bits.
    fn power_of_two(self) -> Self;
    /// The sum of f(0), f(1), …, in that order, starting from 0.
    fn sum(count: u32, f: impl Fn(Self) -> Self) -> Self;

    /// 1 where it holds, else 0.
    #[inline(always)]
    fn indicator(truth: Self::Truth) -> Self {
        Self::either(truth, Self::of(1.0), Self::of(0.0))
    }

    /// sign(−x): 1 below zero, −1 above it, and 0 for 0.
    #[inline(always)]
    fn opposite_sign(self) -> Self {
        // Without a branch, so that it becomes vector code.
        Self::indicator(self.less(Self::of(0.0))) - Self::indicator(Self::of(0.0).less(self))
    }

    /// The nearest number in [low, high]; a NaN stays one, so that a network that blew up is seen.
    #[inline(always)]
    fn clamp(self, low: Self, high: Self) -> Self {
        Self::either(self.less(low), low, Self::either(high.less(self), high, self))
    }

    /// eˣ for x ≤ 0, to about two units in the last place.
    #[inline(always)]
    fn exp_negative(self) -> Self {
        self.exp_negative_series()
    }

    /// The same, by a series; 0 is not reached (it stays above 10⁻³⁸).
    #[inline(always)]
    fn exp_negative_series(self) -> Self {
        let of = Self::of;
        // ln 2 in two parts, the first with few enough bits that n · high is exact.
        let (ln2_high, ln2_low) = (of(0.693_359_4), of(-2.121_944_4e-4));
        // Adding 1.5 · 2²³ rounds to a whole number and leaves it in the low bits.
        let round = of(12_582_912.0);
        // Not `max`, which would turn a NaN into a number.
        let x = Self::either(self.less(of(-87.0)), of(-87.0), self);
        let rounded = x * of(std::f32::consts::LOG2_E) + round;
        let n = rounded - round;
        let r = (x - n * ln2_high) - n * ln2_low;
        let tail = of(1.0 / 120.0) + r * (of(1.0 / 720.0) + r / of(5040.0));
        let series = of(1.0) + r * (of(1.0) + r * (of(0.5) + r * (of(1.0 / 6.0) + r * (of(1.0 / 24.0) + r * tail))));
        series * rounded.power_of_two()
    }

    /// σ(x) = 1 / (1 + e⁻ˣ)
    #[inline(always)]
    fn sigmoid(self) -> Self {
        let e = (-self.abs()).exp_negative();
        let small = e / (Self::of(1.0) + e);
        Self::either(self.less(Self::of(0.0)), small, Self::of(1.0) - small)
    }

    /// 1 − tanh²(x), which keeps its digits far from zero and is even to the bit.
    #[inline(always)]
    fn sech_squared(self) -> Self {
        self.sech_squared_by_exp()
    }

    /// The same, from the exponential.
    #[inline(always)]
    fn sech_squared_by_exp(self) -> Self {
        let e = (Self::of(-2.0) * self.abs()).exp_negative();
        Self::of(4.0) * e / ((Self::of(1.0) + e) * (Self::of(1.0) + e))
    }
}

impl Number for f32 {
    type Truth = bool;

    #[inline(always)]
    fn of(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }

    #[inline(always)]
    fn max(self, other: f32) -> f32 {
        f32::max(self, other)
    }

    #[inline(always)]
    fn min(self, other: f32) -> f32 {
        f32::min(self, other)
    }

    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }

    #[inline(always)]
    fn ceil(self) -> f32 {
        f32::ceil(self)
    }

    #[inline(always)]
    fn less(self, other: f32) -> bool {
        self < other
    }

    #[inline(always)]
    fn at_most(self, other: f32) -> bool {
        self <= other
    }

    #[inline(always)]
    fn both(one: bool, other: bool) -> bool {
        one & other
    }

    #[inline(always)]
    fn either(truth: bool, yes: f32, no: f32) -> f32 {
        if truth { yes } else { no }
    }

    #[inline(always)]
    fn power_of_two(self) -> f32 {
        const ROUND: u32 = 12_582_912f32.to_bits();
        f32::from_bits(self.to_bits().wrapping_sub(ROUND).wrapping_add(127) << 23)
    }

    #[inline(always)]
    fn sum(count: u32, f: impl Fn(f32) -> f32) -> f32 {
        (0..count).fold(0.0, |sum, i| sum + f(i as f32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_standard_library() {
        for i in 0..8700 {
            let x = -(i as f32) / 100.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(x.exp_negative()) / exact - 1.0).abs() < 3e-7, "exp({x})");
        }
        for i in -4000..4000 {
            let x = i as f32 / 100.0;
            let exact = f64::from(x).cosh().powi(-2);
            assert!((f64::from(x.sech_squared()) / exact - 1.0).abs() < 2e-6, "sech²({x})");
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(x.sigmoid()) - exact).abs() < 2e-7, "σ({x})");
        }
        assert!(f32::NEG_INFINITY.exp_negative() < 2e-38 && f32::NAN.sech_squared().is_nan());
    }

    #[test]
    fn nan_stays_and_zero_has_no_sign() {
        assert!(Number::clamp(f32::NAN, 0.0, 1.0).is_nan());
        assert_eq!([-2.0, -0.0, 0.0, 3.0, f32::NAN].map(Number::opposite_sign), [1.0, 0.0, 0.0, -1.0, 0.0]);
        assert_eq!(f32::sum(4, |i| i * i), 14.0);
    }
}
