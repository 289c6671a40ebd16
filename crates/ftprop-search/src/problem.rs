//! Problems: made up, or drawn from larger data.
//!
//! ```
//! use ftprop_search::{Problem, ProblemName};
//! let name: ProblemName = "parity:3".parse()?;
//! let parity = Problem::generate(name, 1)?;
//! assert_eq!(parity.train.points.len(), 8);
//! # Ok::<(), ftprop_search::SearchError>(())
//! ```

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

use crate::error::SearchError;
use crate::points::{Labelled, Points};
use crate::rng::Rng;

/// The built-in problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemName {
    /// Exclusive or of two bits.
    Xor,
    /// Whether an odd number of N bits is set.
    Parity(usize),
    /// Two half circles that reach into each other, with noise.
    Moons,
    /// Two spirals around each other.
    Spirals,
    /// N = 3, 6 or 11 bits: the first 1, 2 or 3 say which of the others is the answer.
    Multiplexer(usize),
    /// K of each class of the 8×8 digits.
    Digits(usize),
    /// K of each class of MNIST.
    Mnist(usize),
}

impl fmt::Display for ProblemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProblemName::Xor => write!(f, "xor"),
            ProblemName::Parity(n) => write!(f, "parity:{n}"),
            ProblemName::Moons => write!(f, "moons"),
            ProblemName::Spirals => write!(f, "spirals"),
            ProblemName::Multiplexer(n) => write!(f, "multiplexer:{n}"),
            ProblemName::Digits(k) => write!(f, "digits:{k}"),
            ProblemName::Mnist(k) => write!(f, "mnist:{k}"),
        }
    }
}

impl FromStr for ProblemName {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        let unknown = || SearchError::UnknownProblem { name: text.to_string() };
        let bad = |why: &str| SearchError::BadProblem { name: text.to_string(), why: why.to_string() };
        let Some((name, number)) = text.split_once(':') else {
            return match text {
                "xor" => Ok(ProblemName::Xor),
                "moons" => Ok(ProblemName::Moons),
                "spirals" => Ok(ProblemName::Spirals),
                "parity" | "multiplexer" | "digits" | "mnist" => Err(bad("a number is missing, as in parity:4")),
                _ => Err(unknown()),
            };
        };
        let number: usize = match name {
            "parity" | "multiplexer" | "digits" | "mnist" => {
                number.parse().map_err(|_| bad("after the colon belongs a whole number"))?
            }
            _ => return Err(unknown()),
        };
        match (name, number) {
            ("parity", 2..=12) => Ok(ProblemName::Parity(number)),
            ("parity", _) => Err(bad("parity needs between 2 and 12 bits")),
            ("multiplexer", 3 | 6 | 11) => Ok(ProblemName::Multiplexer(number)),
            ("multiplexer", _) => Err(bad("a multiplexer has 3, 6 or 11 inputs")),
            (_, 0) => Err(bad("at least one instance of each class is needed")),
            ("digits", _) => Ok(ProblemName::Digits(number)),
            _ => Ok(ProblemName::Mnist(number)),
        }
    }
}

/// Instances to learn from and, where there are some, others to test on.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What it is called.
    pub name: String,
    /// The instances to learn.
    pub train: Labelled,
    /// Instances that are not learned.
    pub test: Option<Labelled>,
}

fn names(classes: &[&str]) -> Vec<String> {
    classes.iter().map(ToString::to_string).collect()
}

impl Problem {
    /// A problem from its parts.
    pub fn new(name: impl Into<String>, train: Labelled, test: Option<Labelled>) -> Result<Self, SearchError> {
        if let Some(test) = &test
            && test.points.inputs() != train.points.inputs()
        {
            let (found, expected) = (test.points.inputs(), train.points.inputs());
            return Err(SearchError::TestInputs { found, expected });
        }
        Ok(Problem { name: name.into(), train, test })
    }

    /// A problem that needs no data. `digits` and `mnist` do: see [`Problem::few_of_each`].
    pub fn generate(name: ProblemName, seed: u64) -> Result<Self, SearchError> {
        let (train, test) = match name {
            ProblemName::Xor => (bits(2, |x| x.count_ones() % 2 == 1)?, None),
            ProblemName::Parity(n) => (bits(n, |x| x.count_ones() % 2 == 1)?, None),
            ProblemName::Multiplexer(n) => {
                let address = [(3, 1), (6, 2), (11, 3)].into_iter().find(|(total, _)| *total == n).map_or(1, |a| a.1);
                (bits(n, |x| x >> (address + (x & ((1 << address) - 1))) & 1 == 1)?, None)
            }
            ProblemName::Moons => {
                let rng = Rng::new(seed);
                (plane(100, &mut rng.fork(0), moon)?, Some(plane(1000, &mut rng.fork(1), moon)?))
            }
            ProblemName::Spirals => {
                let rng = Rng::new(seed);
                (plane(194, &mut rng.fork(0), spiral)?, Some(plane(1000, &mut rng.fork(1), spiral)?))
            }
            ProblemName::Digits(_) | ProblemName::Mnist(_) => {
                let why = "its images must be loaded first".to_string();
                return Err(SearchError::BadProblem { name: name.to_string(), why });
            }
        };
        Problem::new(name.to_string(), train, test)
    }

    /// Learns from `count` random instances of each class; tests on `test` or, without it, on all that are left.
    pub fn few_of_each(
        name: ProblemName,
        count: usize,
        seed: u64,
        all: &Labelled,
        test: Option<Labelled>,
    ) -> Result<Self, SearchError> {
        let mut order: Vec<usize> = (0..all.labels.len()).collect();
        Rng::new(seed).shuffle(&mut order);
        let mut drawn = vec![0; all.classes.len()];
        let (mut taken, mut left) = (vec![], vec![]);
        for instance in order {
            let class = all.labels[instance];
            let place = if drawn[class] < count { &mut taken } else { &mut left };
            place.push(instance);
            drawn[class] += usize::from(drawn[class] < count);
        }
        if let Some(class) = drawn.iter().position(|&have| have < count) {
            let why = format!("class '{}' has only {} instances", all.classes[class], drawn[class]);
            return Err(SearchError::BadProblem { name: name.to_string(), why });
        }
        taken.sort_unstable();
        left.sort_unstable();
        let part = |of: &[usize]| {
            let labels = of.iter().map(|&i| all.labels[i]).collect();
            Labelled::new(all.points.select(of), labels, all.classes.clone())
        };
        let test = match test {
            Some(test) => Some(test),
            None if left.is_empty() => None,
            None => Some(part(&left)?),
        };
        Problem::new(name.to_string(), part(&taken)?, test)
    }
}

/// All settings of n bits, as 0 and 1.
fn bits(n: usize, odd: impl Fn(usize) -> bool) -> Result<Labelled, SearchError> {
    let rows: Vec<Vec<f64>> = (0..1usize << n).map(|x| (0..n).map(|bit| (x >> bit & 1) as f64).collect()).collect();
    let labels = (0..1usize << n).map(|x| usize::from(odd(x))).collect();
    Labelled::new(Points::from_rows(&rows)?, labels, names(&["0", "1"]))
}

/// Points of two classes in turn.
fn plane(count: usize, rng: &mut Rng, shape: impl Fn(&mut Rng, usize) -> [f64; 2]) -> Result<Labelled, SearchError> {
    let labels: Vec<usize> = (0..count).map(|i| i % 2).collect();
    let rows: Vec<Vec<f64>> = labels.iter().map(|&class| shape(rng, class).into()).collect();
    Labelled::new(Points::from_rows(&rows)?, labels, names(&["0", "1"]))
}

fn moon(rng: &mut Rng, class: usize) -> [f64; 2] {
    let angle = PI * rng.uniform();
    let (x, y) = if class == 0 { (angle.cos(), angle.sin()) } else { (1.0 - angle.cos(), 0.5 - angle.sin()) };
    [x + 0.1 * rng.normal(), y + 0.1 * rng.normal()]
}

fn spiral(rng: &mut Rng, class: usize) -> [f64; 2] {
    let turn = rng.uniform().sqrt();
    let angle = 2.0 * PI * 1.5 * turn + PI * class as f64;
    let radius = 0.1 + turn;
    [radius * angle.cos() + 0.01 * rng.normal(), radius * angle.sin() + 0.01 * rng.normal()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_nonsense_is_explained() {
        for text in ["xor", "parity:4", "moons", "spirals", "multiplexer:6", "digits:5", "mnist:10"] {
            assert_eq!(text.parse::<ProblemName>().unwrap().to_string(), text);
        }
        for bad in ["", "iris", "parity", "parity:x", "parity:99", "parity:1", "multiplexer:5", "mnist:0", "xor:2"] {
            assert!(bad.parse::<ProblemName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_multiplexer_selects() {
        let problem = Problem::generate(ProblemName::Multiplexer(6), 0).unwrap();
        for (row, label) in problem.train.points.rows().zip(&problem.train.labels) {
            let address = row[0] as usize + 2 * row[1] as usize;
            assert_eq!(row[2 + address] as usize, *label);
        }
    }

    #[test]
    fn made_up_planes_depend_on_the_seed_and_test_on_other_points() {
        for name in [ProblemName::Moons, ProblemName::Spirals] {
            let one = Problem::generate(name, 1).unwrap();
            assert_eq!(one, Problem::generate(name, 1).unwrap());
            assert_ne!(one, Problem::generate(name, 2).unwrap());
            assert!(one.train.contradiction().is_none());
            assert_ne!(one.test.as_ref().unwrap().points.row(0), one.train.points.row(0));
        }
    }

    #[test]
    fn a_few_of_each_class_are_drawn() {
        let rows: Vec<Vec<f64>> = (0..30).map(|i| vec![i as f64]).collect();
        let labels = (0..30).map(|i| i % 3).collect();
        let all = Labelled::new(Points::from_rows(&rows).unwrap(), labels, names(&["a", "b", "c"])).unwrap();
        let problem = Problem::few_of_each(ProblemName::Digits(4), 4, 7, &all, None).unwrap();
        assert_eq!(problem.train.labels.len(), 12);
        assert_eq!(problem.test.as_ref().unwrap().labels.len(), 18);
        assert!((0..3).all(|class| problem.train.labels.iter().filter(|&&l| l == class).count() == 4));
        assert!(Problem::few_of_each(ProblemName::Digits(11), 11, 7, &all, None).is_err());
    }
}
