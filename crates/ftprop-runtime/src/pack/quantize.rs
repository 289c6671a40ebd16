//! Float weights to integers with a scale for each output channel.

use crate::model::{Codec, PIXEL_UNIT};

/// One output channel: weight ≈ scale · integer.
pub(super) struct Row {
    pub(super) integers: Vec<i32>,
    pub(super) scale: f64,
}

/// 8 bits: the largest weight becomes ±127.
pub(super) fn int8(weights: &[f32]) -> Row {
    row(weights, largest(weights) / 127.0, 127)
}

/// 4 bits: the scale with the least squared error among some that cut the largest weights off.
pub(super) fn int4(weights: &[f32]) -> Row {
    let full = largest(weights) / 7.0;
    let error = |row: &Row| -> f64 {
        row.integers.iter().zip(weights).map(|(&q, &w)| (q as f64 * row.scale - w as f64).powi(2)).sum()
    };
    let mut best = row(weights, full, 7);
    let mut least = error(&best);
    for cut in 1..=12 {
        let candidate = row(weights, full * (1.0 - cut as f64 / 20.0), 7);
        let new = error(&candidate);
        if new < least {
            (best, least) = (candidate, new);
        }
    }
    best
}

/// 16 bits for a layer on the image, or fewer where its sums of bytes would not fit 32 bits. `weights` apply to
/// normalised pixels; the integers apply to bytes, so the deviation of each channel goes into them.
pub(super) fn int16(weights: &[f32], std: &[f32]) -> Option<Row> {
    let on_bytes: Vec<f64> =
        weights.iter().zip(std.iter().cycle()).map(|(&w, &std)| w as f64 / (255.0 * std as f64)).collect();
    let most = on_bytes.iter().fold(0.0, |most: f64, w| most.max(w.abs()));
    let total: f64 = on_bytes.iter().map(|w| w.abs()).sum();
    let room = i32::MAX as f64 - 1.0 - 255.0 * on_bytes.len() as f64;
    if room <= 0.0 {
        return None;
    }
    let scale = (most / i16::MAX as f64).max(total * 255.0 / room);
    let scale = if scale > 0.0 { scale } else { 1.0 };
    let integers = on_bytes.iter().map(|w| (w / scale).round() as i32).collect();
    Some(Row { integers, scale: scale / PIXEL_UNIT as f64 })
}

fn largest(weights: &[f32]) -> f64 {
    weights.iter().fold(0.0, |most: f64, &w| most.max(w.abs() as f64))
}

fn row(weights: &[f32], scale: f64, most: i32) -> Row {
    let scale = if scale > 0.0 { scale } else { 1.0 };
    let integers = weights.iter().map(|&w| ((w as f64 / scale).round() as i32).clamp(-most, most)).collect();
    Row { integers, scale }
}

/// Rows as the bytes of a file.
pub(super) fn encode(rows: &[Row], codec: Codec) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Row { integers, .. } in rows {
        match codec {
            Codec::Int8 => bytes.extend(integers.iter().map(|&q| q as i8 as u8)),
            Codec::Int16 => bytes.extend(integers.iter().flat_map(|&q| (q as i16).to_le_bytes())),
            Codec::Int4 => bytes.extend(integers.chunks(2).map(|pair| {
                let high = pair.get(1).map_or(0, |&q| (q as u8 & 15) << 4);
                pair[0] as u8 & 15 | high
            })),
            Codec::F32 => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Weights;

    #[test]
    fn integers_come_back() {
        let weights: Vec<f32> = (-7..=7).map(|q| q as f32 * 0.25).collect();
        for (row, codec) in [(int8(&weights), Codec::Int8), (int4(&weights), Codec::Int4)] {
            let integers = row.integers.clone();
            let error = integers.iter().zip(&weights).map(|(&q, &w)| (q as f64 * row.scale - w as f64).abs());
            assert!(error.fold(0.0, f64::max) <= row.scale / 2.0);
            let stored = Weights { codec, bytes: encode(&[row], codec).into() };
            let extent = (integers.iter().copied().min().unwrap(), integers.iter().map(|q| i64::from(q.abs())).sum());
            assert_eq!(stored.extent(0, weights.len()), extent);
            assert!(stored.integers(0, weights.len()).eq(integers));
        }
    }

    #[test]
    fn weights_that_are_multiples_of_a_power_of_two_stay_as_they_are() {
        let weights = [127.0, -3.0, 0.0, 64.0].map(|q| q / 1024.0);
        let row = int8(&weights);
        assert_eq!((row.integers, row.scale), (vec![127, -3, 0, 64], 1.0 / 1024.0));
    }

    #[test]
    fn zeros_need_no_special_care() {
        assert_eq!(int8(&[0.0; 3]).integers, [0; 3]);
        assert_eq!(int4(&[0.0; 3]).integers, [0; 3]);
        assert_eq!(int16(&[0.0; 3], &[0.2, 0.3, 0.4]).map(|row| row.integers), Some(vec![0; 3]));
    }

    #[test]
    fn sums_of_bytes_fit_32_bits() {
        let weights = vec![1.0; 100_000];
        let row = int16(&weights, &[0.25]).map_or(Vec::new(), |row| row.integers);
        let sum: i64 = row.iter().map(|&q| q as i64 * 255).sum();
        assert!(sum < i32::MAX as i64 && sum > i32::MAX as i64 / 2, "{sum}");
    }
}
