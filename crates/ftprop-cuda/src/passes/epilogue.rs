//! What follows a product, forward in one kernel and back in one or two.

use super::norm::CompiledNorm;
use super::{BatchContext, ColumnReduction, CompileOptions, vector};
use crate::CudaError;
use crate::arena::Region;
use crate::compile::{File, Kernels, Source};
use crate::plan::{ActivationOp, Affine, Dropout, Epilogue};
use crate::stream::{Args, CudaStream, LaunchConfig};
use cudarc::driver::sys::CUdeviceptr;
use ftprop_nn::activation::Activation;
use ftprop_nn::target::QreluForm;
use ftprop_nn::{LayerLoss, Shape};

/// An epilogue with its kernels and regions.
pub(crate) struct CompiledEpilogue {
    pub(super) epilogue: Epilogue,
    pub(super) shape: Shape,
    pub(super) out_len: usize,
    pub(super) vector: usize,
    pub(super) kernels: Kernels,
    pub(super) norm1: Option<CompiledNorm>,
    pub(super) norm2: Option<CompiledNorm>,
    pub(super) columns: ColumnReduction,
    pub(super) argmax: Region,
    pub(super) partial: Region,
    pub(super) counter: Region,
    /// Where statistics and what follows them are one kernel: how that is launched, and where its blocks meet.
    pub(super) cooperative: Option<(LaunchConfig, Region)>,
    /// Slopes by the pre-activation, where they cannot lie in the place of those by y.
    pub(super) dz: Option<Region>,
}

/// The name of an activation in the kernels, and its levels.
fn activation_macro(activation: Option<Activation>) -> (&'static str, usize) {
    match activation {
        None => ("ACTIVATION_NONE", 2),
        Some(Activation::Sign) => ("ACTIVATION_SIGN", 2),
        Some(Activation::Step) => ("ACTIVATION_STEP", 2),
        Some(Activation::Qrelu { k }) => ("ACTIVATION_QRELU", k as usize),
        Some(Activation::Relu) => ("ACTIVATION_RELU", 2),
        Some(Activation::SaturatedRelu) => ("ACTIVATION_SATURATED_RELU", 2),
    }
}

/// The name of a layer loss in the kernels, and its parameter; a full-precision activation has none.
fn layer_loss_macro(layer_loss: Option<LayerLoss>) -> (&'static str, f32) {
    match layer_loss {
        None => ("LAYER_LOSS_NONE", 1.0),
        Some(LayerLoss::Linear) => ("LAYER_LOSS_LINEAR", 1.0),
        Some(LayerLoss::Perceptron) => ("LAYER_LOSS_PERCEPTRON", 1.0),
        Some(LayerLoss::Hinge) => ("LAYER_LOSS_HINGE", 1.0),
        Some(LayerLoss::SaturatedHinge) => ("LAYER_LOSS_SATURATED_HINGE", 1.0),
        Some(LayerLoss::SoftHinge) => ("LAYER_LOSS_SOFT_HINGE", 1.0),
        Some(LayerLoss::SquaredHinge) => ("LAYER_LOSS_SQUARED_HINGE", 1.0),
        Some(LayerLoss::SaturatedSquaredHinge) => ("LAYER_LOSS_SATURATED_SQUARED_HINGE", 1.0),
        Some(LayerLoss::Log) => ("LAYER_LOSS_LOG", 1.0),
        Some(LayerLoss::Sigmoid { a }) => ("LAYER_LOSS_SIGMOID", a),
        Some(LayerLoss::Ramp) => ("LAYER_LOSS_RAMP", 1.0),
        Some(LayerLoss::ApproxSign) => ("LAYER_LOSS_APPROX_SIGN", 1.0),
        Some(LayerLoss::AnnealedTanh) => ("LAYER_LOSS_ANNEALED_TANH", 1.0),
    }
}

fn activation_macros(source: Source, op: Option<ActivationOp>) -> Source {
    let (activation, levels) = activation_macro(op.map(|op| op.activation));
    let hard = op.filter(|op| op.activation.is_hard());
    let (layer_loss, a) = layer_loss_macro(hard.map(|op| op.layer_loss));
    source
        .name("ACTIVATION", activation)
        .int("LEVELS", levels)
        .name("LAYER_LOSS", layer_loss)
        .float("LAYER_LOSS_A", a)
        .int("PER_STEP", usize::from(hard.is_some_and(|op| op.form == QreluForm::PerStep)))
        .int("WEIGHTED", usize::from(hard.is_none_or(|op| op.weighted)))
}

impl CompiledEpilogue {
    pub(super) fn vector(f: &Epilogue, shape: Shape) -> usize {
        let start = if let Affine::Bias(bias) = &f.affine { bias.start } else { 0 };
        vector(&[shape.channels, start])
    }

    /// How its sums are spread over the device for a full batch, and how many rows a thread keeps where statistics and
    /// what follows them are one kernel.
    pub(super) fn columns(
        f: &Epilogue,
        shape: Shape,
        options: &CompileOptions,
    ) -> (ColumnReduction, Option<(LaunchConfig, usize)>) {
        let rows = options.batch * shape.height * shape.width;
        let columns = ColumnReduction::new(shape.channels, CompiledEpilogue::vector(f, shape), rows);
        let suits = f.residual.is_none() && matches!(f.affine, Affine::Norm(_));
        (columns, suits.then(|| columns.cooperative(rows, options.cooperative_blocks)).flatten())
    }

    pub(super) fn source(f: &Epilogue, shape: Shape, options: &CompileOptions) -> Source {
        let pooled = f.pool.map_or((shape.height, shape.width), |p| (p.out_height(), p.out_width()));
        let (kernel, stride, pad) = f.pool.map_or((1, 1, 0), |p| (p.kernel, p.stride, p.pad));
        let (p, number) = f.dropout.map_or((0.0, 0), |d| (d.p, d.number));
        let affine = match f.affine {
            Affine::Identity => "AFFINE_IDENTITY",
            Affine::Norm(_) => "AFFINE_NORM",
            Affine::Bias(_) => "AFFINE_BIAS",
        };
        let residual = match f.residual {
            None => "RESIDUAL_NONE",
            Some((_, None)) => "RESIDUAL_PLAIN",
            Some((_, Some(_))) => "RESIDUAL_NORM",
        };
        let dropout = match f.dropout {
            None => "DROPOUT_NONE",
            Some(Dropout { by_channel: false, .. }) => "DROPOUT_VALUES",
            Some(Dropout { by_channel: true, .. }) => "DROPOUT_CHANNELS",
        };
        let (columns, cooperative) = CompiledEpilogue::columns(f, shape, options);
        let file = if cooperative.is_some() { File::EpilogueCooperative } else { File::Epilogue };
        let source = Source::new(file, options.precision)
            .int("ROWS_PER_THREAD", cooperative.map_or(0, |(_, rows)| rows))
            .int("THREADS_X", columns.across)
            .int("C", shape.channels)
            .int("VEC", CompiledEpilogue::vector(f, shape))
            .int("HEIGHT", shape.height)
            .int("WIDTH", shape.width)
            .int("POOL", usize::from(f.pool.is_some()))
            .int("POOL_KERNEL", kernel)
            .int("POOL_STRIDE", stride)
            .int("POOL_PAD", pad)
            .int("POOL_H", pooled.0)
            .int("POOL_W", pooled.1)
            .name("AFFINE", affine)
            .name("RESIDUAL", residual)
            .name("DROPOUT", dropout)
            .float("DROPOUT_P", p)
            .int("DROPOUT_NUMBER", number as usize)
            .int("ACCUMULATE1", usize::from(f.adds))
            .int("ACCUMULATE2", usize::from(f.adds_residual));
        activation_macros(source, f.activation)
    }

    /// Addresses of scale and shift of the first and second input, 0 where there are none.
    pub(super) fn affine(&self, l: &BatchContext<'_>) -> [CUdeviceptr; 4] {
        let of =
            |norm: &Option<CompiledNorm>| norm.as_ref().map_or([0, 0], |n| [l.arena.at(n.scale), l.arena.at(n.shift)]);
        let [scale1, mut shift1] = of(&self.norm1);
        if let Affine::Bias(bias) = &self.epilogue.affine {
            shift1 = l.flat.value(bias.start);
        }
        let [scale2, shift2] = of(&self.norm2);
        [scale1, shift1, scale2, shift2]
    }

    pub(super) fn second(&self, values: impl Fn(usize) -> CUdeviceptr) -> CUdeviceptr {
        self.epilogue.residual.as_ref().map_or(0, |(tensor, _)| values(*tensor))
    }

    pub(super) fn forward(&self, l: &BatchContext<'_>, stream: &CudaStream, training: bool) -> Result<(), CudaError> {
        if let (true, Some((launch_config, barrier)), Some(norm)) = (training, self.cooperative, &self.norm1) {
            let args = Args::default()
                .ptr(l.values(self.epilogue.y))
                .ptrs(&norm.forward(l))
                .ptrs(&norm.numbers(l))
                .ptr(l.arena.at(self.partial))
                .ptr(l.arena.at(barrier))
                .ptr(l.values(self.epilogue.out))
                .ptr(l.arena.at(self.argmax))
                .ptr(l.flat.step)
                .int(l.n);
            // SAFETY: the arguments are those of `finish_together` in finish_together.cu.
            return unsafe { stream.launch_together(&self.kernels, 1, launch_config, &args) };
        }
        if training {
            for norm in self.norm1.iter().chain(&self.norm2) {
                norm.statistics(l, stream)?;
            }
        }
        let [scale1, shift1, scale2, shift2] = self.affine(l);
        let args = Args::default()
            .ptr(l.values(self.epilogue.y))
            .ptr(scale1)
            .ptr(shift1)
            .ptr(self.second(|t| l.values(t)))
            .ptr(scale2)
            .ptr(shift2)
            .ptr(l.values(self.epilogue.out))
            .ptr(l.arena.at(self.argmax))
            .ptr(l.flat.step)
            .int(l.n)
            .int(usize::from(training));
        // SAFETY: the arguments are those of `epilogue` in epilogue.cu.
        unsafe { stream.launch(&self.kernels, 0, LaunchConfig::for_items(l.n * self.out_len / self.vector), &args) }
    }

    pub(super) fn back(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let f = &self.epilogue;
        if l.slopes(f.out) == 0 {
            return Ok(());
        }
        let [scale1, shift1, scale2, shift2] = self.affine(l);
        let dy = l.slopes(f.y);
        let dy2 = self.second(|t| l.slopes(t));
        let normed = self.norm1.is_some() || self.norm2.is_some();
        let dz = self.dz.map_or(dy, |place| l.arena.at(place));
        if let (Some((launch_config, barrier)), Some(norm)) = (self.cooperative, &self.norm1) {
            let args = Args::default()
                .ptr(l.slopes(f.out))
                .ptr(l.values(f.y))
                .ptr(scale1)
                .ptr(shift1)
                .ptr(l.arena.at(self.argmax))
                .ptr(dy)
                .ptrs(&norm.back(l))
                .ptr(l.arena.at(self.partial))
                .ptr(l.arena.at(barrier))
                .ptr(l.flat.step)
                .ptr(l.flat.scalars)
                .int(l.n);
            // SAFETY: the arguments are those of `finish_back_together` in finish_together.cu.
            return unsafe { stream.launch_together(&self.kernels, 2, launch_config, &args) };
        }
        let back = |norm: &Option<CompiledNorm>| norm.as_ref().map_or([0; 6], |n| n.back(l));
        let args = Args::default()
            .ptr(l.slopes(f.out))
            .ptr(l.values(f.y))
            .ptr(scale1)
            .ptr(shift1)
            .ptr(self.second(|t| l.values(t)))
            .ptr(scale2)
            .ptr(shift2)
            .ptr(l.arena.at(self.argmax))
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
        // SAFETY: the arguments are those of `finish_back` in epilogue.cu.
        unsafe { stream.launch(&self.kernels, 1, self.columns.launch_config(self.rows(l.n)), &args)? };
        if !normed || (dy == 0 && dy2 == 0) {
            return Ok(());
        }
        let norm = |norm: &Option<CompiledNorm>| {
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
        // SAFETY: the arguments are those of `finish_back_input` in epilogue.cu.
        unsafe { stream.launch(&self.kernels, 2, LaunchConfig::for_items(l.n * self.shape.len() / self.vector), &args) }
    }

    /// The bias's gradient from what the way back wrote to partial sums; nothing further down waits for it.
    pub(super) fn reduce_bias_gradient(&self, l: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let Affine::Bias(bias) = &self.epilogue.affine else { return Ok(()) };
        if l.slopes(self.epilogue.out) == 0 {
            return Ok(());
        }
        let back = self.columns.launch_config(self.rows(l.n));
        let args = Args::default().ptr(l.arena.at(self.partial)).ptr(l.flat.grad(bias.start)).int(back.grid.0 as usize);
        let launch_config = LaunchConfig { grid: (1, back.grid.1, 1), ..back };
        // SAFETY: the arguments are those of `bias_gradient` in epilogue.cu, for the blocks of the way back.
        unsafe { stream.launch(&self.kernels, 3, launch_config, &args) }
    }

    pub(super) fn is_biased(&self) -> bool {
        matches!(self.epilogue.affine, Affine::Bias(_))
    }

    fn rows(&self, n: usize) -> usize {
        n * self.shape.height * self.shape.width
    }
}
