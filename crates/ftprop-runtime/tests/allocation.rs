//! Once a model is loaded, classifying allocates nothing, on any number of threads.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ftprop_runtime::pack::{PackOptions, WeightFormat, pack};
use ftprop_runtime::{Activation, Engine, EngineOptions, Result};
use support::networks;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn classifying_allocates_nothing() -> Result<()> {
    let networks = [
        (networks::convnet8(Activation::Sign, 1, 4), WeightFormat::Int8),
        (networks::resnet18(Activation::QRelu(5), 1, 16, 40), WeightFormat::Int8),
        (networks::convnet4(Activation::Relu, 1, 8), WeightFormat::F32),
    ];
    for (network, weights) in networks {
        let file = pack(&network, &PackOptions { weights })?.to_bytes()?;
        for threads in [1, 3] {
            let mut engine = Engine::load(&file, &EngineOptions { threads, ..EngineOptions::default() })?;
            let images = support::Numbers(1).image(20 * engine.image_len());
            let mut logits = vec![0.0; 20 * engine.classes()];
            // Threads may allocate as they start.
            engine.classify(&images, &mut logits)?;
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            engine.classify(&images, &mut logits)?;
            engine.classify(&images[..engine.image_len()], &mut logits[..engine.classes()])?;
            assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{} on {threads} threads", network.name);
        }
    }
    Ok(())
}
