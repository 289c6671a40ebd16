//! Instances that are pictures, and how else they might have been drawn.

use super::frame::Frame;
use crate::points::Labelled;
use crate::rng::Rng;

/// Each instance as it is and in variants: turned, stretched, slanted and moved.
pub(super) struct Pictures {
    /// The variants of the first instance, then those of the second, and so on; each begins with the instance itself.
    rows: Vec<Vec<f32>>,
}

/// Variants of an instance, with itself.
const VARIANTS: usize = 20;
/// More numbers than this are not kept.
const MOST_NUMBERS: usize = 1 << 24;

/// The most that a picture is turned, in degrees.
const TURN: f64 = 15.0;
/// The most that each side is stretched or shrunk, as a logarithm.
const STRETCH: f64 = 0.15;
/// The most that a picture is slanted, in columns a row.
const SLANT: f64 = 0.2;
/// The most that a picture is moved, as a part of its side.
const MOVE: f64 = 1.5 / 28.0;

impl Pictures {
    /// None if they are not of this size, or too many to be kept.
    pub(super) fn new(data: &Labelled, size: [usize; 2], rng: &mut Rng) -> Option<Self> {
        let inputs = data.points.inputs();
        if size[0] * size[1] != inputs || VARIANTS * data.labels.len() * inputs > MOST_NUMBERS {
            return None;
        }
        let mut rows = vec![];
        for row in data.points.rows() {
            rows.push(row.iter().map(|&x| x as f32).collect());
            (1..VARIANTS).for_each(|_| rows.push(Warp::draw(size, rng).of(row, size)));
        }
        Some(Pictures { rows })
    }

    /// All of them.
    pub(super) fn varied(&self) -> &[Vec<f32>] {
        &self.rows
    }

    /// The same in the frame's coordinates.
    pub(super) fn placed(self, frame: &Frame) -> Self {
        Pictures { rows: self.rows.iter().map(|row| frame.place(row)).collect() }
    }

    /// A variant of the instance.
    pub(super) fn draw(&self, instance: usize, rng: &mut Rng) -> &Vec<f32> {
        &self.rows[instance * VARIANTS + rng.below(VARIANTS)]
    }
}

/// Where the pixels of a varied picture come from: a place around the middle is multiplied by the matrix and moved.
struct Warp {
    matrix: [[f64; 2]; 2],
    moved: [f64; 2],
}

impl Warp {
    fn draw([height, width]: [usize; 2], rng: &mut Rng) -> Self {
        let mut within = |most: f64| most * (2.0 * rng.uniform() - 1.0);
        let (sin, cos) = within(TURN).to_radians().sin_cos();
        let (down, right) = (within(STRETCH).exp(), within(STRETCH).exp());
        let slant = within(SLANT);
        let matrix = [[cos * down, sin * right], [slant - sin * down, cos * right]];
        Warp { matrix, moved: [within(MOVE * height as f64), within(MOVE * width as f64)] }
    }

    /// The picture, each pixel from between four; beyond the edges it is black.
    fn of(&self, row: &[f64], [height, width]: [usize; 2]) -> Vec<f32> {
        let middle = [(height as f64 - 1.0) / 2.0, (width as f64 - 1.0) / 2.0];
        let pixel = |y: f64, x: f64| {
            let inside = y >= 0.0 && x >= 0.0 && y < height as f64 && x < width as f64;
            if inside { row[y as usize * width + x as usize] } else { 0.0 }
        };
        let from = |at: usize| {
            let place = [(at / width) as f64 - middle[0], (at % width) as f64 - middle[1]];
            let along = |axis: usize| {
                let [a, b] = self.matrix[axis];
                a * place[0] + b * place[1] + middle[axis] + self.moved[axis]
            };
            let (y, x) = (along(0), along(1));
            let (top, left) = (y.floor(), x.floor());
            let (down, right) = (y - top, x - left);
            let above = (1.0 - right) * pixel(top, left) + right * pixel(top, left + 1.0);
            let below = (1.0 - right) * pixel(top + 1.0, left) + right * pixel(top + 1.0, left + 1.0);
            ((1.0 - down) * above + down * below) as f32
        };
        (0..row.len()).map(from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::Points;

    #[test]
    fn warps_move_and_turn() {
        let row: Vec<f64> = (0..9).map(f64::from).collect();
        let warp = |matrix, moved| Warp { matrix, moved }.of(&row, [3, 3]);
        let same = [[1.0, 0.0], [0.0, 1.0]];
        let plain: Vec<f32> = (0..9).map(|x| x as f32).collect();
        assert_eq!(warp(same, [0.0, 0.0]), plain);
        assert_eq!(warp(same, [0.0, 1.0]), [1.0, 2.0, 0.0, 4.0, 5.0, 0.0, 7.0, 8.0, 0.0], "from the right");
        assert_eq!(warp(same, [-0.5, 0.0])[3..6], [1.5, 2.5, 3.5], "half a row");
        assert_eq!(warp([[0.0, 1.0], [-1.0, 0.0]], [0.0, 0.0]), [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0]);
    }

    #[test]
    fn variants_are_those_of_the_instance() {
        let dark = vec![0.0; 9];
        let light: Vec<f64> = (0..9).map(|at| if at == 4 { 1.0 } else { 0.0 }).collect();
        let points = Points::from_rows(&[dark, light]).unwrap();
        let data = Labelled::new(points, vec![0, 1], vec!["a".into(), "b".into()]).unwrap();
        let mut rng = Rng::new(4);
        assert!(Pictures::new(&data, [4, 2], &mut rng).is_none());
        let pictures = Pictures::new(&data, [3, 3], &mut rng).unwrap();
        assert_eq!(pictures.varied()[VARIANTS][4], 1.0, "the first variant is the instance");
        for _ in 0..50 {
            assert!(pictures.draw(0, &mut rng).iter().all(|&x| x == 0.0));
            assert!(pictures.draw(1, &mut rng)[4] > 0.5);
        }
    }
}
