//! Means, deviations and Student's intervals for a handful of seeds.
//!
//! ```
//! use ftprop_lab::report::statistics::{Sample, difference};
//!
//! let (soft, saturated) = (Sample::new([81.2, 81.5, 81.3]), Sample::new([80.6, 80.4, 80.9]));
//! let gain = difference(&soft, &saturated, 0.95).unwrap();
//! assert!((gain.mean - 0.7).abs() < 1e-9);
//! assert!(gain.low > 0.1 && gain.high < 1.3);
//! ```

/// The same figure from several runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// How many there are.
    pub count: usize,
    /// 0 where there is nothing to average.
    pub mean: f64,
    /// The sample's standard deviation, with n − 1; none for fewer than two runs.
    pub deviation: Option<f64>,
}

/// A mean with the limits of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The difference of the means.
    pub mean: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Sample {
    /// The sample of these values.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len();
        if count == 0 {
            return Sample::default();
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Sample { count, mean, deviation: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()) }
    }

    /// The variance of the mean.
    fn variance_of_mean(&self) -> Option<f64> {
        Some(self.deviation?.powi(2) / self.count as f64)
    }
}

/// `a − b` with Welch's interval: the samples may differ in size and in deviation. None with fewer than two runs in
/// either of them.
pub fn difference(a: &Sample, b: &Sample, confidence: f64) -> Option<Interval> {
    let (va, vb) = (a.variance_of_mean()?, b.variance_of_mean()?);
    let mean = a.mean - b.mean;
    if va + vb == 0.0 {
        return Some(Interval { mean, low: mean, high: mean });
    }
    // The degrees of freedom of Welch and Satterthwaite, which need not be whole.
    let shares = va.powi(2) / (a.count - 1) as f64 + vb.powi(2) / (b.count - 1) as f64;
    let reach = student_quantile(0.5 + confidence / 2.0, (va + vb).powi(2) / shares) * (va + vb).sqrt();
    Some(Interval { mean, low: mean - reach, high: mean + reach })
}

/// The value below which a Student-distributed variable stays with probability `p`, between 0 and 1.
pub fn student_quantile(p: f64, degrees: f64) -> f64 {
    if p < 0.5 {
        return -student_quantile(1.0 - p, degrees);
    }
    let mut high = 1.0;
    while student_cdf(high, degrees) < p && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    // Halving until neighbouring numbers: a hundred evaluations are nothing beside a training run.
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if student_cdf(middle, degrees) < p { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The probability that a Student-distributed variable stays below `t`, for `t` of at least 0.
fn student_cdf(t: f64, degrees: f64) -> f64 {
    1.0 - 0.5 * incomplete_beta(degrees / (degrees + t * t), degrees / 2.0, 0.5)
}

/// The regularised incomplete beta function I_x(a, b).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    // The fraction converges quickly on one side of the mean only; the other is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function, evaluated from its front by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let away_from_zero = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = value;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            value *= c * d;
        }
        if (value - before).abs() <= 1e-15 * value.abs() {
            break;
        }
    }
    value
}

/// log Γ(x) for x > 0, by Stirling's series where it is good to the last digits.
fn ln_gamma(x: f64) -> f64 {
    if x < 12.0 {
        // Γ(x) = Γ(x + 1) / x
        return ln_gamma(x + 1.0) - x.ln();
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations() {
        let sample = Sample::new([2.0, 4.0, 9.0]);
        assert_eq!((sample.count, sample.mean), (3, 5.0));
        assert!((sample.deviation.unwrap() - 13.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(Sample::new([3.5]), Sample { count: 1, mean: 3.5, deviation: None });
        assert_eq!(Sample::new([]), Sample::default());
    }

    /// From the tables in every textbook, three decimals.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, degrees, known) in [
            (0.975, 1.0, 12.706),
            (0.975, 2.0, 4.303),
            (0.975, 4.0, 2.776),
            (0.975, 10.0, 2.228),
            (0.975, 30.0, 2.042),
            (0.975, 1000.0, 1.962),
            (0.95, 2.0, 2.920),
            (0.95, 5.0, 2.015),
            (0.995, 3.0, 5.841),
            (0.75, 1.0, 1.000),
            (0.5, 7.0, 0.000),
            (0.025, 2.0, -4.303),
        ] {
            let found = student_quantile(p, degrees);
            assert!((found - known).abs() < 6e-4, "t({p}, {degrees}) = {found}, known is {known}");
        }
    }

    /// With one and two degrees of freedom the quantile has a closed form.
    #[test]
    fn quantiles_are_exact_where_that_is_known() {
        for p in [0.6, 0.9, 0.975, 0.9995] {
            let one = (std::f64::consts::PI * (p - 0.5)).tan();
            let two = (2.0 * p - 1.0) * (2.0 / (4.0 * p * (1.0 - p))).sqrt();
            assert!((student_quantile(p, 1.0) / one - 1.0).abs() < 1e-9, "{p}");
            assert!((student_quantile(p, 2.0) / two - 1.0).abs() < 1e-9, "{p}");
        }
        // Between whole degrees it lies between its neighbours.
        let between = student_quantile(0.975, 2.5);
        assert!(between < student_quantile(0.975, 2.0) && between > student_quantile(0.975, 3.0));
    }

    /// Two samples of equal size and deviation have 2(n − 1) degrees of freedom.
    #[test]
    fn welch_is_students_interval_for_equal_deviations() {
        let (a, b) = (Sample::new([1.0, 2.0, 3.0]), Sample::new([0.0, 1.0, 2.0]));
        let interval = difference(&a, &b, 0.95).unwrap();
        let reach = student_quantile(0.975, 4.0) * (2.0_f64 / 3.0).sqrt();
        assert!((interval.mean - 1.0).abs() < 1e-12);
        assert!((interval.high - 1.0 - reach).abs() < 1e-9 && (1.0 - interval.low - reach).abs() < 1e-9);
    }

    #[test]
    fn one_run_has_no_interval_and_equal_runs_a_point() {
        assert_eq!(difference(&Sample::new([1.0]), &Sample::new([1.0, 2.0]), 0.95), None);
        let same = Sample::new([2.0, 2.0]);
        assert_eq!(difference(&same, &same, 0.95), Some(Interval { mean: 0.0, low: 0.0, high: 0.0 }));
    }
}
