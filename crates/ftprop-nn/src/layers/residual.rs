//! The residual block: a layer made of layers.

use super::above::Beside;
use super::{Above, Chain, Layer, Pass, Slopes};
use ftprop_tensor::cpu::elementwise;
use ftprop_tensor::{Buffer, Cpu};

/// y = main(x) + shortcut(x)
pub(crate) struct Residual {
    main: Chain,
    shortcut: Chain,
    out_len: usize,
    in_len: usize,
    batch: usize,
    slopes: Fork,
    /// For the curvature; taken when there is one.
    curvature: Option<Fork>,
}

/// What is kept of slopes while they go back through one path, and then through the other.
struct Fork {
    /// Those by y, while the main path uses the network's buffers.
    kept: Buffer,
    /// The main path's by x, while the shortcut does.
    from_main: Buffer,
}

impl Residual {
    pub(crate) fn new(main: Chain, shortcut: Chain, in_len: usize, out_len: usize, batch: usize) -> Self {
        let slopes = Fork::new(&shortcut, in_len, out_len, batch);
        Residual { main, shortcut, out_len, in_len, batch, slopes, curvature: None }
    }

    fn back(
        &mut self,
        pass: &mut Pass<'_>,
        x: &[f32],
        slopes: &mut Slopes,
        needs_input: bool,
        mut above: Option<&mut dyn Above>,
    ) {
        let (inputs, outputs) = (pass.n * self.in_len, pass.n * self.out_len);
        let straight = self.shortcut.is_empty();
        let main_output =
            (above.is_some() && !straight).then(|| self.main.output(pass.n).unwrap_or(x)[..outputs].to_vec());
        self.slopes.keep(slopes, outputs);
        if let Some(curvature) = &mut slopes.curvature {
            let fork = || Fork::new(&self.shortcut, self.in_len, self.out_len, self.batch);
            self.curvature.get_or_insert_with(fork).keep(curvature, outputs);
        }
        let other = self.shortcut.output(pass.n).unwrap_or(x);
        let mut beside = above.as_mut().map(|next| Beside { other, next: &mut **next });
        self.main.backward(pass, x, slopes, needs_input, beside.as_mut().map(|b| b as &mut dyn Above));
        if !straight {
            self.slopes.turn(slopes, needs_input.then_some(inputs), outputs);
            if let (Some(fork), Some(curvature)) = (&mut self.curvature, &mut slopes.curvature) {
                fork.turn(curvature, needs_input.then_some(inputs), outputs);
            }
            let other = main_output.as_deref().unwrap_or(&[]);
            let mut beside = above.as_mut().map(|next| Beside { other, next: &mut **next });
            self.shortcut.backward(pass, x, slopes, needs_input, beside.as_mut().map(|b| b as &mut dyn Above));
        }
        if needs_input {
            self.slopes.join(pass.cpu, slopes, inputs, straight);
            if let (Some(fork), Some(curvature)) = (&self.curvature, &mut slopes.curvature) {
                fork.join(pass.cpu, curvature, inputs, straight);
            }
        }
    }
}

impl Fork {
    fn new(shortcut: &Chain, in_len: usize, out_len: usize, batch: usize) -> Self {
        let from_main = Buffer::zeros(if shortcut.is_empty() { 0 } else { batch * in_len });
        Fork { kept: Buffer::zeros(batch * out_len), from_main }
    }

    fn keep(&mut self, slopes: &mut Slopes, outputs: usize) {
        self.kept[..outputs].copy_from_slice(&slopes.current()[..outputs]);
    }

    /// From the main path's end to the shortcut's beginning.
    fn turn(&mut self, slopes: &mut Slopes, inputs: Option<usize>, outputs: usize) {
        if let Some(inputs) = inputs {
            self.from_main[..inputs].copy_from_slice(&slopes.current()[..inputs]);
        }
        slopes.current()[..outputs].copy_from_slice(&self.kept[..outputs]);
    }

    /// Adds what is missing: of a straight shortcut what came from above.
    fn join(&self, cpu: &Cpu, slopes: &mut Slopes, inputs: usize, straight: bool) {
        let missing = if straight { &self.kept } else { &self.from_main };
        elementwise::update(cpu, &mut slopes.current()[..inputs], &missing[..inputs], |a, b| a + b);
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
        self.back(pass, x, slopes, needs_input, None);
    }

    fn attend(&mut self, pass: &mut Pass<'_>, backward: bool) {
        self.main.attend(pass, backward);
        self.shortcut.attend(pass, backward);
    }

    fn backward_below(
        &mut self,
        pass: &mut Pass<'_>,
        x: &[f32],
        slopes: &mut Slopes,
        needs_input: bool,
        above: &mut dyn Above,
    ) {
        self.back(pass, x, slopes, needs_input, Some(above));
    }

    /// Done on the way back, path by path; what the two have in common is left aside, as all but the diagonal is.
    fn carry_curvature(&mut self, _: &mut Pass<'_>, _: &[f32], _: &mut Slopes) {}

    fn learns(&self) -> bool {
        self.main.learns() || self.shortcut.learns()
    }

    fn inner(&self) -> Vec<&Chain> {
        vec![&self.main, &self.shortcut]
    }
}
