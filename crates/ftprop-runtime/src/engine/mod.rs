//! Running a packed model: load once, then classify without allocating.
//!
//! Each thread has buffers of its own for a few images. Threads take what they can do of a batch, a few images at a
//! time; fewer images than threads are computed by all threads together, layer by layer. Either way every sum is an integer or taken in a
//! fixed order, so logits have the same bits for any number of threads and any kernels.

mod aligned;
mod buffer;
mod finish;
mod fold;
mod packing;
mod plan;
mod pool;
mod real;
mod team;
mod whole;

use std::cell::{RefCell, UnsafeCell};
use std::ops::Range;
use std::time::{Duration, Instant};

use aligned::Aligned;
use buffer::{Buffer, Layout};
use plan::Plan;
use team::{Claims, Team};

use crate::error::{Error, Result};
use crate::kernels::{BLOCK, Kernels, PANEL};
use crate::memory;
use crate::model::{Element, Model, Preprocessing};

/// How an engine works.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads, at least 1; the caller's counts.
    pub threads: usize,
    /// The kernels; by default those of the environment variable `FTPROP_KERNELS`, or else the fastest that run here.
    pub kernels: Option<Kernels>,
    /// Whether layers on bits use lookup tables wherever they can (true), nowhere (false), or where measurements
    /// say that they are faster. For measuring; the results are the same.
    pub tables: Option<bool>,
    /// Images that a thread takes through the network together, at least 1; fewer where `memory_limit` has no room.
    pub images_together: usize,
    /// The most bytes the engine may allocate, 4 GiB at most and 512 MiB by default; a model that needs more for a
    /// single image at a time is refused before its buffers are allocated.
    pub memory_limit: u64,
    /// The most [operations](Model::operations) that one image may take, 2³⁴ by default: some ten of the largest
    /// ResNets. A model that takes more is refused before anything is allocated, for a file of a few bytes can describe
    /// years of work.
    pub operation_limit: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            threads: 1,
            kernels: None,
            tables: None,
            images_together: 16,
            memory_limit: 1 << 29,
            operation_limit: 1 << 34,
        }
    }
}

/// Bytes asked for so far, and how many there may be.
struct Budget {
    used: u128,
    limit: u64,
}

impl Budget {
    /// Asks for more, before allocating it.
    fn take(&mut self, bytes: u128) -> Result<()> {
        self.used += bytes;
        if self.used > self.limit as u128 {
            let needed = u64::try_from(self.used).unwrap_or(u64::MAX);
            return Err(Error::Memory { needed, limit: self.limit });
        }
        Ok(())
    }
}

/// What a step works on.
struct Context<'a> {
    layouts: &'a [Layout],
    buffers: &'a [Buffer],
    kernels: Kernels,
    images: usize,
    /// Threads that work on these images together.
    workers: usize,
}

/// Room for intermediate results of one thread.
struct Scratch {
    /// For each output of a tile: where its inputs are, where it goes, where its thresholds are.
    positions: Vec<u32>,
    places: Vec<u32>,
    rows: Vec<u32>,
    pixels_at: Vec<u32>,
    sums: Aligned<i32>,
    real_sums: Aligned<f32>,
    levels: Vec<u8>,
    /// A panel's outputs.
    reals: Vec<f32>,
    taps: Vec<f32>,
    /// All channels of a pixel, twice.
    pixels: [Vec<f32>; 2],
}

impl Scratch {
    /// The most positions of a tile.
    const POSITIONS: usize = 256;

    fn new(plan: &Plan) -> Result<Self> {
        let width = PANEL * BLOCK;
        let words = || memory::filled(0, Scratch::POSITIONS);
        Ok(Scratch {
            positions: words()?,
            places: words()?,
            rows: words()?,
            pixels_at: words()?,
            sums: Aligned::new(Scratch::POSITIONS * width)?,
            real_sums: Aligned::new(Scratch::POSITIONS * width)?,
            levels: memory::filled(0, Scratch::POSITIONS * width)?,
            reals: memory::filled(0.0, width)?,
            taps: memory::filled(0.0, plan.taps)?,
            pixels: [memory::filled(0.0, plan.channels)?, memory::filled(0.0, plan.channels)?],
        })
    }

    fn size(plan: &Plan) -> u128 {
        let width = PANEL * BLOCK;
        (Scratch::POSITIONS * (16 + 9 * width) + 4 * width) as u128 + 4 * plan.taps as u128 + 8 * plan.channels as u128
    }
}

/// A thread's buffers.
struct Lane {
    buffers: Vec<Buffer>,
    scratch: UnsafeCell<Scratch>,
    /// For taking the images in and for each step.
    claims: Vec<Claims>,
}

// SAFETY: a lane's scratch is only touched by the team member of its number.
unsafe impl Sync for Lane {}

/// A loaded model. It keeps nothing of the bytes it was loaded from.
pub struct Engine {
    plan: Plan,
    kernels: Kernels,
    lanes: Vec<Lane>,
    team: Team,
    together: usize,
    /// For sharing a batch out.
    batch: Claims,
    names: Vec<String>,
    name: String,
    memory: u64,
    operations: u64,
}

impl Engine {
    /// Reads a packed model and makes it ready.
    pub fn load(bytes: &[u8], options: &EngineOptions) -> Result<Self> {
        Engine::new(&Model::parse(bytes)?, options)
    }

    /// Makes a model ready.
    pub fn new(model: &Model<'_>, options: &EngineOptions) -> Result<Self> {
        let kernels = match options.kernels {
            Some(kernels) if kernels.available() => kernels,
            Some(kernels) => Kernels::named(kernels.name())?,
            None => Kernels::detect()?,
        };
        let operations = model.operations()?;
        if operations > options.operation_limit {
            return Err(Error::Work { needed: operations, limit: options.operation_limit });
        }
        let mut together = options.images_together.max(1);
        let threads = options.threads.clamp(1, 1024);
        let (plan, memory) = loop {
            match Engine::plan(model, options, kernels, together, threads) {
                Err(Error::Memory { .. }) if together > 1 => together /= 2,
                planned => break planned?,
            }
        };
        let lane = || {
            Ok(Lane {
                buffers: memory::try_collect(plan.layouts.iter().map(Buffer::new))?,
                scratch: UnsafeCell::new(Scratch::new(&plan)?),
                claims: memory::collect((0..plan.steps.len() + 1).map(|_| Claims::default()))?,
            })
        };
        let lanes = memory::try_collect((0..threads).map(|_| lane()))?;
        let team = Team::new(threads).map_err(|_| Error::Threads { wanted: threads })?;
        let (names, name) = (memory::copy(&model.classes)?, model.name.clone());
        let batch = Claims::default();
        Ok(Engine { plan, kernels, lanes, team, together, batch, names, name, memory, operations })
    }

    /// The plan for so many images at a time, and the bytes that the engine then takes in all.
    fn plan(
        model: &Model<'_>,
        options: &EngineOptions,
        kernels: Kernels,
        together: usize,
        threads: usize,
    ) -> Result<(Plan, u64)> {
        // Places in a buffer are kept in 32 bits.
        let limit = options.memory_limit.min(u32::MAX as u64);
        let mut budget = Budget { used: 0, limit };
        let plan = Plan::new(model, options, kernels, together, threads, &mut budget)?;
        budget.take(Scratch::size(&plan) * threads as u128)?;
        Ok((plan, budget.used as u64))
    }

    /// What the model says of its input.
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.plan.about
    }

    /// Values of one image: rows × columns × channels, channels varying fastest.
    pub fn image_len(&self) -> usize {
        self.plan.about.input.len() as usize
    }

    /// How many logits an image gets.
    pub fn classes(&self) -> usize {
        self.plan.classes
    }

    /// The classes' names, none if the model has none.
    pub fn class_names(&self) -> &[String] {
        &self.names
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes that the engine takes for its weights and buffers.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// What one image costs, see [`Model::operations`].
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The kernels in use.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Classifies any number of images that lie one after the other, and writes each one's logits. Allocates nothing.
    pub fn classify(&mut self, images: &[u8], logits: &mut [f32]) -> Result<()> {
        self.classify_any(Images::Bytes(images), logits)
    }

    /// The same for a model of tables, which takes rows of features.
    pub fn classify_reals(&mut self, rows: &[f32], logits: &mut [f32]) -> Result<()> {
        self.classify_any(Images::Reals(rows), logits)
    }

    /// Refuses what the model does not take, or not in whole images.
    fn check(&self, images: Images<'_>) -> Result<()> {
        let (image_len, takes) = (self.image_len(), self.plan.about.element);
        if images.element() != takes {
            let takes = if takes == Element::Byte { "the bytes of images" } else { "rows of real numbers" };
            return Err(Error::Element { takes });
        }
        match images.len().is_multiple_of(image_len) {
            true => Ok(()),
            false => Err(Error::Shape { what: "the images' buffer", found: images.len(), expected: image_len }),
        }
    }

    fn classify_any(&mut self, images: Images<'_>, logits: &mut [f32]) -> Result<()> {
        self.check(images)?;
        let (image_len, classes) = (self.image_len(), self.classes());
        let count = images.len() / image_len;
        if logits.len() != count * classes {
            return Err(Error::Shape { what: "the logits' buffer", found: logits.len(), expected: count * classes });
        }
        let threads = self.team.size();
        let (plan, lanes, kernels) = (&self.plan, &self.lanes, self.kernels);
        if threads > 1 && count < threads {
            for (number, logits) in logits.chunks_mut(self.together * classes).enumerate() {
                let first = number * self.together;
                let images = images.part(first * image_len..(first + logits.len() / classes) * image_len);
                lanes[0].claims.iter().for_each(Claims::reset);
                // SAFETY: each member has a lane of its own, and all work on the same images in the first.
                self.team.run(&|member| unsafe {
                    forward(plan, kernels, &lanes[0], &lanes[member], images, threads, &|| ());
                });
                // SAFETY: nobody works any more.
                unsafe { copy_logits(plan, &lanes[0], logits) };
            }
            return Ok(());
        }
        // Small enough for every thread to get some.
        let together = self.together.min(count.div_ceil(threads)).max(1);
        let all = Output(logits.as_mut_ptr(), logits.len());
        self.batch.reset();
        let batch = &self.batch;
        // SAFETY: each member has a lane of its own, and each unit a range of logits of its own.
        self.team.run(&|member| unsafe {
            let lane = &lanes[member];
            for unit in batch.of(count.div_ceil(together)) {
                let (first, last) = (unit * together, ((unit + 1) * together).min(count));
                let images = images.part(first * image_len..last * image_len);
                lane.claims.iter().for_each(Claims::reset);
                forward(plan, kernels, lane, lane, images, 1, &|| ());
                copy_logits(plan, lane, all.part(first * classes..last * classes));
            }
        });
        Ok(())
    }

    /// How long each operation takes for these images (at most `images_together`) on one thread, in order; for
    /// finding out where the time goes.
    pub fn time_operations(&mut self, images: Images<'_>) -> Result<Vec<Duration>> {
        self.check(images)?;
        if images.len() / self.image_len() > self.together {
            return Err(Error::Shape { what: "the images' buffer", found: images.len(), expected: self.image_len() });
        }
        self.lanes[0].claims.iter().for_each(Claims::reset);
        let times = RefCell::new(vec![Instant::now()]);
        let now = || times.borrow_mut().push(Instant::now());
        // SAFETY: the engine is borrowed for this thread alone.
        unsafe { forward(&self.plan, self.kernels, &self.lanes[0], &self.lanes[0], images, 1, &now) };
        Ok(times.take()[1..].windows(2).map(|pair| pair[1] - pair[0]).collect())
    }
}

/// Images, or rows of a table, one after the other.
#[derive(Clone, Copy, Debug)]
pub enum Images<'a> {
    /// Pixels.
    Bytes(&'a [u8]),
    /// Features.
    Reals(&'a [f32]),
}

impl Images<'_> {
    fn element(self) -> Element {
        match self {
            Images::Bytes(_) => Element::Byte,
            Images::Reals(_) => Element::Real,
        }
    }

    fn len(self) -> usize {
        match self {
            Images::Bytes(bytes) => bytes.len(),
            Images::Reals(reals) => reals.len(),
        }
    }

    fn part(self, range: Range<usize>) -> Self {
        match self {
            Images::Bytes(bytes) => Images::Bytes(&bytes[range]),
            Images::Reals(reals) => Images::Reals(&reals[range]),
        }
    }
}

/// The logits' buffer, of which each thread writes a part.
struct Output(*mut f32, usize);

// SAFETY: `part` makes its caller keep the parts apart.
unsafe impl Sync for Output {}

impl Output {
    /// # Safety
    /// The buffer must be alive and nobody else may touch the range.
    #[allow(clippy::mut_from_ref, reason = "threads write disjoint parts; the caller keeps them apart")]
    unsafe fn part(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.1);
        // SAFETY: inside the buffer, and the caller promises the rest.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

/// Takes images through the network, together with all others who do the same with the same lane; calls `after` once
/// the images are in and after each step.
///
/// # Safety
/// All who work on `shared` now have the same images and number of workers, and its claims were reset before; `own`
/// is used by this thread only (its scratch, that is).
unsafe fn forward(
    plan: &Plan,
    kernels: Kernels,
    shared: &Lane,
    own: &Lane,
    images: Images<'_>,
    workers: usize,
    after: &dyn Fn(),
) {
    let input = &plan.layouts[0];
    let row = input.shape.width * input.shape.channels;
    let rows = images.len() / row;
    for unit in shared.claims[0].of(rows) {
        let at = input.at(unit / input.shape.height, unit % input.shape.height, 0);
        // SAFETY: a row belongs to one unit.
        unsafe {
            match (&shared.buffers[0], images) {
                (Buffer::Words(words), Images::Bytes(bytes)) => {
                    let to = words.part(at..at + row);
                    to.iter_mut().zip(&bytes[unit * row..]).for_each(|(to, &byte)| *to = byte as i16);
                }
                (Buffer::Reals(reals), Images::Reals(values)) => {
                    let normal = plan.about.mean.iter().zip(&plan.about.std).cycle();
                    let to = reals.part(at..at + row).iter_mut();
                    to.zip(&values[unit * row..]).zip(normal).for_each(|((to, x), (mean, std))| *to = (x - mean) / std);
                }
                _ => unreachable!("what the model does not take was refused"),
            }
        }
    }
    shared.claims[0].wait(rows);
    after();
    let images = rows / input.shape.height;
    let context = Context { layouts: &plan.layouts, buffers: &shared.buffers, kernels, images, workers };
    for (step, claims) in plan.steps.iter().zip(&shared.claims[1..]) {
        // SAFETY: units are claimed once each, and nobody goes on before all are done; the scratch is this thread's.
        unsafe { step.run(&context, claims, &mut *own.scratch.get()) };
        claims.wait(step.units(&context));
        after();
    }
}

/// # Safety
/// Nobody may write the last value meanwhile.
unsafe fn copy_logits(plan: &Plan, lane: &Lane, logits: &mut [f32]) {
    let last = plan.layouts.len() - 1;
    if let Buffer::Reals(reals) = &lane.buffers[last] {
        for (image, logits) in logits.chunks_exact_mut(plan.classes).enumerate() {
            let at = plan.layouts[last].at(image, 0, 0);
            // SAFETY: the caller's promise.
            logits.copy_from_slice(unsafe { &reals.all()[at..at + plan.classes] });
        }
    }
}
