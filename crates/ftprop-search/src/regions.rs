//! What a plot of decision regions needs: a grid over the plane with the class and every hidden unit's side.

use crate::error::SearchError;
use crate::network::Network;
use crate::points::{Labelled, Points};

/// A grid over the instances' bounding box with a margin; rows from the bottom, cells from the left.
#[derive(Clone, Debug, PartialEq)]
pub struct Regions {
    /// Left and right end.
    pub x: (f64, f64),
    /// Lower and upper end.
    pub y: (f64, f64),
    /// Cells a row, and rows.
    pub side: usize,
    /// The class of each cell's middle.
    pub classes: Vec<usize>,
    /// For each hidden layer and each of its units, the side of each cell's middle.
    pub hidden: Vec<Vec<Vec<bool>>>,
}

impl Regions {
    /// The regions of a network of two inputs around some instances.
    pub fn new(network: &Network, data: &Labelled, side: usize) -> Result<Self, SearchError> {
        if data.points.inputs() != 2 || network.inputs() != 2 {
            return Err(SearchError::NotAPlane { inputs: data.points.inputs() });
        }
        let ends = |input: usize| {
            let values = data.points.rows().map(|row| row[input]);
            let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
            let room = if high > low { 0.1 * (high - low) } else { 1.0 };
            (low - room, high + room)
        };
        let (x, y) = (ends(0), ends(1));
        let middle = |ends: (f64, f64), at: usize| ends.0 + (ends.1 - ends.0) * (at as f64 + 0.5) / side as f64;
        let cells = (0..side * side).flat_map(|cell| [middle(x, cell % side), middle(y, cell / side)]);
        let grid = Points::new(2, cells.collect())?;
        Ok(Regions { x, y, side, classes: network.predict(&grid), hidden: network.hidden(&grid) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vertical_line_divides_left_from_right() {
        let points = Points::from_rows(&[vec![0.0, 0.0], vec![1.0, 1.0]]).unwrap();
        let data = Labelled::new(points, vec![0, 1], vec!["a".into(), "b".into()]).unwrap();
        let network = Network { layers: vec![vec![vec![1.0, 0.0, -0.5]], vec![vec![1.0, 0.0]]] };
        let regions = Regions::new(&network, &data, 4).unwrap();
        assert_eq!(regions.classes[..4], [0, 0, 1, 1]);
        assert_eq!(regions.hidden[0][0][4..8], [false, false, true, true]);
        assert_eq!(regions.x, (-0.1, 1.1));
        let wide = Points::from_rows(&[vec![0.0; 3], vec![1.0; 3]]).unwrap();
        let wide = Labelled::new(wide, vec![0, 1], vec!["a".into(), "b".into()]).unwrap();
        assert!(Regions::new(&network, &wide, 4).is_err());
    }
}
