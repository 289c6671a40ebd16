//! The exact side: what the signs of first-layer units allow the network to say, and which of them exclude each other.
//!
//! Both arguments are about one box of inputs, and are computed in whole numbers. *Bounds*: where some units of the first
//! layer are decided, intervals go up through the layers, and may show that no other class can win. *Conflicts*: numbers
//! eᵤ, positive for units that say +1 and negative for those that say −1, for which Σ eᵤ zᵤ is negative all over the box
//! (Farkas). Then these units cannot all say so.

use num_bigint::BigInt;
use num_traits::{RefNum, ToPrimitive};

use super::network::{Layers, Number};

/// What is known of a hidden unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Nothing.
    Free,
    /// z > 0.
    Plus,
    /// z ≤ 0.
    Minus,
}

/// The least and the greatest that a sum can be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interval<T> {
    pub(super) low: T,
    pub(super) high: T,
}

/// The box in which inputs are looked for: least and greatest value of each.
#[derive(Clone, Debug)]
pub(super) struct Region<T> {
    pub(super) low: Vec<T>,
    pub(super) high: Vec<T>,
}

/// Units of the first layer and their multipliers, in the order of the units.
pub(super) type Conflict = Vec<(usize, i64)>;

/// What decided units of the first layer lead to.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// No other class wins.
    Closed,
    /// One might: for each class whether it might, and which units of the higher hidden layers are free, with how far
    /// apart the ends of their intervals are.
    Open { classes: Vec<bool>, spreads: Vec<Vec<Option<f64>>> },
}

/// A network and a box, in numbers of one kind.
struct Bounds<'a, T> {
    network: &'a Layers<T>,
    region: &'a Region<T>,
    /// At most how large a unit's pre-activation and all its summands are.
    reach: Vec<f64>,
}

/// A network and a box, in numbers that are as small as they may be.
pub(super) struct Exact<'a> {
    small: Option<Bounds<'a, i128>>,
    big: Bounds<'a, BigInt>,
    /// The units of the first layer that can only be on one side.
    fixed: Vec<Side>,
}

impl<'a> Exact<'a> {
    pub(super) fn new(
        small: Option<(&'a Layers<i128>, &'a Region<i128>)>,
        big: (&'a Layers<BigInt>, &'a Region<BigInt>),
    ) -> Self {
        let big = Bounds::new(big.0, big.1, float);
        let small = small.map(|(network, region)| Bounds::new(network, region, |&n| n as f64));
        let fixed = small.as_ref().map_or_else(|| big.fixed(), Bounds::fixed);
        Exact { small, big, fixed }
    }

    /// The units of the first layer that can only be on one side, and those that are free.
    pub(super) fn fixed(&self) -> &[Side] {
        &self.fixed
    }

    pub(super) fn network(&self) -> &'a Layers<BigInt> {
        self.big.network
    }

    pub(super) fn region(&self) -> &'a Region<BigInt> {
        self.big.region
    }

    /// Whether another class can win over `own` where first-layer units are on these sides.
    pub(super) fn verdict(&self, sides: &[Side], own: usize) -> Verdict {
        match &self.small {
            Some(small) => small.verdict(sides, own, |&n| n as f64),
            None => self.big.verdict(sides, own, float),
        }
    }

    /// Whether this is a conflict: units that there are, in order, and a sum that is negative all over the box.
    pub(super) fn excludes(&self, conflict: &Conflict) -> bool {
        let units = self.fixed.len();
        let ordered = conflict.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ordered || conflict.iter().any(|&(unit, e)| unit >= units || e == 0 || e == i64::MIN) {
            return false;
        }
        match self.small.as_ref().filter(|small| small.fits(conflict)) {
            Some(small) => small.excludes(conflict),
            None => self.big.excludes(conflict),
        }
    }
}

pub(super) fn float(number: &BigInt) -> f64 {
    number.to_f64().unwrap_or(f64::INFINITY)
}

/// Sums below this are certainly held by 128 bits, rounding of floats included.
const SMALL: f64 = 1e36;

impl<'a, T: Number> Bounds<'a, T>
where
    for<'b> &'b T: RefNum<T>,
{
    fn new(network: &'a Layers<T>, region: &'a Region<T>, float: impl Fn(&T) -> f64) -> Self {
        let size = |t: &T| float(t).abs();
        let largest = region.low.iter().chain(&region.high).map(size).fold(1.0, f64::max);
        let first = &network.0[0];
        let unit = |u: usize| first.row(u).iter().map(size).sum::<f64>() * largest + size(&first.biases[u]);
        Bounds { network, region, reach: (0..first.units()).map(unit).collect() }
    }

    /// The sides of first-layer units that follow from the box. Without hidden layers there are none.
    fn fixed(&self) -> Vec<Side> {
        let (hidden, _) = self.network.parts();
        let Some(first) = hidden.first() else { return vec![] };
        (0..first.units()).map(|unit| side(&over_box(first.row(unit), &first.biases[unit], self.region))).collect()
    }

    fn verdict(&self, first: &[Side], own: usize, float: impl Fn(&T) -> f64) -> Verdict {
        let (hidden, outputs) = self.network.parts();
        let mut sides = first.to_vec();
        let mut spreads = vec![];
        for layer in hidden.iter().skip(1) {
            let intervals: Vec<Interval<T>> =
                (0..layer.units()).map(|u| over_sides(layer.row(u), &layer.biases[u], &sides)).collect();
            sides = intervals.iter().map(side).collect();
            let spread = |(i, &side): (&Interval<T>, &Side)| (side == Side::Free).then(|| float(&(&i.high - &i.low)));
            spreads.push(intervals.iter().zip(&sides).map(spread).collect());
        }
        let wins = |other: usize| {
            if other == own {
                return false;
            }
            let lead: Vec<T> = outputs.row(other).iter().zip(outputs.row(own)).map(|(k, c)| k - c).collect();
            let bias = &outputs.biases[other] - &outputs.biases[own];
            let most = match hidden {
                [] => over_box(&lead, &bias, self.region).high,
                _ => over_sides(&lead, &bias, &sides).high,
            };
            most.is_positive() || (most.is_zero() && other < own)
        };
        let classes: Vec<bool> = (0..outputs.units()).map(wins).collect();
        if classes.contains(&true) { Verdict::Open { classes, spreads } } else { Verdict::Closed }
    }

    fn fits(&self, conflict: &Conflict) -> bool {
        conflict.iter().map(|&(unit, e)| (e as f64).abs() * self.reach[unit]).sum::<f64>() < SMALL
    }

    fn excludes(&self, conflict: &Conflict) -> bool {
        let first = &self.network.0[0];
        let (mut weights, mut bias) = (vec![T::zero(); first.inputs], T::zero());
        for &(unit, e) in conflict {
            let e = T::from(e);
            weights.iter_mut().zip(first.row(unit)).for_each(|(sum, w)| *sum = &*sum + &(w * &e));
            bias = bias + &first.biases[unit] * &e;
        }
        let most = over_box(&weights, &bias, self.region).high;
        // A unit that says +1 has a pre-activation above zero, so with one of those the sum is more than zero.
        most.is_negative() || (most.is_zero() && conflict.iter().any(|&(_, e)| e > 0))
    }
}

fn side<T: Number>(interval: &Interval<T>) -> Side {
    if interval.low.is_positive() {
        Side::Plus
    } else if interval.high.is_positive() {
        Side::Free
    } else {
        Side::Minus
    }
}

/// w · x + b over a box.
fn over_box<T: Number>(weights: &[T], bias: &T, region: &Region<T>) -> Interval<T>
where
    for<'a> &'a T: RefNum<T>,
{
    let (mut low, mut high) = (bias.clone(), bias.clone());
    for ((w, least), most) in weights.iter().zip(&region.low).zip(&region.high) {
        let (a, b) = (w * least, w * most);
        if w.is_negative() {
            (low, high) = (low + b, high + a);
        } else {
            (low, high) = (low + a, high + b);
        }
    }
    Interval { low, high }
}

/// w · h + b where some signs are known.
fn over_sides<T: Number>(weights: &[T], bias: &T, below: &[Side]) -> Interval<T>
where
    for<'a> &'a T: RefNum<T>,
{
    let (mut middle, mut spread) = (bias.clone(), T::zero());
    for (w, side) in weights.iter().zip(below) {
        match side {
            Side::Plus => middle = middle + w,
            Side::Minus => middle = middle - w,
            Side::Free => spread = spread + w.abs(),
        }
    }
    Interval { low: &middle - &spread, high: middle + spread }
}
