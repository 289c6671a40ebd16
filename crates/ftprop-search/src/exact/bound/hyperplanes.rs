//! The hyperplanes that instances span, in exact arithmetic.
//!
//! Every linear dichotomy of points that span k dimensions is given by a hyperplane through k independent ones of
//! them: the points beside it have their sides, those on it are divided by a dichotomy of their own, in one dimension
//! less. (Move any separating hyperplane until it touches; a hyperplane that divides the touching points, tilted by
//! little enough, is a separating one again.) So all dichotomies can be listed without a search.

use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};

use super::rough::{Rough, Tally};
use crate::whole::Whole;

/// A set of points, one bit each.
pub(crate) type Bits = Vec<u64>;

pub(crate) fn holds(bits: &[u64], at: usize) -> bool {
    bits[at / 64] >> (at % 64) & 1 == 1
}

pub(crate) fn put(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

/// The points of a set.
pub(crate) fn points_of(bits: &[u64]) -> Vec<usize> {
    let mut points = vec![];
    for (word, &bits) in bits.iter().enumerate() {
        let mut left = bits;
        while left != 0 {
            points.push(word * 64 + left.trailing_zeros() as usize);
            left &= left - 1;
        }
    }
    points
}

/// Clears the bits behind the last point.
pub(super) fn trim(bits: &mut [u64], count: usize) {
    if let Some(last) = bits.last_mut()
        && !count.is_multiple_of(64)
    {
        *last &= (1 << (count % 64)) - 1;
    }
}

/// Points by coordinate, in as many coordinates as they span and with the first of them at the origin.
#[derive(Clone, Debug)]
pub(crate) struct Flat {
    /// Coordinate, point.
    columns: Vec<Vec<BigInt>>,
    count: usize,
    arithmetic: Arithmetic,
    /// The same in floats, in the plane and in space.
    rough: Option<Rough>,
}

/// What holds every number that can come up.
#[derive(Clone, Debug)]
enum Arithmetic {
    /// Whole numbers below 2^53, which floats add and multiply without rounding.
    Floats(Vec<Vec<f64>>),
    Words(Vec<Vec<i128>>),
    Any,
}

impl Flat {
    /// Some instances, of which no two are equal.
    pub(crate) fn new(whole: &Whole, instances: &[usize]) -> Self {
        let column = |input: usize| instances.iter().map(|&i| whole.number(i, input)).collect();
        Flat::of_columns((0..whole.inputs()).map(column).collect(), instances.len())
    }

    fn of_columns(mut columns: Vec<Vec<BigInt>>, count: usize) -> Self {
        for column in &mut columns {
            let first = column.first().cloned().unwrap_or_default();
            column.iter_mut().for_each(|x| *x -= &first);
        }
        let kept = independent(&columns, count);
        let columns: Vec<Vec<BigInt>> = kept.into_iter().map(|at| std::mem::take(&mut columns[at])).collect();
        let arithmetic = Arithmetic::of(&columns);
        let rough = match &arithmetic {
            Arithmetic::Floats(columns) => Rough::exact(columns),
            _ => Rough::rounded(&columns),
        };
        Flat { columns, count, arithmetic, rough }
    }

    /// How many dimensions the points span.
    pub(crate) fn dimension(&self) -> usize {
        self.columns.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether [`Flat::tally`] works for these points.
    pub(crate) fn is_quick(&self) -> bool {
        self.rough.is_some()
    }

    /// Some of the points, in the dimensions that these span.
    pub(crate) fn part(&self, points: &[usize]) -> Flat {
        let pick = |column: &Vec<BigInt>| points.iter().map(|&at| column[at].clone()).collect();
        Flat::of_columns(self.columns.iter().map(pick).collect(), points.len())
    }

    /// The weights of the points that certainly are above the hyperplane through these points, and of those on it or
    /// near it; none where there is no quick way to tell.
    pub(crate) fn tally(&self, through: &[usize], weights: [&[i64]; 2]) -> Option<Tally> {
        self.rough.as_ref().map(|rough| rough.tally(through, weights))
    }

    /// The points above and those on the hyperplane through as many points as there are dimensions; none if these do
    /// not span one.
    pub(crate) fn sides(&self, through: &[usize], above: &mut [u64], on: &mut [u64]) -> bool {
        let mut open: Vec<usize> = (0..self.count).collect();
        if let Some(rough) = &self.rough {
            rough.sides(through, above, on);
            // A point that certainly is beside it shows that there is a hyperplane.
            let certain = on.iter().map(|word| word.count_ones() as usize).sum::<usize>() < self.count;
            if rough.is_exact() && certain {
                return true;
            }
            if certain {
                open = points_of(on);
                open.retain(|at| !through.contains(at));
                if open.is_empty() {
                    return true;
                }
            }
        }
        let signs = match &self.arithmetic {
            Arithmetic::Floats(columns) => signs(columns, through, &open),
            Arithmetic::Words(columns) => signs(columns, through, &open),
            Arithmetic::Any => signs(&self.columns, through, &open),
        };
        let Some(signs) = signs else { return false };
        for (at, sign) in open.into_iter().zip(signs) {
            let bit = 1u64 << (at % 64);
            let place = |bits: &mut u64, set: bool| if set { *bits |= bit } else { *bits &= !bit };
            place(&mut above[at / 64], sign > 0);
            place(&mut on[at / 64], sign == 0);
        }
        true
    }
}

impl Arithmetic {
    fn of(columns: &[Vec<BigInt>]) -> Self {
        let k = columns.len() as u64;
        let bits = columns.iter().flatten().map(BigInt::bits).max().unwrap_or(0).max(1);
        let terms = u64::from(64 - k.leading_zeros());
        // Differences have one bit more than coordinates. A normal is a determinant of k − 1 of them; what is compared
        // with zero is its product with a difference. From four dimensions on elimination multiplies two determinants.
        let most = match k {
            0 | 1 => bits + 2,
            2 => 2 * bits + 4,
            3 => 3 * bits + 7,
            _ => {
                let normal = (k - 1) * (bits + 1 + terms);
                (2 * normal + 1).max(normal + bits + terms + 2)
            }
        };
        if most <= 53 {
            let float = |x: &BigInt| x.to_f64().unwrap_or(0.0);
            return Arithmetic::Floats(columns.iter().map(|column| column.iter().map(float).collect()).collect());
        }
        if most <= 126 {
            let word = |x: &BigInt| x.to_i128().unwrap_or(0);
            return Arithmetic::Words(columns.iter().map(|column| column.iter().map(word).collect()).collect());
        }
        Arithmetic::Any
    }
}

/// The arithmetic that the sides are computed in. All of it is exact.
trait Number: Clone + Zero + PartialEq {
    fn minus(&self, other: &Self) -> Self;
    fn times(&self, other: &Self) -> Self;
    /// The quotient, where nothing remains.
    fn over(&self, other: &Self) -> Self;
    fn sign(&self) -> i8;
    fn one() -> Self;
}

macro_rules! number {
    ($type:ty, $zero:expr, $one:expr) => {
        impl Number for $type {
            fn minus(&self, other: &Self) -> Self {
                self - other
            }
            fn times(&self, other: &Self) -> Self {
                self * other
            }
            fn over(&self, other: &Self) -> Self {
                self / other
            }
            fn sign(&self) -> i8 {
                i8::from(*self > $zero) - i8::from(*self < $zero)
            }
            fn one() -> Self {
                $one
            }
        }
    };
}
number!(f64, 0.0, 1.0);
number!(i128, 0, 1);
number!(BigInt, BigInt::zero(), BigInt::from(1));

/// On which side of the hyperplane through these points some points lie; none if there is no such hyperplane. The
/// normal is computed by the formula of [`Rough`], so that above is the same side.
fn signs<T: Number>(columns: &[Vec<T>], through: &[usize], points: &[usize]) -> Option<Vec<i8>> {
    let k = columns.len();
    let base = through[0];
    let difference = |at: usize, column: usize| columns[column][at].minus(&columns[column][base]);
    let rows: Vec<Vec<T>> =
        through[1..].iter().map(|&at| (0..k).map(|column| difference(at, column)).collect()).collect();
    let normal = normal(rows, k)?;
    let product = |at: usize| (0..k).map(|c| normal[c].times(&columns[c][at])).fold(T::zero(), |sum, term| sum + term);
    let level = product(base);
    Some(points.iter().map(|&at| product(at).minus(&level).sign()).collect())
}

/// A vector that is perpendicular to k − 1 rows of length k, if they are independent: elimination without fractions
/// (Bareiss), then Cramer.
fn normal<T: Number>(mut rows: Vec<Vec<T>>, k: usize) -> Option<Vec<T>> {
    match rows.as_slice() {
        [] => return Some(vec![T::one(); k]),
        [only] => {
            let [x, y] = only.as_slice() else { return None };
            let turned = vec![T::zero().minus(y), x.clone()];
            return turned.iter().any(|t| !t.is_zero()).then_some(turned);
        }
        [a, b] => {
            let minor = |i: usize, j: usize| a[i].times(&b[j]).minus(&a[j].times(&b[i]));
            let cross = vec![minor(1, 2), minor(2, 0), minor(0, 1)];
            return cross.iter().any(|t| !t.is_zero()).then_some(cross);
        }
        _ => {}
    }
    let mut previous = T::one();
    let mut pivots = vec![];
    for at in 0..k - 1 {
        let (row, column) = (at..k - 1)
            .find_map(|row| (0..k).find(|c| !pivots.contains(c) && !rows[row][*c].is_zero()).map(|c| (row, c)))?;
        rows.swap(at, row);
        pivots.push(column);
        let pivot_row = rows[at].clone();
        // Above and below the pivot, so that at the end one free column is left.
        for (_, row) in rows.iter_mut().enumerate().filter(|(number, _)| *number != at) {
            let factor = row[column].clone();
            for c in 0..k {
                row[c] = row[c].times(&pivot_row[column]).minus(&factor.times(&pivot_row[c])).over(&previous);
            }
        }
        previous = pivot_row[column].clone();
    }
    let free = (0..k).find(|c| !pivots.contains(c))?;
    let mut normal = vec![T::zero(); k];
    normal[free] = previous;
    for (row, &column) in rows.iter().zip(&pivots) {
        normal[column] = T::zero().minus(&row[free]);
    }
    Some(normal)
}

/// Coordinates that tell all points apart: the pivot columns of an elimination over the points.
fn independent(columns: &[Vec<BigInt>], count: usize) -> Vec<usize> {
    let mut kept: Vec<usize> = vec![];
    // For each kept coordinate a reduced row that is zero in the coordinates kept before.
    let mut reduced: Vec<(usize, Vec<BigInt>)> = vec![];
    for point in 0..count {
        let mut row: Vec<BigInt> = columns.iter().map(|column| column[point].clone()).collect();
        for (pivot, known) in &reduced {
            if row[*pivot].is_zero() {
                continue;
            }
            let (factor, scale) = (row[*pivot].clone(), known[*pivot].clone());
            for (value, other) in row.iter_mut().zip(known) {
                *value = &*value * &scale - &factor * other;
            }
        }
        if let Some(pivot) = row.iter().position(|value| !value.is_zero()) {
            let common = row.iter().fold(BigInt::zero(), |all, value| num_integer::Integer::gcd(&all, value));
            if !common.is_one() {
                row.iter_mut().for_each(|value| *value /= &common);
            }
            kept.push(pivot);
            reduced.push((pivot, row));
            if kept.len() == columns.len() {
                break;
            }
        }
    }
    kept.sort_unstable();
    kept
}
