//! The passes of a plan with their kernels and their places in memory, and how each is put into a stream.

use crate::CudaError;
use crate::arena::{Arena, Layout, Place};
use crate::compile::{File, Kernels, Source};
use crate::cudnn::Cudnn;
use crate::gemm::{Choice, Cut, Gemm, Mode};
use crate::plan::{Average, Finish, First, Norm, Pass, Plan, Product, Unit};
use crate::precision::Precision;
use crate::stream::{Args, Spread, Stream};
use cudarc::driver::sys::CUdeviceptr;
use ftprop_nn::activation::Activation;
use ftprop_nn::target::QreluForm;
use ftprop_nn::{LayerLoss, Shape};

/// The flat buffers, by address.
#[derive(Clone, Copy)]
pub(crate) struct Flat {
    pub(crate) values: CUdeviceptr,
    /// What the matrix units read: the values, or their bf16 copy.
    pub(crate) factors: CUdeviceptr,
    pub(crate) factor_bytes: u64,
    pub(crate) grads: CUdeviceptr,
    pub(crate) stats: CUdeviceptr,
    pub(crate) step: CUdeviceptr,
    pub(crate) scalars: CUdeviceptr,
}

impl Flat {
    fn value(&self, at: usize) -> CUdeviceptr {
        self.values + 4 * at as u64
    }

    fn grad(&self, at: usize) -> CUdeviceptr {
        self.grads + 4 * at as u64
    }

    fn factor(&self, at: usize) -> CUdeviceptr {
        self.factors + self.factor_bytes * at as u64
    }

    fn stat(&self, at: usize) -> CUdeviceptr {
        self.stats + 4 * at as u64
    }
}

/// Where a tensor's values and the slopes by them are.
#[derive(Clone, Copy)]
pub(crate) struct TensorPlace {
    pub(crate) values: Place,
    pub(crate) slopes: Option<Place>,
}

/// What a launch needs beside its pass.
pub(crate) struct Launch<'a> {
    pub(crate) arena: &'a Arena,
    pub(crate) tensors: &'a [TensorPlace],
    pub(crate) flat: Flat,
    pub(crate) n: usize,
}

impl Launch<'_> {
    fn values(&self, tensor: usize) -> CUdeviceptr {
        self.arena.at(self.tensors[tensor].values)
    }

    /// 0, a null pointer, where there are none.
    fn slopes(&self, tensor: usize) -> CUdeviceptr {
        self.tensors[tensor].slopes.map_or(0, |place| self.arena.at(place))
    }
}

/// A product with who computes it.
pub(crate) struct GemmRun {
    gemm: Gemm,
    engine: Engine,
}

enum Engine {
    Own {
        cut: Cut,
        kernels: Kernels,
        workspace: Place,
        counters: Place,
    },
    Cudnn {
        cudnn: Cudnn,
        workspace: Place,
        bytes: usize,
        /// cuDNN gives a gradient in the operands' format; where that is bf16 it is widened from here.
        narrow: Option<(Place, Kernels)>,
    },
}

/// What cuDNN may use beyond what a full batch needs, for smaller ones.
const SLACK: usize = 32 << 20;

impl GemmRun {
    pub(crate) fn own(
        gemm: Gemm,
        cut: Cut,
        kernels: Kernels,
        workspace: Place,
        batch: usize,
        layout: &mut Layout,
    ) -> Result<Self, CudaError> {
        kernels.allow_shared(0, gemm.shared_bytes(cut.tile))?;
        let (down, across) = gemm.tiles(batch, cut.tile);
        let counters = layout.take(4 * down * across * gemm.geometry.groups);
        Ok(GemmRun { gemm, engine: Engine::Own { cut, kernels, workspace, counters } })
    }

    /// `basic` are the kernels of basic.cu.
    pub(crate) fn cudnn(
        gemm: Gemm,
        cudnn: &Cudnn,
        basic: &Kernels,
        workspace: Place,
        batch: usize,
        layout: &mut Layout,
    ) -> Result<Self, CudaError> {
        let bytes = GemmRun::cudnn_bytes(&gemm, cudnn, batch)?;
        let narrow = (gemm.mode == Mode::Weights && gemm.precision == Precision::Bf16)
            .then(|| (layout.take(2 * gemm.geometry.weight_len()), basic.clone()));
        Ok(GemmRun { gemm, engine: Engine::Cudnn { cudnn: cudnn.clone(), workspace, bytes, narrow } })
    }

    /// Bytes of workspace to set aside for cuDNN.
    pub(crate) fn cudnn_bytes(gemm: &Gemm, cudnn: &Cudnn, batch: usize) -> Result<usize, CudaError> {
        Ok(cudnn.workspace(gemm, batch)? + SLACK)
    }

    /// out = left · right, plus what there is to add; addresses of 0 stand for nothing. What is added to the
    /// slopes of an input are those that are there already.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        arena: &Arena,
        n: usize,
        [left, right, out]: [CUdeviceptr; 3],
        bias: CUdeviceptr,
        addend: CUdeviceptr,
    ) -> Result<(), CudaError> {
        match &self.engine {
            Engine::Own { cut, kernels, workspace, counters } => {
                let (down, across) = self.gemm.tiles(n, cut.tile);
                let spread = Spread {
                    grid: (down as u32, across as u32, (self.gemm.geometry.groups * cut.splits) as u32),
                    threads: cut.tile.threads(),
                    shared: self.gemm.shared_bytes(cut.tile) as u32,
                };
                let args = Args::default()
                    .ptr(left)
                    .ptr(right)
                    .ptr(out)
                    .ptr(bias)
                    .ptr(addend)
                    .ptr(arena.at(*workspace))
                    .ptr(arena.at(*counters))
                    .int(n)
                    .int(cut.splits);
                // SAFETY: the arguments are those of `gemm` in gemm.cu, sized for this geometry and n examples.
                unsafe { stream.launch(kernels, 0, spread, &args) }
            }
            Engine::Cudnn { cudnn, workspace, bytes, narrow } => {
                let to = narrow.as_ref().map_or(out, |(place, _)| arena.at(*place));
                let workspace = (arena.at(*workspace), *bytes);
                // SAFETY: the operands are this product's, sized for n examples; the workspace has its bytes.
                unsafe { cudnn.run(&self.gemm, n, stream, [left, right, to], addend != 0, workspace)? };
                let Some((_, basic)) = narrow else { return Ok(()) };
                let len = self.gemm.geometry.weight_len();
                let args = Args::default().ptr(to).ptr(out).int(len);
                // SAFETY: the arguments are those of `widen_values` in basic.cu.
                unsafe { stream.launch(basic, 5, Spread::items(len), &args) }
            }
        }
    }

    /// Who computes it, in short.
    fn describe(&self) -> String {
        match &self.engine {
            Engine::Own { cut, .. } => format!("{}x{}/{}", cut.tile.rows, cut.tile.cols, cut.splits),
            Engine::Cudnn { .. } => "cudnn".into(),
        }
    }
}

/// How columns are spread over a block, as `struct Columns` of the kernels has it.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    chunks: usize,
    down: usize,
}

impl Columns {
    pub(crate) const THREADS: u32 = 512;
    const MOST_BLOCKS: usize = 264;

    pub(crate) fn new(channels: usize, vector: usize) -> Self {
        let groups = channels / vector;
        let across = groups.min(256);
        Columns { chunks: groups.div_ceil(across), down: Columns::THREADS as usize / across }
    }

    pub(crate) fn spread(&self, rows: usize) -> Spread {
        let most = (Columns::MOST_BLOCKS / self.chunks).max(1);
        let blocks = rows.div_ceil(self.down * 4).clamp(1, most);
        Spread { grid: (blocks as u32, self.chunks as u32, 1), threads: Columns::THREADS, shared: 0 }
    }

    /// Numbers that the blocks' own sums need.
    pub(crate) fn partial_len(channels: usize, sums: usize) -> usize {
        Columns::MOST_BLOCKS * sums * channels
    }
}

/// How many channels one thread takes: four where they and every start allow it.
pub(crate) fn vector(lengths: &[usize]) -> usize {
    if lengths.iter().all(|l| l % 4 == 0) { 4 } else { 1 }
}

/// A norm's numbers on the device.
struct NormState {
    norm: Norm,
    tensor: usize,
    kernels: Kernels,
    columns: Columns,
    channels: usize,
    rows_per_image: usize,
    mean: Place,
    inverse: Place,
    scale: Place,
    shift: Place,
    coefficients: Place,
    partial: Place,
    counter: Place,
}

impl NormState {
    fn source(channels: usize, precision: Precision) -> Source {
        Source::new(File::Norm, precision).int("C", channels).int("VEC", vector(&[channels]))
    }

    fn new(norm: Norm, tensor: usize, shape: Shape, kernels: Kernels, layout: &mut Layout) -> Self {
        let channels = shape.channels;
        let columns = Columns::new(channels, vector(&[channels]));
        // Eight bytes are enough for what the kernels call sum_t.
        let mut sums = |times: usize| layout.take(8 * times * channels);
        let [mean, inverse, scale, shift, coefficients] = [1, 1, 1, 1, 3].map(&mut sums);
        NormState {
            norm,
            tensor,
            kernels,
            columns,
            channels,
            rows_per_image: shape.height * shape.width,
            mean,
            inverse,
            scale,
            shift,
            coefficients,
            partial: layout.take(8 * Columns::partial_len(channels, 2)),
            counter: layout.take(4 * columns.chunks),
        }
    }

    fn statistics(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let rows = l.n * self.rows_per_image;
        let args = Args::default()
            .ptr(l.values(self.tensor))
            .ptr(l.flat.value(self.norm.gamma.start))
            .ptr(l.flat.value(self.norm.beta.start))
            .ptr(l.flat.stat(self.norm.running_mean.start))
            .ptr(l.flat.stat(self.norm.running_variance.start))
            .ptr(l.arena.at(self.mean))
            .ptr(l.arena.at(self.inverse))
            .ptr(l.arena.at(self.scale))
            .ptr(l.arena.at(self.shift))
            .ptr(l.arena.at(self.partial))
            .ptr(l.arena.at(self.counter))
            .int(rows)
            .float(self.norm.eps)
            .float(self.norm.momentum);
        // SAFETY: the arguments are those of `norm_statistics` in norm.cu.
        unsafe { stream.launch(&self.kernels, 0, self.columns.spread(rows), &args) }
    }

    fn running(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let args = Args::default()
            .ptr(l.flat.value(self.norm.gamma.start))
            .ptr(l.flat.value(self.norm.beta.start))
            .ptr(l.flat.stat(self.norm.running_mean.start))
            .ptr(l.flat.stat(self.norm.running_variance.start))
            .ptr(l.arena.at(self.scale))
            .ptr(l.arena.at(self.shift))
            .float(self.norm.eps);
        // SAFETY: the arguments are those of `norm_running` in norm.cu.
        unsafe { stream.launch(&self.kernels, 1, Spread::items(self.channels), &args) }
    }

    /// The `NormBack` of finish.cu.
    fn back(&self, l: &Launch<'_>) -> [CUdeviceptr; 6] {
        [
            l.arena.at(self.mean),
            l.arena.at(self.inverse),
            l.flat.value(self.norm.gamma.start),
            l.flat.grad(self.norm.gamma.start),
            l.flat.grad(self.norm.beta.start),
            l.arena.at(self.coefficients),
        ]
    }
}

pub(crate) struct ProductRun {
    product: Product,
    forward: GemmRun,
    input: Option<GemmRun>,
    weights: GemmRun,
    bias_sums: Option<(Kernels, Columns, Place, Place)>,
}

impl ProductRun {
    fn forward(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let p = &self.product;
        let operands = [l.values(p.x), l.flat.factor(p.weight.start), l.values(p.y)];
        let bias = p.bias.as_ref().map_or(0, |b| l.flat.value(b.start));
        self.forward.run(stream, l.arena, l.n, operands, bias, 0)
    }

    /// The slopes by x.
    fn back(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let Some(input) = &self.input else { return Ok(()) };
        let p = &self.product;
        let dx = l.slopes(p.x);
        let operands = [l.slopes(p.y), l.flat.factor(p.weight.start), dx];
        input.run(stream, l.arena, l.n, operands, 0, if p.adds { dx } else { 0 })
    }

    /// The gradients of the parameters.
    fn gradients(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let p = &self.product;
        let dy = l.slopes(p.y);
        let operands = [dy, l.values(p.x), l.flat.grad(p.weight.start)];
        self.weights.run(stream, l.arena, l.n, operands, 0, 0)?;
        let (Some(bias), Some((kernels, columns, partial, counter))) = (&p.bias, &self.bias_sums) else {
            return Ok(());
        };
        let rows = l.n * p.geometry.out_height() * p.geometry.out_width();
        let args = Args::default()
            .ptr(dy)
            .ptr(l.flat.grad(bias.start))
            .ptr(l.arena.at(*partial))
            .ptr(l.arena.at(*counter))
            .int(rows);
        // SAFETY: the arguments are those of `column_sums` in norm.cu.
        unsafe { stream.launch(kernels, 2, columns.spread(rows), &args) }
    }
}

pub(crate) struct FinishRun {
    finish: Finish,
    shape: Shape,
    out_len: usize,
    vector: usize,
    kernels: Kernels,
    norm1: Option<NormState>,
    norm2: Option<NormState>,
    columns: Columns,
    choice: Place,
    partial: Place,
    counter: Place,
    /// Slopes by the pre-activation, where they cannot lie in the place of those by y.
    aside: Option<Place>,
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
    fn vector(f: &Finish, shape: Shape) -> usize {
        let start = if let First::Bias(bias) = &f.first { bias.start } else { 0 };
        vector(&[shape.channels, start])
    }

    fn source(f: &Finish, shape: Shape, precision: Precision) -> Source {
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
        let source = Source::new(File::Finish, precision)
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
    fn affine(&self, l: &Launch<'_>) -> [CUdeviceptr; 4] {
        let of =
            |norm: &Option<NormState>| norm.as_ref().map_or([0, 0], |n| [l.arena.at(n.scale), l.arena.at(n.shift)]);
        let [scale1, mut shift1] = of(&self.norm1);
        if let First::Bias(bias) = &self.finish.first {
            shift1 = l.flat.value(bias.start);
        }
        let [scale2, shift2] = of(&self.norm2);
        [scale1, shift1, scale2, shift2]
    }

    fn second(&self, values: impl Fn(usize) -> CUdeviceptr) -> CUdeviceptr {
        self.finish.second.as_ref().map_or(0, |(tensor, _)| values(*tensor))
    }

    fn forward(&self, l: &Launch<'_>, stream: &Stream, training: bool) -> Result<(), CudaError> {
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

    fn back(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let f = &self.finish;
        if l.slopes(f.out) == 0 {
            return Ok(());
        }
        let [scale1, shift1, scale2, shift2] = self.affine(l);
        let dy = l.slopes(f.y);
        let dy2 = self.second(|t| l.slopes(t));
        let normed = self.norm1.is_some() || self.norm2.is_some();
        let dz = self.aside.map_or(dy, |place| l.arena.at(place));
        let d_bias = if let First::Bias(bias) = &f.first { l.flat.grad(bias.start) } else { 0 };
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
            .ptrs(back(&self.norm1))
            .ptrs(back(&self.norm2))
            .ptr(d_bias)
            .ptr(l.arena.at(self.partial))
            .ptr(l.arena.at(self.counter))
            .ptr(l.flat.step)
            .ptr(l.flat.scalars)
            .int(l.n);
        let rows = l.n * self.shape.height * self.shape.width;
        // SAFETY: the arguments are those of `finish_back` in finish.cu.
        unsafe { stream.launch(&self.kernels, 1, self.columns.spread(rows), &args)? };
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
}

pub(crate) struct AverageRun {
    average: Average,
    kernels: Kernels,
    vector: usize,
}

impl AverageRun {
    fn source(a: &Average, precision: Precision) -> Source {
        let g = &a.geometry;
        Source::new(File::AveragePool, precision)
            .int("C", g.channels)
            .int("VEC", vector(&[g.channels]))
            .int("HEIGHT", g.height)
            .int("WIDTH", g.width)
            .int("POOL_KERNEL", g.kernel)
            .int("POOL_STRIDE", g.stride)
            .int("POOL_PAD", g.pad)
            .int("POOL_H", g.out_height())
            .int("POOL_W", g.out_width())
    }

    fn forward(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let a = &self.average;
        let args = Args::default().ptr(l.values(a.x)).ptr(l.values(a.out)).int(l.n);
        let items = l.n * a.geometry.out_len() / self.vector;
        // SAFETY: the arguments are those of `average` in average_pool.cu.
        unsafe { stream.launch(&self.kernels, 0, Spread::items(items), &args) }
    }

    fn back(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        let a = &self.average;
        if l.slopes(a.x) == 0 {
            return Ok(());
        }
        let args = Args::default().ptr(l.slopes(a.out)).ptr(l.slopes(a.x)).int(l.n).int(usize::from(a.adds));
        let items = l.n * a.geometry.in_len() / self.vector;
        // SAFETY: the arguments are those of `average_back` in average_pool.cu.
        unsafe { stream.launch(&self.kernels, 1, Spread::items(items), &args) }
    }
}

/// A pass ready to run.
pub(crate) enum Run {
    Product(Box<ProductRun>),
    Finish(Box<FinishRun>),
    Average(AverageRun),
}

impl Run {
    /// What it is, for a table of times.
    pub(crate) fn kind(&self) -> String {
        match self {
            Run::Product(p) => {
                let g = &p.product.geometry;
                let three = [Some(&p.forward), p.input.as_ref(), Some(&p.weights)];
                let cuts = three.map(|r| r.map_or("-".into(), GemmRun::describe));
                format!("product {}x{}x{} to {} ({})", g.height, g.width, g.in_channels, g.out_channels, cuts.join(" "))
            }
            Run::Finish(f) => format!("finish {}", f.shape),
            Run::Average(a) => format!("average {}", a.average.geometry.channels),
        }
    }

    pub(crate) fn forward(&self, l: &Launch<'_>, stream: &Stream, training: bool) -> Result<(), CudaError> {
        match self {
            Run::Product(p) => p.forward(l, stream),
            Run::Finish(f) => f.forward(l, stream, training),
            Run::Average(a) => a.forward(l, stream),
        }
    }

    /// Slopes by what came in, from those by what went out.
    pub(crate) fn back(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Run::Product(p) => p.back(l, stream),
            Run::Finish(f) => f.back(l, stream),
            Run::Average(a) => a.back(l, stream),
        }
    }

    /// The gradients of a product's parameters; a finish takes its own along on the way back.
    pub(crate) fn gradients(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Run::Product(p) => p.gradients(l, stream),
            _ => Ok(()),
        }
    }

    /// Takes the norms' scale and shift from the running statistics, before an evaluation.
    pub(crate) fn use_running(&self, l: &Launch<'_>, stream: &Stream) -> Result<(), CudaError> {
        match self {
            Run::Finish(f) => f.norm1.iter().chain(&f.norm2).try_for_each(|norm| norm.running(l, stream)),
            _ => Ok(()),
        }
    }
}

/// A plan's products, three each: forward, input (where slopes are needed), weights.
pub(crate) fn gemms(plan: &Plan, precision: Precision) -> Vec<[Option<Gemm>; 3]> {
    let products = plan.passes.iter().filter_map(|pass| match pass {
        Pass::Product(p) => Some(p),
        _ => None,
    });
    products
        .map(|p| {
            let gemm = |mode: Mode| Gemm {
                mode,
                geometry: p.geometry,
                precision,
                weight_offset: p.weight.start,
                // A fully connected layer reads a whole picture as one pixel.
                stored: if plan.tensors[p.x].shape.channels == p.geometry.in_channels {
                    plan.tensors[p.x].stored
                } else {
                    p.geometry.in_channels
                },
                wide_output: mode == Mode::Forward && p.y == plan.output,
                biased: mode == Mode::Forward && p.bias.is_some(),
            };
            let needs_input = plan.tensors[p.x].needs_slopes;
            [Some(gemm(Mode::Forward)), needs_input.then(|| gemm(Mode::Input)), Some(gemm(Mode::Weights))]
        })
        .collect()
}

/// Who computes each product: forward, input (where slopes are needed), weights.
pub(crate) type Choices = [[Option<(Gemm, Choice)>; 3]];

/// Every source that a plan's passes need, in the order in which [`build`] takes the kernels.
pub(crate) fn sources(plan: &Plan, choices: &Choices, precision: Precision) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut choices = choices.iter();
    for pass in &plan.passes {
        match pass {
            Pass::Product(p) => {
                let three = choices.next().expect("three choices a product");
                sources.extend(three.iter().flatten().filter_map(|(gemm, choice)| match choice {
                    Choice::Own(cut) => Some(gemm.source(cut.tile)),
                    Choice::Cudnn => None,
                }));
                if p.bias.is_some() {
                    sources.push(NormState::source(p.geometry.out_channels, precision));
                }
            }
            Pass::Finish(f) => {
                let shape = plan.tensors[f.y].shape;
                sources.push(FinishRun::source(f, shape, precision));
                let norms = usize::from(matches!(f.first, First::Norm(_)))
                    + usize::from(matches!(f.second, Some((_, Some(_)))));
                sources.extend((0..norms).map(|_| NormState::source(shape.channels, precision)));
            }
            Pass::Average(a) => sources.push(AverageRun::source(a, precision)),
        }
    }
    sources
}

/// The passes with their kernels and places.
pub(crate) fn build(
    plan: Plan,
    choices: &Choices,
    kernels: Vec<Kernels>,
    cudnn: Option<&Cudnn>,
    basic: &Kernels,
    precision: Precision,
    batch: usize,
    layout: &mut Layout,
) -> Result<(Vec<Run>, Vec<TensorPlace>), CudaError> {
    let mut kernels = kernels.into_iter();
    let mut next = || kernels.next().expect("a kernel for each source");
    let bytes = precision.activation_bytes();
    // The logits are f32 whatever the activations are; there is little of them.
    let places: Vec<TensorPlace> = plan
        .tensors
        .iter()
        .enumerate()
        .map(|(i, t)| TensorPlace {
            values: layout
                .take(batch * t.shape.height * t.shape.width * t.stored * if i == plan.output { 4 } else { bytes }),
            slopes: (t.needs_slopes || i == plan.output).then(|| layout.take(batch * t.shape.len() * bytes)),
        })
        .collect();
    // Products run one after another, so they share a workspace.
    let missing = || CudaError::Setting("cuDNN was chosen but is not loaded".into());
    let mut most = 0;
    for (gemm, choice) in choices.iter().flatten().flatten() {
        most = most.max(match choice {
            Choice::Own(cut) => 4 * gemm.workspace(batch, *cut),
            Choice::Cudnn => GemmRun::cudnn_bytes(gemm, cudnn.ok_or_else(missing)?, batch)?,
        });
    }
    let workspace = layout.take(most);
    let mut choices = choices.iter();
    let mut runs = Vec::with_capacity(plan.passes.len());
    for pass in plan.passes {
        runs.push(match pass {
            Pass::Product(product) => {
                let mut gemm = |run: &Option<(Gemm, Choice)>, layout: &mut Layout| {
                    let one = |(gemm, choice): (Gemm, Choice)| match choice {
                        Choice::Own(cut) => GemmRun::own(gemm, cut, next(), workspace, batch, layout),
                        Choice::Cudnn => {
                            GemmRun::cudnn(gemm, cudnn.ok_or_else(missing)?, basic, workspace, batch, layout)
                        }
                    };
                    run.map(one).transpose()
                };
                let [forward, input, weights] = choices.next().expect("three choices a product");
                let forward = gemm(forward, layout)?.expect("every product runs forward");
                let input = gemm(input, layout)?;
                let weights = gemm(weights, layout)?.expect("every product has weights");
                let channels = product.geometry.out_channels;
                let bias_sums = product.bias.is_some().then(|| {
                    let columns = Columns::new(channels, vector(&[channels]));
                    let partial = layout.take(8 * Columns::partial_len(channels, 1));
                    (next(), columns, partial, layout.take(4 * columns.chunks))
                });
                Run::Product(Box::new(ProductRun { product, forward, input, weights, bias_sums }))
            }
            Pass::Finish(finish) => {
                let shape = plan.tensors[finish.y].shape;
                let out_len = plan.tensors[finish.out].shape.len();
                let own = next();
                let norm1 = match &finish.first {
                    First::Norm(norm) => Some(NormState::new(norm.clone(), finish.y, shape, next(), layout)),
                    _ => None,
                };
                let norm2 = match &finish.second {
                    Some((tensor, Some(norm))) => Some(NormState::new(norm.clone(), *tensor, shape, next(), layout)),
                    _ => None,
                };
                let vector = FinishRun::vector(&finish, shape);
                let columns = Columns::new(shape.channels, vector);
                let normed = norm1.is_some() || norm2.is_some();
                let inputs_need = plan.tensors[finish.y].needs_slopes
                    || finish.second.as_ref().is_some_and(|(t, _)| plan.tensors[*t].needs_slopes);
                let beside = normed && inputs_need && (finish.adds || !plan.tensors[finish.y].needs_slopes);
                Run::Finish(Box::new(FinishRun {
                    aside: beside.then(|| layout.take(batch * shape.len() * bytes)),
                    choice: layout.take(if finish.pool.is_some() { batch * out_len } else { 0 }),
                    partial: layout.take(8 * Columns::partial_len(shape.channels, 3)),
                    counter: layout.take(4 * columns.chunks),
                    finish,
                    shape,
                    out_len,
                    vector,
                    kernels: own,
                    norm1,
                    norm2,
                    columns,
                }))
            }
            Pass::Average(average) => {
                let vector = vector(&[average.geometry.channels]);
                Run::Average(AverageRun { average, kernels: next(), vector })
            }
        });
    }
    Ok((runs, places))
}
