use super::*;
use crate::device::DeviceLimits;
use crate::library::Library;
use crate::plan::Role;
use ftprop_nn::{Activation, Defaults, Graph, LayerLoss, Learning, OptimizerSpec, Shape, presets};

/// The compiler needs no GPU, so its word is taken wherever it is installed.
#[test]
fn every_kernel_of_a_small_network_compiles() {
    if let Err(why) = Library::Nvrtc.load() {
        println!("skipped: {why}");
        return;
    }
    let input = Shape { height: 32, width: 32, channels: 3 };
    // The third convolution of convnet8 with what follows it, and its last layer.
    let all = presets::layers("convnet8", input, &[]).unwrap();
    let layers = [&all[6..10], &all[all.len() - 1..]].concat();
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let graph = Graph::resolve(&layers, &defaults, input, 10).unwrap();
    let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3).unwrap()).unwrap();
    let (plan, scalars) = (FusionPlan::new(&graph, Role::Pupil(&[])), ScalarLayout::new(&graph, &learning));
    for (precision, arch) in [(Precision::F32, (8, 0)), (Precision::Tf32, (9, 0)), (Precision::Bf16, (8, 9))] {
        let limits = DeviceLimits { multiprocessors: 100, shared: 99 * 1024, warpgroups: true };
        let algorithm = |g: Gemm| (g, Algorithm::Tiled(g.guess(64, limits)));
        let choices: Vec<_> =
            gemms(&plan, precision).into_iter().map(|three| three.map(|g| g.map(algorithm))).collect();
        let (cooperative_blocks, scalars) = (limits.multiprocessors, scalars.clone());
        let (batch, rows_for) = (64, 64);
        let mut options =
            CompileOptions { precision, batch, rows_for, alone: true, sync_norm: false, cooperative_blocks, scalars };
        let mut all = sources(&plan, &choices, &options);
        (options.sync_norm, options.cooperative_blocks) = (true, 0);
        all.extend(sources(&plan, &choices, &options));
        all.sort();
        all.dedup();
        for source in all {
            assert!(!source.compile(arch).unwrap().is_empty());
        }
    }
}
