//! Where runs compute when they are used: threads that they share.

use ftprop::tensor::Cpu;
use ftprop::train::Error;
use ftprop::train::choice::DeviceChoice;
use ftprop::train::device::Place;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The threads in use, by process and number. A forked process has none of its parent's.
static SHARED: Mutex<Vec<(u32, usize, Weak<Cpu>)>> = Mutex::new(Vec::new());

/// The CPU with so many threads, the same for all who ask while one of them is there: a program may hold many runs, and
/// each alone would keep threads that do nothing.
pub(crate) fn shared_cpu(threads: usize) -> Result<Arc<Cpu>, Error> {
    let process = std::process::id();
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.retain(|(_, _, cpu)| cpu.strong_count() > 0);
    let fits = |entry: &&(u32, usize, Weak<Cpu>)| (entry.0, entry.1) == (process, threads);
    if let Some(cpu) = shared.iter().find(fits).and_then(|(_, _, cpu)| cpu.upgrade()) {
        return Ok(cpu);
    }
    let cpu = Arc::new(Cpu::new(threads)?);
    shared.push((process, threads, Arc::downgrade(&cpu)));
    Ok(cpu)
}

/// A device for using networks on.
pub(crate) fn shared_place(device: DeviceChoice, threads: usize) -> Result<Place, Error> {
    let cpu = shared_cpu(threads)?;
    Ok(match device {
        DeviceChoice::Cpu => Place { cpu, gpu: None, note: None, team: None },
        other => Place { cpu, ..Place::open(other, 1)? },
    })
}
