//! The CPU: its threads, its vector units and its kernels.
//!
//! | module | subject |
//! | --- | --- |
//! | [`gemm`] | the register-tiled product under every convolution and fully connected layer |
//! | [`conv`] | convolution: forward, and the gradients of its input and its weights |
//! | [`conv_pool`] | convolution and the max pooling after it, as one |
//! | [`linear`] | fully connected layers |
//! | [`pool`] | pooling |
//! | [`norm`] | batch normalisation |
//! | [`elementwise`] | any function of one or two numbers, mapped over buffers |
//! | [`reduce`] | sums in a fixed order |
//!
//! Every kernel takes the [`Cpu`] first, splits its work into tasks that write to disjoint places, and
//! never lets the number of threads decide in which order something is summed.

pub mod conv;
pub mod conv_pool;
pub mod elementwise;
pub mod gemm;
pub mod linear;
pub mod norm;
pub mod pool;
pub mod reduce;
pub mod shared_norm;
mod simd;

use crate::TensorError;
use crate::geometry::size;
use rayon::prelude::*;

pub use simd::Isa;

/// Worker threads and the instruction set they use, chosen when the program starts.
pub struct Cpu {
    pool: rayon::ThreadPool,
    threads: usize,
    isa: Isa,
}

/// More workers than any machine has cores for; asking for them is a slip.
const MOST_THREADS: usize = 1024;

impl Cpu {
    /// A CPU with so many worker threads; 0 takes one for each core.
    pub fn new(threads: usize) -> Result<Self, TensorError> {
        Self::with_isa(threads, Isa::detect())
    }

    /// A CPU that keeps to one instruction set, for comparing kernels.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Self, TensorError> {
        if !isa.available() {
            return Err(TensorError::Isa { isa });
        }
        let threads = if threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { threads };
        if threads > MOST_THREADS {
            return Err(TensorError::Threads { threads, reason: format!("at most {MOST_THREADS}") });
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("ftprop-{i}"))
            .build()
            .map_err(|e| TensorError::Threads { threads, reason: e.to_string() })?;
        Ok(Cpu { pool, threads, isa })
    }

    /// How many worker threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set that the kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Runs `f` on a worker thread. A loop of many kernels runs inside one call, because entering the pool
    /// from outside costs a wake-up and a queue entry for every kernel.
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        self.pool.install(f)
    }

    /// Calls `f(0), …, f(tasks - 1)`, each once, on any threads in any order.
    pub(crate) fn each(&self, tasks: usize, f: impl Fn(usize) + Sync + Send) {
        if tasks <= 1 || self.threads == 1 {
            (0..tasks).for_each(f);
        } else {
            self.pool.install(|| (0..tasks).into_par_iter().with_max_len(1).for_each(f));
        }
    }

    /// As [`each`](Self::each), with `len` floats of `scratch` that no other task touches while `f` runs.
    ///
    /// # Safety
    /// `f` runs no tasks itself: while it waits for them, its thread could begin another task with the same scratch.
    pub(crate) unsafe fn each_with_scratch(
        &self,
        tasks: usize,
        scratch: &mut [f32],
        len: usize,
        f: impl Fn(usize, &mut [f32]) + Sync + Send,
    ) {
        let scratch = Shared::new(&mut scratch[..size(self.threads, len)]);
        let alone = tasks <= 1 || self.threads == 1;
        self.each(tasks, |task| {
            let worker = if alone { 0 } else { rayon::current_thread_index().expect("tasks run on workers") };
            // SAFETY: a worker runs one task at a time, by the caller's promise.
            f(task, unsafe { scratch.slice(worker * len, len) });
        });
    }

    /// Cuts `out` into runs of `len` and calls `f(index, run)` for each.
    pub(crate) fn each_chunk(&self, out: &mut [f32], len: usize, f: impl Fn(usize, &mut [f32]) + Sync + Send) {
        let shared = Shared::new(out);
        self.each(shared.len().div_ceil(len), |i| {
            // SAFETY: the runs of different indices do not overlap.
            f(i, unsafe { shared.slice(i * len, len.min(shared.len() - i * len)) });
        });
    }
}

/// A mutable slice that tasks share, each writing to its own part.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    _lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `slice` and `ptr`, whose callers promise that parts in use do not overlap.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Shared { start: slice.as_mut_ptr(), len: slice.len(), _lifetime: std::marker::PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// # Safety
    /// No other reference into `at..at + len` is alive.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, at: usize, len: usize) -> &'a mut [T] {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "a task's part lies outside the buffer");
        // SAFETY: in bounds by the assertion, unique by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }

    /// # Safety
    /// `at` is within the slice, and what is written through the pointer is written by one task only.
    pub(crate) unsafe fn ptr(&self, at: usize) -> *mut T {
        debug_assert!(at <= self.len);
        // SAFETY: in bounds by the caller's promise.
        unsafe { self.start.add(at) }
    }
}
