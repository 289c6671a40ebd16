//! Whether half-spaces meet in a box, in floating point: a point of both, or multipliers that show there is none.
//!
//! The system without the newest half-space is known to have a point. How far into the new one can one go within the
//! others? The bound max over the box of s z + Σ λᵢ sᵢ zᵢ is convex in λ ≥ 0, and its slopes are the sᵢ zᵢ at the corner
//! that attains it. So each step tries a corner, and the mean of the corners comes near to the best point.

use num_bigint::BigInt;

use super::bound::{Region, Side, float};
use super::network::Layers;

/// The free units of the first layer around a box whose inputs run from −1 to 1, each divided by what it can change.
pub(super) struct HalfSpaces {
    pub(super) inputs: usize,
    /// Unit after unit.
    weights: Vec<f64>,
    centres: Vec<f64>,
    /// What the units were divided by.
    scales: Vec<f64>,
}

/// A point of the box and the pre-activations of all free units there.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) input: Vec<f64>,
    pub(super) sums: Vec<f64>,
}

/// How a question ended.
pub(super) enum Meeting {
    /// They meet here.
    At(Point),
    /// They do not: multipliers of the free units, positive for those that say +1 and negative for those that say −1.
    Nowhere(Vec<f64>),
    /// Neither was found.
    Unclear,
}

/// Steps after which progress is looked at.
const PATIENCE: usize = 15;
/// Sums beyond this count as different from zero.
const MARGIN: f64 = 1e-9;

impl HalfSpaces {
    pub(super) fn new(network: &Layers<BigInt>, region: &Region<BigInt>, free: &[usize]) -> Self {
        let first = &network.0[0];
        let ends: Vec<(f64, f64)> = region.low.iter().zip(&region.high).map(|(l, h)| (float(l), float(h))).collect();
        let mut spaces = HalfSpaces { inputs: ends.len(), weights: vec![], centres: vec![], scales: vec![] };
        for &unit in free {
            let row = || first.row(unit).iter().map(float).zip(&ends);
            let centre = float(&first.biases[unit]) + row().map(|(w, (l, h))| w * (l + h) / 2.0).sum::<f64>();
            let scale = row().map(|(w, (l, h))| (w * (h - l) / 2.0).abs()).sum::<f64>().max(f64::MIN_POSITIVE);
            spaces.weights.extend(row().map(|(w, (l, h))| w * (h - l) / 2.0 / scale));
            spaces.centres.push(centre / scale);
            spaces.scales.push(scale);
        }
        spaces
    }

    /// How many units there are.
    pub(super) fn units(&self) -> usize {
        self.centres.len()
    }

    /// A unit's pre-activation at the centre, between −1 and 1 as it is free.
    pub(super) fn centre(&self, unit: usize) -> f64 {
        self.centres[unit]
    }

    fn row(&self, unit: usize) -> &[f64] {
        &self.weights[unit * self.inputs..][..self.inputs]
    }

    /// A point with the pre-activations of all units.
    pub(super) fn point(&self, input: Vec<f64>) -> Point {
        let sums = (0..self.units()).map(|unit| self.centres[unit] + dot(self.row(unit), &input)).collect();
        Point { input, sums }
    }

    /// Whether the half-spaces of decided units meet, of which `newest` came last; `prices` is where to begin.
    pub(super) fn meet(
        &self,
        sides: &[Side],
        newest: usize,
        prices: &mut [f64],
        steps: usize,
        stop: &dyn Fn() -> bool,
    ) -> Meeting {
        let decided: Vec<(usize, f64)> = (0..sides.len()).filter_map(|u| Some((u, sign(sides[u])?))).collect();
        let others: Vec<(usize, f64)> = decided.iter().copied().filter(|&(unit, _)| unit != newest).collect();
        let toward = sign(sides[newest]).unwrap_or(1.0);
        prices.iter_mut().enumerate().for_each(|(unit, price)| {
            *price = if sides[unit] == Side::Free || unit == newest { 0.0 } else { price.max(0.0) };
        });
        let mut mean: Vec<f64> = vec![];
        let mut counted = 0.0;
        let mut last: Option<Vec<f64>> = None;
        let (mut best, mut checkpoint, mut pace, mut since) = (f64::INFINITY, f64::INFINITY, 1.0, 0);
        let mut best_prices = prices.to_vec();
        for step in 0..steps {
            if step % 128 == 127 && stop() {
                return Meeting::Unclear;
            }
            let mut total: Vec<f64> = self.row(newest).iter().map(|w| toward * w).collect();
            let mut value = toward * self.centres[newest];
            for &(unit, s) in others.iter().filter(|(unit, _)| prices[*unit] > 0.0) {
                let by = s * prices[unit];
                value += by * self.centres[unit];
                add(&mut total, by, self.row(unit));
            }
            value += total.iter().map(|g| g.abs()).sum::<f64>();
            if value < best {
                best = value;
                best_prices.copy_from_slice(prices);
            }
            if value < -MARGIN {
                let signed =
                    |unit: usize| sign(sides[unit]).unwrap_or(0.0) * if unit == newest { 1.0 } else { prices[unit] };
                return Meeting::Nowhere((0..sides.len()).map(signed).collect());
            }
            let corner: Vec<f64> = total.iter().map(|&g| if g > 0.0 { 1.0 } else { -1.0 }).collect();
            counted += 1.0;
            if mean.is_empty() {
                mean.clone_from(&corner);
            } else {
                let share = 1.0f64.min(2.0 / (counted + 1.0));
                mean.iter_mut().zip(&corner).for_each(|(m, c)| *m += share * (c - *m));
            }
            let slopes: Vec<f64> =
                others.iter().map(|&(u, s)| s * (self.centres[u] + dot(self.row(u), &corner))).collect();
            let new = toward * (self.centres[newest] + dot(self.row(newest), &corner));
            if new > MARGIN && slopes.iter().all(|&slope| slope > MARGIN) {
                return Meeting::At(self.point(corner));
            }
            if counted > 1.0 && self.inside(&decided, &mean) {
                return Meeting::At(self.point(mean));
            }
            since += 1;
            if since == PATIENCE {
                if best > checkpoint - 0.02 * checkpoint.abs() {
                    pace = (pace * 0.5f64).max(0.02);
                }
                (checkpoint, since) = (best, 0);
            }
            let way = deflect(last.take(), slopes, |at| prices[others[at].0]);
            let length: f64 = way.iter().map(|s| s * s).sum();
            if length < 1e-20 {
                break;
            }
            let step = pace * (value + 0.05 * value.abs() + 1e-6) / length;
            for (&(unit, _), w) in others.iter().zip(&way) {
                prices[unit] = (prices[unit] - step * w).max(0.0);
            }
            last = Some(way);
        }
        prices.copy_from_slice(&best_prices);
        [1e-2, 1e-3, 1e-5]
            .into_iter()
            .find_map(|depth| self.repair(&decided, mean.clone(), depth, steps, stop))
            .map_or(Meeting::Unclear, |input| Meeting::At(self.point(input)))
    }

    /// Moves a point of the box into half-spaces that it is outside of, one after the other: to this depth, along the
    /// coordinates that can still move.
    fn repair(
        &self,
        decided: &[(usize, f64)],
        mut input: Vec<f64>,
        depth: f64,
        rounds: usize,
        stop: &dyn Fn() -> bool,
    ) -> Option<Vec<f64>> {
        for round in 0..rounds {
            if round % 16 == 15 && stop() {
                return None;
            }
            let mut inside = true;
            for &(unit, s) in decided {
                let row = self.row(unit);
                let lacking = depth - s * (self.centres[unit] + dot(row, &input));
                if lacking <= depth * 0.5 {
                    continue;
                }
                inside = false;
                let movable = |(w, x): (&f64, &f64)| s * w * x < w.abs();
                let length: f64 = row.iter().zip(&input).filter(|&pair| movable(pair)).map(|(w, _)| w * w).sum();
                if length < 1e-20 {
                    return None;
                }
                let by = s * lacking / length;
                input.iter_mut().zip(row).for_each(|(x, w)| *x = (*x + by * w).clamp(-1.0, 1.0));
            }
            if inside {
                return self.inside(decided, &input).then_some(input);
            }
        }
        None
    }

    fn inside(&self, decided: &[(usize, f64)], input: &[f64]) -> bool {
        decided.iter().all(|&(unit, s)| s * (self.centres[unit] + dot(self.row(unit), input)) > MARGIN)
    }

    /// Leaves out of multipliers what is not needed.
    pub(super) fn sparse(&self, mut prices: Vec<f64>) -> Vec<f64> {
        let mut total = vec![0.0; self.inputs];
        let mut base = 0.0;
        for (unit, &price) in prices.iter().enumerate().filter(|(_, price)| **price != 0.0) {
            add(&mut total, price, self.row(unit));
            base += price * self.centres[unit];
        }
        let mut order: Vec<usize> = (0..prices.len()).filter(|&unit| prices[unit] != 0.0).collect();
        order.sort_by(|&a, &b| prices[a].abs().total_cmp(&prices[b].abs()));
        for unit in order {
            let price = prices[unit];
            let without = base - price * self.centres[unit];
            let value: f64 =
                total.iter().zip(self.row(unit)).map(|(t, w)| (t - price * w).abs()).sum::<f64>() + without;
            if value < -MARGIN {
                add(&mut total, -price, self.row(unit));
                base = without;
                prices[unit] = 0.0;
            }
        }
        prices
    }

    /// Multipliers for the units themselves as whole numbers of about so many bits.
    pub(super) fn whole(&self, prices: &[f64], bits: i32) -> Vec<i64> {
        let own: Vec<f64> = prices.iter().zip(&self.scales).map(|(price, scale)| price / scale).collect();
        let most = own.iter().fold(0.0, |most: f64, p| most.max(p.abs()));
        own.iter().map(|p| (p / most * 2f64.powi(bits)).round() as i64).collect()
    }
}

fn sign(side: Side) -> Option<f64> {
    match side {
        Side::Free => None,
        Side::Plus => Some(1.0),
        Side::Minus => Some(-1.0),
    }
}

pub(super) fn add(to: &mut [f64], factor: f64, row: &[f64]) {
    to.iter_mut().zip(row).for_each(|(t, r)| *t += factor * r);
}

/// With four sums side by side, which a processor adds at once.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 4];
    let (fours, others) = (a.chunks_exact(4), b.chunks_exact(4));
    let tail: f64 = fours.remainder().iter().zip(others.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in fours.zip(others) {
        for lane in 0..4 {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    lanes.iter().sum::<f64>() + tail
}

/// Slopes that turn back against the last direction are bent away from it (Camerini, Fratta and Maffioli). A multiplier
/// at zero does not go below.
fn deflect(last: Option<Vec<f64>>, mut slopes: Vec<f64>, price: impl Fn(usize) -> f64) -> Vec<f64> {
    if let Some(last) = last {
        let product = dot(&slopes, &last);
        let length = dot(&last, &last);
        if product < 0.0 && length > 0.0 {
            add(&mut slopes, -1.5 * product / length, &last);
        }
    }
    slopes.iter_mut().enumerate().for_each(|(at, slope)| {
        if *slope > 0.0 && price(at) <= 0.0 {
            *slope = 0.0;
        }
    });
    slopes
}
