//! The exponential that the layer losses need: plain arithmetic that the compiler turns into vector code,
//! with the same bits on every machine.

/// eˣ for x ≤ 0, to about two units in the last place; 0 is not reached (it stays above 10⁻³⁸).
#[inline(always)]
pub(crate) fn exp_negative(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, the first with few enough bits that n · LN2_HIGH is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding 1.5 · 2²³ rounds to a whole number and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Not `max`, which would turn a NaN into a number.
    let x = if x < -87.0 { -87.0 } else { x };
    let rounded = x * LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let series = 1.0
        + r * (1.0
            + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r * (1.0 / 720.0 + r / 5040.0))))));
    let scale = f32::from_bits(rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    series * scale
}

/// σ(x) = 1 / (1 + e⁻ˣ)
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    let e = exp_negative(-x.abs());
    let small = e / (1.0 + e);
    if x < 0.0 { small } else { 1.0 - small }
}

/// 1 − tanh²(x), which keeps its digits far from zero and is even to the bit.
#[inline(always)]
pub(crate) fn sech_squared(x: f32) -> f32 {
    let e = exp_negative(-2.0 * x.abs());
    4.0 * e / ((1.0 + e) * (1.0 + e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_standard_library() {
        for i in 0..8700 {
            let x = -(i as f32) / 100.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp_negative(x)) / exact - 1.0).abs() < 3e-7, "exp({x})");
        }
        for i in -4000..4000 {
            let x = i as f32 / 100.0;
            let exact = f64::from(x).cosh().powi(-2);
            assert!((f64::from(sech_squared(x)) / exact - 1.0).abs() < 2e-6, "sech²({x})");
            let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(sigmoid(x)) - exact).abs() < 2e-7, "σ({x})");
        }
        assert!(exp_negative(f32::NEG_INFINITY) < 2e-38 && sech_squared(f32::NAN).is_nan());
    }
}
