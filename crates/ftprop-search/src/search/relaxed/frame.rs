//! Coordinates for instances.

use super::dot;
use crate::network::Network;
use crate::points::Points;

/// Coordinates in which the instances are centred, have mean square length 1, and number no more than there are
/// instances and variants of them: what is orthogonal to all of them carries no information.
pub(super) struct Frame {
    centre: Vec<f64>,
    scale: f64,
    basis: Vec<Vec<f64>>,
    /// The same, divided by the scale.
    quick: Vec<Vec<f32>>,
    /// The instances.
    pub(super) rows: Vec<Vec<f32>>,
}

/// Directions for each instance, with those of its variants.
const MOST_DIRECTIONS: usize = 2;

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

impl Frame {
    pub(super) fn new(points: &Points, variants: &[Vec<f32>]) -> Self {
        let count = points.len() as f64;
        let mut centre = vec![0.0; points.inputs()];
        points.rows().for_each(|row| centre.iter_mut().zip(row).for_each(|(c, x)| *c += x / count));
        let centred = |row: &mut dyn Iterator<Item = f64>| row.zip(&centre).map(|(x, c)| x - c).collect::<Vec<f64>>();
        let originals: Vec<Vec<f64>> = points.rows().map(|row| centred(&mut row.iter().copied())).collect();
        let square: f64 = originals.iter().map(|row| product(row, row)).sum();
        let scale = (square / count).sqrt().max(f64::MIN_POSITIVE);
        let varied = variants.iter().map(|row| centred(&mut row.iter().map(|&x| f64::from(x))));
        let most = points.inputs().min(if variants.is_empty() { usize::MAX } else { MOST_DIRECTIONS * points.len() });
        let basis = basis(originals.iter().cloned().chain(varied), most, 1e-9 * scale);
        let quick = basis.iter().map(|b| b.iter().map(|x| (x / scale) as f32).collect()).collect();
        let place = |row: &Vec<f64>| basis.iter().map(|b| (product(b, row) / scale) as f32).collect();
        let rows = originals.iter().map(place).collect();
        Frame { centre, scale, basis, quick, rows }
    }

    /// The number of coordinates.
    pub(super) fn len(&self) -> usize {
        self.basis.len()
    }

    /// Where an input lies, as far as the frame can tell.
    pub(super) fn place(&self, input: &[f32]) -> Vec<f32> {
        let centred: Vec<f32> = input.iter().zip(&self.centre).map(|(x, c)| x - *c as f32).collect();
        self.quick.iter().map(|b| dot(b, &centred)).collect()
    }

    /// The same network for instances as they were given.
    pub(super) fn network(&self, layers: &[Vec<Vec<f64>>]) -> Network {
        let mut layers = layers.to_vec();
        for unit in &mut layers[0] {
            let bias = unit.pop().unwrap_or(0.0);
            let mut weights = vec![0.0; self.centre.len()];
            for (along, b) in unit.iter().zip(&self.basis) {
                weights.iter_mut().zip(b).for_each(|(w, b)| *w += along * b / self.scale);
            }
            weights.push(bias - product(&weights, &self.centre));
            *unit = weights;
        }
        Network { layers }
    }
}

/// Orthogonal directions of length 1 that span the rows, or the first of them up to so many.
fn basis(rows: impl Iterator<Item = Vec<f64>>, most: usize, short: f64) -> Vec<Vec<f64>> {
    let mut basis: Vec<Vec<f64>> = vec![];
    for mut rest in rows {
        if basis.len() == most {
            break;
        }
        // Twice, because once loses orthogonality to rounding.
        for _ in 0..2 {
            for known in &basis {
                let part = product(&rest, known);
                rest.iter_mut().zip(known).for_each(|(r, k)| *r -= part * k);
            }
        }
        let length = product(&rest, &rest).sqrt();
        if length > short {
            rest.iter_mut().for_each(|r| *r /= length);
            basis.push(rest);
        }
    }
    basis
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The frame is only another way to write the same instances and weights.
    #[test]
    fn the_frame_changes_no_output() {
        let mut rng = Rng::new(71);
        for (m, n) in [(5, 12), (20, 3), (7, 7)] {
            let points = Points::new(n, (0..m * n).map(|_| 3.0 + rng.normal()).collect()).unwrap();
            let variants: Vec<Vec<f32>> = (0..3).map(|_| (0..n).map(|_| 3.0 + rng.normal() as f32).collect()).collect();
            for variants in [&variants[..], &[]] {
                let frame = Frame::new(&points, variants);
                assert!(frame.len() <= n.min(m + variants.len()));
                let unit: Vec<f64> = (0..=frame.len()).map(|_| rng.normal()).collect();
                let network = frame.network(&[vec![unit.clone()], vec![vec![1.0, 0.0]]]);
                for (row, coordinates) in points.rows().zip(&frame.rows) {
                    let numbers: Vec<f32> = row.iter().map(|&x| x as f32).collect();
                    for coordinates in [coordinates, &frame.place(&numbers)] {
                        let along = unit.iter().zip(coordinates).map(|(w, &x)| w * f64::from(x));
                        let inside = along.sum::<f64>() + unit[coordinates.len()];
                        let outside = crate::sides::pre_activation(&network.layers[0][0], row);
                        assert!((inside - outside).abs() < 1e-4, "{inside} {outside}");
                    }
                }
            }
        }
    }
}
