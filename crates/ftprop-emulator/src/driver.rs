//! The GPU's state: memory, streams, events, and work that is captured instead of done.

use crate::grid;
use crate::limits::{MEMORY, MULTIPROCESSORS, SHARED_LIMIT, SHARED_UNASKED};
use crate::memory::Memory;
use crate::program::{Kernel, Program};
use crate::warp::Launch;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// The driver's numbers for what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    InvalidValue = 1,
    OutOfMemory = 2,
    InvalidPtx = 218,
    InvalidHandle = 400,
    NotFound = 500,
    IllegalAddress = 700,
    TooLargeToCooperate = 720,
    CaptureUnsupported = 900,
    CaptureUnjoined = 904,
}

/// Something to do.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel {
        kernel: Arc<Kernel>,
        blocks: [u32; 3],
        threads: [u32; 3],
        shared: usize,
        arguments: Vec<u64>,
    },
    /// Addresses, the GPU's or the host's.
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Fill {
        to: u64,
        byte: u8,
        bytes: usize,
    },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Kernel { kernel, blocks, threads, shared, .. } => {
                write!(f, "{} {blocks:?} blocks of {} threads, {shared} bytes", kernel.name, threads[0])
            }
            Work::Copy { bytes, .. } => write!(f, "a copy of {bytes} bytes"),
            Work::Fill { bytes, .. } => write!(f, "{bytes} bytes filled"),
        }
    }
}

/// Captured work and what it waits for.
#[derive(Clone)]
struct Node {
    work: Work,
    after: Vec<usize>,
}

/// A captured step.
pub(crate) struct Graph {
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Stream {
    /// The capture that it is part of, and what comes next waits for.
    capture: Option<(usize, Vec<usize>)>,
}

#[derive(Default)]
struct Event {
    happened: Option<Instant>,
    captured: Option<(usize, Vec<usize>)>,
}

#[derive(Default)]
struct State {
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, Event>,
    captures: HashMap<usize, Vec<Node>>,
    graphs: HashMap<usize, Arc<Graph>>,
    kernels: HashMap<usize, (Arc<Kernel>, usize)>,
    programs: HashMap<usize, Arc<Program>>,
    pinned: HashMap<usize, Box<[u64]>>,
    handles: usize,
    /// After a fault nothing works any more, as with the real one.
    lost: bool,
    order: u64,
}

/// The only GPU.
pub(crate) struct Gpu {
    pub(crate) memory: Memory,
    state: Mutex<State>,
    /// Work is done one after another.
    busy: Mutex<()>,
}

pub(crate) fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(Gpu::new)
}

impl State {
    fn handle(&mut self) -> usize {
        // No address, but not null either.
        self.handles += 16;
        self.handles
    }

    /// A number below a bound, a different one each time.
    fn any(&mut self, bound: usize) -> usize {
        self.order = self.order.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.order >> 33) as usize % bound
    }
}

impl Gpu {
    pub(crate) fn new() -> Self {
        Gpu { memory: Memory::new(MEMORY), state: Mutex::default(), busy: Mutex::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lock().lost
    }

    pub(crate) fn add_program(&self, program: Program) -> usize {
        for words in &program.variables {
            self.memory.add(words.as_ptr() as u64, words.len() * 8);
        }
        let mut state = self.lock();
        let handle = state.handle();
        state.programs.insert(handle, Arc::new(program));
        handle
    }

    pub(crate) fn find_kernel(&self, program: usize, name: &str) -> Result<usize, Failure> {
        let mut state = self.lock();
        let program = state.programs.get(&program).ok_or(Failure::InvalidHandle)?;
        let kernel = program.kernels.get(name).cloned().ok_or(Failure::NotFound)?;
        let handle = state.handle();
        state.kernels.insert(handle, (kernel, SHARED_UNASKED));
        Ok(handle)
    }

    /// Lets a kernel have so much shared memory that launches add.
    pub(crate) fn allow_shared(&self, kernel: usize, bytes: usize) -> Result<(), Failure> {
        let mut state = self.lock();
        let (kernel, allowed) = state.kernels.get_mut(&kernel).ok_or(Failure::InvalidHandle)?;
        if kernel.shared + bytes > SHARED_LIMIT {
            return Err(Failure::InvalidValue);
        }
        *allowed = bytes;
        Ok(())
    }

    pub(crate) fn kernel(&self, kernel: usize) -> Result<Arc<Kernel>, Failure> {
        self.lock().kernels.get(&kernel).map(|(kernel, _)| kernel.clone()).ok_or(Failure::InvalidHandle)
    }

    /// Refuses what the real one would.
    pub(crate) fn check_launch(
        &self,
        handle: usize,
        blocks: [u32; 3],
        threads: [u32; 3],
        added: usize,
        together: bool,
    ) -> Result<(), Failure> {
        let state = self.lock();
        let (kernel, allowed) = state.kernels.get(&handle).ok_or(Failure::InvalidHandle)?;
        let (count, most) = (threads.iter().product::<u32>(), kernel.most_threads.unwrap_or(1024).min(1024));
        let fits = added <= *allowed && kernel.shared + added <= SHARED_LIMIT;
        if blocks.contains(&0) || count == 0 || count > most || !fits || blocks[1] > 65535 || blocks[2] > 65535 {
            return Err(Failure::InvalidValue);
        }
        // What a multiprocessor holds at once; registers, which this does not know, may allow less.
        let by_shared = (228 << 10) / (kernel.shared + added + 1024);
        let held = (2048 / count.next_multiple_of(32)).min(by_shared as u32).min(32);
        let all = blocks.iter().map(|size| u64::from(*size)).product::<u64>();
        if together && all > u64::from(held) * u64::from(MULTIPROCESSORS) {
            return Err(Failure::TooLargeToCooperate);
        }
        Ok(())
    }

    /// Does something, or captures it if the stream is being captured.
    pub(crate) fn put(&self, stream: usize, work: Work) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.lost {
            return Err(Failure::IllegalAddress);
        }
        if let Some((capture, after)) = state.streams.get(&stream).and_then(|stream| stream.capture.clone()) {
            let nodes = state.captures.get_mut(&capture).ok_or(Failure::InvalidHandle)?;
            nodes.push(Node { work, after });
            let last = nodes.len() - 1;
            state.streams.entry(stream).or_default().capture = Some((capture, vec![last]));
            return Ok(());
        }
        drop(state);
        self.perform(&work)
    }

    fn perform(&self, work: &Work) -> Result<(), Failure> {
        let _busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match work {
            Work::Kernel { kernel, blocks, threads, shared, arguments } => {
                let places = self.memory.places();
                let shared = kernel.shared + shared;
                let (blocks, threads) = (*blocks, *threads);
                let launch = Launch { kernel, blocks, threads, shared, arguments, places: &places };
                grid::run(&launch).map_err(|fault| fault.0)
            }
            Work::Copy { to, from, bytes } => {
                // SAFETY: whoever asked for the copy made sure that both are there; the GPU's side was looked at.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
                Ok(())
            }
            Work::Fill { to, byte, bytes } => {
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(*to as *mut u8, *byte, *bytes) };
                Ok(())
            }
        };
        outcome.map_err(|why| {
            eprintln!("the GPU in software: {why}");
            self.lock().lost = true;
            Failure::IllegalAddress
        })
    }

    pub(crate) fn new_stream(&self) -> usize {
        let mut state = self.lock();
        let handle = state.handle();
        state.streams.insert(handle, Stream::default());
        handle
    }

    pub(crate) fn drop_stream(&self, stream: usize) {
        self.lock().streams.remove(&stream);
    }

    /// Whether a stream can be waited for: all that is in it is done, unless it is being captured.
    pub(crate) fn wait(&self, stream: usize) -> Result<(), Failure> {
        let state = self.lock();
        match state.streams.get(&stream) {
            _ if state.lost => Err(Failure::IllegalAddress),
            Some(Stream { capture: Some(_) }) => Err(Failure::CaptureUnsupported),
            _ => Ok(()),
        }
    }

    pub(crate) fn new_event(&self) -> usize {
        let mut state = self.lock();
        let handle = state.handle();
        state.events.insert(handle, Event::default());
        handle
    }

    pub(crate) fn drop_event(&self, event: usize) {
        self.lock().events.remove(&event);
    }

    pub(crate) fn record(&self, event: usize, stream: usize) -> Result<(), Failure> {
        let mut state = self.lock();
        let captured = state.streams.get(&stream).and_then(|stream| stream.capture.clone());
        let event = state.events.get_mut(&event).ok_or(Failure::InvalidHandle)?;
        *event = Event { happened: captured.is_none().then(Instant::now), captured };
        Ok(())
    }

    /// What comes next in the stream waits for the event; a stream that was not part of a capture becomes one.
    pub(crate) fn wait_event(&self, stream: usize, event: usize) -> Result<(), Failure> {
        let mut state = self.lock();
        let captured = state.events.get(&event).ok_or(Failure::InvalidHandle)?.captured.clone();
        let Some((capture, nodes)) = captured.filter(|(capture, _)| state.captures.contains_key(capture)) else {
            return Ok(());
        };
        let stream = state.streams.get_mut(&stream).ok_or(Failure::InvalidHandle)?;
        match &mut stream.capture {
            Some((other, after)) if *other == capture => after.extend(nodes),
            Some(_) => return Err(Failure::CaptureUnsupported),
            none => *none = Some((capture, nodes)),
        }
        Ok(())
    }

    /// Milliseconds between two events.
    pub(crate) fn elapsed(&self, first: usize, second: usize) -> Result<f32, Failure> {
        let state = self.lock();
        let when = |event: usize| state.events.get(&event).and_then(|event| event.happened);
        match (when(first), when(second)) {
            (Some(first), Some(second)) => Ok(second.saturating_duration_since(first).as_secs_f32() * 1e3),
            _ => Err(Failure::InvalidHandle),
        }
    }

    pub(crate) fn begin_capture(&self, stream: usize) -> Result<(), Failure> {
        let mut state = self.lock();
        let capture = state.handle();
        let stream = state.streams.get_mut(&stream).ok_or(Failure::InvalidHandle)?;
        if stream.capture.is_some() {
            return Err(Failure::CaptureUnsupported);
        }
        stream.capture = Some((capture, Vec::new()));
        state.captures.insert(capture, Vec::new());
        Ok(())
    }

    /// The captured step; refused where another stream's part of it was not waited for.
    pub(crate) fn end_capture(&self, stream: usize) -> Result<usize, Failure> {
        let mut state = self.lock();
        let taken = state.streams.get_mut(&stream).and_then(|stream| stream.capture.take());
        let (capture, last) = taken.ok_or(Failure::InvalidHandle)?;
        let nodes = state.captures.remove(&capture).ok_or(Failure::InvalidHandle)?;
        for stream in state.streams.values_mut().filter(|s| s.capture.as_ref().is_some_and(|c| c.0 == capture)) {
            stream.capture = None;
        }
        let (mut joined, mut open) = (HashSet::new(), last);
        while let Some(node) = open.pop() {
            if joined.insert(node) {
                open.extend(&nodes[node].after);
            }
        }
        if joined.len() < nodes.len() {
            return Err(Failure::CaptureUnjoined);
        }
        let handle = state.handle();
        state.graphs.insert(handle, Arc::new(Graph { nodes }));
        Ok(handle)
    }

    pub(crate) fn copy_graph(&self, graph: usize) -> Result<usize, Failure> {
        let mut state = self.lock();
        let graph = state.graphs.get(&graph).cloned().ok_or(Failure::InvalidHandle)?;
        let handle = state.handle();
        state.graphs.insert(handle, graph);
        Ok(handle)
    }

    pub(crate) fn drop_graph(&self, graph: usize) {
        self.lock().graphs.remove(&graph);
    }

    /// Does a captured step: each piece after those that it waits for, otherwise in any order.
    pub(crate) fn launch_graph(&self, graph: usize) -> Result<(), Failure> {
        let graph = self.lock().graphs.get(&graph).cloned().ok_or(Failure::InvalidHandle)?;
        let mut left: Vec<usize> = (0..graph.nodes.len()).collect();
        let told = std::env::var_os("FTPROP_EMULATOR_TRACE").is_some();
        let mut done = vec![false; graph.nodes.len()];
        while !left.is_empty() {
            let ready: Vec<usize> =
                (0..left.len()).filter(|at| graph.nodes[left[*at]].after.iter().all(|node| done[*node])).collect();
            if self.is_lost() {
                return Err(Failure::IllegalAddress);
            }
            let choice = ready[self.lock().any(ready.len())];
            let node = left.swap_remove(choice);
            if told {
                eprintln!("{node}: {} after {:?}", graph.nodes[node].work, graph.nodes[node].after);
            }
            self.perform(&graph.nodes[node].work)?;
            done[node] = true;
        }
        Ok(())
    }

    pub(crate) fn pin(&self, bytes: usize) -> usize {
        let words = vec![0u64; bytes.div_ceil(8).max(1)].into_boxed_slice();
        let start = words.as_ptr() as usize;
        self.lock().pinned.insert(start, words);
        start
    }

    pub(crate) fn unpin(&self, start: usize) -> bool {
        self.lock().pinned.remove(&start).is_some()
    }
}
