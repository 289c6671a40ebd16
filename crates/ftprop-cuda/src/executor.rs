//! What a step runs, in order: the batch, the passes forward, the loss, the passes back, the optimizer. Nothing here waits
//! for the GPU unless it says so, so all of it can be captured.

mod asked;
mod early;
mod inspection;
mod turns;

use crate::CudaError;
use crate::abi::{DeviceStep, DeviceTally};
use crate::arena::{Arena, ArenaLayout, Region};
use crate::basic;
use crate::batch::{BatchLoader, Turn};
use crate::compile::Source;
use crate::curvature::{self, CurvaturePass};
use crate::data::ResidentData;
use crate::device::Device;
use crate::distillation::{self, DistillationPass};
use crate::environment::tries;
use crate::exchange::Exchange;
use crate::further::FurtherBuffers;
use crate::learned::LearnedProduct;
use crate::libraries::Libraries;
use crate::loss::{self, LossPass, Purpose};
use crate::matrices;
use crate::nccl::Communicator;
use crate::optimizer::{self, OptimizerPass};
use crate::parameters::ParameterBuffers;
use crate::passes::{self, Algorithms, BatchContext, CompileOptions, CompiledPass, Others, Statistics, TensorRegions};
use crate::pictures;
use crate::plan::{FusedPass, FusionPlan, Role};
use crate::precision::Precision;
use crate::staging::StagingBuffers;
use crate::step::StepBuffers;
use crate::stream::{CudaGraph, CudaStream, SideStream};
use crate::streamed::PictureSlots;
use crate::work::PassWork;
use early::EarlyUpdate;
use ftprop_nn::engine::Reducer;
use ftprop_nn::{Graph, Learning, Shape};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// What an executor is compiled for beside its plan.
pub(crate) struct ExecutorConfig<'a> {
    pub(crate) options: CompileOptions,
    pub(crate) graph: &'a Graph,
    pub(crate) learning: &'a Learning,
}

/// A network's kernels, its memory, and the streams that they run in.
pub(crate) struct Executor {
    device: Device,
    stream: CudaStream,
    /// For gradients, which the slopes on their way down do not wait for; none where other networks keep the GPU busy.
    side: Option<SideStream>,
    /// For the next batch, which is made while a step learns from the one before; none where other networks keep the GPU busy, or
    /// there is no room to spare for it.
    next: Option<SideStream>,
    arena: Arena,
    parameters: ParameterBuffers,
    step: StepBuffers,
    batch: BatchLoader,
    passes: Vec<CompiledPass>,
    /// Where the tensors are, for each place where the batch may be.
    tensors: Vec<Vec<TensorRegions>>,
    loss: LossPass,
    optimizer: OptimizerPass,
    early: Option<EarlyUpdate>,
    output: OutputTensor,
    /// Where a row of scalars has those of mixed examples, and how wide a row is; none where nothing is mixed.
    mixing: Option<(usize, usize)>,
    /// Other GPUs that share the batches.
    exchange: Option<Exchange>,
    /// Whether norms go by the examples of all of them.
    sync_norm: bool,
    /// What sums for the norms through the host's memory, where there is no exchange.
    host: Option<HostSums>,
    /// The network that is learned from, and how.
    teacher: Option<(Box<Executor>, DistillationPass)>,
    /// What target rules look at further than at their units.
    further: FurtherBuffers,
    /// The tensors that each activation is of, where they are kept.
    pre_activations: Vec<usize>,
    /// What each pass has to move and to multiply.
    work: Vec<PassWork>,
}

/// A reducer that several hold.
pub(crate) type SharedReducer = Arc<Mutex<Box<dyn Reducer>>>;

/// Sums that go through the host's memory.
struct HostSums(SharedReducer);

impl Others for HostSums {
    fn sum(&self, arena: &Arena, region: Region, count: usize, stream: &CudaStream) -> Result<(), CudaError> {
        let mut numbers: Vec<f64> = arena.read(stream, region, count)?;
        let mut reducer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reducer.sum(&mut numbers).map_err(|error| CudaError::Others(Box::new(error)))?;
        arena.write(stream, region, &numbers)
    }
}

/// The logits, and what every pass gives.
struct OutputTensor {
    tensor: usize,
    classes: usize,
    /// Whether the logits are f32 whatever the activations are.
    is_f32: bool,
    /// The shape of what each pass gives.
    pass_shapes: Vec<Shape>,
    precision: Precision,
}

/// A piece of a step, put into the stream at each call.
pub(crate) type Piece<'a> = dyn Fn() -> Result<(), CudaError> + 'a;

/// All that is compiled for a network.
pub(crate) fn sources(plan: &FusionPlan, algorithms: &Algorithms, config: &ExecutorConfig<'_>) -> Vec<Source> {
    let precision = config.options.precision;
    let mut sources = passes::sources(plan, algorithms, &config.options);
    sources.extend([
        loss_source(plan, config),
        optimizer::source(config.learning, &config.options.scalars, precision),
        basic::source(precision),
        pictures::source(precision),
    ]);
    sources.extend(matrices::source(&config.learning.groups, &config.options.scalars, precision));
    let learned = LearnedProduct::all(plan, config.learning, &config.options);
    sources.extend(learned.iter().map(|one| one.source(config.learning, &config.options)));
    sources.extend(distillation_source(plan, config));
    sources.extend(curvature_source(plan, config));
    sources
}

/// The kernels for the loss's curvature, where it comes down.
fn curvature_source(plan: &FusionPlan, config: &ExecutorConfig<'_>) -> Option<Source> {
    let (precision, learning) = (config.options.precision, config.learning);
    let (classes, f32_logits) = (config.graph.classes(), has_f32_logits(plan, precision));
    let of_loss = || {
        loss::source_of(curvature::FILE, &learning.criterion, classes, f32_logits, &config.options.scalars, precision)
    };
    let source = plan.curved.then(of_loss)?.int("DISTILS", usize::from(learning.teacher.is_some()));
    Some(match &learning.teacher {
        Some(teacher) => distillation::with_settings(source, teacher.distillation),
        None => source,
    })
}

/// The kernels for learning from a teacher, where there is one.
fn distillation_source(plan: &FusionPlan, config: &ExecutorConfig<'_>) -> Option<Source> {
    let teacher = config.learning.teacher.as_ref()?;
    let precision = config.options.precision;
    let of_teacher = FusionPlan::new(&teacher.graph, Role::Teacher { kept: false });
    let f32_logits = [plan, &of_teacher].map(|plan| has_f32_logits(plan, precision));
    Some(distillation::source(teacher.distillation, config.graph.classes(), f32_logits, precision))
}

fn loss_source(plan: &FusionPlan, config: &ExecutorConfig<'_>) -> Source {
    let precision = config.options.precision;
    let f32_logits = has_f32_logits(plan, precision);
    loss::source(&config.learning.criterion, config.graph.classes(), f32_logits, &config.options.scalars, precision)
}

/// Whether the logits are f32 whatever the activations are.
fn has_f32_logits(plan: &FusionPlan, precision: Precision) -> bool {
    let last_is_product = matches!(plan.passes.last(), Some(FusedPass::Product(p)) if p.y == plan.output);
    precision != Precision::Bf16 || last_is_product
}

impl Executor {
    pub(crate) fn new(
        device: &Device,
        plan: FusionPlan,
        algorithms: &Algorithms,
        libraries: &Libraries,
        config: &ExecutorConfig<'_>,
        teacher: Option<Executor>,
    ) -> Result<Self, CudaError> {
        let &ExecutorConfig { ref options, graph, learning } = config;
        let &CompileOptions { precision, batch, alone, .. } = options;
        // All at once, so that the compiler has work for every core.
        device.modules(&sources(&plan, algorithms, config))?;
        let mut layout = ArenaLayout::default();
        let (input, tensor) = (plan.input, plan.output);
        let (stored, loss) = (plan.tensors[input].stored, loss_source(&plan, config));
        let is_f32 = has_f32_logits(&plan, precision);
        let teacher = match (teacher, distillation_source(&plan, config)) {
            (Some(executor), Some(source)) => Some((Box::new(executor), DistillationPass::new(device, source)?)),
            _ => None,
        };
        let taught = teacher.as_ref().map_or(vec![], |(teacher, _)| teacher.taught());
        let count = graph.parameter_count();
        let curvature = curvature_source(&plan, config);
        let curvature = curvature.map(|source| CurvaturePass::new(device, source, count, precision)).transpose()?;
        let pre_activations = plan.pre_activations.clone();
        let (learned, asks_above) = (LearnedProduct::all(&plan, learning, options), plan.asks_above());
        let work = passes::work::of_plan(&plan, options);
        let shapes: Vec<Shape> = plan.tensors.iter().map(|t| t.shape).collect();
        let (passes, tensors) = passes::compile(device, plan, algorithms, libraries, &config.options, &mut layout)?;
        let mut places = vec![tensors[input].values];
        // A second place is not worth having to make batches smaller.
        if alone && layout.bytes() <= device.memory()?.0 / 2 && !tries("intime") {
            places.push(layout.take_like(places[0]));
        }
        let images = (graph.input(), stored, places.as_slice());
        let batch_loader = BatchLoader::new(device, images, batch, precision, &mut layout)?;
        let step = StepBuffers::new(options.scalars.width(), &mut layout);
        let loss = LossPass::new(device, loss, &learning.criterion, graph.classes(), &mut layout)?;
        let stream = if tries("first") { CudaStream::urgent(device)? } else { CudaStream::new(device)? };
        let optimizer = OptimizerPass::new(device, &stream, learning, &options.scalars, precision, &mut layout)?;
        let parameters = ParameterBuffers::new(device, graph, learning, precision)?;
        let early = match !tries("late") && alone && optimizer.can_be_parted() && !asks_above {
            true => EarlyUpdate::new(device, &passes, parameters.count(), &learned, (learning, options))?,
            false => None,
        };
        let further = FurtherBuffers::new(taught, curvature, &passes, (batch, graph.classes()), &mut layout);
        let pass_shapes = passes.iter().map(|pass| shapes[pass.output()]).collect();
        let next = (places.len() > 1).then(|| SideStream::new(device)).transpose()?;
        let at_place = |values: Region| {
            let mut tensors = tensors.clone();
            tensors[input].values = values;
            tensors
        };
        Ok(Executor {
            device: device.clone(),
            stream,
            side: alone.then(|| SideStream::new(device)).transpose()?,
            next,
            arena: layout.build(device, &format!("a batch of {batch}"))?,
            parameters,
            step,
            batch: batch_loader,
            passes,
            tensors: places.into_iter().map(at_place).collect(),
            loss,
            optimizer,
            early,
            output: OutputTensor { tensor, classes: graph.classes(), is_f32, pass_shapes, precision },
            mixing: options.scalars.mixes().then(|| (options.scalars.mixing_at(), options.scalars.width())),
            exchange: None,
            sync_norm: options.sync_norm,
            host: None,
            teacher,
            further,
            pre_activations,
            work,
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn stream(&self) -> &CudaStream {
        &self.stream
    }

    pub(crate) fn parameters(&self) -> &ParameterBuffers {
        &self.parameters
    }

    /// Bytes of device memory that it uses.
    pub(crate) fn bytes(&self) -> usize {
        let teacher = self.teacher.as_ref().map_or(0, |(teacher, _)| teacher.bytes());
        self.arena.bytes() + self.parameters.bytes() + self.further.bytes() + teacher
    }

    /// Waits for everything that was asked for.
    pub(crate) fn wait(&self) -> Result<(), CudaError> {
        self.stream.wait()
    }

    /// Captures work on batches of n; libraries are asked how they do it before, which they must not be meanwhile.
    pub(crate) fn capture(
        &self,
        n: usize,
        work: impl FnOnce(&Executor) -> Result<(), CudaError>,
    ) -> Result<CudaGraph, CudaError> {
        let teachers = self.teacher.iter().flat_map(|(teacher, _)| &teacher.passes);
        let passes: Vec<&CompiledPass> = self.passes.iter().chain(teachers).collect();
        // All at once, as above.
        self.device.modules(&passes.iter().flat_map(|pass| pass.sources_for(n)).collect::<Vec<_>>())?;
        passes.iter().try_for_each(|pass| pass.prepare(n))?;
        self.stream.capture(|| work(self))
    }

    /// Whether work can be captured: what goes through the host's memory on its way cannot.
    pub(crate) fn can_be_captured(&self) -> bool {
        self.host.is_none()
    }

    /// Those who have the batches' other examples, as norms see them.
    fn others(&self) -> Option<&dyn Others> {
        match (&self.exchange, &self.host) {
            _ if !self.sync_norm => None,
            (Some(exchange), _) => Some(exchange),
            (None, Some(host)) => Some(host),
            (None, None) => None,
        }
    }

    /// Where the values of a tensor are.
    fn values(&self, tensor: usize) -> Region {
        self.tensors[self.batch.current()][tensor].values
    }

    fn context(&self, n: usize, statistics: Statistics) -> BatchContext<'_> {
        BatchContext {
            others: self.others(),
            arena: &self.arena,
            tensors: &self.tensors[self.batch.current()],
            parameters: &self.parameters,
            step: self.step.step(&self.arena),
            scalars: self.step.scalars(&self.arena),
            labels: self.batch.labels(&self.arena),
            not_numbers: self.loss.not_numbers(&self.arena),
            further: self.further.seen(&self.arena),
            statistics,
            n,
        }
    }

    /// Sets the next step and the scalars from it on.
    pub(crate) fn set_step(&self, step: DeviceStep, scalars: &[f32]) -> Result<(), CudaError> {
        self.step.set(&self.stream, &self.arena, step, scalars)
    }

    /// Makes the batch that the step names from resident data, or the n examples of it that it names. A full batch has
    /// `full` examples.
    pub(crate) fn gather(&self, data: &ResidentData, n: usize, full: usize) -> Result<(), CudaError> {
        self.batch.gather(&self.stream, &self.arena, self.step.step(&self.arena), data, (n, full, Turn::Now))
    }

    /// Makes the batch that the host brought into the step's slot.
    pub(crate) fn gather_streamed(&self, data: &PictureSlots, n: usize) -> Result<(), CudaError> {
        self.batch.gather_streamed(&self.stream, &self.arena, self.step.step(&self.arena), data, n)
    }

    /// Waits, and gives the batch that is in place, of n examples.
    pub(crate) fn read_batch(&self, n: usize) -> Result<Vec<f32>, CudaError> {
        self.batch.read(&self.stream, &self.arena, n, self.output.precision)
    }

    /// Takes the batch that the host put into the step's slot.
    pub(crate) fn load_staged(&self, staging: &StagingBuffers, n: usize) -> Result<(), CudaError> {
        self.batch.load_staged(&self.stream, &self.arena, self.step.step(&self.arena), staging, n)
    }

    /// Moves an evaluation on to its next batch.
    pub(crate) fn next_batch(&self) -> Result<(), CudaError> {
        self.batch.next_batch(&self.stream, self.step.step(&self.arena))
    }

    /// A whole step on the batch that is in place.
    pub(crate) fn learn(&self, n: usize) -> Result<(), CudaError> {
        self.learn_and(n, None)
    }

    /// The same, with what the stream for the next batch does beside it once the outputs are there: the loss leaves most of the GPU
    /// idle. It is waited for before the optimizer.
    fn learn_and(&self, n: usize, beside: Option<&Piece<'_>>) -> Result<(), CudaError> {
        let early = self.early.as_ref().filter(|_| n > 0 && self.exchange.is_none());
        self.take_gradients_and(n, early, beside)?;
        if let (Some(next), Some(_)) = (&self.next, beside) {
            next.join_into(&self.stream)?;
        }
        let end = early.map_or(self.parameters.count(), |early| early.range.start);
        self.optimize_part(&self.stream, 0..end, true)
    }

    /// A step up to the optimizer. Without examples, as a batch that several GPUs share may have none here, all gradients
    /// are zero.
    pub(crate) fn take_gradients(&self, n: usize) -> Result<(), CudaError> {
        self.take_gradients_and(n, None, None)
    }

    /// The same, with what is learned meanwhile, and what else is asked for beside the way back.
    fn take_gradients_and(
        &self,
        n: usize,
        early: Option<&EarlyUpdate>,
        beside: Option<&Piece<'_>>,
    ) -> Result<(), CudaError> {
        if n == 0 {
            self.parameters.clear_grads(&self.stream)?;
            if self.others().is_some() {
                self.attend(Statistics::Batch)?;
                return self.attend_back();
            }
            return self.exchange.iter().try_for_each(|exchange| exchange.all(&self.stream, &self.parameters));
        }
        self.mix(n)?;
        self.ask_teacher(n)?;
        self.forward(n, Statistics::Batch)?;
        beside.map_or(Ok(()), |beside| beside())?;
        self.apply_loss(n, true)?;
        self.hear_teacher(n)?;
        self.look_further(n)?;
        self.keep_logits(n, false)?;
        self.backward(n, early)?;
        self.keep_logits(n, true)
    }

    /// Takes part in the norms' sums over a batch of which no example is here.
    pub(crate) fn attend(&self, statistics: Statistics) -> Result<(), CudaError> {
        let context = self.context(0, statistics);
        self.passes.iter().try_for_each(|pass| pass.attend(&context, &self.stream, false))
    }

    /// The same on the way back, with the sums of the gradients in the same places as elsewhere.
    fn attend_back(&self) -> Result<(), CudaError> {
        let context = self.context(0, Statistics::Batch);
        for (number, pass) in self.passes.iter().enumerate().rev() {
            pass.attend(&context, &self.stream, true)?;
            if let Some(exchange) = &self.exchange {
                exchange.begin_after(number, &self.stream, None, &self.parameters)?;
            }
        }
        self.exchange.iter().try_for_each(|exchange| exchange.finish(&self.stream, &self.parameters))
    }

    /// Mixes the examples of the batch that is in place, where they are to be mixed.
    fn mix(&self, n: usize) -> Result<(), CudaError> {
        let Some((at, width)) = self.mixing else { return Ok(()) };
        let scalars = self.step.scalars(&self.arena).after_floats(at);
        self.batch.mix(&self.stream, &self.arena, (self.step.step(&self.arena), scalars, width), n)
    }

    /// Tallies the batch that is in place, once [`load_running_statistics`](Self::load_running_statistics) was called.
    pub(crate) fn evaluate(&self, n: usize) -> Result<(), CudaError> {
        self.forward(n, Statistics::Running)?;
        self.apply_loss(n, false)
    }

    pub(crate) fn forward(&self, n: usize, statistics: Statistics) -> Result<(), CudaError> {
        self.forward_in(&self.stream, n, statistics)
    }

    fn forward_in(&self, stream: &CudaStream, n: usize, statistics: Statistics) -> Result<(), CudaError> {
        self.device.enter()?;
        let context = self.context(n, statistics);
        self.passes.iter().try_for_each(|pass| pass.forward(&context, stream))
    }

    /// Has the norms take the running statistics from now on.
    pub(crate) fn load_running_statistics(&self) -> Result<(), CudaError> {
        let context = self.context(1, Statistics::Running);
        self.passes.iter().try_for_each(|pass| pass.load_running_statistics(&context, &self.stream))
    }

    pub(crate) fn apply_loss(&self, n: usize, learning: bool) -> Result<(), CudaError> {
        let [losses, _] = self.further.losses(&self.arena);
        self.take_loss(n, if learning { Purpose::Learn { losses } } else { Purpose::Measure })
    }

    fn take_loss(&self, n: usize, purpose: Purpose) -> Result<(), CudaError> {
        let (context, output) = (self.context(n, Statistics::Batch), self.output.tensor);
        let tensors = [context.values(output), self.batch.labels(&self.arena), context.slopes(output)];
        self.loss.run(&self.stream, &self.arena, tensors, [context.step, context.scalars], n, purpose)
    }

    /// Targets and slopes, layer by layer, with the gradients of each layer's parameters. Nothing further down waits for
    /// those, so they are computed beside.
    fn backward(&self, n: usize, early: Option<&EarlyUpdate>) -> Result<(), CudaError> {
        let context = self.context(n, Statistics::Batch);
        for (number, pass) in self.passes.iter().enumerate().rev() {
            let beside = if pass.uses_side_stream() { self.side_stream()? } else { &self.stream };
            let learned = early.is_some_and(|early| early.learns(number));
            if learned {
                pass.bias_gradient(&context, beside)?;
            } else {
                pass.gradients(&context, beside)?;
            }
            if !learned && pass.has_unfinished_gradients(n) {
                let beside = pass.uses_side_stream() || !tries("inline");
                pass.end_gradients(&context, if beside { self.side_stream()? } else { &self.stream })?;
            }
            if context.further.curvature.is_some() {
                pass.carry(&context, &self.stream)?;
            }
            if pass.asks_above() && !context.slopes(pass.output()).is_null() {
                self.try_above(number, n)?;
            }
            pass.backward(&context, &self.stream)?;
            if pass.has_partial_bias() {
                pass.reduce_bias_gradient(&context, self.side_stream()?)?;
            }
            if let Some(exchange) = &self.exchange {
                exchange.begin_after(number, &self.stream, self.side.as_ref(), &self.parameters)?;
            }
            if let Some(early) = early.filter(|early| early.after == number) {
                // After both streams: the side stream first follows the main one.
                let stream = early.stream.fork_from(self.side_stream()?)?;
                early.learn(&context, stream)?;
                early.others().into_iter().try_for_each(|range| self.optimize_part(stream, range, false))?;
            }
        }
        early.iter().try_for_each(|early| early.stream.join_into(&self.stream))?;
        self.side.iter().try_for_each(|side| side.join_into(&self.stream))?;
        self.exchange.iter().try_for_each(|exchange| exchange.finish(&self.stream, &self.parameters))
    }

    /// Has gradients go through other GPUs from now on.
    pub(crate) fn set_exchange(&mut self, communicator: Communicator) -> Result<(), CudaError> {
        let passes: Vec<Vec<Range<usize>>> = self.passes.iter().map(CompiledPass::parameters).collect();
        let exchange = Exchange::new(&self.device, communicator, &passes, self.parameters.count(), self.sync_norm)?;
        // Once outside of any graph: connections between GPUs are made at the first sum.
        exchange.all(&self.stream, &self.parameters)?;
        self.exchange = Some(exchange);
        if self.sync_norm {
            let statistics = self.parameters.read_stats(&self.stream)?;
            self.attend_without_rows(&statistics)?;
        }
        self.stream.wait()
    }

    /// The norms' sums once, of nothing; the running statistics stay what they are.
    fn attend_without_rows(&self, statistics: &[f32]) -> Result<(), CudaError> {
        self.attend(Statistics::Batch)?;
        self.parameters.write_stats(&self.stream, statistics)
    }

    /// Has the norms' sums go through the host's memory from now on, where they are to go by all examples.
    pub(crate) fn set_host_sums(&mut self, reducer: SharedReducer) {
        self.host = self.sync_norm.then_some(HostSums(reducer));
    }

    /// The stream for what nothing further down waits for, after what has been put into the main one by now.
    fn side_stream(&self) -> Result<&CudaStream, CudaError> {
        self.side.as_ref().map_or(Ok(&self.stream), |side| side.fork_from(&self.stream))
    }

    /// The optimizer's step along the gradients. With `advance` the device goes on to the next step's numbers.
    pub(crate) fn optimize(&self, advance: bool) -> Result<(), CudaError> {
        self.optimize_part(&self.stream, 0..self.parameters.count(), advance)
    }

    fn optimize_part(&self, stream: &CudaStream, range: Range<usize>, advance: bool) -> Result<(), CudaError> {
        self.device.enter()?;
        self.optimizer.run(stream, &self.arena, &self.parameters, &self.step, (range, advance))
    }

    /// Waits, and gives the norm of the last gradient where gradients are clipped.
    pub(crate) fn gradient_norm(&self) -> Result<Option<f64>, CudaError> {
        self.stream.wait()?;
        self.optimizer.gradient_norm(&self.stream, &self.arena)
    }

    pub(crate) fn clear_tally(&self) -> Result<(), CudaError> {
        self.loss.clear_tally(&self.stream, &self.arena)
    }

    /// Forgets that something was no number: what follows starts from other numbers.
    pub(crate) fn clear_not_numbers(&self) -> Result<(), CudaError> {
        self.loss.clear_not_numbers(&self.stream, &self.arena)
    }

    /// Waits.
    pub(crate) fn read_tally(&self) -> Result<DeviceTally, CudaError> {
        self.loss.read_tally(&self.stream, &self.arena)
    }

    pub(crate) fn write_tally(&self, tally: DeviceTally) -> Result<(), CudaError> {
        self.loss.write_tally(&self.stream, &self.arena, tally)
    }

    /// Waits, and gives the logits of the last batch of n.
    pub(crate) fn read_logits(&self, n: usize) -> Result<Vec<f32>, CudaError> {
        let OutputTensor { tensor, classes, is_f32, .. } = self.output;
        let (region, len) = (self.values(tensor), n * classes);
        if is_f32 {
            return self.arena.read(&self.stream, region, len);
        }
        let halves: Vec<u16> = self.arena.read(&self.stream, region, len)?;
        Ok(halves.into_iter().map(|h| f32::from_bits(u32::from(h) << 16)).collect())
    }
}
