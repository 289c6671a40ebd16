//! Formulas that were written down compute what they compute on the CPU, to the bit: a C++ compiler stands in for a
//! GPU's, told not to fuse products and sums.

use ftprop_nn::layer_loss::LayerLoss;
use ftprop_nn::number::Number;
use ftprop_nn::optimizer::{OptimizerSpec, ParameterGroups, Setting};
use ftprop_nn::target::{Further, HardUnit, Moment, QreluForm, Rule, Seen, TargetRule};
use ftprop_nn::trace::called_functions;
use ftprop_nn::{Activation, Optimizer};
use ftprop_tensor::Cpu;
use ftprop_tensor::random::{Purpose, Stream};
use std::fmt::Write;
use std::process::Command;
use std::sync::Arc;

const PRELUDE: &str = "#include <cmath>\n#include <cstdint>\n#include <cstdio>\n#include <cstring>\n\
    #define __device__\n#define __forceinline__ static inline\n\
    static inline float __uint_as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }\n\
    static inline uint32_t __float_as_uint(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }\n\
    static void say(float f) { printf(\"%u\\n\", __float_as_uint(f)); }\n";

/// Compiles and runs a program, and reads the bits that it says; none where there is no compiler.
fn run(name: &str, text: &str) -> Option<Vec<u32>> {
    let folder = std::env::temp_dir().join(format!("ftprop-traced-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("traced.cpp"), folder.join("traced"));
    let text = text.replacen(PRELUDE, &format!("{PRELUDE}{}", called_functions()), 1);
    std::fs::write(&source, &text).unwrap();
    let compiled = Command::new("c++").args(["-O1", "-ffp-contract=off", "-o"]).arg(&program).arg(&source).output();
    let Ok(compiled) = compiled else {
        println!("skipped: no C++ compiler");
        return None;
    };
    assert!(compiled.status.success(), "{}\n{text}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    Some(String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect())
}

fn literal(value: f32) -> String {
    format!("__uint_as_float({}u)", value.to_bits())
}

/// The same bits, but that any NaN is any other.
fn assert_same(got: &[u32], expected: &[f32], what: impl Fn(usize) -> String) {
    assert_eq!(got.len(), expected.len());
    for (i, (&got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got == expected.to_bits() || (f32::from_bits(got).is_nan() && expected.is_nan());
        assert!(same, "{}: {} for {expected}", what(i), f32::from_bits(got));
    }
}

const SPECIAL: [f32; 12] =
    [0.0, -0.0, 1.0, -1.0, 0.5, 1.0 + f32::EPSILON, -1.0 - f32::EPSILON, -1e-30, 40.0, -40.0, 2.0, f32::NAN];

/// Gradients and pre-activations, special ones among them.
fn units(count: usize) -> (Vec<f32>, Vec<f32>) {
    let s = Stream::numbered(31);
    let mut g: Vec<f32> = (0..count as u64).map(|i| (s.uniform(i) - 0.5) * 0.1).collect();
    let mut z: Vec<f32> = (0..count as u64).map(|i| (s.uniform(9000 + i) - 0.5) * 5.0).collect();
    for (i, &special) in SPECIAL.iter().enumerate() {
        z[i] = special;
    }
    (g[20], g[21], g[22]) = (0.0, -0.0, f32::NAN);
    (g, z)
}

/// Targets of which none counts more than half.
#[derive(Debug)]
struct Saturating;

impl Rule for Saturating {
    #[inline(always)]
    fn target<N: Number>(&self, seen: Seen<N>) -> N {
        seen.g.opposite_sign()
    }

    #[inline(always)]
    fn weight<N: Number>(&self, seen: Seen<N>) -> Option<N> {
        let size = seen.g.abs() * N::of(64.0);
        Some(N::of(0.5) * size / (N::of(1.0) + size))
    }
}

#[test]
fn every_activation_layer_loss_form_and_rule() {
    let count = 60;
    let (g, z) = units(count);
    let hard = [Activation::Sign, Activation::Step, Activation::Qrelu { k: 3 }, Activation::Qrelu { k: 5 }];
    let mut cases = Vec::new();
    let own = TargetRule::register("saturating", Saturating).unwrap();
    for layer_loss in LayerLoss::all() {
        cases.push(HardUnit { rule: own, ..HardUnit::new(Activation::Sign, layer_loss) });
    }
    for (i, layer_loss) in LayerLoss::all().into_iter().enumerate() {
        for (j, activation) in hard.into_iter().enumerate() {
            for form in [QreluForm::Single, QreluForm::PerStep] {
                for (r, rule) in TargetRule::all().into_iter().filter(|r| !r.looks_further()).enumerate() {
                    let weighted = (i + j + r) % 3 != 0;
                    cases.push(HardUnit { activation, layer_loss, rule, form, weighted });
                }
            }
        }
    }
    let labels: Vec<u32> = (0..10).collect();
    let moment =
        Moment { seed: 3, step: 17, progress: 0.7, labels: &labels, units: count / 10, layer: 2, portion: None };
    let random = Stream::new(moment.seed, Purpose::Target, moment.step).fork(moment.layer);
    let (mut text, mut main, mut expected) = (PRELUDE.to_string(), String::new(), Vec::new());
    let cpu = Cpu::new(1).unwrap();
    for (number, unit) in cases.iter().enumerate() {
        text += &unit.device_slope(&format!("slope{number}")).unwrap();
        let s = unit.layer_loss.scheduled(moment.progress);
        for i in 0..count {
            let label = labels[i / moment.units] as f32;
            let arguments = [g[i], z[i], label, moment.step as f32, random.uniform(i as u64), s, 0.1];
            let _ = writeln!(main, "say(slope{number}({}));", arguments.map(literal).join(", "));
        }
        let mut slopes = g.clone();
        unit.slopes(&cpu, &moment, &mut slopes, &z, &mut vec![0.0; count]);
        expected.extend(slopes);
    }
    let _ = write!(text, "int main() {{\n{main}}}\n");
    if let Some(got) = run("slopes", &text) {
        assert_same(&got, &expected, |i| format!("{:?} at g {} z {}", cases[i / count], g[i % count], z[i % count]));
    }
}

/// A target as the rules that look further are described, from what a unit is pulled by and from what its rule looks at.
fn further_target(unit: &HardUnit, pull: f32, z: f32, further: f32) -> f32 {
    let away = |g: f32| if g == 0.0 || g.is_nan() { 0.0 } else { -g.signum() };
    match &unit.rule.to_string()[..] {
        "class_mean" => away(further),
        "class_agreement" if away(pull) == away(further) => away(pull),
        "class_agreement" => 0.0,
        "secant" => away(pull),
        "verified:0.1" => {
            let (t, own) = (away(pull), unit.activation.value(z));
            let lowest = if unit.activation == Activation::Sign { -1.0 } else { 0.0 };
            let there = own == if t > 0.0 { 1.0 } else { lowest };
            if there || further > 0.0 { t } else { 0.0 }
        }
        _ => {
            let (own, wanted) = (unit.activation.value(z), unit.activation.value(further));
            let lowest = if unit.activation == Activation::Sign { -1.0 } else { 0.0 };
            match own {
                _ if own < wanted => 1.0,
                _ if own > wanted => -1.0,
                _ if own == 1.0 => 1.0,
                _ if own == lowest => -1.0,
                _ => 0.0,
            }
        }
    }
}

#[test]
fn the_pieces_of_rules_that_look_further() {
    let count = 60;
    let (g, z) = units(count);
    let s = Stream::numbered(8);
    let mut further: Vec<f32> = (0..count as u64).map(|i| 3.0 * s.uniform(i) - 1.5).collect();
    (further[3], further[4], further[5]) = (0.0, z[4], z[5]);
    let hard = [Activation::Sign, Activation::Step, Activation::Qrelu { k: 3 }, Activation::Qrelu { k: 5 }];
    let mut cases = Vec::new();
    for (i, layer_loss) in LayerLoss::all().into_iter().enumerate() {
        for (j, rule) in ["class_mean", "class_agreement", "secant", "teacher", "verified:0.1"].into_iter().enumerate()
        {
            let (activation, form) = (hard[(i + j) % 4], [QreluForm::Single, QreluForm::PerStep][i % 2]);
            let rule = rule.parse().unwrap();
            cases.push(HardUnit { activation, layer_loss, rule, form, weighted: (i + j) % 3 != 0 });
        }
    }
    let (mut text, mut main, mut expected) = (PRELUDE.to_string(), String::new(), Vec::new());
    for (number, unit) in cases.iter().enumerate() {
        let _ = write!(text, "namespace unit{number} {{\n{}}}\n", unit.device_pieces().unwrap());
        let scheduled = unit.layer_loss.scheduled(0.7);
        for i in (0..count).filter(|&i| !g[i].is_nan() && !z[i].is_nan()) {
            let above = unit.rule.further() == Some(Further::Above);
            let further = if above { f32::from(further[i] > 0.0) } else { further[i] };
            let [gi, zi, fi, si] = [g[i], z[i], further, scheduled].map(literal);
            let _ = writeln!(main, "{{ using namespace unit{number}; float w = pull({gi}, {zi}, {fi});");
            let _ = writeln!(main, "float t = target(w, {zi}, {fi}, 0, 0, 0);");
            let _ = writeln!(main, "say(slope_at(t, w, {zi}, {si}, 0.125f)); say(steepness(t, w, {zi}, {si})); }}");
            let middle = if unit.activation == Activation::Sign { 0.0 } else { 0.5 };
            let secant = unit.rule.further() == Some(Further::Curvature);
            let pull = if secant { g[i] - further * (unit.activation.value(z[i]) - middle) } else { g[i] };
            let t = further_target(unit, pull, z[i], further);
            let steep = if t == 0.0 { 0.0 } else { -t * unit.phi(t, z[i], 0.7) };
            let slope = steep * if unit.weighted { pull.abs() } else { 0.125 };
            expected.extend([(unit, slope), (unit, steep)]);
        }
    }
    let _ = write!(text, "int main() {{\n{main}}}\n");
    let Some(got) = run("pieces", &text) else { return };
    assert_eq!(got.len(), expected.len());
    for (got, (unit, expected)) in got.into_iter().map(f32::from_bits).zip(&expected) {
        assert!((got - expected).abs() <= 1e-6 * expected.abs(), "{unit:?}: {got} for {expected}");
    }
}

#[test]
fn every_activation_and_what_soft_ones_pass() {
    let (g, z) = units(60);
    let all = [
        Activation::Sign,
        Activation::Step,
        Activation::Qrelu { k: 3 },
        Activation::Qrelu { k: 255 },
        Activation::Relu,
        Activation::SaturatedRelu,
    ];
    let (mut text, mut main, mut expected) = (PRELUDE.to_string(), String::new(), Vec::new());
    for (number, activation) in all.into_iter().enumerate() {
        text += &activation.device_value(&format!("value{number}"));
        let passed = activation.device_passed(&format!("passed{number}"));
        assert_eq!(passed.is_none(), activation.is_hard());
        text += passed.as_deref().unwrap_or_default();
        for (&g, &z) in g.iter().zip(&z) {
            let _ = writeln!(main, "say(value{number}({}));", literal(z));
            expected.push(activation.value(z));
            if let Some(passed) = activation.passed(g, z) {
                let rest = "0, 0, 0, 0, 0";
                let _ = writeln!(main, "say(passed{number}({}, {}, {rest}));", literal(g), literal(z));
                expected.push(passed);
            }
        }
    }
    let _ = write!(text, "int main() {{\n{main}}}\n");
    if let Some(got) = run("activations", &text) {
        assert_same(&got, &expected, |i| format!("case {i}"));
    }
}

#[test]
fn every_optimizers_update() {
    let lr = ("lr", Setting::Number(0.05));
    let spec = |name: &str, more: &[(&str, f64)]| {
        let more = more.iter().map(|(key, value)| (*key, Setting::Number(*value)));
        OptimizerSpec::new(name, &[lr].into_iter().chain(more).collect::<Vec<_>>()).unwrap()
    };
    let specs = [
        spec("sgd", &[("weight_decay", 0.01)]),
        spec("sgd", &[("momentum", 0.9)]),
        spec("sgd", &[("momentum", 0.9)]).with("nesterov", Setting::Flag(true)).unwrap(),
        spec("adam", &[("weight_decay", 0.01)]),
        spec("adamw", &[]),
        spec("rmsprop", &[("weight_decay", 0.01)]),
        spec("rmsprop", &[("momentum", 0.5)]),
    ];
    let (grads, mut start) = units(40);
    start.truncate(40);
    let (mut text, mut main, mut expected) = (PRELUDE.to_string(), String::new(), Vec::new());
    for (number, spec) in specs.iter().enumerate() {
        let groups = Arc::new(ParameterGroups::single(spec, start.len()).unwrap());
        let group = &groups.groups()[0];
        text += &group.device_update(&format!("update{number}")).unwrap();
        let steps = 3;
        for (&w, &g) in start.iter().zip(&grads) {
            let _ = writeln!(main, "{{ float w = {}, m = 0.0f, v = 0.0f;", literal(w));
            for t in 1..=steps {
                let s = group.scalars(t, 0.5).unwrap().map(literal).join(", ");
                let _ = writeln!(main, "update{number}(w, m, v, {}, {s});", literal(g));
            }
            let _ = writeln!(main, "say(w); }}");
        }
        let mut values = start.clone();
        let mut optimizer = Optimizer::for_groups(groups);
        for _ in 0..steps {
            optimizer.step(&Cpu::new(1).unwrap(), &mut values, &grads, 0.5, None);
        }
        expected.extend(values);
    }
    let _ = write!(text, "int main() {{\n{main}}}\n");
    if let Some(got) = run("updates", &text) {
        assert_same(&got, &expected, |i| format!("{:?}, weight {}", specs[i / 40], i % 40));
    }
}
