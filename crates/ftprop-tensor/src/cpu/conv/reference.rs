//! The three passes as their definition reads, one number at a time: what the fast ones must equal.

use crate::geometry::ConvGeometry;

/// Calls `f(input index, weight index, output index)` for every product in the convolution.
fn each_product(g: &ConvGeometry, n: usize, mut f: impl FnMut(usize, usize, usize)) {
    let (ci, co) = (g.in_channels / g.groups, g.out_channels / g.groups);
    for image in 0..n {
        for oy in 0..g.out_height() {
            for ox in 0..g.out_width() {
                for o in 0..g.out_channels {
                    let out = ((image * g.out_height() + oy) * g.out_width() + ox) * g.out_channels + o;
                    for r in 0..g.kernel_h {
                        for s in 0..g.kernel_w {
                            let (y, x) = (oy * g.stride + r, ox * g.stride + s);
                            if y < g.pad || y >= g.height + g.pad || x < g.pad || x >= g.width + g.pad {
                                continue;
                            }
                            for c in 0..ci {
                                let pixel = (image * g.height + y - g.pad) * g.width + x - g.pad;
                                let input = pixel * g.in_channels + o / co * ci + c;
                                f(input, ((o * g.kernel_h + r) * g.kernel_w + s) * ci + c, out);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// y = x * w + bias.
pub fn forward(g: &ConvGeometry, n: usize, x: &[f32], w: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    g.expect_sound();
    let mut y: Vec<f64> =
        (0..n * g.out_len()).map(|i| bias.map_or(0.0, |b| f64::from(b[i % g.out_channels]))).collect();
    each_product(g, n, |i, k, o| y[o] += f64::from(x[i]) * f64::from(w[k]));
    y.into_iter().map(|v| v as f32).collect()
}

/// dx, given dy.
pub fn backward_input(g: &ConvGeometry, n: usize, dy: &[f32], w: &[f32]) -> Vec<f32> {
    g.expect_sound();
    let mut dx = vec![0.0; n * g.in_len()];
    each_product(g, n, |i, k, o| dx[i] += f64::from(dy[o]) * f64::from(w[k]));
    dx.into_iter().map(|v| v as f32).collect()
}

/// dw, given dy.
pub fn backward_weights(g: &ConvGeometry, n: usize, x: &[f32], dy: &[f32]) -> Vec<f32> {
    g.expect_sound();
    let mut dw = vec![0.0; g.weight_len()];
    each_product(g, n, |i, k, o| dw[k] += f64::from(x[i]) * f64::from(dy[o]));
    dw.into_iter().map(|v| v as f32).collect()
}
