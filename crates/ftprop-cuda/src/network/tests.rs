//! What is planned and compiled for a network, without a GPU.

use super::*;
use crate::compile::Source;
use crate::device::DeviceLimits;
use crate::gemm::Algorithm;
use crate::library::Library;
use crate::patch::Patch;
use ftprop_nn::engine::suite::{self, Case};
use ftprop_nn::optimizer::{GroupSpec, ParameterClass, ParameterGroups, Setting};
use std::collections::BTreeSet;

/// What would be compiled for a network on such a GPU, had it no libraries.
fn sources_of(config: &NetworkConfig, limits: DeviceLimits, paths: Paths) -> Vec<Source> {
    let followed = config.followed().unwrap();
    let plan = config.plan(Role::Pupil(&followed)).unwrap();
    let own = |gemm: Gemm| match Patch::suits(&gemm, limits) {
        true => (gemm, Algorithm::Patch),
        false => (gemm, Algorithm::Tiled(gemm.guess(config.batch, limits))),
    };
    let gemms = passes::gemms(&plan, config.precision);
    let algorithms: Vec<_> = gemms.into_iter().map(|three| three.map(|gemm| gemm.map(own))).collect();
    executor::sources(&plan, &algorithms, &config.executor_config(limits.multiprocessors, paths))
}

/// Weights by Muon, the rest by what it was.
fn muon(graph: &Graph, learning: Learning) -> Learning {
    let spec = OptimizerSpec::new("muon", &[("lr", Setting::Number(0.1))]).unwrap();
    let weights = GroupSpec {
        kind: Some(ParameterClass::Weights),
        pattern: None,
        lr_factor: 1.0,
        weight_decay: None,
        momentum: None,
        optimizer: Some(spec),
    };
    let groups = ParameterGroups::resolve(&OptimizerSpec::adam(1e-3).unwrap(), &[weights], graph).unwrap();
    Learning { groups: Arc::new(groups), ..learning }
}

#[test]
fn what_kernels_cannot_count_is_refused() {
    use ftprop_nn::spec::{Init, Kernel};
    use ftprop_nn::{Activation, Defaults, LayerLoss, LayerSpec, Shape};
    let input = Shape { height: 1024, width: 1024, channels: 3 };
    let (stride, kernel, bias) = (1024, Kernel::Rectangle([1, 1]), None);
    let conv = LayerSpec::Conv { out: 2, kernel, stride, pad: 0, groups: 1, bias, init: Init::Uniform };
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let graph =
        Arc::new(Graph::resolve(&[conv, LayerSpec::Fc { out: None, bias: None }], &defaults, input, 2).unwrap());
    let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3).unwrap()).unwrap();
    let plan = |batch| {
        let (graph, learning, tuning) = (graph.clone(), learning.clone(), Tuning::Fixed);
        NetworkConfig { graph, learning, batch, precision: Precision::Bf16, tuning }.plan(Role::Pupil(&[])).map(|_| ())
    };
    // Pixels have a fourth number, and the last grid must not count past 32 bits.
    for (batch, fits) in [(1, true), (510, true), (511, false), (512, false), (600, false)] {
        assert_eq!(plan(batch).is_ok(), fits, "{batch}");
    }
}

/// What a rule has run again on the way back must still be there for gradients that come late, and must not be learned before.
#[test]
fn no_layer_is_learned_early_where_a_rule_asks_above() {
    use ftprop_nn::{Activation, Defaults, LayerLoss, LayerSpec, Shape};
    let fc = |out| LayerSpec::Fc { out, bias: None };
    let learned = |rule: &str, batch| {
        let act = LayerSpec::Act {
            activation: None,
            layer_loss: None,
            target_rule: Some(rule.parse().unwrap()),
            qrelu_form: None,
        };
        let layers = [fc(Some(2048)), act.clone(), fc(Some(1024)), act, fc(None)];
        let input = Shape { height: 1, width: 1, channels: 64 };
        let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
        let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 2).unwrap());
        let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3).unwrap()).unwrap();
        let config = NetworkConfig { graph, learning, batch, precision: Precision::Tf32, tuning: Tuning::Fixed };
        let limits = DeviceLimits { multiprocessors: 132, shared: 227 << 10, warpgroups: true };
        let sources = sources_of(&config, limits, Paths::Usual);
        sources.iter().any(|source| format!("{source:?}").contains("learned_product.cu"))
    };
    assert!(learned("gradient_sign", 64) && learned("secant", 64));
    assert!(!learned("verified:0.1", 64) && !learned("gradient_sign", 1024));
}

/// Compiles them, on all cores.
fn compile(all: BTreeSet<Source>) {
    let all: Vec<Source> = all.into_iter().collect();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for worker in 0..threads {
            let part = all.iter().enumerate().skip(worker).step_by(threads);
            scope.spawn(move || {
                for (i, source) in part {
                    let arch = [(8, 0), (9, 0)][i % 2];
                    let image = source.compile(arch).unwrap_or_else(|error| panic!("{error}"));
                    assert!(image.starts_with(b"\x7fELF"), "{source:?}");
                }
            });
        }
    });
    println!("{} sources compiled", all.len());
}

#[test]
fn every_file_of_kernels_compiles_without_a_gpu() {
    if let Err(why) = Library::Nvrtc.load() {
        println!("skipped: {why}");
        return;
    }
    let limits = DeviceLimits { multiprocessors: 108, shared: 163 << 10, warpgroups: true };
    // Half of the self test's cases, each in one precision; all of its networks are among them.
    let mut all = BTreeSet::new();
    let cases = suite::cases().unwrap();
    for (i, case) in cases.iter().enumerate().filter(|(i, _)| i % 4 < 2) {
        let precision = [Precision::Tf32, Precision::Bf16, Precision::F32][i % 3];
        let (graph, mut learning) = (case.graph.clone(), case.learning.clone());
        learning.average = (i % 3 == 0).then_some(0.9);
        let config = NetworkConfig { graph, learning, batch: case.batch, precision, tuning: Tuning::Fixed };
        let paths = [Paths::Cooperative, Paths::Large][i / 2 % 2];
        all.extend(sources_of(&config, limits, paths));
        if i < 6 {
            let learning = muon(&config.graph, config.learning.clone());
            all.extend(sources_of(&NetworkConfig { learning, ..config }, limits, Paths::Usual));
        }
    }
    for (case, precision) in suite::taught().unwrap().into_iter().zip([Precision::Bf16, Precision::Tf32].repeat(2)) {
        let Case { graph, learning, batch, .. } = case;
        all.extend(sources_of(
            &NetworkConfig { graph, learning, batch, precision, tuning: Tuning::Fixed },
            limits,
            Paths::Usual,
        ));
    }
    compile(all);
}

#[test]
fn the_kernels_of_rules_that_look_further_compile() {
    if let Err(why) = Library::Nvrtc.load() {
        println!("skipped: {why}");
        return;
    }
    let limits = DeviceLimits { multiprocessors: 132, shared: 227 << 10, warpgroups: true };
    let mut all = BTreeSet::new();
    for (i, case) in suite::further().unwrap().into_iter().enumerate() {
        let precision = [Precision::Tf32, Precision::Bf16, Precision::F32][i % 3];
        let Case { graph, learning, batch, .. } = case;
        let config = NetworkConfig { graph, learning, batch, precision, tuning: Tuning::Fixed };
        let own = sources_of(&config, limits, [Paths::Cooperative, Paths::Large][i / 2 % 2]).into_iter();
        all.extend(
            own.filter(|source| ["targets.cu", "epilogue_carry.cu", "curvature.cu"].contains(&source.file().name)),
        );
    }
    assert!(all.len() > 60, "{}", all.len());
    compile(all);
}

#[test]
fn a_rule_that_no_kernel_follows_is_refused_by_name() {
    use ftprop_nn::target::{BatchRule, SeenBatch};
    use ftprop_nn::{Activation, Defaults, LayerLoss, Shape, presets};
    let layers = presets::layers("mlp", Shape::vector(4), &[3]).unwrap();
    let usual = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let refusal = |rule: &str| {
        let defaults = Defaults { target_rule: rule.parse().unwrap(), ..usual };
        let graph = Arc::new(Graph::resolve(&layers, &defaults, Shape::vector(4), 2).unwrap());
        let learning = Learning::new(&graph, &OptimizerSpec::adam(1e-3).unwrap()).unwrap();
        let config = NetworkConfig { graph, learning, batch: 2, precision: Precision::F32, tuning: Tuning::Fixed };
        config.plan(Role::Pupil(&[])).map(|_| ()).map_err(|error| error.to_string())
    };
    #[derive(Debug)]
    struct Own;
    impl BatchRule for Own {
        fn targets(&self, _: &SeenBatch<'_>, targets: &mut [f32]) {
            targets.fill(1.0);
        }
    }
    TargetRule::register_batch("own", Own).unwrap();
    assert!(refusal("own").unwrap_err().contains("the target rule own looks at more"));
    for rule in TargetRule::all().into_iter().map(|rule| rule.to_string()).filter(|rule| rule != "own") {
        assert_eq!(refusal(&rule), Ok(()), "{rule}");
    }
}
