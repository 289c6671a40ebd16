//! The functions of the CUDA driver, under their own names and with their own types.

use crate::driver::{Failure, Gpu, Work, gpu};
use crate::limits::{MULTIPROCESSORS, SHARED_LIMIT};
use crate::lower::lower;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

type Code = c_int;
type Handle = *mut c_void;
type Pointer = u64;

fn code(outcome: Result<(), Failure>) -> Code {
    outcome.map_or_else(|failure| failure as Code, |()| 0)
}

/// Writes a result where it is wanted.
///
/// # Safety
/// A `T` can be written there.
unsafe fn give<T>(to: *mut T, outcome: Result<T, Failure>) -> Code {
    match outcome {
        Ok(_) if to.is_null() => Failure::InvalidValue as Code,
        // SAFETY: the caller's promise.
        Ok(value) => unsafe {
            to.write(value);
            0
        },
        Err(failure) => failure as Code,
    }
}

fn handle(outcome: Result<usize, Failure>) -> Result<Handle, Failure> {
    outcome.map(|number| number as Handle)
}

/// A copy or a fill whose bytes on the GPU are there.
fn put(gpu: &Gpu, stream: Handle, work: Work, on_gpu: &[(Pointer, usize)]) -> Code {
    let places = gpu.memory.places();
    match on_gpu.iter().find(|(start, bytes)| *bytes > 0 && !places.hold(*start, *bytes as u64)) {
        Some((start, bytes)) => {
            eprintln!("the GPU in software: a copy of {bytes} bytes {}", places.describe(*start));
            Failure::InvalidValue as Code
        }
        None => code(gpu.put(stream as usize, work)),
    }
}

macro_rules! driver {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the driver's documentation says of it.
            #[unsafe(no_mangle)]
            #[allow(clippy::missing_safety_doc, non_snake_case)]
            unsafe extern "C" fn $name($($argument: $kind),*) -> Code $body
        )*
    };
}

// SAFETY, of every block below: pointers are what the driver's documentation asks callers for.
driver! {
    /// Starts the driver.
    fn cuInit(_flags: c_uint) { 0 }
    /// CUDA 13.0.
    fn cuDriverGetVersion(version: *mut c_int) { unsafe { give(version, Ok(13000)) } }
    /// One.
    fn cuDeviceGetCount(count: *mut c_int) { unsafe { give(count, Ok(1)) } }
    /// The only one.
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        unsafe { give(device, if ordinal == 0 { Ok(0) } else { Err(Failure::InvalidValue) }) }
    }
    /// What it is called.
    fn cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) {
        let text = c"a GPU in software".to_bytes_with_nul();
        if name.is_null() || (length as usize) < text.len() {
            return Failure::InvalidValue as Code;
        }
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len()) };
        0
    }
    /// What it is like: newer than any compiler knows, so that it gets PTX of an H200's kind.
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) {
        let known = match attribute {
            1 => 1024,
            // Of an H200, in kHz and bits; there is no clock here that this would be the rate of.
            13 => 1_980_000,
            36 => 3_201_000,
            37 => 6144,
            16 => MULTIPROCESSORS as c_int,
            75 | 76 => 9,
            95 => 1,
            97 => SHARED_LIMIT as c_int,
            _ => 0,
        };
        unsafe { give(value, Ok(known)) }
    }
    /// There is one context.
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, _device: c_int) { unsafe { give(context, Ok(16 as Handle)) } }
    /// It stays.
    fn cuDevicePrimaryCtxRelease_v2(_device: c_int) { 0 }
    /// It does not matter how one waits.
    fn cuDevicePrimaryCtxSetFlags_v2(_device: c_int, _flags: c_uint) { 0 }
    /// Every thread has it.
    fn cuCtxSetCurrent(_context: Handle) { 0 }
    /// All are alike.
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        unsafe { give(least, Ok(0)).max(give(greatest, Ok(0))) }
    }
    /// Free and total bytes.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let room = gpu().memory.room();
        unsafe { give(free, Ok(room.0)).max(give(total, Ok(room.1))) }
    }
    /// New memory, in which there is no number.
    fn cuMemAlloc_v2(start: *mut Pointer, bytes: usize) {
        unsafe { give(start, gpu().memory.allocate(bytes).ok_or(Failure::OutOfMemory)) }
    }
    /// Gives it back.
    fn cuMemFree_v2(start: Pointer) {
        code(if gpu().memory.free(start) { Ok(()) } else { Err(Failure::InvalidValue) })
    }
    /// Memory of the host's.
    fn cuMemHostAlloc(start: *mut Handle, bytes: usize, _flags: c_uint) {
        unsafe { give(start, handle(Ok(gpu().pin(bytes)))) }
    }
    /// Gives it back.
    fn cuMemFreeHost(start: Handle) {
        code(if gpu().unpin(start as usize) { Ok(()) } else { Err(Failure::InvalidValue) })
    }
    /// To the GPU.
    fn cuMemcpyHtoD_v2(to: Pointer, from: *const c_void, bytes: usize) {
        put(gpu(), std::ptr::null_mut(), Work::Copy { to, from: from as u64, bytes }, &[(to, bytes)])
    }
    /// To the GPU, in order.
    fn cuMemcpyHtoDAsync_v2(to: Pointer, from: *const c_void, bytes: usize, stream: Handle) {
        put(gpu(), stream, Work::Copy { to, from: from as u64, bytes }, &[(to, bytes)])
    }
    /// From the GPU, in order.
    fn cuMemcpyDtoHAsync_v2(to: Handle, from: Pointer, bytes: usize, stream: Handle) {
        put(gpu(), stream, Work::Copy { to: to as u64, from, bytes }, &[(from, bytes)])
    }
    /// On the GPU, in order.
    fn cuMemcpyDtoDAsync_v2(to: Pointer, from: Pointer, bytes: usize, stream: Handle) {
        put(gpu(), stream, Work::Copy { to, from, bytes }, &[(to, bytes), (from, bytes)])
    }
    /// Bytes of one value.
    fn cuMemsetD8_v2(to: Pointer, byte: u8, bytes: usize) {
        put(gpu(), std::ptr::null_mut(), Work::Fill { to, byte, bytes }, &[(to, bytes)])
    }
    /// The same, in order.
    fn cuMemsetD8Async(to: Pointer, byte: u8, bytes: usize, stream: Handle) {
        put(gpu(), stream, Work::Fill { to, byte, bytes }, &[(to, bytes)])
    }
    /// Kernels, from PTX that ends with a zero byte.
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void) {
        if image.is_null() {
            return Failure::InvalidValue as Code;
        }
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
        let loaded = lower(&text).map(|program| gpu().add_program(program)).map_err(|why| {
            eprintln!("the GPU in software: {why}");
            Failure::InvalidPtx
        });
        unsafe { give(module, handle(loaded)) }
    }
    /// One of them.
    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        unsafe { give(function, handle(gpu().find_kernel(module as usize, &name))) }
    }
    /// Shared memory beyond what is there unasked.
    fn cuFuncSetAttribute(function: Handle, attribute: c_int, value: c_int) {
        code(match attribute {
            8 => gpu().allow_shared(function as usize, value.max(0) as usize),
            _ => Err(Failure::InvalidValue),
        })
    }
    /// Runs a kernel, in order.
    fn cuLaunchKernel(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, tx: c_uint, ty: c_uint, tz: c_uint,
        shared: c_uint, stream: Handle, arguments: *mut Handle, _extra: *mut Handle,
    ) {
        unsafe { launch(function, [x, y, z], [tx, ty, tz], shared as usize, stream, arguments, false) }
    }
    /// Runs a kernel whose blocks may wait for each other.
    fn cuLaunchCooperativeKernel(
        function: Handle, x: c_uint, y: c_uint, z: c_uint, tx: c_uint, ty: c_uint, tz: c_uint,
        shared: c_uint, stream: Handle, arguments: *mut Handle,
    ) {
        unsafe { launch(function, [x, y, z], [tx, ty, tz], shared as usize, stream, arguments, true) }
    }
    /// A stream.
    fn cuStreamCreate(stream: *mut Handle, _flags: c_uint) { unsafe { give(stream, handle(Ok(gpu().new_stream()))) } }
    /// A stream.
    fn cuStreamCreateWithPriority(stream: *mut Handle, _flags: c_uint, _priority: c_int) {
        unsafe { give(stream, handle(Ok(gpu().new_stream()))) }
    }
    /// Its end.
    fn cuStreamDestroy_v2(stream: Handle) { gpu().drop_stream(stream as usize); 0 }
    /// Waits, which is quickly done.
    fn cuStreamSynchronize(stream: Handle) { code(gpu().wait(stream as usize)) }
    /// What comes next waits for an event.
    fn cuStreamWaitEvent(stream: Handle, event: Handle, _flags: c_uint) {
        code(gpu().wait_event(stream as usize, event as usize))
    }
    /// From now on what is put into a stream is kept.
    fn cuStreamBeginCapture_v2(stream: Handle, _mode: c_int) { code(gpu().begin_capture(stream as usize)) }
    /// What was kept.
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        unsafe { give(graph, handle(gpu().end_capture(stream as usize))) }
    }
    /// Ready to run.
    fn cuGraphInstantiateWithFlags(ready: *mut Handle, graph: Handle, _flags: u64) {
        unsafe { give(ready, handle(gpu().copy_graph(graph as usize))) }
    }
    /// Nothing to do.
    fn cuGraphUpload(_ready: Handle, _stream: Handle) { 0 }
    /// Runs it.
    fn cuGraphLaunch(ready: Handle, _stream: Handle) { code(gpu().launch_graph(ready as usize)) }
    /// Its end.
    fn cuGraphDestroy(graph: Handle) { gpu().drop_graph(graph as usize); 0 }
    /// Its end.
    fn cuGraphExecDestroy(ready: Handle) { gpu().drop_graph(ready as usize); 0 }
    /// An event.
    fn cuEventCreate(event: *mut Handle, _flags: c_uint) { unsafe { give(event, handle(Ok(gpu().new_event()))) } }
    /// Its end.
    fn cuEventDestroy_v2(event: Handle) { gpu().drop_event(event as usize); 0 }
    /// It happens now.
    fn cuEventRecord(event: Handle, stream: Handle) { code(gpu().record(event as usize, stream as usize)) }
    /// It has happened.
    fn cuEventSynchronize(_event: Handle) {
        code(if gpu().is_lost() { Err(Failure::IllegalAddress) } else { Ok(()) })
    }
    /// Milliseconds from one to another.
    fn cuEventElapsedTime(milliseconds: *mut f32, first: Handle, second: Handle) {
        unsafe { give(milliseconds, gpu().elapsed(first as usize, second as usize)) }
    }
    /// NVRTC asks for tables that are not documented; it goes on without them if it is told so.
    fn cuGetExportTable(_table: *mut *const c_void, _which: *const c_void) { Failure::NotFound as Code }
    /// A name for an error.
    fn cuGetErrorName(error: Code, text: *mut *const c_char) { unsafe { give(text, Ok(name_of(error))) } }
    /// Words for an error.
    fn cuGetErrorString(error: Code, text: *mut *const c_char) { unsafe { give(text, Ok(name_of(error))) } }
}

/// # Safety
/// There are as many arguments as the kernel takes, each of its size.
unsafe fn launch(
    function: Handle,
    blocks: [u32; 3],
    threads: [u32; 3],
    shared: usize,
    stream: Handle,
    arguments: *mut Handle,
    together: bool,
) -> Code {
    let gpu = gpu();
    let launched = || {
        gpu.check_launch(function as usize, blocks, threads, shared, together)?;
        let kernel = gpu.kernel(function as usize)?;
        let bytes = kernel.parameters.last().map_or(0, |(at, bytes)| at + bytes);
        let mut copied = vec![0u64; bytes.div_ceil(8)];
        for (number, (at, bytes)) in kernel.parameters.iter().enumerate() {
            // SAFETY: the caller's promise; there is room for all.
            unsafe {
                let argument = *arguments.add(number);
                let place = copied.as_mut_ptr().cast::<u8>().add(*at);
                std::ptr::copy_nonoverlapping(argument.cast::<u8>(), place, *bytes);
            }
        }
        gpu.put(stream as usize, Work::Kernel { kernel, blocks, threads, shared, arguments: copied })
    };
    code(launched())
}

fn name_of(error: Code) -> *const c_char {
    let name = match error {
        0 => c"no error",
        1 => c"invalid value",
        2 => c"out of memory",
        218 => c"invalid PTX",
        400 => c"invalid handle",
        500 => c"not found",
        700 => c"illegal address",
        720 => c"too many blocks in cooperative launch",
        900 => c"not permitted while a stream is captured",
        904 => c"a stream that was captured was not joined",
        _ => c"unknown error",
    };
    name.as_ptr()
}
