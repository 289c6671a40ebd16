//! The residual block: a layer made of layers.

use super::{Chain, Layer, Pass, Slopes};
use ftprop_tensor::Buffer;
use ftprop_tensor::cpu::elementwise;

/// y = main(x) + shortcut(x)
pub(crate) struct Residual {
    main: Chain,
    shortcut: Chain,
    out_len: usize,
    in_len: usize,
    /// The slopes by y, while the main path uses the network's buffers.
    kept: Buffer,
    /// The main path's slopes by x, while the shortcut does.
    from_main: Buffer,
}

impl Residual {
    pub(crate) fn new(main: Chain, shortcut: Chain, in_len: usize, out_len: usize, batch: usize) -> Self {
        let from_main = Buffer::zeros(if shortcut.is_empty() { 0 } else { batch * in_len });
        Residual { main, shortcut, out_len, in_len, kept: Buffer::zeros(batch * out_len), from_main }
    }
}

impl Layer for Residual {
    fn out_len(&self) -> usize {
        self.out_len
    }

    fn forward(&mut self, pass: &mut Pass<'_>, x: &[f32], y: &mut [f32]) {
        y.copy_from_slice(self.main.forward(pass, x));
        let shortcut = self.shortcut.forward(pass, x);
        elementwise::update(pass.cpu, y, &shortcut[..y.len()], |a, b| a + b);
    }

    fn backward(&mut self, pass: &mut Pass<'_>, x: &[f32], slopes: &mut Slopes, needs_input: bool) {
        let (outputs, inputs) = (pass.n * self.out_len, pass.n * self.in_len);
        self.kept[..outputs].copy_from_slice(&slopes.current()[..outputs]);
        self.main.backward(pass, x, slopes, needs_input);
        if self.shortcut.is_empty() {
            if needs_input {
                elementwise::update(pass.cpu, &mut slopes.current()[..inputs], &self.kept[..inputs], |a, b| a + b);
            }
            return;
        }
        if needs_input {
            self.from_main[..inputs].copy_from_slice(&slopes.current()[..inputs]);
        }
        slopes.current()[..outputs].copy_from_slice(&self.kept[..outputs]);
        self.shortcut.backward(pass, x, slopes, needs_input);
        if needs_input {
            elementwise::update(pass.cpu, &mut slopes.current()[..inputs], &self.from_main[..inputs], |a, b| a + b);
        }
    }

    fn attend(&mut self, pass: &mut Pass<'_>, backward: bool) {
        self.main.attend(pass, backward);
        self.shortcut.attend(pass, backward);
    }

    fn learns(&self) -> bool {
        self.main.learns() || self.shortcut.learns()
    }

    fn inner(&self) -> Vec<&Chain> {
        vec![&self.main, &self.shortcut]
    }
}
