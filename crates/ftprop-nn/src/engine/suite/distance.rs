//! How far results are apart.

/// ‖got − expected‖ / ‖expected‖, infinite where anything is not finite.
pub fn distance(got: &[f32], expected: &[f32]) -> f64 {
    let (mut apart, mut size) = (0.0f64, 0.0f64);
    for (&g, &e) in got.iter().zip(expected) {
        apart += (f64::from(g) - f64::from(e)).powi(2);
        size += f64::from(e).powi(2);
    }
    let ratio = (apart / size.max(1e-30)).sqrt();
    if got.len() == expected.len() && ratio.is_finite() { ratio } else { f64::INFINITY }
}

/// 0 where both have the same bits, else how far apart they are, which is more than 0.
pub fn apart(got: &[f32], expected: &[f32]) -> f64 {
    let bits = |numbers: &[f32]| numbers.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    if bits(got) == bits(expected) { 0.0 } else { distance(got, expected).max(f64::MIN_POSITIVE) }
}
