//! What follows a product, forward in one kernel and back in one or two.

use super::carry::Carry;
use super::column_reduction::ColumnReduction;
use super::epilogue_source::{self, position_bytes, windows_and_places_together};
use super::norm::CompiledNorm;
use super::threads::Threads;
use super::windows::{self, BackwardGroupsArgs, BackwardPlacesArgs, BackwardWindowsArgs, WindowKernels};
use super::{BatchContext, CompileOptions, Statistics, map::MapLaunch};
use crate::CudaError;
use crate::abi::{DevicePtr, NormBackward, NormParameters, NormSaved};
use crate::arena::{ArenaLayout, Region};
use crate::arguments::kernels;
use crate::compile::Source;
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
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
        branch: DevicePtr,
        argmax: DevicePtr,
        largest: DevicePtr,
        step: DevicePtr,
        not_numbers: DevicePtr,
        pass: u32,
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
        out: DevicePtr,
        d_branch: DevicePtr,
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

    /// From the slopes by the output to those by the inputs, once the norms' sums are known.
    EpilogueBackwardInputArgs = "epilogue_backward_input" in epilogue_source::FILE {
        dout: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        y2: DevicePtr,
        scale2: DevicePtr,
        shift2: DevicePtr,
        argmax: DevicePtr,
        coefficients1: DevicePtr,
        coefficients2: DevicePtr,
        dy: DevicePtr,
        dy2: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }

    /// Statistics and what follows them.
    EpilogueForwardCooperativeArgs = "epilogue_forward_cooperative" in epilogue_source::COOPERATIVE_FILE {
        y: DevicePtr,
        norm: NormParameters,
        saved: NormSaved,
        y2: DevicePtr,
        partial: DevicePtr,
        barrier: DevicePtr,
        out: DevicePtr,
        branch: DevicePtr,
        argmax: DevicePtr,
        step: DevicePtr,
        not_numbers: DevicePtr,
        pass: u32,
        n: i32,
    }

    /// The way back through an epilogue with one norm.
    EpilogueBackwardCooperativeArgs = "epilogue_backward_cooperative" in epilogue_source::COOPERATIVE_FILE {
        dout: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        y2: DevicePtr,
        out: DevicePtr,
        d_branch: DevicePtr,
        argmax: DevicePtr,
        dy: DevicePtr,
        dy2: DevicePtr,
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
    /// Which pass it is, from 1.
    number: u32,
    /// Of its input.
    pub(super) shape: Shape,
    /// Pixels of its output.
    out_pixels: usize,
    map: MapLaunch,
    columns: ColumnReduction,
    forward: Kernel<EpilogueForwardArgs>,
    /// In the place of statistics and `forward` in training.
    forward_cooperative: Option<CooperativeForward>,
    training: Training,
    norm1: Option<CompiledNorm>,
    norm2: Option<CompiledNorm>,
    pub(super) argmax: Region,
    partial: Region,
    /// Where the loss's curvature comes down.
    pub(super) carry: Option<Carry>,
}

/// Statistics and what follows them in one kernel, by blocks that wait for each other.
struct CooperativeForward {
    kernel: Kernel<EpilogueForwardCooperativeArgs>,
    config: LaunchConfig,
    barrier: Region,
}

/// How the way back is computed.
enum Training {
    /// In kernels of their own.
    Separate {
        backward: Kernel<EpilogueBackwardArgs>,
        input: Kernel<EpilogueBackwardInputArgs>,
        bias_gradient: Kernel<BiasGradientArgs>,
        counter: Region,
        keeps_dz: bool,
        /// In the place of `backward`, and of `input` where windows have slopes of their own.
        by_windows: Option<WindowKernels>,
    },
    /// Sums and slopes together, by blocks that wait for each other.
    Cooperative { backward: Kernel<EpilogueBackwardCooperativeArgs>, config: LaunchConfig, barrier: Region },
}

/// Scale and shift of an epilogue's two inputs, null where there are none.
pub(super) struct AffinePointers {
    pub(super) scale: DevicePtr,
    pub(super) shift: DevicePtr,
    pub(super) scale2: DevicePtr,
    pub(super) shift2: DevicePtr,
}

impl CompiledEpilogue {
    pub(super) fn source(f: &Epilogue, tensors: &[PlannedTensor], options: &CompileOptions) -> Source {
        let sharing = Threads::new(f, tensors, options).sharing;
        epilogue_source::source(f, tensors[f.y].shape, options.precision, &sharing, &options.scalars)
    }

    /// The kernel that carries curvature down, and how many channels a thread takes.
    pub(super) fn carry_source(f: &Epilogue, tensors: &[PlannedTensor], options: &CompileOptions) -> (Source, usize) {
        let sharing = Threads::new(f, tensors, options).sharing;
        let shape = tensors[f.y].shape;
        let source = epilogue_source::carry_source(f, shape, options.precision, &sharing, &options.scalars);
        (source, sharing.vector_width)
    }

    pub(super) fn new(
        device: &Device,
        (number, epilogue): (usize, Epilogue),
        (tensors, curved): (&[PlannedTensor], bool),
        options: &CompileOptions,
        layout: &mut ArenaLayout,
    ) -> Result<Self, CudaError> {
        let shape = tensors[epilogue.y].shape;
        let out = tensors[epilogue.out].shape;
        let module = device.module(CompiledEpilogue::source(&epilogue, tensors, options))?;
        let Threads { columns, map, cooperative, sharing } = Threads::new(&epilogue, tensors, options);
        let mut norm =
            |norm: &Norm, tensor: usize| CompiledNorm::new(device, norm.clone(), tensor, shape, options, layout);
        let norm1 = match &epilogue.affine {
            Affine::Norm(own) => Some(norm(own, epilogue.y)?),
            Affine::Identity | Affine::Bias(_) => None,
        };
        let norm2 = match &epilogue.residual {
            Some((tensor, Some(own))) => Some(norm(own, *tensor)?),
            Some((_, None)) | None => None,
        };
        let largest =
            if sharing.by_windows && epilogue.has_slopes_by_windows() { options.batch * out.len() } else { 0 };
        let largest = layout.take(largest * options.precision.activation_bytes());
        let forward_cooperative = match cooperative {
            Some(config) => {
                let barrier = layout.take(4 * columns.chunks());
                Some(CooperativeForward { kernel: Kernel::find(&module)?, config, barrier })
            }
            None => None,
        };
        let training = match cooperative.filter(|_| sharing.cooperative_back) {
            Some(config) => Training::Cooperative {
                backward: Kernel::find(&module)?,
                config,
                barrier: layout.take(4 * columns.chunks()),
            },
            None => Training::Separate {
                backward: Kernel::find(&module)?,
                input: Kernel::find(&module)?,
                bias_gradient: Kernel::find(&module)?,
                counter: layout.take(4 * columns.chunks()),
                keeps_dz: sharing.keeps_dz,
                by_windows: sharing.by_windows.then(|| WindowKernels::find(&module, &epilogue, largest)).transpose()?,
            },
        };
        let carry = || {
            let (source, vector_width) = CompiledEpilogue::carry_source(&epilogue, tensors, options);
            Carry::new(device, source, vector_width)
        };
        let carry = curved.then(carry).transpose()?;
        let positions = epilogue.pool.map_or(0, |pool| options.batch * out.len() * position_bytes(pool.kernel));
        Ok(CompiledEpilogue {
            forward: Kernel::find(&module)?,
            forward_cooperative,
            training,
            argmax: layout.take(positions),
            partial: layout.take(8 * ColumnReduction::partial_len(shape.channels, 3)),
            epilogue,
            number: number as u32,
            shape,
            out_pixels: out.height * out.width,
            map,
            columns,
            norm1,
            norm2,
            carry,
        })
    }

    pub(super) fn affine(&self, batch: &BatchContext<'_>) -> AffinePointers {
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
    pub(super) fn residual(&self, address: impl Fn(usize) -> DevicePtr) -> DevicePtr {
        self.epilogue.residual.as_ref().map_or(DevicePtr::NULL, |(tensor, _)| address(*tensor))
    }

    /// The same of the activation beside the output.
    fn branch(&self, address: impl Fn(usize) -> DevicePtr) -> DevicePtr {
        self.epilogue.branch.map_or(DevicePtr::NULL, |(_, tensor)| address(tensor))
    }

    pub(super) fn forward(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let (y, out, n) = (batch.values(self.epilogue.y), batch.values(self.epilogue.out), batch.n as i32);
        let (argmax, step, not_numbers) = (batch.at(self.argmax), batch.step, batch.not_numbers);
        let pass = self.number;
        let training = matches!(batch.statistics, Statistics::Batch | Statistics::Again);
        if matches!(batch.statistics, Statistics::Batch | Statistics::Mean { .. }) {
            if let (Statistics::Batch, Some(CooperativeForward { kernel, config, barrier }), Some(norm)) =
                (batch.statistics, &self.forward_cooperative, &self.norm1)
            {
                let (partial, barrier) = (batch.at(self.partial), batch.at(*barrier));
                let (norm, saved) = (norm.parameters(batch), norm.saved(batch));
                let args = EpilogueForwardCooperativeArgs {
                    y,
                    norm,
                    saved,
                    y2: self.residual(|tensor| batch.values(tensor)),
                    partial,
                    barrier,
                    out,
                    branch: self.branch(|tensor| batch.values(tensor)),
                    argmax,
                    step,
                    not_numbers,
                    pass,
                    n,
                };
                // SAFETY: the tensors have room for a full batch; the regions are sized for this configuration.
                return unsafe { kernel.launch_cooperative(stream, *config, &args) };
            }
            self.norms().try_for_each(|norm| norm.statistics(batch, stream))?;
        }
        let AffinePointers { scale, shift, scale2, shift2 } = self.affine(batch);
        let y2 = self.residual(|tensor| batch.values(tensor));
        let training = i32::from(training);
        let args = EpilogueForwardArgs {
            y,
            scale,
            shift,
            y2,
            scale2,
            shift2,
            out,
            branch: self.branch(|tensor| batch.values(tensor)),
            argmax,
            largest: self.largest(batch),
            step,
            not_numbers,
            pass,
            n,
            training,
        };
        let config = self.map.launch_config(batch.n * self.out_pixels);
        // SAFETY: the tensors have room for a full batch.
        unsafe { self.forward.launch(stream, config, &args) }
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
        let (y2, dz2) = (self.residual(|t| batch.values(t)), self.residual(|t| batch.slopes(t)));
        let d_branch = self.branch(|t| batch.slopes(t));
        match &self.training {
            Training::Cooperative { backward, config, barrier, .. } => {
                let (norm, barrier) = (norm1, batch.at(*barrier));
                let args = EpilogueBackwardCooperativeArgs {
                    dout,
                    y,
                    scale,
                    shift,
                    y2,
                    out: batch.values(f.out),
                    d_branch,
                    argmax,
                    dy,
                    dy2: dz2,
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
            Training::Separate { by_windows: Some(kernels), counter, .. } => {
                self.backward_by_windows(kernels, batch.at(*counter), batch, stream)
            }
            Training::Separate { backward, counter, .. } => {
                let args = EpilogueBackwardArgs {
                    dout,
                    y,
                    scale,
                    shift,
                    y2,
                    scale2,
                    shift2,
                    out: batch.values(f.out),
                    d_branch,
                    argmax,
                    dz: dy,
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
                self.norms().try_for_each(|norm| norm.agree_on_slopes(batch, stream))?;
                self.backward_input(batch, stream)
            }
        }
    }

    /// Takes part in what other GPUs do forward, or on the way back, with a batch of which no example is here.
    pub(super) fn attend(
        &self,
        batch: &BatchContext<'_>,
        stream: &CudaStream,
        backward: bool,
    ) -> Result<(), CudaError> {
        let norms = self.norms().filter(|norm| norm.is_shared());
        match backward {
            false => norms.into_iter().try_for_each(|norm| norm.statistics(batch, stream)),
            true if batch.slopes(self.epilogue.out).is_null() => Ok(()),
            true => norms.into_iter().try_for_each(|norm| norm.agree_on_slopes(batch, stream)),
        }
    }

    /// The second pass back, where there is a norm: once its sums are known, the slopes by the inputs.
    fn backward_input(&self, batch: &BatchContext<'_>, stream: &CudaStream) -> Result<(), CudaError> {
        let Training::Separate { input, keeps_dz, .. } = &self.training else { return Ok(()) };
        let (dy, dy2) = (batch.slopes(self.epilogue.y), self.residual(|tensor| batch.slopes(tensor)));
        if self.norms().next().is_none() || (dy.is_null() && dy2.is_null()) {
            return Ok(());
        }
        let of = |norm: &Option<CompiledNorm>| norm.as_ref().map_or(DevicePtr::NULL, |n| batch.at(n.coefficients));
        let AffinePointers { scale, shift, scale2, shift2 } = self.affine(batch);
        let args = EpilogueBackwardInputArgs {
            dout: match (keeps_dz, &self.epilogue.residual) {
                (false, _) => batch.slopes(self.epilogue.out),
                (true, Some(_)) => dy2,
                (true, None) => dy,
            },
            y: batch.values(self.epilogue.y),
            scale,
            shift,
            y2: self.residual(|tensor| batch.values(tensor)),
            scale2,
            shift2,
            argmax: batch.at(self.argmax),
            coefficients1: of(&self.norm1),
            coefficients2: of(&self.norm2),
            dy,
            dy2,
            step: batch.step,
            scalars: batch.scalars,
            labels: batch.labels,
            n: batch.n as i32,
        };
        let config = self.map.launch_config(self.rows(batch.n));
        // SAFETY: the tensors have room for a full batch.
        unsafe { input.launch(stream, config, &args) }
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
        let backward = self.columns.launch_config(self.summed_rows(batch.n));
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

    /// Rows that the first pass back goes over: windows, groups of places, or places.
    fn summed_rows(&self, n: usize) -> usize {
        match (&self.training, &self.epilogue.pool) {
            (Training::Separate { by_windows: Some(WindowKernels::Before { .. }), .. }, _) => n * self.out_pixels,
            (Training::Separate { by_windows: Some(WindowKernels::After(_)), .. }, Some(pool)) => {
                n * windows::groups(pool)
            }
            _ => self.rows(n),
        }
    }

    /// Where the largest values of windows are kept, null where they are not.
    fn largest(&self, batch: &BatchContext<'_>) -> DevicePtr {
        match &self.training {
            Training::Separate { by_windows: Some(WindowKernels::Before { largest, .. }), .. } => batch.at(*largest),
            _ => DevicePtr::NULL,
        }
    }

    /// The way back through a pool by its windows.
    fn backward_by_windows(
        &self,
        kernels: &WindowKernels,
        counter: DevicePtr,
        batch: &BatchContext<'_>,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        let (f, n) = (&self.epilogue, batch.n as i32);
        let (dout, y, dy) = (batch.slopes(f.out), batch.values(f.y), batch.slopes(f.y));
        let AffinePointers { scale, shift, .. } = self.affine(batch);
        let norm1 = self.norm1.as_ref().map_or(NormBackward::ABSENT, |norm| norm.backward(batch));
        let (argmax, partial, biased) = (batch.at(self.argmax), batch.at(self.partial), i32::from(self.is_biased()));
        let (step, scalars, labels) = (batch.step, batch.scalars, batch.labels);
        let config = self.columns.launch_config(self.summed_rows(batch.n));
        match (kernels, &f.pool) {
            (WindowKernels::Before { windows, places, largest }, Some(pool)) => {
                let largest = batch.at(*largest);
                let args = BackwardWindowsArgs {
                    dout,
                    largest,
                    argmax,
                    dy,
                    scale,
                    shift,
                    norm1,
                    biased,
                    partial,
                    counter,
                    step,
                    scalars,
                    labels,
                    n,
                };
                // SAFETY: the tensors have room for a full batch, the partial sums for any number of blocks.
                unsafe { windows.launch(stream, config, &args)? };
                self.norms().try_for_each(|norm| norm.agree_on_slopes(batch, stream))?;
                if dy.is_null() || windows_and_places_together(f) {
                    return Ok(());
                }
                let coefficients1 = self.norm1.as_ref().map_or(DevicePtr::NULL, |norm| batch.at(norm.coefficients));
                let args = BackwardPlacesArgs { dout, y, argmax, coefficients1, dy, n };
                let config = self.map.launch_config(batch.n * windows::groups(pool));
                // SAFETY: as above.
                unsafe { places.launch(stream, config, &args) }
            }
            (WindowKernels::After(groups), _) => {
                let dz = dy;
                let args = BackwardGroupsArgs {
                    dout,
                    y,
                    scale,
                    shift,
                    argmax,
                    dz,
                    norm1,
                    biased,
                    partial,
                    counter,
                    step,
                    scalars,
                    labels,
                    n,
                };
                // SAFETY: as above.
                unsafe { groups.launch(stream, config, &args)? };
                self.norms().try_for_each(|norm| norm.agree_on_slopes(batch, stream))?;
                self.backward_input(batch, stream)
            }
            (WindowKernels::Before { .. }, None) => Ok(()),
        }
    }
}
