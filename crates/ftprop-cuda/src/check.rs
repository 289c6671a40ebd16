//! One comparison of a self test.

/// One thing that was compared.
#[derive(Clone, Debug)]
pub struct Check {
    /// What was compared.
    pub name: String,
    /// The largest ‖GPU − CPU‖ / ‖CPU‖ of what was compared.
    pub error: f64,
    /// The largest that is right.
    pub allowed: f64,
}

impl Check {
    /// Whether it is right.
    pub fn passed(&self) -> bool {
        self.error <= self.allowed
    }
}

/// ‖got − expected‖ / ‖expected‖, infinite where anything is not finite.
pub(crate) fn distance(got: &[f32], expected: &[f32]) -> f64 {
    let (mut apart, mut size) = (0.0f64, 0.0f64);
    for (&g, &e) in got.iter().zip(expected) {
        apart += (f64::from(g) - f64::from(e)).powi(2);
        size += f64::from(e).powi(2);
    }
    let ratio = (apart / size.max(1e-30)).sqrt();
    if got.len() == expected.len() && ratio.is_finite() { ratio } else { f64::INFINITY }
}
