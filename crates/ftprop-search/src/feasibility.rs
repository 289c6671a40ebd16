//! Feasible targets (Definition 2), and the network they give (Proposition 1).
//!
//! ```
//! use ftprop_search::{Points, feasibility};
//! let points = Points::from_rows(&[vec![0.0, 0.0], vec![0.0, 1.0], vec![1.0, 0.0], vec![1.0, 1.0]])?;
//! let (or, and) = (vec![false, true, true, true], vec![false, false, false, true]);
//! let xor = vec![false, true, true, false];
//! let report = feasibility(&points, &[vec![or, and], vec![xor]]);
//! let network = report.network().expect("XOR is feasible with OR and AND as targets");
//! assert_eq!(network.predict(&points), [0, 1, 1, 0]);
//! # Ok::<(), ftprop_search::SearchError>(())
//! ```

use std::fmt;

use crate::network::{LayerTargets, Network, as_points};
use crate::points::Points;
use crate::separability::{Verdict, separable};

/// Each unit's verdict with its certificate, by layer and unit.
#[derive(Clone, Debug)]
pub struct Feasibility {
    /// Whether the unit can learn its targets from the targets of the layer below.
    pub units: Vec<Vec<Verdict>>,
}

/// Decides for the targets of all layers, the output layer's last, whether each unit's dataset is separable,
/// where a layer's inputs are the targets of the layer below and the first layer's are the points.
pub fn feasibility(points: &Points, targets: &[LayerTargets]) -> Feasibility {
    let layer_verdicts = |(depth, layer): (usize, &LayerTargets)| {
        let below = depth.checked_sub(1).map(|below| as_points(&targets[below]));
        let inputs = below.as_ref().unwrap_or(points);
        layer.iter().map(|unit| separable(inputs, unit)).collect()
    };
    Feasibility { units: targets.iter().enumerate().map(layer_verdicts).collect() }
}

impl Feasibility {
    /// True if every unit is separable, false if some unit is not, none if that is unknown.
    pub fn feasible(&self) -> Option<bool> {
        let mut all = self.units.iter().flatten();
        if all.clone().any(|unit| matches!(unit, Verdict::NotSeparable(_))) {
            return Some(false);
        }
        all.all(|unit| matches!(unit, Verdict::Separable(_))).then_some(true)
    }

    /// Proposition 1: with feasible targets, each layer trained alone gives a network that classifies every
    /// instance.
    pub fn network(&self) -> Option<Network> {
        let weights = |unit: &Verdict| match unit {
            Verdict::Separable(separation) => Some(separation.weights.clone()),
            _ => None,
        };
        let layers = self.units.iter().map(|layer| layer.iter().map(weights).collect());
        Some(Network { layers: layers.collect::<Option<_>>()? })
    }
}

impl fmt::Display for Feasibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (layer, units) in self.units.iter().enumerate() {
            for (unit, verdict) in units.iter().enumerate() {
                let words = match verdict {
                    Verdict::Separable(found) => format!("separable, margin {:.6}", found.margin),
                    Verdict::NotSeparable(witness) => format!("not separable, witness of {} instances", witness.len()),
                    Verdict::Unknown { why } => format!("unknown: {why}"),
                };
                writeln!(f, "layer {} unit {}: {words}", layer + 1, unit + 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Proposition 1 on random problems: whenever random targets are feasible, the network that the layers give,
    /// trained alone, reproduces all of them.
    #[test]
    fn feasible_targets_give_a_network_that_classifies_everything() {
        let mut rng = Rng::new(21);
        let mut feasible = 0;
        for case in 0..400 {
            let (m, n) = (3 + case % 3, 2 + case % 2);
            let points = Points::new(n, (0..m * n).map(|_| rng.normal()).collect()).unwrap();
            let widths = [2 + case % 2, 2, 1];
            let mut draw =
                |width: usize| -> LayerTargets { (0..width).map(|_| (0..m).map(|_| rng.coin()).collect()).collect() };
            let targets: Vec<LayerTargets> = widths.map(&mut draw).into();
            let report = feasibility(&points, &targets);
            let Some(network) = report.network() else {
                assert_eq!(report.feasible(), Some(false));
                continue;
            };
            assert_eq!(report.feasible(), Some(true));
            feasible += 1;
            assert_eq!(network.hidden(&points), targets[..2], "case {case}");
            let wanted: Vec<usize> = targets[2][0].iter().map(|&t| usize::from(t)).collect();
            assert_eq!(network.predict(&points), wanted, "case {case}");
        }
        assert!(feasible > 20, "{feasible}");
    }

    #[test]
    fn each_unit_has_its_verdict() {
        let points = Points::from_rows(&[vec![0.0], vec![1.0], vec![2.0]]).unwrap();
        let middle = vec![false, true, false];
        let report = feasibility(&points, &[vec![vec![false, true, true], middle.clone()], vec![middle]]);
        assert_eq!(report.feasible(), Some(false));
        assert!(matches!(report.units[0][1], Verdict::NotSeparable(_)));
        assert!(matches!(report.units[1][0], Verdict::Separable(_)));
        assert!(report.to_string().contains("layer 1 unit 2: not separable, witness of 3 instances"));
    }
}
