//! Robustness with proof: whether an input near an instance has another class.
//!
//! Inputs lie within a radius of the instance in each coordinate (L∞), and in the range that inputs can have. They are
//! real numbers; the network is taken as exact numbers, ties between classes go to the first, and a unit at zero says −1,
//! as everywhere here. The search is in floating point; what it finds is confirmed in whole numbers.

mod attack;
mod bound;
mod branch;
mod certificate;
mod halfspaces;
mod network;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_traits::{FromPrimitive, One, Zero};

use self::bound::{Exact, Region};
use self::branch::{Halt, Proof, Search};
pub use self::certificate::{Meant, RobustCertificate};
use self::network::Layers;
use crate::error::SearchError;
use crate::network::ExactNetwork;
use crate::points::Points;
use crate::rational::Rational;
use crate::whole::Decimal;

/// How far inputs may move.
#[derive(Clone, Debug, PartialEq)]
pub struct Ball {
    /// By so much at most, in each input.
    pub radius: Rational,
    /// Only these inputs, counted from 0; all if none are named.
    pub inputs: Option<Vec<usize>>,
    /// The least and the greatest value that inputs can have, such as 0 and 1 for pixels.
    pub range: Option<(Rational, Rational)>,
}

/// What is decided about an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Robustness {
    /// No input in the ball has another class.
    Robust,
    /// This input has another.
    Changes {
        /// An input of the ball.
        input: Vec<Rational>,
        /// Its class.
        class: usize,
    },
    /// Neither was found.
    Undecided {
        /// Why not.
        why: &'static str,
    },
}

/// One instance's answer.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The network's class for the instance itself.
    pub class: usize,
    /// Whether it is so in the whole ball.
    pub answer: Robustness,
    /// Branches that were looked at.
    pub nodes: u64,
    /// How long it took.
    pub time: Duration,
    proof: Option<Proof>,
}

impl Ball {
    /// Reads a radius: a decimal, or a fraction such as 8/255.
    pub fn radius(text: &str) -> Result<Rational, SearchError> {
        let wrong = || SearchError::Robust {
            why: format!(
                "radius '{}' is not understood; write a number above zero such as 0.1 or 8/255",
                text.escape_debug()
            ),
        };
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        let number = |part: &str| Decimal::parse(part.trim()).map(|decimal| decimal.rational());
        let (above, below) = number(above).zip(number(below)).ok_or_else(wrong)?;
        if !above.is_positive() || !below.is_positive() {
            return Err(wrong());
        }
        Ok(above / below)
    }

    /// Which inputs may move, of so many, in words such as `inputs 1,4-6 of 8`; none if all may.
    pub fn moving(&self, all: usize) -> Option<String> {
        let mut named: Vec<usize> = self.inputs.clone()?.iter().map(|input| input + 1).collect();
        named.sort_unstable();
        named.dedup();
        let run = |run: &[usize]| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        };
        let runs: Vec<String> = named.chunk_by(|a, b| a + 1 == *b).map(run).collect();
        Some(format!("{} {} of {all}", if named.len() == 1 { "input" } else { "inputs" }, runs.join(",")))
    }
}

/// What the decisions may take.
#[derive(Clone, Copy, Debug)]
pub struct RobustConfig {
    /// Most time for one instance.
    pub time: Duration,
    /// Most bytes for proofs while they are made.
    pub memory: usize,
    /// Instances looked at side by side.
    pub threads: usize,
}

/// Decides about every instance, in order. `tell` hears of each as it is decided, with its number from 0. After an
/// interruption those that were not begun, the last ones, are missing.
pub fn robustness(
    network: &ExactNetwork,
    points: &Points,
    ball: &Ball,
    config: &RobustConfig,
    interrupt: &AtomicBool,
    tell: &(dyn Fn(usize, &Decision) + Sync),
) -> Result<Vec<Decision>, SearchError> {
    let whole = points.whole();
    let scales = (0..whole.inputs()).map(|input| whole.scale(input));
    let question = Question::new(network, ball, scales, points.rows().flatten().copied())?;
    question.check_inputs(whole.inputs())?;
    let threads = config.threads.clamp(1, points.len());
    let next = AtomicUsize::new(0);
    let slots: Vec<OnceLock<Result<Decision, SearchError>>> = (0..points.len()).map(|_| OnceLock::new()).collect();
    let work = || {
        while !interrupt.load(Ordering::Relaxed) {
            let instance = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = slots.get(instance) else { return };
            let decision =
                question.around(&points.exact_row(instance)).map(|around| question.decide(&around, config, interrupt));
            if let Ok(decision) = &decision {
                tell(instance, decision);
            }
            let _ = slot.set(decision);
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    slots.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// A network and a ball in whole numbers: all inputs are multiplied by `scale`.
struct Question {
    scale: BigUint,
    big: Layers<BigInt>,
    small: Option<Layers<i128>>,
    radius: BigInt,
    range: Option<(BigInt, BigInt)>,
    /// Which inputs may move.
    moves: Vec<bool>,
}

/// An instance and its ball.
struct Around {
    row: Vec<BigInt>,
    region: Region<BigInt>,
}

fn wrong(why: String) -> SearchError {
    SearchError::Robust { why }
}

impl Question {
    /// For instances whose numbers have these denominators, and are about these.
    fn new<'a>(
        network: &ExactNetwork,
        ball: &'a Ball,
        denominators: impl Iterator<Item = &'a BigUint>,
        values: impl Iterator<Item = f64>,
    ) -> Result<Self, SearchError> {
        let layers = Layers::of(network)?;
        let inputs = layers.0[0].inputs;
        if !ball.radius.is_positive() {
            return Err(wrong(format!("the radius is {}; it must be greater than zero", ball.radius)));
        }
        // Around a point alone everything is robust.
        if ball.inputs.as_ref().is_some_and(Vec::is_empty) {
            return Err(wrong("no input may move; name one at least, or none for all".into()));
        }
        let mut moves = vec![ball.inputs.is_none(); inputs];
        for &input in ball.inputs.iter().flatten() {
            let place = moves.get_mut(input);
            *place.ok_or_else(|| wrong(format!("there is no input {}; the network takes {inputs}", input + 1)))? = true;
        }
        let ends = ball.range.iter().flat_map(|(low, high)| [low, high]).chain([&ball.radius]);
        let all = ends.map(Rational::denominator).chain(denominators);
        let scale = all.fold(BigUint::one(), |all, one| if (&all % one).is_zero() { all } else { all.lcm(one) });
        let whole = |r: &Rational| r.numerator() * BigInt::from(&scale / r.denominator());
        let (radius, range) = (whole(&ball.radius), ball.range.as_ref().map(|(l, h)| (whole(l), whole(h))));
        let largest = values.fold(1.0, |most: f64, x| most.max(x.abs())).ceil() + 1.0;
        let big = layers.for_inputs_times(&scale);
        let small = BigUint::from_f64(largest).and_then(|largest| big.small(&(largest * &scale + radius.magnitude())));
        Ok(Question { scale, big, small, radius, range, moves })
    }

    fn check_inputs(&self, found: usize) -> Result<(), SearchError> {
        let inputs = self.moves.len();
        if found == inputs { Ok(()) } else { Err(wrong(format!("the network takes {inputs} inputs, not {found}"))) }
    }

    /// An instance, whose denominators are among those that were given.
    fn around(&self, row: &[Rational]) -> Result<Around, SearchError> {
        self.check_inputs(row.len())?;
        let row: Vec<BigInt> =
            row.iter().map(|r| r.numerator() * BigInt::from(&self.scale / r.denominator())).collect();
        let range = self.range.as_ref();
        if range.is_some_and(|(low, high)| row.iter().any(|x| x < low || x > high)) {
            return Err(wrong("an instance lies outside of the range that inputs can have".into()));
        }
        let end = |x: &BigInt, moves: bool, by: &BigInt| {
            let moved = if moves { x + by } else { x.clone() };
            range.map_or(moved.clone(), |(low, high)| moved.clamp(low.clone(), high.clone()))
        };
        let ends = |by: &BigInt| row.iter().zip(&self.moves).map(|(x, &moves)| end(x, moves, by)).collect();
        let region = Region { low: ends(&-&self.radius), high: ends(&self.radius) };
        Ok(Around { row, region })
    }

    /// The class of an instance.
    fn class(&self, around: &Around) -> usize {
        self.big.class(&around.row)
    }

    /// The class of an input, if it lies in the ball of an instance.
    fn class_within(&self, around: &Around, input: &[Rational]) -> Option<usize> {
        let Region { low, high } = &around.region;
        let needed = |x: &Rational| x.denominator() / x.denominator().gcd(&self.scale);
        let finer = input.iter().fold(BigUint::one(), |all, x| all.lcm(&needed(x)));
        let scale = &self.scale * &finer;
        let whole: Vec<BigInt> = input.iter().map(|x| x.numerator() * BigInt::from(&scale / x.denominator())).collect();
        let times = BigInt::from(finer.clone());
        let inside = whole.len() == low.len()
            && whole.iter().zip(low).zip(high).all(|((x, l), h)| *x >= l * &times && *x <= h * &times);
        inside.then(|| self.big.clone().for_inputs_times(&finer).class(&whole))
    }

    /// How many branches a proof has, if it holds.
    fn check(&self, around: &Around, class: usize, proof: &Proof) -> Option<usize> {
        let region = &around.region;
        let small_region = self.small.as_ref().map(|_| small_region(region));
        proof.check(&Exact::new(self.small.as_ref().zip(small_region.as_ref()), (&self.big, region)), class)
    }

    fn decide(&self, around: &Around, config: &RobustConfig, interrupt: &AtomicBool) -> Decision {
        let started = Instant::now();
        let region = &around.region;
        let class = self.class(around);
        let small_region = self.small.as_ref().map(|_| small_region(region));
        let small = self.small.as_ref().zip(small_region.as_ref());
        let exact = Exact::new(small, (&self.big, region));
        let mut found = None;
        let mut confirm = |input: &[f64]| {
            found = found.take().or_else(|| self.confirm(region, class, input));
            found.is_some()
        };
        let stop = || started.elapsed() >= config.time || interrupt.load(Ordering::Relaxed);
        // A node lies in the tree of every branch that is under way above it, while it is moved up.
        let room = config.memory / config.threads.max(1) / (4 * size_of::<branch::Node>());
        let mut search = Search::new(&exact, class, &mut confirm, &stop, room);
        let outcome = search.prove();
        let nodes = search.nodes;
        let undecided = |why| (Robustness::Undecided { why }, None);
        let (answer, proof) = match (outcome, found) {
            (Ok(proof), _) => (Robustness::Robust, Some(proof)),
            (Err(_), Some((input, class))) => (Robustness::Changes { input, class }, None),
            (Err(Halt::Stopped), None) if interrupt.load(Ordering::Relaxed) => undecided("it was stopped"),
            (Err(Halt::Stopped), None) => undecided("there was no more time"),
            (Err(Halt::Full), None) => undecided("the proof takes more memory than it may"),
            (Err(Halt::Found | Halt::Stuck), None) => undecided("it is too near to a boundary for floating point"),
        };
        Decision { class, answer, nodes, time: started.elapsed(), proof }
    }

    /// The input of the box that floats mean, −1 to 1 in each coordinate, if its class is another indeed: rounded to
    /// whole numbers of the scale, or, where that does not do, finer.
    fn confirm(&self, region: &Region<BigInt>, own: usize, input: &[f64]) -> Option<(Vec<Rational>, usize)> {
        [0u32, 40].into_iter().find_map(|bits| {
            let finer = BigUint::one() << bits;
            let value = |((low, high), &at): ((&BigInt, &BigInt), &f64)| {
                let share = BigInt::from(((at.clamp(-1.0, 1.0) + 1.0) * 0.5 * SHARE as f64).round() as i64);
                let along: BigInt = ((high - low) << bits) * share * 2 + SHARE;
                (low << bits) + along.div_floor(&BigInt::from(2 * SHARE))
            };
            let whole: Vec<BigInt> = region.low.iter().zip(&region.high).zip(input).map(value).collect();
            let class = self.big.clone().for_inputs_times(&finer).class(&whole);
            let scale = &self.scale * &finer;
            (class != own).then(|| (whole.into_iter().map(|n| Rational::new(n, scale.clone())).collect(), class))
        })
    }
}

/// Parts of a side of the box that floats can name.
const SHARE: i64 = 1 << 40;

fn small_region(region: &Region<BigInt>) -> Region<i128> {
    let numbers = |all: &[BigInt]| all.iter().map(|n| i128::try_from(n).unwrap_or(i128::MAX)).collect();
    Region { low: numbers(&region.low), high: numbers(&region.high) }
}

#[cfg(test)]
mod tests;
