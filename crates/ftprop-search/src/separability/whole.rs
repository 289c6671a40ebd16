//! Whole-number linear algebra for proposals: a witness from its support, without rounding.

use num_bigint::{BigInt, BigUint};
use num_traits::{One, Signed, Zero};

use crate::points::Points;

/// tᵢ (xᵢ, 1) times the power of two that makes it whole; also that power.
pub(super) fn whole_row(points: &Points, targets: &[bool], instance: usize) -> (Vec<BigInt>, i32) {
    let parts: Vec<(i64, i32)> = points.row(instance).iter().chain(&[1.0]).map(|&x| split(x)).collect();
    let lowest = parts.iter().filter(|part| part.0 != 0).map(|part| part.1).min().unwrap_or(0);
    let sign = if targets[instance] { 1 } else { -1 };
    let whole = |&(m, e): &(i64, i32)| if m == 0 { BigInt::zero() } else { BigInt::from(sign * m) << (e - lowest) };
    (parts.iter().map(whole).collect(), -lowest)
}

/// An odd whole number and a power of two; zero is (0, 0).
fn split(x: f64) -> (i64, i32) {
    if x == 0.0 {
        return (0, 0);
    }
    let biased = (x.to_bits() >> 52 & 0x7FF) as i32;
    let fraction = (x.to_bits() & 0x000F_FFFF_FFFF_FFFF) as i64;
    let (mantissa, exponent) = if biased == 0 { (fraction, -1074) } else { (fraction + (1 << 52), biased - 1075) };
    let zeros = mantissa.trailing_zeros();
    let odd = mantissa >> zeros;
    (if x < 0.0 { -odd } else { odd }, exponent + zeros as i32)
}

/// The combination of the supporting vectors that vanishes, if there is one without negative shares: elimination
/// without fractions (Bareiss), one vector after the other, until one depends on those before it.
pub(super) fn witness(points: &Points, targets: &[bool], support: &[usize]) -> Option<Vec<(usize, BigUint)>> {
    let rows: Vec<(Vec<BigInt>, i32)> = support.iter().map(|&i| whole_row(points, targets, i)).collect();
    let columns: Vec<&[BigInt]> = rows.iter().map(|(row, _)| row.as_slice()).collect();
    let shares = dependency(&columns)?;
    if shares.iter().any(Signed::is_negative) && shares.iter().any(Signed::is_positive) {
        return None;
    }
    // Undo the powers of two that made the vectors whole, keeping the shares whole as well.
    let least = rows.iter().map(|(_, power)| *power).min()?;
    let terms = shares.iter().zip(&rows).map(|(share, (_, power))| share.magnitude() << (power - least) as u64);
    let terms: Vec<BigUint> = terms.collect();
    let zeros = terms.iter().filter_map(BigUint::trailing_zeros).min()?;
    let named = support.iter().zip(terms).filter(|(_, y)| !y.is_zero());
    Some(named.map(|(&instance, y)| (instance, y >> zeros)).collect())
}

/// Whole numbers, not all zero, with which the columns add up to zero; none if they are independent.
fn dependency(columns: &[&[BigInt]]) -> Option<Vec<BigInt>> {
    let (height, width) = (columns.first()?.len(), columns.len());
    if width > QUICK && independent_modulo(columns) {
        return None;
    }
    let mut matrix: Vec<Vec<BigInt>> =
        (0..height).map(|row| columns.iter().map(|column| column[row].clone()).collect()).collect();
    let mut previous = BigInt::one();
    for at in 0..width {
        let Some(pivot) = (at..height).find(|&row| !matrix[row][at].is_zero()) else {
            return Some(back_substitute(&matrix, at, width));
        };
        matrix.swap(at, pivot);
        let (above, below) = matrix.split_at_mut(at + 1);
        let pivot_row = &above[at];
        for row in below {
            let factor = row[at].clone();
            for column in at + 1..width {
                let value = &row[column] * &pivot_row[at] - &factor * &pivot_row[column];
                // Every such difference is a determinant times the previous pivot: the division leaves nothing.
                row[column] = value / &previous;
            }
            row[at] = BigInt::zero();
        }
        previous = pivot_row[at].clone();
    }
    None
}

/// Up to so many columns elimination is quick enough not to ask first whether it can succeed.
const QUICK: usize = 40;
/// 2⁶¹ − 1, a prime.
const PRIME: u64 = (1 << 61) - 1;

/// Whether the columns are independent modulo a prime; then they are independent.
fn independent_modulo(columns: &[&[BigInt]]) -> bool {
    let times = |a: u64, b: u64| (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64;
    let inverse = |a: u64| {
        // a^(p − 2), by squaring.
        let (mut power, mut base, mut exponent) = (1, a, PRIME - 2);
        while exponent > 0 {
            power = if exponent & 1 == 1 { times(power, base) } else { power };
            base = times(base, base);
            exponent >>= 1;
        }
        power
    };
    let residue = |value: &BigInt| {
        let rest = (value.magnitude() % PRIME).iter_u64_digits().next().unwrap_or(0);
        if value.is_negative() && rest > 0 { PRIME - rest } else { rest }
    };
    let mut reduced: Vec<(usize, Vec<u64>)> = vec![];
    for column in columns {
        let mut rest: Vec<u64> = column.iter().map(residue).collect();
        for (pivot, known) in &reduced {
            let factor = rest[*pivot];
            if factor > 0 {
                for (r, k) in rest.iter_mut().zip(known) {
                    *r = (*r + PRIME - times(factor, *k)) % PRIME;
                }
            }
        }
        let Some(pivot) = rest.iter().position(|&r| r > 0) else { return false };
        let scale = inverse(rest[pivot]);
        rest.iter_mut().for_each(|r| *r = times(*r, scale));
        reduced.push((pivot, rest));
    }
    true
}

/// The dependency whose last share belongs to column `free`, from the triangle above it.
fn back_substitute(matrix: &[Vec<BigInt>], free: usize, width: usize) -> Vec<BigInt> {
    let mut shares = vec![BigInt::zero(); width];
    // With the last pivot, a determinant of the columns before, as the free share all others are whole (Cramer).
    shares[free] = if free == 0 { BigInt::one() } else { matrix[free - 1][free - 1].clone() };
    for row in (0..free).rev() {
        let sum: BigInt = (row + 1..=free).map(|column| &matrix[row][column] * &shares[column]).sum();
        shares[row] = -sum / &matrix[row][row];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn dependencies_vanish_exactly() {
        let mut rng = Rng::new(8);
        for case in 0..60 {
            let (height, width) = (1 + case % 6, 1 + (case / 6) % 8);
            let columns: Vec<Vec<BigInt>> = (0..width)
                .map(|_| (0..height).map(|_| BigInt::from(rng.below(5) as i64 - 2) << (rng.below(60) as u64)).collect())
                .collect();
            let columns: Vec<&[BigInt]> = columns.iter().map(Vec::as_slice).collect();
            match dependency(&columns) {
                Some(shares) => {
                    assert!(shares.iter().any(|s| !s.is_zero()));
                    for row in 0..height {
                        let sum: BigInt = columns.iter().zip(&shares).map(|(c, s)| &c[row] * s).sum();
                        assert!(sum.is_zero(), "{columns:?} {shares:?}");
                    }
                }
                None => assert!(width <= height, "{width} columns of height {height} must depend"),
            }
        }
    }

    #[test]
    fn independence_modulo_a_prime_agrees_with_elimination() {
        let mut rng = Rng::new(9);
        let (mut yes, mut no) = (0, 0);
        for case in 0..200 {
            let (height, width) = (1 + case % 7, 1 + (case / 7) % 7);
            let columns: Vec<Vec<BigInt>> = (0..width)
                .map(|_| (0..height).map(|_| BigInt::from(rng.below(3) as i64 - 1) << rng.below(90)).collect())
                .collect();
            let columns: Vec<&[BigInt]> = columns.iter().map(Vec::as_slice).collect();
            let independent = dependency(&columns).is_none();
            assert_eq!(independent_modulo(&columns), independent, "{columns:?}");
            if independent { yes += 1 } else { no += 1 }
        }
        assert!(yes > 20 && no > 20, "{yes} {no}");
    }

    #[test]
    fn splitting_loses_nothing() {
        for x in [0.0, 1.0, -0.1, 3e200, -7e-310, 5e-324, f64::MAX] {
            let (odd, exponent) = split(x);
            let half = exponent / 2;
            assert_eq!(odd as f64 * 2f64.powi(half) * 2f64.powi(exponent - half), x);
        }
    }
}
