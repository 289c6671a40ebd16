//! TrivialAugment (Müller and Hutter 2021, its wide space): one operation of fourteen, of one strength of 31, a picture.
//!
//! It is the last thing that is done to a window, on its bytes, after crops and flips. Of an example's numbers (see
//! `augment`), `own.below(100, 14)` chooses the operation, `own.below(101, 31)` its strength from none to most, and
//! `own.u64(102) >> 63` its direction where it has two.

use crate::{Normalize, Shape};
use ftprop_tensor::random::Stream;

/// Strengths of an operation, from none to most.
const STRENGTHS: u64 = 31;

/// What is done to a picture.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Identity,
    /// Columns move by so many for each row further from the middle.
    ShearX(f32),
    ShearY(f32),
    /// By so many pixels, to the right or down.
    TranslateX(f32),
    TranslateY(f32),
    /// By so many degrees.
    Rotate(f32),
    /// 1 leaves it as it is, 0 is black.
    Brightness(f32),
    /// 0 is grey.
    Colour(f32),
    /// 0 is the mean grey.
    Contrast(f32),
    /// 0 is smoothed.
    Sharpness(f32),
    /// So many bits of each value stay.
    Posterize(u32),
    /// Values from there on are turned round.
    Solarize(f32),
    /// Each colour's least and largest value become 0 and 255.
    Autocontrast,
    /// Each colour's values become about equally frequent.
    Equalize,
}

impl Operation {
    fn draw(own: Stream, window: Shape) -> Self {
        let strength = own.below(101, STRENGTHS) as f32 / (STRENGTHS - 1) as f32;
        let sign = if own.u64(102) >> 63 == 1 { -1.0 } else { 1.0 };
        let by = |most: f32| sign * strength * most;
        let pixels = |side: usize| by((side as f32).min(32.0)).trunc();
        match own.below(100, 14) {
            0 => Operation::Identity,
            1 => Operation::ShearX(by(0.99)),
            2 => Operation::ShearY(by(0.99)),
            3 => Operation::TranslateX(pixels(window.width)),
            4 => Operation::TranslateY(pixels(window.height)),
            5 => Operation::Rotate(by(135.0)),
            6 => Operation::Brightness(1.0 + by(0.99)),
            7 => Operation::Colour(1.0 + by(0.99)),
            8 => Operation::Contrast(1.0 + by(0.99)),
            9 => Operation::Sharpness(1.0 + by(0.99)),
            10 => Operation::Posterize(8 - (strength * 6.0).round() as u32),
            11 => Operation::Solarize(255.0 * (1.0 - strength)),
            12 => Operation::Autocontrast,
            _ => Operation::Equalize,
        }
    }
}

/// Bytes of a window and of what becomes of it, used again and again.
#[derive(Default)]
pub(crate) struct Canvas {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Canvas {
    /// Does to a normalised window what the example's numbers say.
    pub(crate) fn augment(&mut self, own: Stream, window: Shape, normalize: &Normalize, values: &mut [f32]) {
        let operation = Operation::draw(own, window);
        if operation == Operation::Identity {
            return;
        }
        let channel = |i: usize| i % window.channels;
        let byte = |(i, v): (usize, &f32)| {
            let share = v * normalize.std[channel(i)] + normalize.mean[channel(i)];
            (255.0 * share).round().clamp(0.0, 255.0) as u8
        };
        self.before.clear();
        self.before.extend(values.iter().enumerate().map(byte));
        self.after.clone_from(&self.before);
        apply(operation, window, &self.before, &mut self.after);
        for (i, (value, &byte)) in values.iter_mut().zip(&self.after).enumerate() {
            *value = (f32::from(byte) / 255.0 - normalize.mean[channel(i)]) / normalize.std[channel(i)];
        }
    }
}

fn apply(operation: Operation, window: Shape, before: &[u8], after: &mut [u8]) {
    let channels = window.channels;
    let [middle_x, middle_y] = [window.width, window.height].map(|side| (side as f32 - 1.0) / 2.0);
    match operation {
        Operation::Identity => {}
        Operation::ShearX(s) => moved(window, before, after, |x, y| (x + s * (y - middle_y), y)),
        Operation::ShearY(s) => moved(window, before, after, |x, y| (x, y + s * (x - middle_x))),
        Operation::TranslateX(by) => moved(window, before, after, |x, y| (x - by, y)),
        Operation::TranslateY(by) => moved(window, before, after, |x, y| (x, y - by)),
        Operation::Rotate(degrees) => {
            let (sin, cos) = degrees.to_radians().sin_cos();
            moved(window, before, after, |x, y| {
                let (x, y) = (x - middle_x, y - middle_y);
                (cos * x + sin * y + middle_x, cos * y - sin * x + middle_y)
            });
        }
        Operation::Brightness(factor) => after.iter_mut().for_each(|v| *v = blend(0.0, *v, factor)),
        Operation::Colour(factor) => {
            for pixel in after.chunks_exact_mut(channels) {
                let grey = grey(pixel);
                pixel.iter_mut().for_each(|v| *v = blend(grey, *v, factor));
            }
        }
        Operation::Contrast(factor) => {
            let count = before.len() / channels;
            let sum: f64 = before.chunks_exact(channels).map(|pixel| f64::from(grey(pixel).round())).sum();
            let mean = (sum / count as f64).round() as f32;
            after.iter_mut().for_each(|v| *v = blend(mean, *v, factor));
        }
        Operation::Sharpness(factor) => sharpen(window, before, after, factor),
        Operation::Posterize(bits) => after.iter_mut().for_each(|v| *v &= 0xffu8 << (8 - bits.clamp(1, 8))),
        Operation::Solarize(from) => {
            after.iter_mut().filter(|v| f32::from(**v) >= from).for_each(|v| *v = 255 - *v);
        }
        Operation::Autocontrast => by_colour(channels, after, |counts| {
            let least = counts.iter().position(|&n| n > 0).unwrap_or(0);
            let most = counts.iter().rposition(|&n| n > 0).unwrap_or(0);
            let span = (most - least) as f32;
            std::array::from_fn(|v| match most > least {
                true => (255.0 * (v as f32 - least as f32) / span).round().clamp(0.0, 255.0) as u8,
                false => v as u8,
            })
        }),
        Operation::Equalize => by_colour(channels, after, |counts| {
            let last = counts.iter().rposition(|&n| n > 0).map_or(0, |at| counts[at]);
            let step = (counts.iter().sum::<usize>() - last) / 255;
            let mut sum = step / 2;
            std::array::from_fn(|v| {
                let equal = sum.checked_div(step).map_or(v, |value| value.min(255));
                sum += counts[v];
                equal as u8
            })
        }),
    }
}

/// Takes each pixel from where it comes from, the nearest one; black from outside.
fn moved(window: Shape, before: &[u8], after: &mut [u8], from: impl Fn(f32, f32) -> (f32, f32)) {
    let Shape { height, width, channels } = window;
    for (at, pixel) in after.chunks_exact_mut(channels).enumerate() {
        let (x, y) = from((at % width) as f32, (at / width) as f32);
        let (x, y) = (x.round(), y.round());
        let inside = x >= 0.0 && y >= 0.0 && x < width as f32 && y < height as f32;
        match inside {
            true => {
                let place = (y as usize * width + x as usize) * channels;
                pixel.copy_from_slice(&before[place..place + channels]);
            }
            false => pixel.fill(0),
        }
    }
}

/// A share of a value and the rest of another; more than a whole goes beyond it.
fn blend(other: f32, value: u8, factor: f32) -> u8 {
    (other + factor * (f32::from(value) - other)).round().clamp(0.0, 255.0) as u8
}

fn grey(pixel: &[u8]) -> f32 {
    match pixel {
        [red, green, blue] => 0.299 * f32::from(*red) + 0.587 * f32::from(*green) + 0.114 * f32::from(*blue),
        _ => f32::from(pixel[0]),
    }
}

/// Away from, or towards, the picture smoothed by 1 1 1, 1 5 1, 1 1 1 over 13; its edge stays.
fn sharpen(window: Shape, before: &[u8], after: &mut [u8], factor: f32) {
    let Shape { height, width, channels } = window;
    for y in 1..height.saturating_sub(1) {
        for at in (y * width + 1) * channels..((y + 1) * width).saturating_sub(1) * channels {
            let row = |start: usize| {
                f32::from(before[start - channels]) + f32::from(before[start]) + f32::from(before[start + channels])
            };
            let around = row(at - width * channels) + row(at) + row(at + width * channels);
            let smooth = ((around + 4.0 * f32::from(before[at])) / 13.0).round();
            after[at] = blend(smooth, before[at], factor);
        }
    }
}

/// Changes the values of each colour by a table that follows from how often they occur.
fn by_colour(channels: usize, values: &mut [u8], table: impl Fn(&[usize; 256]) -> [u8; 256]) {
    for channel in 0..channels {
        let mut counts = [0; 256];
        values.iter().skip(channel).step_by(channels).for_each(|&v| counts[usize::from(v)] += 1);
        let table = table(&counts);
        values.iter_mut().skip(channel).step_by(channels).for_each(|v| *v = table[usize::from(*v)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Shape = Shape { height: 4, width: 5, channels: 3 };

    fn bytes() -> Vec<u8> {
        (0..WINDOW.size()).map(|i| Stream::numbered(4).below(i as u64, 256) as u8).collect()
    }

    fn after(operation: Operation) -> Vec<u8> {
        let before = bytes();
        let mut after = before.clone();
        apply(operation, WINDOW, &before, &mut after);
        after
    }

    #[test]
    fn no_strength_changes_nothing() {
        for operation in [
            Operation::ShearX(0.0),
            Operation::ShearY(0.0),
            Operation::TranslateX(0.0),
            Operation::TranslateY(0.0),
            Operation::Rotate(0.0),
            Operation::Brightness(1.0),
            Operation::Colour(1.0),
            Operation::Contrast(1.0),
            Operation::Sharpness(1.0),
            Operation::Posterize(8),
            Operation::Solarize(256.0),
        ] {
            assert_eq!(after(operation), bytes(), "{operation:?}");
        }
    }

    #[test]
    fn operations_are_as_defined() {
        let before = bytes();
        let pixel = |values: &[u8], x: usize, y: usize| values[(y * 5 + x) * 3..(y * 5 + x) * 3 + 3].to_vec();
        let right = after(Operation::TranslateX(2.0));
        assert_eq!((pixel(&right, 3, 1), pixel(&right, 1, 1)), (pixel(&before, 1, 1), vec![0; 3]));
        let up = after(Operation::TranslateY(-1.0));
        assert_eq!((pixel(&up, 2, 0), pixel(&up, 2, 3)), (pixel(&before, 2, 1), vec![0; 3]));
        let turned = after(Operation::Rotate(180.0));
        assert_eq!((pixel(&turned, 0, 0), pixel(&turned, 4, 3)), (pixel(&before, 4, 3), pixel(&before, 0, 0)));
        assert_eq!(after(Operation::Brightness(0.0)), vec![0; before.len()]);
        assert!(after(Operation::Colour(0.0)).chunks(3).all(|p| p[0] == p[1] && p[1] == p[2]));
        let flat = after(Operation::Contrast(0.0));
        assert!(flat.iter().all(|v| v == &flat[0]));
        assert!(after(Operation::Posterize(2)).iter().all(|v| v & 0x3f == 0));
        assert!(after(Operation::Solarize(128.0)).iter().all(|&v| v < 128));
        let stretched = after(Operation::Autocontrast);
        for channel in 0..3 {
            let all = || stretched.iter().skip(channel).step_by(3);
            assert_eq!((all().min(), all().max()), (Some(&0), Some(&255)));
        }
        // The edge stays; a picture of one value is smooth already.
        let sharp = after(Operation::Sharpness(2.0));
        assert_eq!(pixel(&sharp, 0, 2), pixel(&before, 0, 2));
        assert_ne!(pixel(&sharp, 2, 2), pixel(&before, 2, 2));
    }

    #[test]
    fn equal_values_stay_and_many_values_become_equally_frequent() {
        let shape = Shape::new(32, 32, 1);
        let before: Vec<u8> = (0..1024).map(|i| (i / 16) as u8).collect();
        let mut after = before.clone();
        apply(Operation::Equalize, shape, &before, &mut after);
        assert!(after.windows(2).all(|w| w[0] <= w[1]) && after[0] < 8 && after[1023] > 247, "{after:?}");
        let flat = vec![77; 1024];
        let mut after = flat.clone();
        for operation in [Operation::Equalize, Operation::Autocontrast] {
            apply(operation, shape, &flat, &mut after);
            assert_eq!(after, flat, "{operation:?}");
        }
    }

    #[test]
    fn every_operation_is_drawn_and_any_window_survives_it() {
        let mut kinds = std::collections::HashSet::new();
        for (number, shape) in [(1, 1, 1), (1, 7, 3), (3, 2, 1), (32, 32, 3)].into_iter().enumerate() {
            let shape = Shape::new(shape.0, shape.1, shape.2);
            let normalize = Normalize::pixels(&vec![0.5; shape.channels], &vec![0.25; shape.channels]);
            let mut canvas = Canvas::default();
            for example in 0..400 {
                let own = Stream::numbered(number as u64).fork(example);
                kinds.insert(std::mem::discriminant(&Operation::draw(own, shape)));
                let values: Vec<f32> = (0..shape.size()).map(|i| 4.0 * own.uniform(1000 + i as u64) - 2.0).collect();
                let (mut one, mut two) = (values.clone(), values);
                canvas.augment(own, shape, &normalize, &mut one);
                Canvas::default().augment(own, shape, &normalize, &mut two);
                assert_eq!(one, two);
                assert!(one.iter().all(|v| v.abs() < 2.01), "{shape:?}");
            }
        }
        assert_eq!(kinds.len(), 14);
    }
}
