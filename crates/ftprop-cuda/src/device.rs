//! GPUs: which there are, and one that is in use.

use crate::CudaError;
use crate::compile::{Source, has_warpgroups};
use crate::error::check;
use crate::library::{Library, cublas_lt as cublas_api, cudnn as cudnn_api};
use crate::module::Module;
use crate::precision::Precision;
use crate::startup;
use crate::work::{Roof, operations_per_clock};
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute as Attribute};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

/// What is known of a GPU without using it.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// Its number, as in `cuda:0`.
    pub ordinal: usize,
    /// The maker's name for it.
    pub name: String,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_total: usize,
    /// Bytes of memory that nobody uses.
    pub memory_free: usize,
}

impl DeviceInfo {
    /// Why the kernels cannot run on it, if they cannot.
    pub fn problem(&self) -> Option<CudaError> {
        let found = self.compute_capability;
        (found < OLDEST_CAPABILITY).then(|| CudaError::OldDevice {
            name: self.name.clone(),
            found,
            needed: OLDEST_CAPABILITY,
        })
    }
}

/// The oldest compute capability that has every instruction of the kernels.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// Versions of what is installed, each `None` where it is missing.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    /// The newest CUDA that the driver can run, such as 13.0.
    pub driver: Option<String>,
    /// Of the run-time compiler.
    pub nvrtc: Option<String>,
    /// Of cuDNN.
    pub cudnn: Option<String>,
    /// Of cuBLASLt.
    pub cublas: Option<String>,
}

impl Versions {
    /// Each that is there, with its name.
    pub fn named(&self) -> Vec<String> {
        let all = [
            ("driver for CUDA", &self.driver),
            ("NVRTC", &self.nvrtc),
            ("cuDNN", &self.cudnn),
            ("cuBLASLt", &self.cublas),
        ];
        all.into_iter().filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?))).collect()
    }
}

/// Every GPU that the driver shows; empty where it shows none.
pub fn devices() -> Result<Vec<DeviceInfo>, CudaError> {
    (0..count()?).map(|ordinal| Device::open(ordinal)?.info()).collect()
}

/// What is installed.
pub fn versions() -> Versions {
    let pair = |(major, minor): (i32, i32)| format!("{major}.{minor}");
    // Both libraries number their versions alike.
    let triple = |number: usize| format!("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
    // SAFETY: the library is loaded.
    let cudnn = Library::Cudnn.load().ok().map(|()| triple(unsafe { cudnn_api::cudnnGetVersion() }));
    // SAFETY: as above.
    let cublas = Library::Cublas.load().ok().map(|()| triple(unsafe { cublas_api::cublasLtGetVersion() }));
    let (driver, nvrtc) = (driver_version().ok().map(pair), crate::compile::nvrtc_version().ok().map(pair));
    Versions { driver, nvrtc, cudnn, cublas }
}

/// The newest CUDA that the driver can run.
fn driver_version() -> Result<(i32, i32), CudaError> {
    Library::Driver.load()?;
    let mut number = 0;
    // SAFETY: the driver is loaded.
    check(unsafe { sys::cuDriverGetVersion(&mut number) }, || "ask the driver for its version".into())?;
    Ok((number / 1000, number % 1000 / 10))
}

/// The oldest driver that has every function this crate calls.
const OLDEST_DRIVER: (i32, i32) = (12, 2);

fn count() -> Result<usize, CudaError> {
    let (major, minor) = driver_version()?;
    if (major, minor) < OLDEST_DRIVER {
        return Err(CudaError::OldDriver { found: (major, minor), needed: OLDEST_DRIVER });
    }
    Library::Driver.check_functions()?;
    // SAFETY: the driver is loaded.
    let code = unsafe { sys::cuInit(0) };
    if code == sys::CUresult::CUDA_ERROR_NO_DEVICE {
        return Ok(0);
    }
    check(code, || "start the driver".into())?;
    let mut count = 0;
    // SAFETY: the driver is initialised.
    check(unsafe { sys::cuDeviceGetCount(&mut count) }, || "count the GPUs".into())?;
    Ok(count as usize)
}

/// The code of each source, compiled while `work` is done here. Some take ten times as long as others, so each thread takes
/// the next when it is done.
fn images_while<R>(
    sources: &[&Source],
    capability: (u32, u32),
    work: impl FnOnce() -> R,
) -> (Vec<Result<Vec<u8>, CudaError>>, R) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(sources.len());
    let next = AtomicUsize::new(0);
    let compile = || {
        let turn = || sources.get(next.fetch_add(1, Ordering::Relaxed)).copied();
        let mut done = Vec::new();
        while let Some(source) = turn() {
            done.push((source, startup::during("kernels, side by side", || source.image(capability))));
        }
        done
    };
    let (mut images, result) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(compile)).collect();
        let result = work();
        let done = |w: ScopedJoinHandle<'_, _>| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let wait = || workers.into_iter().flat_map(done).collect::<HashMap<&Source, Result<Vec<u8>, CudaError>>>();
        (startup::during("waiting for kernels", wait), result)
    });
    let images = sources.iter().map(|source| images.remove(source).expect("an image for each source")).collect();
    (images, result)
}

/// What a device offers a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceLimits {
    pub(crate) multiprocessors: usize,
    /// Bytes of shared memory that one block can have.
    pub(crate) shared: usize,
    /// Whether groups of four warps multiply together, see `warpgroup.cuh`.
    pub(crate) warpgroups: bool,
}

/// A GPU in use; clones share it.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    ordinal: usize,
    raw: CUdevice,
    context: CUcontext,
    modules: Mutex<HashMap<Source, Module>>,
}

// SAFETY: a context may be used from any thread; the driver locks what it must.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.raw) };
    }
}

impl Device {
    /// Takes GPU number `ordinal` into use.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        let count = count()?;
        if ordinal >= count {
            let found = match count {
                0 => "the driver shows no GPU".into(),
                1 => "the only one is cuda:0".into(),
                _ => format!("they are cuda:0 to cuda:{}", count - 1),
            };
            return Err(CudaError::NoDevice { ordinal, found });
        }
        let (mut raw, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the driver is initialised and the ordinal is in range.
        check(unsafe { sys::cuDeviceGet(&mut raw, ordinal as i32) }, || format!("open cuda:{ordinal}"))?;
        // Threads that wait for the GPU sleep: of several runs each would otherwise keep a core busy. An older setting
        // of someone else's is no reason not to go on.
        // SAFETY: the device was just opened.
        let _ = unsafe {
            sys::cuDevicePrimaryCtxSetFlags_v2(raw, sys::CUctx_flags_enum::CU_CTX_SCHED_BLOCKING_SYNC as u32)
        };
        // SAFETY: as above.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, raw) }, || format!("open cuda:{ordinal}"))?;
        Ok(Device { inner: Arc::new(Inner { ordinal, raw, context, modules: Mutex::default() }) })
    }

    /// Its number, as in `cuda:0`.
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// Tells it from every other GPU: its machine's name and its place there.
    pub fn unique_name(&self) -> Result<String, CudaError> {
        let place = [
            Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
        ];
        let [domain, bus, device] = place.map(|attribute| self.attribute(attribute));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Ok(format!("{:04x}:{:02x}:{:02x} {}", domain?, bus?, device?, host.trim()))
    }

    /// Its name, size and what of its memory is free now.
    pub fn info(&self) -> Result<DeviceInfo, CudaError> {
        let mut name = [0u8; 128];
        // SAFETY: the buffer has that many bytes.
        check(unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, self.inner.raw) }, || {
            "ask a GPU for its name".into()
        })?;
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        let (memory_free, memory_total) = self.memory()?;
        Ok(DeviceInfo {
            ordinal: self.inner.ordinal,
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            compute_capability: self.compute_capability()?,
            multiprocessors: self.multiprocessors()?,
            memory_total,
            memory_free,
        })
    }

    /// Whether this GPU can run the kernels.
    pub fn check(&self) -> Result<(), CudaError> {
        self.info()?.problem().map_or(Ok(()), Err)
    }

    fn multiprocessors(&self) -> Result<u32, CudaError> {
        self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    fn compute_capability(&self) -> Result<(u32, u32), CudaError> {
        let major = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }

    pub(crate) fn limits(&self) -> Result<DeviceLimits, CudaError> {
        let shared = self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let warpgroups = has_warpgroups(self.compute_capability()?);
        Ok(DeviceLimits { multiprocessors: self.multiprocessors()? as usize, shared: shared as usize, warpgroups })
    }

    /// What it can do in a second at its highest clocks, where it tells them.
    pub fn roof(&self, precision: Precision) -> Result<Option<Roof>, CudaError> {
        let clocks = [
            Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,
            Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
            Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
        ];
        let [memory, bits, clock] = clocks.map(|attribute| self.attribute(attribute).map(f64::from));
        let (memory, bits, clock) = (memory? * 1e3, bits?, clock? * 1e3);
        let a_clock = operations_per_clock(self.compute_capability()?, precision).map(f64::from);
        let multiprocessors = f64::from(self.multiprocessors()?);
        let operations = a_clock.map(|each| each * multiprocessors * clock);
        // Two transfers a clock.
        let roof = Roof { bytes: 2.0 * memory * bits / 8.0, operations: operations.filter(|&all| all > 0.0) };
        Ok((roof.bytes > 0.0).then_some(roof))
    }

    /// How many blocks, one a multiprocessor, can wait for each other in one kernel; 0 where none can.
    pub(crate) fn cooperative_blocks(&self) -> Result<usize, CudaError> {
        match self.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? {
            0 => Ok(0),
            _ => Ok(self.multiprocessors()? as usize),
        }
    }

    /// Free and total memory in bytes.
    pub fn memory(&self) -> Result<(usize, usize), CudaError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: this thread has a context.
        check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }, || "ask a GPU for its memory".into())?;
        Ok((free, total))
    }

    fn attribute(&self, attribute: Attribute) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: the device is open.
        check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, self.inner.raw) }, || {
            "ask a GPU for its properties".into()
        })?;
        Ok(value as u32)
    }

    /// Makes this the calling thread's device.
    pub(crate) fn enter(&self) -> Result<(), CudaError> {
        // SAFETY: the context is retained as long as `self` lives.
        check(unsafe { sys::cuCtxSetCurrent(self.inner.context) }, || "enter a GPU's context".into())
    }

    /// The kernels of one source, in this thread's context.
    pub(crate) fn module(&self, source: Source) -> Result<Module, CudaError> {
        let mut modules = self.modules(&[source])?;
        Ok(modules.pop().expect("one for each source"))
    }

    /// The kernels of each source, compiled side by side where they are not known yet.
    pub(crate) fn modules(&self, sources: &[Source]) -> Result<Vec<Module>, CudaError> {
        self.modules_while(sources, || ())?;
        let known = |s: &Source| self.lock().get(s).cloned().expect("compiled above");
        Ok(sources.iter().map(known).collect())
    }

    /// Makes the kernels of each source known while `work` is done on this thread, and gives what that gave.
    pub(crate) fn modules_while<R>(&self, sources: &[Source], work: impl FnOnce() -> R) -> Result<R, CudaError> {
        self.enter()?;
        let mut missing: Vec<&Source> = sources.iter().filter(|s| !self.lock().contains_key(s)).collect();
        missing.sort();
        missing.dedup();
        if missing.is_empty() {
            return Ok(work());
        }
        Library::Nvrtc.load()?;
        let capability = self.info()?.compute_capability;
        let (images, result) = images_while(&missing, capability, work);
        startup::during("loading kernels", || {
            missing.into_iter().zip(images).try_for_each(|(source, image)| self.load(source, &image?, capability))
        })?;
        Ok(result)
    }

    fn load(&self, source: &Source, image: &[u8], capability: (u32, u32)) -> Result<(), CudaError> {
        let module = match Module::load(source.file().name, image) {
            // What was kept may be whole and yet nothing that this driver takes.
            Err(CudaError::Driver { .. }) => Module::load(source.file().name, &source.compile_again(capability)?)?,
            loaded => loaded?,
        };
        self.lock().insert(source.clone(), module);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Source, Module>> {
        self.inner.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
