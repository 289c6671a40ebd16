//! A network of sign units in whole numbers, and what it says about one input.

use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use num_traits::{NumRef, One, RefNum, Signed, Zero};

use crate::error::SearchError;
use crate::network::ExactNetwork;

/// Whole numbers: of any size, or of 128 bits where they are known to suffice.
pub(super) trait Number: NumRef + Signed + Ord + Clone + From<i64> {}
impl Number for BigInt {}
impl Number for i128 {}

/// Units side by side: unit u has `weights[u * inputs..][..inputs]` and `biases[u]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layer<T> {
    pub(super) inputs: usize,
    pub(super) weights: Vec<T>,
    pub(super) biases: Vec<T>,
}

impl<T> Layer<T> {
    pub(super) fn units(&self) -> usize {
        self.biases.len()
    }

    pub(super) fn row(&self, unit: usize) -> &[T] {
        &self.weights[unit * self.inputs..][..self.inputs]
    }
}

/// Sign units in layers, the outputs last. The output with the largest value wins, the first of several equal ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layers<T>(pub(super) Vec<Layer<T>>);

impl<T> Layers<T> {
    /// The hidden layers and the outputs.
    pub(super) fn parts(&self) -> (&[Layer<T>], &Layer<T>) {
        let (outputs, hidden) = self.0.split_last().expect("a network has outputs");
        (hidden, outputs)
    }
}

impl Layers<BigInt> {
    /// The network with every hidden unit, and all outputs together, multiplied by what makes their weights whole: that
    /// changes no sign and no order. One output unit becomes two, of which the first is zero.
    pub(super) fn of(network: &ExactNetwork) -> Result<Self, SearchError> {
        let (outputs, hidden) = network.layers.split_last().ok_or_else(|| wrong("it has no layers"))?;
        let mut layers = Vec::with_capacity(network.layers.len());
        for layer in hidden {
            let scale = |unit: &Vec<_>| whole(std::slice::from_ref(unit)).pop().unwrap_or_default();
            layers.push(layer.iter().map(scale).collect());
        }
        let mut last = whole(outputs);
        if let [unit] = last.as_slice() {
            let zero = vec![BigInt::zero(); unit.len()];
            last.insert(0, zero);
        }
        layers.push(last);
        Layers::from_rows(layers)
    }

    /// From units, each with its bias last.
    pub(super) fn from_rows(layers: Vec<Vec<Vec<BigInt>>>) -> Result<Self, SearchError> {
        let mut inputs = None;
        let mut whole = Vec::with_capacity(layers.len());
        for units in layers {
            let expected = inputs.unwrap_or_else(|| units.first().map_or(0, |unit| unit.len().saturating_sub(1)));
            if units.is_empty() || expected == 0 || units.iter().any(|unit| unit.len() != expected + 1) {
                return Err(wrong("its layers do not fit one another"));
            }
            inputs = Some(units.len());
            let mut layer = Layer { inputs: expected, weights: vec![], biases: vec![] };
            for mut unit in units {
                layer.biases.extend(unit.pop());
                layer.weights.append(&mut unit);
            }
            whole.push(layer);
        }
        match whole.last() {
            Some(outputs) if outputs.units() > 1 => Ok(Layers(whole)),
            _ => Err(wrong("it does not tell two classes apart")),
        }
    }

    /// The same for inputs that are multiplied by this number.
    pub(super) fn for_inputs_times(mut self, scale: &BigUint) -> Self {
        let scale = BigInt::from(scale.clone());
        if let Some(first) = self.0.first_mut() {
            first.biases.iter_mut().for_each(|bias| *bias *= &scale);
        }
        self
    }

    /// The same in 128 bits, if its numbers and sums of them have room there.
    pub(super) fn small(&self, largest_input: &BigUint) -> Option<Layers<i128>> {
        let mut largest = largest_input.clone().max(BigUint::one());
        let mut layers = Vec::with_capacity(self.0.len());
        for layer in &self.0 {
            for unit in 0..layer.units() {
                let sum: BigUint = layer.row(unit).iter().map(BigInt::magnitude).sum();
                if (sum * &largest + layer.biases[unit].magnitude()).bits() > SMALL {
                    return None;
                }
            }
            let numbers = |all: &[BigInt]| all.iter().map(|n| i128::try_from(n).ok()).collect::<Option<Vec<_>>>();
            layers.push(Layer {
                inputs: layer.inputs,
                weights: numbers(&layer.weights)?,
                biases: numbers(&layer.biases)?,
            });
            largest = BigUint::one();
        }
        Some(Layers(layers))
    }
}

/// Bits of sums that are held small, which leaves room for what multiplies them.
const SMALL: u64 = 100;

impl<T: Number> Layers<T>
where
    for<'a> &'a T: RefNum<T>,
{
    /// The class of an input.
    pub(super) fn class(&self, input: &[T]) -> usize {
        let (hidden, outputs) = self.parts();
        let mut values: Vec<T> = input.to_vec();
        for layer in hidden {
            let sign = |z: T| if z.is_positive() { T::one() } else { -T::one() };
            values = sums(layer, &values).into_iter().map(sign).collect();
        }
        let scores = sums(outputs, &values);
        (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
    }
}

/// w · x + b of every unit.
fn sums<T: Number>(layer: &Layer<T>, values: &[T]) -> Vec<T>
where
    for<'a> &'a T: RefNum<T>,
{
    let sum = |unit: usize| {
        let products = layer.row(unit).iter().zip(values).map(|(w, x)| w * x);
        products.fold(layer.biases[unit].clone(), |sum, product| sum + product)
    };
    (0..layer.units()).map(sum).collect()
}

/// Fractions multiplied by the smallest number that makes all of them whole.
fn whole(units: &[Vec<crate::rational::Rational>]) -> Vec<Vec<BigInt>> {
    let numbers = || units.iter().flatten();
    let multiple = numbers().fold(BigUint::one(), |all, number| all.lcm(number.denominator()));
    let times =
        |number: &crate::rational::Rational| number.numerator() * BigInt::from(&multiple / number.denominator());
    let mut scaled: Vec<Vec<BigInt>> = units.iter().map(|unit| unit.iter().map(times).collect()).collect();
    let common = scaled.iter().flatten().fold(BigUint::zero(), |all, number| all.gcd(number.magnitude()));
    if !common.is_zero() && !common.is_one() {
        let common = BigInt::from(common);
        scaled.iter_mut().flatten().for_each(|number| *number /= &common);
    }
    scaled
}

fn wrong(why: &str) -> SearchError {
    SearchError::Robust { why: format!("this network cannot be decided about: {why}") }
}
