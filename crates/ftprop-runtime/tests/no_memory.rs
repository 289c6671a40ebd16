//! Where the system has no memory left, loading a model is an error.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use ftprop_runtime::pack::{FlattenOrder, PackOptions, WeightFormat, WeightLayout, pack};
use ftprop_runtime::{Activation, Engine, EngineOptions, Error, Result, Window};
use support::networks::Builder;

/// Refuses one large allocation; small ones, such as those of a message, are there even then.
struct Refusing;

const LARGE: usize = 4096;
/// Large allocations until the one that is refused; none is while this is negative.
static LEFT: AtomicI64 = AtomicI64::new(-1);

fn refused(size: usize) -> bool {
    size >= LARGE && LEFT.load(Ordering::Relaxed) >= 0 && LEFT.fetch_sub(1, Ordering::Relaxed) == 0
}

// SAFETY: everything is refused or passed on to the system's allocator.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if refused(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if refused(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

#[test]
fn every_large_allocation_may_fail() -> Result<()> {
    let sign = Activation::Sign;
    // Wide enough for every table of channels to be a large allocation.
    let wide = Builder::new(1, 4, 4, 3)
        .conv(1100, 3, 1, 1, true)
        .norm(1e-3)
        .act(sign)
        .max_pool(2, 1, 0)
        .conv_with(1100, Window::square(2, 1, 1), 1100, WeightLayout::Ohwi, false)
        .act(Activation::QRelu(3))
        .residual(|main| main.conv(1100, 1, 1, 0, false).norm(1e-3), |shortcut| shortcut)
        .act(Activation::Relu)
        .flatten(FlattenOrder::ChannelsFirst)
        .connected(5, true)
        .build("wide");
    for weights in [WeightFormat::Int8, WeightFormat::F32] {
        let file = pack(&wide, &PackOptions { weights })?.to_bytes()?;
        let options = EngineOptions { images_together: 2, ..EngineOptions::default() };
        let mut refusals = 0;
        loop {
            LEFT.store(refusals, Ordering::Relaxed);
            let loaded = Engine::load(&file, &options);
            let all_given = LEFT.swap(-1, Ordering::Relaxed) >= 0;
            match loaded {
                Err(Error::Allocation { bytes }) => assert!(bytes >= LARGE as u64),
                Err(other) => return Err(other),
                Ok(_) if all_given => break,
                Ok(_) => panic!("large allocation {refusals} failed unnoticed"),
            }
            refusals += 1;
        }
        assert!(refusals > 20, "only {refusals} large allocations");
    }
    Ok(())
}
