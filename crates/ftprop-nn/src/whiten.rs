//! Filters that whiten: what the first layer makes of a patch has variance 1 in every direction, and no two outputs vary
//! together (but for those that are opposites).
//!
//! A hard unit answers one bit, so its input should say as much as a bit can; pixels next to each other say nearly the
//! same.

use crate::graph::{Graph, Op};
use crate::parameter::ParameterKind;
use crate::spec::Init;
use ftprop_tensor::geometry::ConvGeometry;
use std::ops::Range;

/// What is added to the variance of each direction, so that noise is not blown up.
const EPS: f64 = 5e-4;

/// Where the whitened filters of a graph's first layer lie, and their convolution; none where there are none.
pub fn whitened_layer(graph: &Graph) -> Option<(Range<usize>, ConvGeometry)> {
    let Op::Conv(_) = &graph.nodes().first()?.op else { return None };
    graph.parameters().iter().find_map(|p| match &p.kind {
        ParameterKind::Conv { geometry, init: Init::Whitened } => Some((p.range.clone(), *geometry)),
        _ => None,
    })
}

/// The filters for a convolution of these pictures, which are normalised, one after another: the directions in which
/// patches vary most, then their opposites.
pub fn whitened_filters(g: &ConvGeometry, images: &[f32]) -> Vec<f32> {
    let size = g.fan_in();
    let (values, vectors) = eigen(&second_moments(g, images), size);
    let mut order: Vec<usize> = (0..size).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let half = g.out_channels / 2;
    let mut filters = Vec::with_capacity(g.out_channels * size);
    for sign in [1.0, -1.0] {
        for &direction in &order[..half] {
            let scale = sign / (values[direction].max(0.0) + EPS).sqrt();
            filters.extend((0..size).map(|i| (scale * vectors[i * size + direction]) as f32));
        }
    }
    filters
}

/// The mean products of every two values of a patch, over all patches.
fn second_moments(g: &ConvGeometry, images: &[f32]) -> Vec<f64> {
    let (size, channels) = (g.fan_in(), g.in_channels);
    let image_len = g.height * g.width * channels;
    let mut sums = vec![0.0f64; size * size];
    let mut patch = vec![0.0f64; size];
    let mut count = 0u64;
    for image in images.chunks_exact(image_len) {
        for y in 0..=g.height - g.kernel_h {
            for x in 0..=g.width - g.kernel_w {
                for row in 0..g.kernel_h {
                    let start = ((y + row) * g.width + x) * channels;
                    let line = &image[start..start + g.kernel_w * channels];
                    let to = &mut patch[row * line.len()..(row + 1) * line.len()];
                    to.iter_mut().zip(line).for_each(|(to, v)| *to = f64::from(*v));
                }
                for (i, &a) in patch.iter().enumerate() {
                    let sums = &mut sums[i * size..(i + 1) * size];
                    sums.iter_mut().zip(&patch).for_each(|(sum, b)| *sum += a * b);
                }
                count += 1;
            }
        }
    }
    sums.iter_mut().for_each(|sum| *sum /= count.max(1) as f64);
    sums
}

/// Eigenvalues and eigenvectors, one a column, of a symmetric matrix: Jacobi's rotations.
fn eigen(matrix: &[f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let mut a = matrix.to_vec();
    let mut vectors = vec![0.0; size * size];
    (0..size).for_each(|i| vectors[i * size + i] = 1.0);
    for _ in 0..60 {
        let off = |a: &[f64]| {
            (0..size).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i * size + j].powi(2)).sum::<f64>()
        };
        let whole: f64 = a.iter().map(|v| v * v).sum();
        if off(&a) <= 1e-24 * whole {
            break;
        }
        for p in 0..size {
            for q in p + 1..size {
                rotate(&mut a, &mut vectors, size, p, q);
            }
        }
    }
    ((0..size).map(|i| a[i * size + i]).collect(), vectors)
}

/// Turns rows and columns p and q so that their product becomes zero.
fn rotate(a: &mut [f64], vectors: &mut [f64], size: usize, p: usize, q: usize) {
    let apq = a[p * size + q];
    if apq == 0.0 {
        return;
    }
    let theta = (a[q * size + q] - a[p * size + p]) / (2.0 * apq);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for k in 0..size {
        let (kp, kq) = (a[k * size + p], a[k * size + q]);
        (a[k * size + p], a[k * size + q]) = (c * kp - s * kq, s * kp + c * kq);
    }
    for k in 0..size {
        let (pk, qk) = (a[p * size + k], a[q * size + k]);
        (a[p * size + k], a[q * size + k]) = (c * pk - s * qk, s * pk + c * qk);
        let (kp, kq) = (vectors[k * size + p], vectors[k * size + q]);
        (vectors[k * size + p], vectors[k * size + q]) = (c * kp - s * kq, s * kp + c * kq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::random::Stream;

    #[test]
    fn what_comes_out_has_variance_one_and_varies_by_itself() {
        let g = ConvGeometry {
            height: 9,
            width: 7,
            in_channels: 3,
            out_channels: 24,
            kernel_h: 2,
            kernel_w: 2,
            stride: 1,
            pad: 0,
            groups: 1,
        };
        // Neighbours alike, as in a picture.
        let random = Stream::numbered(3);
        let images: Vec<f32> = (0..400 * 189)
            .map(|i: u64| {
                random.normal(i / 4) + 0.7 * random.normal(1 << 40 | (i / 2)) + 0.5 * random.normal(1 << 50 | i)
            })
            .collect();
        let filters = whitened_filters(&g, &images);
        assert_eq!(filters.len(), 24 * 12);
        let moments = second_moments(&g, &images);
        for i in 0..24 {
            for j in 0..24 {
                let (f, h) = (&filters[i * 12..][..12], &filters[j * 12..][..12]);
                let product: f64 = (0..144).map(|k| f64::from(f[k / 12]) * moments[k] * f64::from(h[k % 12])).sum();
                let expected = if i == j {
                    1.0
                } else if i % 12 == j % 12 {
                    -1.0
                } else {
                    0.0
                };
                assert!((product - expected).abs() < 0.02, "{i} {j}: {product}");
            }
        }
    }
}
