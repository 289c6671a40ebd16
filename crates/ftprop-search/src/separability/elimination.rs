//! Whole-number linear algebra for proposals: a witness from its support, without rounding.

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_traits::{One, Signed, Zero};

use crate::points::Points;

/// tᵢ (nᵢ, 1), where n are the instances as whole numbers: what vanishes for these vanishes for the instances.
pub(super) fn whole_row(points: &Points, targets: &[bool], instance: usize) -> Vec<BigInt> {
    let whole = points.whole();
    let numbers = (0..whole.inputs()).map(|input| whole.number(instance, input)).chain([BigInt::one()]);
    numbers.map(|number| if targets[instance] { number } else { -number }).collect()
}

/// The combination of the supporting vectors that vanishes, if there is one without negative shares: elimination
/// without fractions (Bareiss), one vector after the other, until one depends on those before it.
pub(super) fn witness(points: &Points, targets: &[bool], support: &[usize]) -> Option<Vec<(usize, BigUint)>> {
    let rows: Vec<Vec<BigInt>> = support.iter().map(|&i| whole_row(points, targets, i)).collect();
    let columns: Vec<&[BigInt]> = rows.iter().map(Vec::as_slice).collect();
    let shares = dependency(&columns)?;
    if shares.iter().any(Signed::is_negative) && shares.iter().any(Signed::is_positive) {
        return None;
    }
    let common = shares.iter().fold(BigUint::zero(), |all, share| all.gcd(share.magnitude()));
    let named = support.iter().zip(&shares).filter(|(_, y)| !y.is_zero());
    Some(named.map(|(&instance, y)| (instance, y.magnitude() / &common)).collect())
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
}
