//! A training step takes nothing from the heap once the first one is done.

use ftprop_nn::{
    Activation, Criterion, Defaults, Graph, LayerLoss, Network, Optimizer, OptimizerSpec, OutputLoss, Shape, Step,
    presets,
};
use ftprop_tensor::Cpu;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steps_after_the_first_allocate_nothing() {
    let cpu = Arc::new(Cpu::new(2).unwrap());
    let input = Shape { height: 32, width: 32, channels: 3 };
    let layers = presets::layers("convnet8", input, &[]).unwrap();
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 10).unwrap());
    let mut network = Network::new(cpu.clone(), graph, 16).unwrap();
    network.initialise(0);
    let mut optimizer = Optimizer::new(&OptimizerSpec::adam(1e-3).unwrap(), network.values().len()).unwrap();
    let criterion = Criterion::new(OutputLoss::CrossEntropy, 0.1).unwrap();
    let images = vec![0.25; 16 * input.len()];
    let labels = [3; 16];
    let counted = cpu.enter(|| {
        let mut step = |number: u64, n: usize| {
            let step = Step { seed: 0, number, progress: 0.5 };
            network.learn(&images[..n * input.len()], &labels[..n], &criterion, &step);
            let (cpu, values, grads) = network.values_and_grads();
            optimizer.step(cpu, values, grads, 1.0, Some(1.0));
        };
        step(0, 16);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        // The last batch of an epoch is smaller.
        (1..6).for_each(|number| step(number, 16));
        step(6, 5);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    assert_eq!(counted, 0, "{counted} allocations in six steps");
}
