//! A network for examples of any shape, for whoever has data and no network yet.

use crate::spec::LayerSpec;
use LayerSpec as L;
use ftprop_tensor::Shape;

/// Pictures with a shorter edge below this are too small for windows.
const LEAST_SIDE: usize = 4;
/// The first convolution of pictures with a shorter edge of this and more takes every other pixel.
const LARGE: usize = 48;
/// Pictures are pooled until their shorter edge is at most this.
const POOLED_TO: usize = 8;
/// The share of the last layer's inputs that dropout leaves out.
const DROPOUT: f32 = 0.2;

/// Fully connected layers with norms for tables, convolutions with norms and pools for pictures. `widths` are units or
/// channels of the hidden layers; by default there are two layers, or four.
pub(super) fn layers(input: Shape, widths: &[usize]) -> Vec<LayerSpec> {
    let side = input.height.min(input.width);
    if side < LEAST_SIDE { connected(widths) } else { convolutions(input, widths) }
}

fn connected(widths: &[usize]) -> Vec<LayerSpec> {
    let widths = if widths.is_empty() { &[64, 64] } else { widths };
    let layer = |&width| [L::fc(Some(width)), L::batch_norm(1e-5), L::act()];
    widths.iter().flat_map(layer).chain([L::fc(None)]).collect()
}

fn convolutions(input: Shape, widths: &[usize]) -> Vec<LayerSpec> {
    let mut side = input.height.min(input.width);
    let widths = if widths.is_empty() { &[32, 64, 128, 256] } else { widths };
    let mut layers = Vec::new();
    for (number, &width) in widths.iter().enumerate() {
        let first = number == 0;
        if first && side >= LARGE {
            layers.push(L::conv(width, 5, 2, 2));
            side = side.div_ceil(2);
        } else {
            layers.push(L::conv(width, 3, 1, 1));
        }
        layers.push(L::batch_norm(1e-5));
        // The last layer sees the whole picture, and the first one's detail is worth keeping.
        if !first && number + 1 < widths.len() {
            let window = pool(side, widths.len() - 1 - number);
            if window > 1 {
                layers.push(L::max_pool(window, window, 0));
                side /= window;
            }
        }
        layers.push(L::act());
    }
    if input.height == input.width {
        layers.push(L::global_average());
    }
    layers.extend([L::Dropout { p: DROPOUT }, L::fc(None)]);
    layers
}

/// The window of a pool that is followed by so many others, itself counted, so that all of them together are enough.
fn pool(side: usize, left: usize) -> usize {
    let mut window = 1usize;
    while side / window.pow(left as u32) > POOLED_TO {
        window += 1;
    }
    window
}
