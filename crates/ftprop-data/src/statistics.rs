//! Mean and deviation of what is in memory.

use crate::preprocess::Normalize;
use crate::split::{Content, Split};

impl Split {
    /// Mean and deviation of each channel, a raw value of `full` counting as 1; where all values are the same the
    /// deviation is 1. `None` where the pictures are in files.
    ///
    /// ```
    /// use ftprop_data::{Shape, Split};
    /// let pictures = Split::from_pixels(Shape::new(1, 2, 1), vec![0, 255, 255, 0], vec![0, 1])?;
    /// let normalize = pictures.statistics(255.0).unwrap();
    /// assert_eq!((normalize.mean[0], normalize.std[0]), (0.5, 0.5));
    /// # Ok::<(), ftprop_data::DataError>(())
    /// ```
    pub fn statistics(&self, full: f32) -> Option<Normalize> {
        let channels = self.shape().channels;
        let moments = match self.content() {
            Content::Pixels { shape, bytes } => {
                let mut counts = vec![[0u64; 256]; channels];
                for position in 0..self.len() {
                    let picture = &bytes.get()[self.number(position) * shape.size()..][..shape.size()];
                    for pixel in picture.chunks_exact(channels) {
                        counts.iter_mut().zip(pixel).for_each(|(counts, &byte)| counts[usize::from(byte)] += 1);
                    }
                }
                counts.iter().map(of_counts).collect::<Vec<_>>()
            }
            Content::Floats { shape, values } => {
                let numbers = |position: usize| &values.get()[self.number(position) * shape.size()..][..shape.size()];
                (0..channels)
                    .map(|channel| {
                        let each = (0..self.len()).flat_map(|p| numbers(p)[channel..].iter().step_by(channels));
                        of_values(each.map(|&value| f64::from(value)))
                    })
                    .collect()
            }
            Content::Files { .. } | Content::Pictures(_) => return None,
        };
        let deviation = |&(_, variance): &(f64, f64)| if variance > 0.0 { variance.sqrt() as f32 / full } else { 1.0 };
        Some(Normalize {
            full,
            mean: moments.iter().map(|&(mean, _)| mean as f32 / full).collect(),
            std: moments.iter().map(deviation).collect(),
        })
    }
}

/// Mean and variance, the sums in the order of the values.
fn of_values(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let (sum, count) = values.clone().fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
    let mean = sum / count;
    (mean, values.map(|x| (x - mean).powi(2)).sum::<f64>() / count)
}

/// The same of bytes, by how often each occurs.
fn of_counts(counts: &[u64; 256]) -> (f64, f64) {
    let weighted = |f: &dyn Fn(f64) -> f64| {
        counts.iter().enumerate().map(|(byte, &count)| count as f64 * f(byte as f64)).sum::<f64>()
    };
    let count = weighted(&|_| 1.0);
    let mean = weighted(&|x| x) / count;
    (mean, weighted(&|x| (x - mean).powi(2)) / count)
}
