//! The C interface; `include/ftprop_runtime.h` is its description.
//!
//! ```
//! use ftprop_runtime::capi::{ftp_classes, ftp_free, ftp_load};
//!
//! let (file, mut words) = (b"no model", [0; 100]);
//! // SAFETY: the pointers are those of buffers of the lengths given, or null.
//! unsafe {
//!     let engine = ftp_load(file.as_ptr().cast(), file.len(), std::ptr::null(), words.as_mut_ptr(), words.len());
//!     assert!(engine.is_null() && words[0] != 0);
//!     assert_eq!(ftp_classes(engine), 0);
//!     ftp_free(engine);
//! }
//! ```

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{Engine, EngineOptions};
use crate::error::Result;
use crate::kernels::Kernels;
use crate::model::Element;

const OK: c_int = 0;
const NULL: c_int = 1;
const SHAPE: c_int = 2;
const BUSY: c_int = 3;
const FAILED: c_int = 4;

/// An engine, and what C may ask of it while it works.
pub struct CEngine {
    /// Set while a thread classifies.
    busy: AtomicBool,
    engine: UnsafeCell<Engine>,
    names: Vec<CString>,
    sizes: Sizes,
    kernels: Kernels,
}

// The flag lets different threads use the engine one after the other.
const _: fn() = || {
    fn may_change_threads<T: Send>() {}
    may_change_threads::<Engine>();
};

/// Numbers that stay as they are.
struct Sizes {
    height: usize,
    width: usize,
    channels: usize,
    resize_shorter: usize,
    classes: usize,
    memory: u64,
    operations: u64,
    takes_reals: c_int,
}

/// `ftp_options`.
#[repr(C)]
pub struct COptions {
    threads: u32,
    images_together: u32,
    memory_limit: u64,
    kernels: *const c_char,
    operation_limit: u64,
}

/// `ftp_load`.
///
/// # Safety
/// `bytes` points to `length` bytes, `error` to `error_size`; `options` and its strings are valid. Any may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftp_load(
    bytes: *const c_void,
    length: usize,
    options: *const COptions,
    error: *mut c_char,
    error_size: usize,
) -> *mut CEngine {
    // A panic must not reach C, where it would end the process.
    let loaded = catch_unwind(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes as *const u8, length) };
            load(bytes, options.as_ref())
        }
    });
    let message = match loaded {
        Ok(Ok(engine)) => return Box::into_raw(Box::new(engine)),
        Ok(Err(reason)) => reason.to_string(),
        Err(_) => "loading this model failed in a way that it should not; please report it".to_string(),
    };
    if !error.is_null() && error_size > 0 {
        let kept = message.len().min(error_size - 1);
        // SAFETY: the caller's promise: kept + 1 bytes are there.
        unsafe {
            std::ptr::copy_nonoverlapping(message.as_ptr() as *const c_char, error, kept);
            *error.add(kept) = 0;
        }
    }
    std::ptr::null_mut()
}

unsafe fn load(bytes: &[u8], options: Option<&COptions>) -> Result<CEngine> {
    let mut chosen = EngineOptions::default();
    if let Some(options) = options {
        if options.threads > 0 {
            chosen.threads = options.threads as usize;
        }
        if options.images_together > 0 {
            chosen.images_together = options.images_together as usize;
        }
        if options.memory_limit > 0 {
            chosen.memory_limit = options.memory_limit;
        }
        if options.operation_limit > 0 {
            chosen.operation_limit = options.operation_limit;
        }
        if !options.kernels.is_null() {
            // SAFETY: the caller's promise: a valid string.
            let name = unsafe { CStr::from_ptr(options.kernels) };
            chosen.kernels = Some(Kernels::named(&name.to_string_lossy())?);
        }
    }
    let engine = Engine::load(bytes, &chosen)?;
    // A name ends where C sees its end.
    let until_nul = |name: &String| name.split('\0').next().unwrap_or_default().to_string();
    let names = engine.class_names().iter().map(|name| CString::new(until_nul(name)).unwrap_or_default()).collect();
    let about = engine.preprocessing();
    let sizes = Sizes {
        height: about.input.height,
        width: about.input.width,
        channels: about.input.channels,
        resize_shorter: about.resize_shorter.unwrap_or(0) as usize,
        classes: engine.classes(),
        memory: engine.memory(),
        operations: engine.operations(),
        takes_reals: c_int::from(about.element == Element::Real),
    };
    let kernels = engine.kernels();
    Ok(CEngine { busy: AtomicBool::new(false), engine: UnsafeCell::new(engine), names, sizes, kernels })
}

/// `ftp_free`.
///
/// # Safety
/// `engine` came from [`ftp_load`] and is not used again, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftp_free(engine: *mut CEngine) {
    if !engine.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(engine) });
    }
}

/// Defines a function that reads a number off an engine.
macro_rules! size {
    ($name:ident, $number:ident: $type:ty) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// `engine` came from [`ftp_load`] and is not freed, or is null.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(engine: *const CEngine) -> $type {
            // SAFETY: the caller's promise; what a classifying thread changes lies in a cell of its own.
            unsafe { engine.as_ref() }.map_or(0, |engine| engine.sizes.$number)
        }
    };
}

size!(ftp_height, height: usize);
size!(ftp_width, width: usize);
size!(ftp_channels, channels: usize);
size!(ftp_resize_shorter, resize_shorter: usize);
size!(ftp_classes, classes: usize);
size!(ftp_memory, memory: u64);
size!(ftp_operations, operations: u64);
size!(ftp_takes_reals, takes_reals: c_int);

/// `ftp_class_name`.
///
/// # Safety
/// `engine` came from [`ftp_load`] and is not freed, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftp_class_name(engine: *const CEngine, number: usize) -> *const c_char {
    // SAFETY: the caller's promise.
    let name = unsafe { engine.as_ref() }.and_then(|engine| engine.names.get(number));
    name.map_or(std::ptr::null(), |name| name.as_ptr())
}

/// `ftp_kernels`.
///
/// # Safety
/// `engine` came from [`ftp_load`] and is not freed, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftp_kernels(engine: *const CEngine) -> *const c_char {
    // SAFETY: the caller's promise.
    let Some(engine) = (unsafe { engine.as_ref() }) else { return std::ptr::null() };
    let name = match engine.kernels {
        Kernels::Scalar => c"scalar",
        Kernels::Avx2 => c"avx2",
        Kernels::Avx512 => c"avx512",
        Kernels::Neon => c"neon",
    };
    name.as_ptr()
}

/// `ftp_classify`.
///
/// # Safety
/// `engine` came from [`ftp_load`] and is not freed meanwhile; `images` points to `count` images and `logits` to `count`
/// times as many floats as there are classes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftp_classify(
    engine: *mut CEngine,
    images: *const u8,
    count: usize,
    logits: *mut f32,
) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { classify(engine, images, count, logits, |engine, images, logits| engine.classify(images, logits)) }
}

/// `ftp_classify_reals`.
///
/// # Safety
/// As for [`ftp_classify`], with `rows` pointing to `count` rows of floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftp_classify_reals(
    engine: *mut CEngine,
    rows: *const f32,
    count: usize,
    logits: *mut f32,
) -> c_int {
    // SAFETY: the caller's promise is passed on.
    unsafe { classify(engine, rows, count, logits, |engine, rows, logits| engine.classify_reals(rows, logits)) }
}

/// # Safety
/// As for [`ftp_classify`]; the inputs may be of any type.
unsafe fn classify<T>(
    engine: *mut CEngine,
    images: *const T,
    count: usize,
    logits: *mut f32,
    run: impl Fn(&mut Engine, &[T], &mut [f32]) -> Result<()>,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(engine) = (unsafe { engine.as_ref() }) else { return NULL };
    if count == 0 {
        return OK;
    }
    if images.is_null() || logits.is_null() {
        return NULL;
    }
    let Sizes { height, width, channels, classes, .. } = engine.sizes;
    let sizes = (count.checked_mul(height * width * channels), count.checked_mul(classes));
    let (Some(values), Some(floats)) = sizes else { return SHAPE };
    if values > isize::MAX as usize / size_of::<T>() || floats > isize::MAX as usize / size_of::<f32>() {
        return SHAPE;
    }
    if engine.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return BUSY;
    }
    // SAFETY: the caller's promise, and the flag keeps every other thread out of the cell.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe {
        let images = std::slice::from_raw_parts(images, values);
        let logits = std::slice::from_raw_parts_mut(logits, floats);
        run(&mut *engine.engine.get(), images, logits)
    }));
    engine.busy.store(false, Ordering::Release);
    match outcome {
        Ok(Ok(())) => OK,
        Ok(Err(_)) => SHAPE,
        Err(_) => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Affine, Codec, Conv, Model, Op, Preprocessing, Shape, Stage, Weights, Window};

    /// One pixel, one class: logit = byte.
    fn file() -> Result<Vec<u8>> {
        let weights = Weights { codec: Codec::Int16, bytes: 1i16.to_le_bytes().to_vec().into() };
        let affine = Affine { scale: vec![1.0 / 65536.0], bias: vec![0.0], activation: None };
        let window = Window::square(1, 1, 0);
        let conv = Conv { window, groups: 1, outputs: 1, weights, stage: Stage::Affine(affine) };
        let input = Shape { height: 1, width: 1, channels: 1 };
        let preprocessing = Preprocessing {
            input,
            element: Element::Byte,
            resize_shorter: Some(9),
            center_crop: true,
            mean: vec![0.0],
            std: vec![1.0],
        };
        let classes = vec!["gr\0ey".to_string()];
        let ops = vec![Op::Conv { input: 0, conv }];
        Model { name: "one".into(), preprocessing, classes, notes: Default::default(), ops }.to_bytes()
    }

    #[test]
    fn loads_classifies_and_frees() -> Result<()> {
        let file = file()?;
        let options = COptions {
            threads: 2,
            images_together: 1,
            memory_limit: 1 << 24,
            kernels: c"scalar".as_ptr(),
            operation_limit: 1 << 20,
        };
        // SAFETY: every pointer is valid or null where that is allowed.
        unsafe {
            let engine = ftp_load(file.as_ptr() as *const c_void, file.len(), &options, std::ptr::null_mut(), 0);
            assert!(!engine.is_null());
            assert_eq!([ftp_height(engine), ftp_width(engine), ftp_channels(engine)], [1; 3]);
            assert_eq!((ftp_classes(engine), ftp_resize_shorter(engine)), (1, 9));
            assert_eq!(CStr::from_ptr(ftp_class_name(engine, 0)), c"gr");
            assert_eq!(CStr::from_ptr(ftp_kernels(engine)), c"scalar");
            assert!(ftp_class_name(engine, 1).is_null());
            // One multiply-add, and one byte of the image.
            assert_eq!(ftp_operations(engine), 1 + crate::ONE_BY_ONE);
            assert!((1..1 << 24).contains(&ftp_memory(engine)));
            let mut logits = [9.0; 3];
            assert_eq!(ftp_classify(engine, [0, 7, 255].as_ptr(), 3, logits.as_mut_ptr()), OK);
            assert_eq!(logits, [0.0, 7.0, 255.0]);
            assert_eq!(ftp_classify(engine, std::ptr::null(), 3, logits.as_mut_ptr()), NULL);
            assert_eq!(ftp_classify(engine, [0].as_ptr(), 0, std::ptr::null_mut()), OK);
            // A model of pictures takes no rows of a table.
            assert_eq!(ftp_takes_reals(engine), 0);
            assert_eq!(ftp_classify_reals(engine, [0.0].as_ptr(), 1, logits.as_mut_ptr()), SHAPE);
            ftp_free(engine);
        }
        Ok(())
    }

    #[test]
    fn a_second_thread_is_told_that_the_engine_is_busy() -> Result<()> {
        struct Sent(*mut CEngine);
        // SAFETY: what the threads below do with the engine is what this test is about.
        unsafe impl Sync for Sent {}
        let file = file()?;
        // SAFETY: every pointer is valid; the engine is freed when no thread is left.
        unsafe {
            let (null, none) = (std::ptr::null(), std::ptr::null_mut());
            let engine = Sent(ftp_load(file.as_ptr() as *const c_void, file.len(), null, none, 0));
            let images = vec![7u8; 1 << 16];
            let work = || {
                let engine = &engine;
                let mut logits = vec![0.0; images.len()];
                let mut busy = 0;
                for _ in 0..200 {
                    match ftp_classify(engine.0, images.as_ptr(), images.len(), logits.as_mut_ptr()) {
                        OK => assert!(logits.iter().all(|&logit| logit == 7.0)),
                        BUSY => busy += 1,
                        other => panic!("{other}"),
                    }
                    assert_eq!(ftp_classes(engine.0), 1);
                }
                busy
            };
            let busy: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert!(busy > 0, "no two calls met");
            ftp_free(engine.0);
        }
        Ok(())
    }

    #[test]
    fn says_why_it_cannot_load() {
        let mut error = [1 as c_char; 30];
        // SAFETY: as above.
        unsafe {
            let options = std::ptr::null();
            let engine = ftp_load(c"nothing".as_ptr() as *const c_void, 7, options, error.as_mut_ptr(), error.len());
            assert!(engine.is_null());
            assert_eq!(CStr::from_ptr(error.as_ptr()), c"not a packed model: the file ");
            assert!(ftp_load(std::ptr::null(), 0, options, std::ptr::null_mut(), 0).is_null());
            assert_eq!(
                (ftp_height(engine), ftp_classify(engine, std::ptr::null(), 1, std::ptr::null_mut())),
                (0, NULL)
            );
            ftp_free(engine);
        }
    }
}
