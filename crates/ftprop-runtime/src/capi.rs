//! The C interface; `include/ftprop_runtime.h` is its description.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::engine::{Engine, EngineOptions};
use crate::error::Result;
use crate::kernels::Kernels;

const OK: c_int = 0;
const NULL: c_int = 1;
const SHAPE: c_int = 2;

/// An engine and its class names as C wants them.
pub struct CEngine {
    engine: Engine,
    names: Vec<CString>,
}

/// `ftp_options`.
#[repr(C)]
pub struct COptions {
    threads: u32,
    images_together: u32,
    memory_limit: u64,
    kernels: *const c_char,
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
    // SAFETY: the caller's promise.
    let loaded = unsafe {
        let bytes = if bytes.is_null() { &[] } else { std::slice::from_raw_parts(bytes as *const u8, length) };
        load(bytes, options.as_ref())
    };
    match loaded {
        Ok(engine) => Box::into_raw(Box::new(engine)),
        Err(reason) => {
            if !error.is_null() && error_size > 0 {
                let message = reason.to_string();
                let kept = message.len().min(error_size - 1);
                // SAFETY: the caller's promise: kept + 1 bytes are there.
                unsafe {
                    std::ptr::copy_nonoverlapping(message.as_ptr() as *const c_char, error, kept);
                    *error.add(kept) = 0;
                }
            }
            std::ptr::null_mut()
        }
    }
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
    Ok(CEngine { engine, names })
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

/// Defines a function that reads a size off an engine.
macro_rules! size {
    ($name:ident, $engine:ident => $size:expr) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// `engine` came from [`ftp_load`] and is not freed, or is null.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(engine: *const CEngine) -> usize {
            // SAFETY: the caller's promise.
            unsafe { engine.as_ref() }.map_or(0, |CEngine { engine: $engine, .. }| $size)
        }
    };
}

size!(ftp_height, engine => engine.preprocessing().input.height);
size!(ftp_width, engine => engine.preprocessing().input.width);
size!(ftp_channels, engine => engine.preprocessing().input.channels);
size!(ftp_resize_shorter, engine => engine.preprocessing().resize_shorter.unwrap_or(0) as usize);
size!(ftp_classes, engine => engine.classes());

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
    let Some(CEngine { engine, .. }) = (unsafe { engine.as_ref() }) else { return std::ptr::null() };
    let name = match engine.kernels() {
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
/// `engine` came from [`ftp_load`] and no other thread uses it now; `images` points to `count` images and `logits` to
/// `count` times as many floats as there are classes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftp_classify(
    engine: *mut CEngine,
    images: *const u8,
    count: usize,
    logits: *mut f32,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(CEngine { engine, .. }) = (unsafe { engine.as_mut() }) else { return NULL };
    if count == 0 {
        return OK;
    }
    if images.is_null() || logits.is_null() {
        return NULL;
    }
    let sizes = (count.checked_mul(engine.image_len()), count.checked_mul(engine.classes()));
    let (Some(bytes), Some(floats)) = sizes else { return SHAPE };
    // SAFETY: the caller's promise.
    let (images, logits) =
        unsafe { (std::slice::from_raw_parts(images, bytes), std::slice::from_raw_parts_mut(logits, floats)) };
    match engine.classify(images, logits) {
        Ok(()) => OK,
        Err(_) => SHAPE,
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
        let preprocessing =
            Preprocessing { input, resize_shorter: Some(9), center_crop: true, mean: vec![0.0], std: vec![1.0] };
        let classes = vec!["gr\0ey".to_string()];
        Model { name: "one".into(), preprocessing, classes, ops: vec![Op::Conv { input: 0, conv }] }.to_bytes()
    }

    #[test]
    fn loads_classifies_and_frees() -> Result<()> {
        let file = file()?;
        let options = COptions { threads: 2, images_together: 1, memory_limit: 1 << 24, kernels: c"scalar".as_ptr() };
        // SAFETY: every pointer is valid or null where that is allowed.
        unsafe {
            let engine = ftp_load(file.as_ptr() as *const c_void, file.len(), &options, std::ptr::null_mut(), 0);
            assert!(!engine.is_null());
            assert_eq!([ftp_height(engine), ftp_width(engine), ftp_channels(engine)], [1; 3]);
            assert_eq!((ftp_classes(engine), ftp_resize_shorter(engine)), (1, 9));
            assert_eq!(CStr::from_ptr(ftp_class_name(engine, 0)), c"gr");
            assert_eq!(CStr::from_ptr(ftp_kernels(engine)), c"scalar");
            assert!(ftp_class_name(engine, 1).is_null());
            let mut logits = [9.0; 3];
            assert_eq!(ftp_classify(engine, [0, 7, 255].as_ptr(), 3, logits.as_mut_ptr()), OK);
            assert_eq!(logits, [0.0, 7.0, 255.0]);
            assert_eq!(ftp_classify(engine, std::ptr::null(), 3, logits.as_mut_ptr()), NULL);
            assert_eq!(ftp_classify(engine, [0].as_ptr(), 0, std::ptr::null_mut()), OK);
            ftp_free(engine);
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
