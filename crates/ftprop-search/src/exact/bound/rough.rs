//! Sides in floating point, with a bound on what rounding can do: what lies outside it has its sign for certain.

use num_bigint::BigInt;
use num_traits::ToPrimitive;

/// Points in the plane or in space, by coordinate.
#[derive(Clone, Debug)]
pub(super) struct Rough {
    columns: Vec<Vec<f64>>,
    /// Values nearer to zero than this, or as near, may have any sign; zero if nothing is ever rounded.
    doubt: f64,
}

/// Sums of two weights over the points above a hyperplane, and over those on it or so near that floats cannot tell.
pub(crate) struct Tally {
    pub(crate) above: [usize; 2],
    pub(crate) near: [usize; 2],
}

/// What a value may be wrong by, with coordinates of at most 1 and u = 2⁻⁵³. Coordinates and differences are wrong by at
/// most 4u; a product of two of them by 20u and their minor by 48u. A value is a sum of four terms (in space six) of a
/// size of at most 2 (8), each wrong by at most 8u (64u), and of the rounding of the sums: 50u in the plane and 700u in
/// space. Here is more than ten times as much.
const DOUBT: [f64; 2] = [1e-13, 1e-12];

impl Rough {
    /// Coordinates for which all that is computed here stays below 2^53, so that nothing is rounded.
    pub(super) fn exact(columns: &[Vec<f64>]) -> Option<Self> {
        matches!(columns.len(), 2 | 3).then(|| Rough { columns: columns.to_vec(), doubt: 0.0 })
    }

    /// Any coordinates, divided by powers of two.
    pub(super) fn rounded(columns: &[Vec<BigInt>]) -> Option<Self> {
        let doubt = *DOUBT.get(columns.len().checked_sub(2)?)?;
        let scaled = |column: &Vec<BigInt>| {
            let bits = column.iter().map(BigInt::bits).max().unwrap_or(0);
            // 64 bits are more than a float keeps.
            let cut = bits.saturating_sub(64);
            let scale = 2f64.powi(-((bits - cut) as i32));
            column.iter().map(|x| (x >> cut).to_f64().unwrap_or(0.0) * scale).collect()
        };
        Some(Rough { columns: columns.iter().map(scaled).collect(), doubt })
    }

    /// Whether everything is certain.
    pub(super) fn is_exact(&self) -> bool {
        self.doubt == 0.0
    }

    /// The weights above the hyperplane through these points, and near it.
    pub(super) fn tally(&self, through: &[usize], weights: [&[i64]; 2]) -> Tally {
        let (normal, level) = self.hyperplane(through);
        match self.columns.as_slice() {
            [x, y] => {
                let values = x.iter().zip(y).map(|(x, y)| normal[0] * x + normal[1] * y - level);
                tally(values, self.doubt, weights)
            }
            columns => {
                let values = columns[0].iter().zip(&columns[1]).zip(&columns[2]);
                let values = values.map(|((x, y), z)| normal[0] * x + normal[1] * y + normal[2] * z - level);
                tally(values, self.doubt, weights)
            }
        }
    }

    /// The points above the hyperplane through these points, and those near it.
    pub(super) fn sides(&self, through: &[usize], above: &mut [u64], near: &mut [u64]) {
        let (normal, level) = self.hyperplane(through);
        above.fill(0);
        near.fill(0);
        for at in 0..self.columns[0].len() {
            let mut value = normal[0] * self.columns[0][at] + normal[1] * self.columns[1][at];
            if let Some(column) = self.columns.get(2) {
                value += normal[2] * column[at];
            }
            value -= level;
            above[at / 64] |= u64::from(value > self.doubt) << (at % 64);
            near[at / 64] |= u64::from(value.abs() <= self.doubt) << (at % 64);
        }
    }

    /// A vector perpendicular to the hyperplane through these points, and its product with them.
    fn hyperplane(&self, through: &[usize]) -> ([f64; 3], f64) {
        let at = |point: usize, column: usize| self.columns[column][through[point]];
        let difference = |to: usize, column: usize| at(to, column) - at(0, column);
        if self.columns.len() == 2 {
            let (a, b) = (-difference(1, 1), difference(1, 0));
            return ([a, b, 0.0], a * at(0, 0) + b * at(0, 1));
        }
        let minor = |i: usize, j: usize| difference(1, i) * difference(2, j) - difference(1, j) * difference(2, i);
        let (a, b, c) = (minor(1, 2), minor(2, 0), minor(0, 1));
        ([a, b, c], a * at(0, 0) + b * at(0, 1) + c * at(0, 2))
    }
}

/// Sums of whole numbers may be taken in any order, so the compiler may use vector instructions.
fn tally(values: impl Iterator<Item = f64>, doubt: f64, [first, second]: [&[i64]; 2]) -> Tally {
    let (mut above, mut near) = ([0; 2], [0; 2]);
    for ((value, first), second) in values.zip(first).zip(second) {
        let (is_above, is_near) = (-i64::from(value > doubt), -i64::from(value.abs() <= doubt));
        above[0] += is_above & first;
        above[1] += is_above & second;
        near[0] += is_near & first;
        near[1] += is_near & second;
    }
    Tally { above: above.map(|sum| sum as usize), near: near.map(|sum| sum as usize) }
}
