//! What follows a product, forward in one kernel and back in one or two.

use super::norm::NormState;
use super::{Columns, Launch, Setting, vector};
use crate::CudaError;
use crate::arena::Place;
use crate::compile::{File, Kernels, Source};
use crate::plan::{Finish, First, Unit};
use crate::stream::{Args, Spread, Stream};
use cudarc::driver::sys::CUdeviceptr;
use ftprop_nn::activation::Activation;
use ftprop_nn::target::QreluForm;
use ftprop_nn::{LayerLoss, Shape};

/// A finish with its kernels and places.
pub(crate) struct FinishRun {
    pub(super) finish: Finish,
    pub(super) shape: Shape,
    pub(super) out_len: usize,
    pub(super) vector: usize,
    pub(super) kernels: Kernels,
    pub(super) norm1: Option<NormState>,
    pub(super) norm2: Option<NormState>,
    pub(super) columns: Columns,
    pub(super) choice: Place,
    pub(super) partial: Place,
    pub(super) counter: Place,
    /// Where statistics and what follows them are one kernel: how that is spread, and where its blocks meet.
    pub(super) together: Option<(Spread, Place)>,
    /// Slopes by the pre-activation, where they cannot lie in the place of those by y.
    pub(super) aside: Option<Place>,
}

fn unit_macros(source: Source, unit: Option<Unit>) -> Source {
    let unit = unit.map(|u| (u.activation, u.layer_loss, u.form, u.weighted));
    let (activation, levels) = match unit.map(|u| u.0) {
        None => (0, 2),
        Some(Activation::Sign) => (1, 2),
        Some(Activation::Step) => (2, 2),
        Some(Activation::Qrelu { k }) => (3, k as usize),
        Some(Activation::Relu) => (4, 2),
        Some(Activation::SaturatedRelu) => (5, 2),
    };
    // A full-precision activation has no layer loss; any number compiles.
    let hard = unit.filter(|u| u.0.is_hard());
    let (loss, a) = match hard.map_or(LayerLoss::Linear, |u| u.1) {
        LayerLoss::Linear => (0, 1.0),
        LayerLoss::Perceptron => (1, 1.0),
        LayerLoss::Hinge => (2, 1.0),
        LayerLoss::SaturatedHinge => (3, 1.0),
        LayerLoss::SoftHinge => (4, 1.0),
        LayerLoss::SquaredHinge => (5, 1.0),
        LayerLoss::SaturatedSquaredHinge => (6, 1.0),
        LayerLoss::Log => (7, 1.0),
        LayerLoss::Sigmoid { a } => (8, a),
        LayerLoss::Ramp => (9, 1.0),
        LayerLoss::ApproxSign => (10, 1.0),
        LayerLoss::AnnealedTanh => (11, 1.0),
    };
    source
        .int("ACTIVATION", activation)
        .int("LEVELS", levels)
        .int("LOSS", loss)
        .float("LOSS_A", a)
        .int("PER_STEP", usize::from(hard.is_some_and(|u| u.2 == QreluForm::PerStep)))
        .int("WEIGHTED", usize::from(hard.is_none_or(|u| u.3)))
}

impl FinishRun {
    pub(super) fn vector(f: &Finish, shape: Shape) -> usize {
        let start = if let First::Bias(bias) = &f.first { bias.start } else { 0 };
        vector(&[shape.channels, start])
    }

    /// How its sums are spread over the device for a full batch, and how many rows a thread keeps where statistics and
    /// what follows them are one kernel.
    pub(super) fn columns(f: &Finish, shape: Shape, setting: &Setting) -> (Columns, Option<(Spread, usize)>) {
        let rows = setting.batch * shape.height * shape.width;
        let columns = Columns::new(shape.channels, FinishRun::vector(f, shape), rows);
        let suits = f.second.is_none() && matches!(f.first, First::Norm(_));
        (columns, suits.then(|| columns.together(rows, setting.gang)).flatten())
    }

    pub(super) fn source(f: &Finish, shape: Shape, setting: &Setting) -> Source {
        let pooled = f.pool.map_or((shape.height, shape.width), |p| (p.out_height(), p.out_width()));
        let (kernel, stride, pad) = f.pool.map_or((1, 1, 0), |p| (p.kernel, p.stride, p.pad));
        let (p, by_channel, number) = f.dropout.map_or((0.0, false, 0), |d| (d.p, d.by_channel, d.number));
        let first = match f.first {
            First::Nothing => 0,
            First::Norm(_) => 1,
            First::Bias(_) => 2,
        };
        let second = match f.second {
            None => 0,
            Some((_, None)) => 1,
            Some((_, Some(_))) => 2,
        };
        let dropout = if f.dropout.is_none() { 0 } else { 1 + usize::from(by_channel) };
        let (columns, together) = FinishRun::columns(f, shape, setting);
        let file = if together.is_some() { File::FinishTogether } else { File::Finish };
        let source = Source::new(file, setting.precision)
            .int("TOGETHER", together.map_or(0, |(_, rows)| rows))
            .int("ACROSS", columns.across)
            .int("C", shape.channels)
            .int("VEC", FinishRun::vector(f, shape))
            .int("HEIGHT", shape.height)
            .int("WIDTH", shape.width)
            .int("POOL", usize::from(f.pool.is_some()))
            .int("POOL_KERNEL", kernel)
            .int("POOL_STRIDE", stride)
            .int("POOL_PAD", pad)
            .int("POOL_H", pooled.0)
            .int("POOL_W", pooled.1)
            .int("FIRST", first)
            .int("SECOND", second)
            .int("DROPOUT", dropout)
            .float("DROPOUT_P", p)
            .int("DROPOUT_NUMBER", number as usize)
            .int("ACCUMULATE1", usize::from(f.adds))
            .int("ACCUMULATE2", usize::from(f.adds_second));
        unit_macros(source, f.unit)
    }

    /// Addresses of scale and shift of the first and second input, 0 where there are none.
    pub(super) fn affine(&self, l: &Launch<'_>) -> [CUdeviceptr; 4] {
        let of =
            |norm: &Option<NormState>| norm.as_ref().map_or([0, 0], |n| [l.arena.at(n.scale), l.arena.at(n.shift)]);
        let [scale1, mut shift1] = of(&self.norm1);
        if let First::Bias(bias) = &self.finish.first {
            shift1 = l.flat.value(bias.start);
        }
        let [scale2, shift2] = of(&self.norm2);
        [scale1, shift1, scale2, shift2]
    }

    pub(super) fn second(&self, values: impl Fn(usize) -> CUdeviceptr) -> CUdeviceptr {
        self.finish.second.as_ref().map_or(0, |(tensor, _)| values(*tensor))
    }

    pub(super) fn forward(&self, l: &Launch<'_>, stream: &Stream, training: bool) -> Result<(), CudaError> {
        if let (true, Some((spread, gate)), Some(norm)) = (training, self.together, &self.norm1) {
            let args = Args::default()
                .ptr(l.values(self.finish.y))
                .ptrs(&norm.forward(l))
                .ptrs(&norm.numbers(l))
                .ptr(l.arena.at(self.partial))
                .ptr(l.arena.at(gate))
                .ptr(l.values(self.finish.out))
                .ptr(l.arena.at(self.choice))
                .ptr(l.flat.step)
                .int(l.n);
            // SAFETY: the arguments are those of `finish_together` in finish_together.cu.
            return unsafe { stream.launch_together(&self.kernels, 1, spread, &args) };
        }
        if training {
            for norm in self.norm1.iter().chain(&self.norm2) {
                norm.statistics(l, stream)?;
            }
        }
        let [scale1, shift1, scale2, shift2] = self.affine(l);
        let args = Args::default()
            .ptr(l.values(self.finish.y))
            .ptr(scale1)
            .ptr(shift1)
            .ptr(self.second(|t| l.values(t)))
            .ptr(scale2)
            .ptr(shift2)
            .ptr(l.values(self.finish.out))
            .ptr(l.arena.at(self.choice))
            .ptr(l.flat.step)
            .int(l.n)
            .int(usize::from(training));
        // SAFETY: the arguments are those of `finish` in finish.cu.
        unsafe { stream.launch(&self.kernels, 0, Spread::items(l.n * self.out_len / self.vector), &args) }
    }

    pub(super) fn back(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let f = &self.finish;
        if l.slopes(f.out) == 0 {
            return Ok(());
        }
        let [scale1, shift1, scale2, shift2] = self.affine(l);
        let dy = l.slopes(f.y);
        let dy2 = self.second(|t| l.slopes(t));
        let normed = self.norm1.is_some() || self.norm2.is_some();
        let dz = self.aside.map_or(dy, |place| l.arena.at(place));
        if let (Some((spread, gate)), Some(norm)) = (self.together, &self.norm1) {
            let args = Args::default()
                .ptr(l.slopes(f.out))
                .ptr(l.values(f.y))
                .ptr(scale1)
                .ptr(shift1)
                .ptr(l.arena.at(self.choice))
                .ptr(dy)
                .ptrs(&norm.back(l))
                .ptr(l.arena.at(self.partial))
                .ptr(l.arena.at(gate))
                .ptr(l.flat.step)
                .ptr(l.flat.scalars)
                .int(l.n);
            // SAFETY: the arguments are those of `finish_back_together` in finish_together.cu.
            return unsafe { stream.launch_together(&self.kernels, 2, spread, &args) };
        }
        let back = |norm: &Option<NormState>| norm.as_ref().map_or([0; 6], |n| n.back(l));
        let args = Args::default()
            .ptr(l.slopes(f.out))
            .ptr(l.values(f.y))
            .ptr(scale1)
            .ptr(shift1)
            .ptr(self.second(|t| l.values(t)))
            .ptr(scale2)
            .ptr(shift2)
            .ptr(l.arena.at(self.choice))
            .ptr(dz)
            .ptr(dy2)
            .ptrs(&back(&self.norm1))
            .ptrs(&back(&self.norm2))
            .int(usize::from(self.is_biased()))
            .ptr(l.arena.at(self.partial))
            .ptr(l.arena.at(self.counter))
            .ptr(l.flat.step)
            .ptr(l.flat.scalars)
            .int(l.n);
        // SAFETY: the arguments are those of `finish_back` in finish.cu.
        unsafe { stream.launch(&self.kernels, 1, self.columns.spread(self.rows(l.n)), &args)? };
        if !normed || (dy == 0 && dy2 == 0) {
            return Ok(());
        }
        let norm = |norm: &Option<NormState>| {
            norm.as_ref().map_or([0; 2], |n| [l.arena.at(n.mean), l.arena.at(n.coefficients)])
        };
        let ([mean1, coefficients1], [mean2, coefficients2]) = (norm(&self.norm1), norm(&self.norm2));
        let args = Args::default()
            .ptr(dz)
            .ptr(l.values(f.y))
            .ptr(self.second(|t| l.values(t)))
            .ptr(mean1)
            .ptr(coefficients1)
            .ptr(mean2)
            .ptr(coefficients2)
            .ptr(dy)
            .ptr(dy2)
            .int(l.n);
        // SAFETY: the arguments are those of `finish_back_input` in finish.cu.
        unsafe { stream.launch(&self.kernels, 2, Spread::items(l.n * self.shape.len() / self.vector), &args) }
    }

    /// The bias's gradient from what the way back put aside; nothing further down waits for it.
    pub(super) fn add_parts(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let First::Bias(bias) = &self.finish.first else { return Ok(()) };
        if l.slopes(self.finish.out) == 0 {
            return Ok(());
        }
        let back = self.columns.spread(self.rows(l.n));
        let args = Args::default().ptr(l.arena.at(self.partial)).ptr(l.flat.grad(bias.start)).int(back.grid.0 as usize);
        let spread = Spread { grid: (1, back.grid.1, 1), ..back };
        // SAFETY: the arguments are those of `bias_gradient` in finish.cu, for the blocks of the way back.
        unsafe { stream.launch(&self.kernels, 3, spread, &args) }
    }

    pub(super) fn is_biased(&self) -> bool {
        matches!(self.finish.first, First::Bias(_))
    }

    fn rows(&self, n: usize) -> usize {
        n * self.shape.height * self.shape.width
    }
}
