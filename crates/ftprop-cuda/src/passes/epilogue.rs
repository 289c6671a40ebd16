//! What follows a product, forward in one kernel and back in one or two.

use super::column_reduction::ColumnReduction;
use super::epilogue_source;
use super::norm::CompiledNorm;
use super::{BatchContext, CompileOptions, Statistics, vector_width};
use crate::CudaError;
use crate::abi::{DevicePtr, NormBackward, NormParameters, NormSaved};
use crate::arena::{ArenaLayout, Region};
use crate::arguments::kernels;
use crate::compile::Source;
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::module::Module;
use crate::plan::{Affine, Epilogue, Norm, PlannedTensor};
use crate::stream::CudaStream;
use ftprop_nn::Shape;

kernels! {
    /// What follows a product.
    EpilogueForwardArgs = "epilogue_forward" in epilogue_source::FILE {
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        y2: DevicePtr,
        scale2: DevicePtr,
        shift2: DevicePtr,
        out: DevicePtr,
        argmax: DevicePtr,
        step: DevicePtr,
        n: i32,
        training: i32,
    }

    /// From the slopes by the output to those by the pre-activation.
    EpilogueBackwardArgs = "epilogue_backward" in epilogue_source::FILE {
        dout: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        y2: DevicePtr,
        scale2: DevicePtr,
        shift2: DevicePtr,
        argmax: DevicePtr,
        dz: DevicePtr,
        dz2: DevicePtr,
        norm1: NormBackward,
        norm2: NormBackward,
        biased: i32,
        partial: DevicePtr,
        counter: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }

    /// Adds up what the blocks of [`EpilogueBackwardArgs`] wrote, which is a bias's gradient.
    BiasGradientArgs = "bias_gradient" in epilogue_source::FILE {
        partial: DevicePtr,
        d_bias: DevicePtr,
        blocks: i32,
    }

    /// From the slopes by the pre-activation to those by the inputs.
    EpilogueBackwardInputArgs = "epilogue_backward_input" in epilogue_source::FILE {
        dz: DevicePtr,
        y: DevicePtr,
        y2: DevicePtr,
        mean1: DevicePtr,
        coefficients1: DevicePtr,
        mean2: DevicePtr,
        coefficients2: DevicePtr,
        dy: DevicePtr,
        dy2: DevicePtr,
        n: i32,
    }

    /// Statistics and what follows them.
    EpilogueForwardCooperativeArgs = "epilogue_forward_cooperative" in epilogue_source::COOPERATIVE_FILE {
        y: DevicePtr,
        norm: NormParameters,
        saved: NormSaved,
        partial: DevicePtr,
        barrier: DevicePtr,
        out: DevicePtr,
        argmax: DevicePtr,
        step: DevicePtr,
        n: i32,
    }

    /// The way back through an epilogue with one norm.
    EpilogueBackwardCooperativeArgs = "epilogue_backward_cooperative" in epilogue_source::COOPERATIVE_FILE {
        dout: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        argmax: DevicePtr,
        dy: DevicePtr,
        norm: NormBackward,
        partial: DevicePtr,
        barrier: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }
}

/// An epilogue with its kernels and regions.
pub(crate) struct CompiledEpilogue {
    pub(super) epilogue: Epilogue,
    /// Of its input.
    pub(super) shape: Shape,
    out_len: usize,
    vector_width: usize,
    columns: ColumnReduction,
    forward: Kernel<EpilogueForwardArgs>,
    training: Training,
    norm1: Option<CompiledNorm>,
    norm2: Option<CompiledNorm>,
    argmax: Region,
    partial: Region,
}

/// How statistics, and the way back, are computed in training.
enum Training {
    /// In kernels of their own.
    Separate {
        backward: Kernel<EpilogueBackwardArgs>,
        input: Kernel<EpilogueBackwardInputArgs>,
        bias_gradient: Kernel<BiasGradientArgs>,
        counter: Region,
        /// Slopes by the pre-activation, where they cannot lie where those by y do.
        dz: Option<Region>,
    },
    /// Together with what follows them, by blocks that wait for each other.
    Cooperative {
        forward: Kernel<EpilogueForwardCooperativeArgs>,
        backward: Kernel<EpilogueBackwardCooperativeArgs>,
        config: LaunchConfig,
        barrier: Region,
    },
}

/// How an epilogue's work is shared by threads.
struct Threads {
    vector_width: usize,
    columns: ColumnReduction,
    /// Where the launch is cooperative, how, and how many rows a thread keeps.
    cooperative: Option<(LaunchConfig, usize)>,
}

impl Threads {
    fn new(f: &Epilogue, shape: Shape, options: &CompileOptions) -> Self {
        let start = if let Affine::Bias(bias) = &f.affine { bias.start } else { 0 };
        let vector_width = vector_width(&[shape.channels, start]);
        let rows = options.batch * shape.height * shape.width;
        let columns = ColumnReduction::new(shape.channels, vector_width, rows);
        let suits = f.residual.is_none() && matches!(&f.affine, Affine::Norm(norm) if !norm.is_fixed());
        let cooperative = suits.then(|| columns.cooperative(rows, options.cooperative_blocks)).flatten();
        Threads { vector_width, columns, cooperative }
    }
}

/// Scale and shift of an epilogue's two inputs, null where there are none.
struct AffinePointers {
    scale: DevicePtr,
    shift: DevicePtr,
    scale2: DevicePtr,
    shift2: DevicePtr,
}

impl CompiledEpilogue {
    pub(super) fn source(f: &Epilogue, shape: Shape, options: &CompileOptions) -> Source {
        let Threads { vector_width, columns, cooperative } = Threads::new(f, shape, options);
        let rows = cooperative.map(|(_, rows)| rows);
        epilogue_source::source(f, shape, options.precision, vector_width, columns.threads_x(), rows, &options.scalars)
    }

    pub(super) fn new(
        device: &Device,
        epilogue: Epilogue,
        tensors: &[PlannedTensor],
        options: &CompileOptions,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let shape = tensors[epilogue.y].shape;
        let out_len = tensors[epilogue.out].shape.len();
        let module = device.module(CompiledEpilogue::source(&epilogue, shape, options))?;
        let Threads { vector_width, columns, cooperative } = Threads::new(&epilogue, shape, options);
        let mut norm = |norm: &Norm, tensor: usize| {
            CompiledNorm::new(device, norm.clone(), tensor, shape, options.batch, options.precision, layout)
        };
        let norm1 = match &epilogue.affine {
            Affine::Norm(own) => Some(norm(own, epilogue.y)?),
            Affine::Identity | Affine::Bias(_) => None,
        };
        let norm2 = match &epilogue.residual {
            Some((tensor, Some(own))) => Some(norm(own, *tensor)?),
            Some((_, None)) | None => None,
        };
        let training = match cooperative {
            Some((config, _)) => Training::Cooperative {
                forward: Kernel::find(&module)?,
                backward: Kernel::find(&module)?,
                config,
                barrier: layout.take(4 * columns.chunks()),
            },
            None => {
                let normed = norm1.is_some() || norm2.is_some();
                let dz = normed && needs_dz(&epilogue, tensors);
                let bytes = options.batch * shape.len() * options.precision.activation_bytes();
                Training::separate(&module, &columns, dz.then_some(bytes), layout)?
            }
        };
        Ok(CompiledEpilogue {
            forward: Kernel::find(&module)?,
            training,
            argmax: layout.take(if epilogue.pool.is_some() { options.batch * out_len } else { 0 }),
            partial: layout.take(8 * ColumnReduction::partial_len(shape.channels, 3)),
            epilogue,
            shape,
            out_len,
            vector_width,
            columns,
            norm1,
            norm2,
        })
    }

    fn affine(&self, batch: &BatchContext<'_>) -> AffinePointers {
        let of = |norm: &Option<CompiledNorm>| {
            norm.as_ref().map_or([DevicePtr::NULL; 2], |n| [batch.at(n.scale), batch.at(n.shift)])
        };
        let [scale, mut shift] = of(&self.norm1);
        if let Affine::Bias(bias) = &self.epilogue.affine {
            shift = batch.parameters.value(bias.start);
        }
        let [scale2, shift2] = of(&self.norm2);
        AffinePointers { scale, shift, scale2, shift2 }
    }

    /// The address of something of the second summand, null where there is none.
    fn residual(&self, address: impl Fn(usize) -> DevicePtr) -> DevicePtr {
        self.epilogue.residual.as_ref().map_or(DevicePtr::NULL, |(tensor, _)| address(*tensor))
    }

    pub(super) fn forward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let (y, out, n) = (batch.values(self.epilogue.y), batch.values(self.epilogue.out), batch.n as i32);
        let (argmax, step) = (batch.at(self.argmax), batch.step);
        let training = batch.statistics == Statistics::Batch;
        if batch.statistics != Statistics::Running {
            if let (true, Training::Cooperative { forward, config, barrier, .. }, Some(norm)) =
                (training, &self.training, &self.norm1)
            {
                let (partial, barrier) = (batch.at(self.partial), batch.at(*barrier));
                let (norm, saved) = (norm.parameters(batch), norm.saved(batch));
                let args = EpilogueForwardCooperativeArgs { y, norm, saved, partial, barrier, out, argmax, step, n };
                // SAFETY: the tensors have room for a full batch; the regions are sized for this configuration.
                return unsafe { forward.launch_cooperative(stream, *config, &args) };
            }
            self.norms().try_for_each(|norm| norm.statistics(batch, stream))?;
        }
        let AffinePointers { scale, shift, scale2, shift2 } = self.affine(batch);
        let y2 = self.residual(|tensor| batch.values(tensor));
        let training = i32::from(training);
        let args = EpilogueForwardArgs { y, scale, shift, y2, scale2, shift2, out, argmax, step, n, training };
        let items = batch.n * self.out_len / self.vector_width;
        // SAFETY: the tensors have room for a full batch.
        unsafe { self.forward.launch(stream, LaunchConfig::for_items(items), &args) }
    }

    pub(super) fn backward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let f = &self.epilogue;
        let (dout, y) = (batch.slopes(f.out), batch.values(f.y));
        if dout.is_null() {
            return Ok(());
        }
        let AffinePointers { scale, shift, scale2, shift2 } = self.affine(batch);
        let (argmax, partial, n) = (batch.at(self.argmax), batch.at(self.partial), batch.n as i32);
        let (step, scalars, labels, dy) = (batch.step, batch.scalars, batch.labels, batch.slopes(f.y));
        let backward = |norm: &Option<CompiledNorm>| norm.as_ref().map_or(NormBackward::ABSENT, |n| n.backward(batch));
        let (norm1, norm2) = (backward(&self.norm1), backward(&self.norm2));
        match &self.training {
            Training::Cooperative { backward, config, barrier, .. } => {
                let (norm, barrier) = (norm1, batch.at(*barrier));
                let args = EpilogueBackwardCooperativeArgs {
                    dout,
                    y,
                    scale,
                    shift,
                    argmax,
                    dy,
                    norm,
                    partial,
                    barrier,
                    step,
                    scalars,
                    labels,
                    n,
                };
                // SAFETY: the tensors have room for a full batch; the regions are sized for this configuration.
                unsafe { backward.launch_cooperative(stream, *config, &args) }
            }
            Training::Separate { backward, counter, dz, .. } => {
                let dz = dz.map_or(dy, |region| batch.at(region));
                let (y2, dz2) = (self.residual(|t| batch.values(t)), self.residual(|t| batch.slopes(t)));
                let args = EpilogueBackwardArgs {
                    dout,
                    y,
                    scale,
                    shift,
                    y2,
                    scale2,
                    shift2,
                    argmax,
                    dz,
                    dz2,
                    norm1,
                    norm2,
                    biased: i32::from(self.is_biased()),
                    partial,
                    counter: batch.at(*counter),
                    step,
                    scalars,
                    labels,
                    n,
                };
                let config = self.columns.launch_config(self.rows(batch.n));
                // SAFETY: the tensors have room for a full batch, the partial sums for any number of blocks.
                unsafe { backward.launch(stream, config, &args)? };
                self.backward_input(batch, stream, dz)
            }
        }
    }

    /// The second pass back, where there is a norm: from the slopes by the pre-activation to those by the inputs.
    fn backward_input(&self, batch: &BatchContext<'_>, stream: &CudaStream, dz: DevicePtr) -> Result<(), CudaError> {
        let Training::Separate { input, .. } = &self.training else { return Ok(()) };
        let (dy, dy2) = (batch.slopes(self.epilogue.y), self.residual(|tensor| batch.slopes(tensor)));
        if self.norms().next().is_none() || (dy.is_null() && dy2.is_null()) {
            return Ok(());
        }
        let of = |norm: &Option<CompiledNorm>| {
            norm.as_ref().map_or([DevicePtr::NULL; 2], |n| [batch.at(n.mean), batch.at(n.coefficients)])
        };
        let ([mean1, coefficients1], [mean2, coefficients2]) = (of(&self.norm1), of(&self.norm2));
        let (y, y2) = (batch.values(self.epilogue.y), self.residual(|tensor| batch.values(tensor)));
        let n = batch.n as i32;
        let args = EpilogueBackwardInputArgs { dz, y, y2, mean1, coefficients1, mean2, coefficients2, dy, dy2, n };
        let items = batch.n * self.shape.len() / self.vector_width;
        // SAFETY: the tensors have room for a full batch.
        unsafe { input.launch(stream, LaunchConfig::for_items(items), &args) }
    }

    /// The bias's gradient from the sums that the way back left; nothing further down waits for it.
    pub(super) fn reduce_bias_gradient(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let (Affine::Bias(bias), Training::Separate { bias_gradient, .. }) = (&self.epilogue.affine, &self.training)
        else {
            return Ok(());
        };
        if batch.slopes(self.epilogue.out).is_null() {
            return Ok(());
        }
        let backward = self.columns.launch_config(self.rows(batch.n));
        let (partial, d_bias) = (batch.at(self.partial), batch.parameters.grad(bias.start));
        let args = BiasGradientArgs { partial, d_bias, blocks: backward.grid.0 as i32 };
        let config = LaunchConfig { grid: (1, backward.grid.1, 1), ..backward };
        // SAFETY: the partial sums are those of the blocks of the way back.
        unsafe { bias_gradient.launch(stream, config, &args) }
    }

    pub(super) fn is_biased(&self) -> bool {
        matches!(self.epilogue.affine, Affine::Bias(_))
    }

    pub(super) fn norms(&self) -> impl Iterator<Item = &CompiledNorm> {
        self.norm1.iter().chain(&self.norm2)
    }

    fn rows(&self, n: usize) -> usize {
        n * self.shape.height * self.shape.width
    }
}

impl Training {
    fn separate(
        module: &Module,
        columns: &ColumnReduction,
        dz_bytes: Option<usize>,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        Ok(Training::Separate {
            backward: Kernel::find(module)?,
            input: Kernel::find(module)?,
            bias_gradient: Kernel::find(module)?,
            counter: layout.take(4 * columns.chunks()),
            dz: dz_bytes.map(|bytes| layout.take(bytes)),
        })
    }
}

/// Whether a normed epilogue's slopes by the pre-activation need a region of their own: those by y are not there, or hold
/// what others wrote.
fn needs_dz(f: &Epilogue, tensors: &[PlannedTensor]) -> bool {
    let needs = |tensor: usize| tensors[tensor].needs_slopes;
    let inputs_need = needs(f.y) || f.residual.as_ref().is_some_and(|(tensor, _)| needs(*tensor));
    inputs_need && (f.adds || !needs(f.y))
}
