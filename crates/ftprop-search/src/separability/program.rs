//! Gordan's alternative as a linear program in floating point.
//!
//! With vectors aᵢ of unit length: either some w with |wⱼ| ≤ 1 has aᵢ · w ≥ δ > 0 for all of them, or a convex
//! combination Σ yᵢ aᵢ is zero. The primal simplex method makes the sum of absolute values of Σ yᵢ aᵢ as small as
//! possible; its prices are the direction w. As many rows as weights and one more, whatever the number of instances.

use super::cone::{Cone, dot};

/// What the program ended with. Nothing here is proved: the caller asks the checker.
pub(super) enum Outcome {
    /// A direction with a positive product with every vector, as far as floating point can tell.
    Direction(Vec<f64>),
    /// The vectors that carry the combination nearest to zero, and the direction that went with it.
    Support(Vec<usize>, Vec<f64>),
    /// There was no time to end.
    Stopped,
}

/// Products and sums below this count as zero.
const TOLERANCE: f64 = 1e-11;
/// Pivots before the inverse is computed afresh.
const FRESH: usize = 120;
/// After so many pivots without progress, variables enter by the least index, which cannot cycle.
const STALLED: usize = 60;

/// A column of the program.
#[derive(Clone, Copy, PartialEq)]
enum Column {
    /// The share yᵢ of a vector.
    Vector(usize),
    /// What is missing to zero in one coordinate, downwards or upwards.
    Rest(usize, bool),
}

/// Solves the program. `stop` is asked now and then; `started` asks whether to skip some instances.
pub(super) fn solve(cone: &Cone<'_>, part: &[usize], stop: &dyn Fn() -> bool) -> Outcome {
    let mut program = Program::new(cone, part);
    let (mut stalled, mut value) = (0, f64::INFINITY);
    for pivot in 0.. {
        if pivot % FRESH == FRESH - 1 && !program.refresh() {
            break;
        }
        if pivot % 16 == 15 && stop() {
            return Outcome::Stopped;
        }
        let prices = program.prices();
        let direction: Vec<f64> = prices[..program.height - 1].iter().map(|p| -p).collect();
        let (entering, least) = program.price(&direction, prices[program.height - 1], stalled > STALLED);
        if least > TOLERANCE {
            return Outcome::Direction(direction);
        }
        let now = program.value();
        stalled = if now < value * (1.0 - 1e-9) { 0 } else { stalled + 1 };
        value = value.min(now);
        let ended =
            entering.is_none() || now <= TOLERANCE || pivot > 50 * (program.height + 20) || stalled > 20 * STALLED;
        if ended || !entering.is_some_and(|column| program.enter(column)) {
            return Outcome::Support(program.support(), direction);
        }
    }
    Outcome::Support(program.support(), vec![0.0; cone.dimension])
}

struct Program<'a> {
    part: &'a [usize],
    /// Unit vectors, row after row, in the order of `part`.
    vectors: Vec<f64>,
    /// Coordinates, and the sum of the shares.
    height: usize,
    basis: Vec<Column>,
    basic: Vec<bool>,
    values: Vec<f64>,
    inverse: Vec<Vec<f64>>,
}

impl<'a> Program<'a> {
    fn new(cone: &Cone<'_>, part: &'a [usize]) -> Self {
        let dimension = cone.dimension;
        let mut vectors = Vec::with_capacity(part.len() * dimension);
        for &instance in part {
            let row = cone.row(instance);
            let length = dot(row, row).sqrt();
            vectors.extend(row.iter().map(|x| x / length));
        }
        // The vector nearest to all others' opposite would be best; the first one does.
        let first = &vectors[..dimension];
        let height = dimension + 1;
        let mut basis: Vec<Column> = first.iter().enumerate().map(|(at, &x)| Column::Rest(at, x >= 0.0)).collect();
        basis.push(Column::Vector(0));
        let mut basic = vec![false; part.len()];
        basic[0] = true;
        let mut program = Program { part, vectors, height, basis, basic, values: vec![], inverse: vec![] };
        program.refresh();
        program
    }

    fn vector(&self, at: usize) -> &[f64] {
        &self.vectors[at * (self.height - 1)..][..self.height - 1]
    }

    /// The column as it stands in the program: Σ yᵢ aᵢ − p + q = 0, Σ yᵢ = 1.
    fn column(&self, column: Column) -> Vec<f64> {
        let mut full = vec![0.0; self.height];
        match column {
            Column::Vector(at) => {
                full[..self.height - 1].copy_from_slice(self.vector(at));
                full[self.height - 1] = 1.0;
            }
            Column::Rest(at, above) => full[at] = if above { -1.0 } else { 1.0 },
        }
        full
    }

    /// The inverse of the basis, by elimination; false if it has none.
    fn refresh(&mut self) -> bool {
        let n = self.height;
        let columns: Vec<Vec<f64>> = self.basis.iter().map(|&column| self.column(column)).collect();
        // Rows of (B | 1).
        let mut rows: Vec<Vec<f64>> = (0..n)
            .map(|row| {
                let unit = (0..n).map(|at| if at == row { 1.0 } else { 0.0 });
                columns.iter().map(|column| column[row]).chain(unit).collect()
            })
            .collect();
        for at in 0..n {
            let pivot = (at..n).max_by(|&a, &b| rows[a][at].abs().total_cmp(&rows[b][at].abs())).unwrap_or(at);
            if rows[pivot][at].abs() < 1e-13 {
                return false;
            }
            rows.swap(at, pivot);
            let scale = 1.0 / rows[at][at];
            rows[at][at..].iter_mut().for_each(|x| *x *= scale);
            let line = rows[at].clone();
            for (number, row) in rows.iter_mut().enumerate() {
                let factor = row[at];
                if number != at && factor != 0.0 {
                    row[at..].iter_mut().zip(&line[at..]).for_each(|(x, l)| *x -= factor * l);
                }
            }
        }
        self.inverse = rows.into_iter().map(|row| row[n..].to_vec()).collect();
        self.values = self.inverse.iter().map(|line| line[n - 1].max(0.0)).collect();
        true
    }

    fn cost(column: Column) -> f64 {
        if matches!(column, Column::Rest(..)) { 1.0 } else { 0.0 }
    }

    fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.height];
        for (line, &column) in self.inverse.iter().zip(&self.basis) {
            if Self::cost(column) > 0.0 {
                prices.iter_mut().zip(line).for_each(|(p, l)| *p += l);
            }
        }
        prices
    }

    /// The sum of what is missing to zero.
    fn value(&self) -> f64 {
        self.values.iter().zip(&self.basis).map(|(v, &column)| v * Self::cost(column)).sum()
    }

    /// The column with the most negative reduced cost (the first one, if it stalls), and the least product of a
    /// vector with the direction.
    fn price(&self, direction: &[f64], base: f64, first: bool) -> (Option<Column>, f64) {
        let (mut best, mut most, mut least) = (None, -TOLERANCE, f64::INFINITY);
        for (at, vector) in self.vectors.chunks_exact(self.height - 1).enumerate() {
            let product = dot(vector, direction);
            least = least.min(product);
            let reduced = product - base;
            if !self.basic[at] && reduced < most && !(first && best.is_some()) {
                (best, most) = (Some(Column::Vector(at)), reduced);
            }
        }
        for (at, &w) in direction.iter().enumerate() {
            // p: 1 − w, q: 1 + w.
            for (above, reduced) in [(true, 1.0 - w), (false, 1.0 + w)] {
                if reduced < most && !(first && best.is_some()) && !self.basis.contains(&Column::Rest(at, above)) {
                    (best, most) = (Some(Column::Rest(at, above)), reduced);
                }
            }
        }
        (best, least)
    }

    /// Brings a column into the basis; false if nothing leaves, which only rounding can cause.
    fn enter(&mut self, entering: Column) -> bool {
        let column = self.column(entering);
        let change: Vec<f64> = self.inverse.iter().map(|line| dot(line, &column)).collect();
        let mut step = f64::INFINITY;
        for (value, &change) in self.values.iter().zip(&change) {
            if change > 1e-10 {
                step = step.min((value + 1e-12) / change);
            }
        }
        // Among those that reach zero at about the same step, the steepest, for the sake of the inverse.
        let fits = |row: &usize| change[*row] > 1e-10 && self.values[*row] / change[*row] <= step;
        let Some(row) = (0..self.height).filter(fits).max_by(|&a, &b| change[a].total_cmp(&change[b])) else {
            return false;
        };
        let step = (self.values[row] / change[row]).max(0.0);
        self.values.iter_mut().zip(&change).for_each(|(value, c)| *value = (*value - step * c).max(0.0));
        self.values[row] = step;
        if let Column::Vector(at) = self.basis[row] {
            self.basic[at] = false;
        }
        if let Column::Vector(at) = entering {
            self.basic[at] = true;
        }
        self.basis[row] = entering;
        let mut pivot_line = std::mem::take(&mut self.inverse[row]);
        let scale = 1.0 / change[row];
        pivot_line.iter_mut().for_each(|l| *l *= scale);
        for (line, &factor) in self.inverse.iter_mut().zip(&change).filter(|(line, _)| !line.is_empty()) {
            if factor != 0.0 {
                line.iter_mut().zip(&pivot_line).for_each(|(l, p)| *l -= factor * p);
            }
        }
        self.inverse[row] = pivot_line;
        true
    }

    /// The instances with a share.
    fn support(&self) -> Vec<usize> {
        let shares = self.basis.iter().zip(&self.values);
        let named = shares.filter_map(|(&column, &value)| match column {
            Column::Vector(at) if value > 1e-11 => Some(self.part[at]),
            _ => None,
        });
        named.collect()
    }
}
