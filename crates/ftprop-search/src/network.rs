//! A network of sign units, and what it does with instances.

use serde::{Deserialize, Serialize};

use crate::error::SearchError;
use crate::exact::{exact_argmax, exact_hinge, exact_outputs};
use crate::points::{Labelled, Points};
use crate::rational::Rational;
use crate::sides::{classes, pre_activation, unit_outputs};

/// The targets (or outputs) of one layer: for each unit, +1 (true) or −1 for each instance.
pub type LayerTargets = Vec<Vec<bool>>;

/// Fully connected layers of sign units: layer, unit, weight; the bias is a unit's last weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// The layers, the output layer last.
    pub layers: Vec<Vec<Vec<f64>>>,
}

/// The outputs of a layer as the inputs of the next one.
pub(crate) fn as_points(layer: &LayerTargets) -> Points {
    let instances = layer.first().map_or(0, Vec::len);
    let rows: Vec<Vec<bool>> = (0..instances).map(|i| layer.iter().map(|unit| unit[i]).collect()).collect();
    Points::from_signs(&rows)
}

impl Network {
    /// How many units each layer has, the inputs not counted.
    pub fn widths(&self) -> Vec<usize> {
        self.layers.iter().map(Vec::len).collect()
    }

    /// How many inputs the network takes.
    pub fn inputs(&self) -> usize {
        self.layers.first().and_then(|layer| layer.first()).map_or(0, |unit| unit.len().saturating_sub(1))
    }

    /// The outputs of every hidden layer.
    pub fn hidden(&self, points: &Points) -> Vec<LayerTargets> {
        let (_, hidden) = self.layers.split_last().expect("a network has layers");
        let mut outputs: Vec<LayerTargets> = Vec::with_capacity(hidden.len());
        for layer in hidden {
            let below = outputs.last().map(as_points);
            let inputs = below.as_ref().unwrap_or(points);
            outputs.push(layer.iter().map(|unit| unit_outputs(unit, inputs)).collect());
        }
        outputs
    }

    /// What the output layer sees.
    fn last_inputs(&self, points: &Points) -> Option<Points> {
        self.hidden(points).last().map(as_points)
    }

    /// The pre-activations of the output units, by instance.
    pub fn scores(&self, points: &Points) -> Vec<Vec<f64>> {
        let below = self.last_inputs(points);
        let units = self.layers.last().expect("a network has layers");
        let score = |row: &[f64]| units.iter().map(|unit| pre_activation(unit, row)).collect();
        below.as_ref().unwrap_or(points).rows().map(score).collect()
    }

    /// The class of each instance: with one output unit 0 or 1, else the unit with the largest pre-activation,
    /// the first of several equal ones. Without rounding, as are hidden outputs: floats are the numbers that they are.
    pub fn predict(&self, points: &Points) -> Vec<usize> {
        let below = self.last_inputs(points);
        classes(self.layers.last().expect("a network has layers"), below.as_ref().unwrap_or(points))
    }

    /// How many instances get the wrong class.
    pub fn errors(&self, data: &Labelled) -> usize {
        self.predict(&data.points).iter().zip(&data.labels).filter(|(found, wanted)| found != wanted).count()
    }

    /// The part of the instances that get the right class.
    pub fn accuracy(&self, data: &Labelled) -> f64 {
        1.0 - self.errors(data) as f64 / data.labels.len() as f64
    }

    /// The network with every weight rounded to f32, as a saved model holds it.
    pub(crate) fn rounded(&self) -> Self {
        let round = |unit: &Vec<f64>| unit.iter().map(|&w| f64::from(w as f32)).collect();
        Network { layers: self.layers.iter().map(|layer| layer.iter().map(round).collect()).collect() }
    }
}

/// A network whose weights are exact: what is proved is proved about this one.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactNetwork {
    /// The layers, the output layer last: layer, unit, weight; the bias is a unit's last weight.
    pub layers: Vec<Vec<Vec<Rational>>>,
}

fn refused(why: crate::exact::Refusal) -> SearchError {
    SearchError::Refused { why: why.to_string() }
}

impl ExactNetwork {
    /// Exactly the network that the floats say; none if one of them is not finite.
    pub fn of(network: &Network) -> Option<Self> {
        let layer = |layer: &Vec<Vec<f64>>| layer.iter().map(|unit| Rational::from_floats(unit)).collect();
        Some(ExactNetwork { layers: network.layers.iter().map(layer).collect::<Option<_>>()? })
    }

    /// The floats nearest to the weights.
    pub fn approximate(&self) -> Network {
        let unit = |unit: &Vec<Rational>| unit.iter().map(Rational::approximate).collect();
        Network { layers: self.layers.iter().map(|layer| layer.iter().map(unit).collect()).collect() }
    }

    /// The outputs of the hidden layers.
    pub(crate) fn hidden(&self, points: &Points) -> Result<Vec<LayerTargets>, SearchError> {
        let (_, hidden) = self.layers.split_last().ok_or(SearchError::Overflow)?;
        let mut outputs: Vec<LayerTargets> = Vec::with_capacity(hidden.len());
        for layer in hidden {
            let below = outputs.last().map(as_points);
            let inputs = below.as_ref().unwrap_or(points);
            let units = layer.iter().map(|unit| exact_outputs(inputs, unit));
            outputs.push(units.collect::<Result<_, _>>().map_err(refused)?);
        }
        Ok(outputs)
    }

    /// Outputs of the hidden layers and predicted classes.
    pub(crate) fn run(&self, points: &Points) -> Result<(Vec<LayerTargets>, Vec<usize>), SearchError> {
        let outputs = self.hidden(points)?;
        let below = outputs.last().map(as_points);
        let inputs = below.as_ref().unwrap_or(points);
        let last = self.layers.last().ok_or(SearchError::Overflow)?;
        let classes = if let [unit] = last.as_slice() {
            exact_outputs(inputs, unit).map_err(refused)?.into_iter().map(usize::from).collect()
        } else {
            exact_argmax(inputs, last).map_err(refused)?
        };
        Ok((outputs, classes))
    }

    /// The class of each instance, exactly.
    pub fn predict(&self, points: &Points) -> Result<Vec<usize>, SearchError> {
        Ok(self.run(points)?.1)
    }

    /// How many instances get the wrong class, exactly.
    pub fn errors(&self, data: &Labelled) -> Result<usize, SearchError> {
        let classes = self.predict(&data.points)?;
        Ok(classes.iter().zip(&data.labels).filter(|(found, wanted)| found != wanted).count())
    }

    /// The hinge loss of the output units, exactly.
    pub(crate) fn hinge(&self, data: &Labelled) -> Result<Rational, SearchError> {
        let outputs = self.hidden(&data.points)?;
        let below = outputs.last().map(as_points);
        let inputs = below.as_ref().unwrap_or(&data.points);
        let units = self.layers.last().ok_or(SearchError::Overflow)?;
        let losses = units.iter().enumerate().map(|(output, unit)| exact_hinge(inputs, &data.targets(output), unit));
        losses
            .map(|loss| loss.map_err(refused))
            .reduce(|all, one| Ok(all? + one?))
            .unwrap_or(Err(SearchError::Overflow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_on_the_low_side_and_the_first_maximum_wins() {
        let points = Points::from_rows(&[vec![0.0], vec![1.0]]).unwrap();
        let network = Network { layers: vec![vec![vec![1.0, 0.0]], vec![vec![1.0, 0.0]]] };
        assert_eq!(network.hidden(&points), [[[false, true]]]);
        assert_eq!(network.predict(&points), [0, 1]);
        let (hidden, classes) = ExactNetwork::of(&network).unwrap().run(&points).unwrap();
        assert_eq!((hidden, classes), (network.hidden(&points), network.predict(&points)));
        assert_eq!((network.inputs(), network.widths()), (1, vec![1, 1]));
    }
}
