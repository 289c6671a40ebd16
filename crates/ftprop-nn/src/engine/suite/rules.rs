//! Target rules that look further than at their unit.

use super::cases::{EXAMPLES, networks};
use super::teachers::taught_by;
use super::{Case, Check, Exactness, Make, beside_the_reference, whole_steps};
use crate::NnError;
use crate::activation::Activation;
use crate::distillation::Distillation;
use crate::engine::{EngineError, Learning};
use crate::graph::Graph;
use crate::layer_loss::LayerLoss;
use crate::mixing::Mixing;
use crate::network::Step;
use crate::number::Number;
use crate::optimizer::OptimizerSpec;
use crate::output_loss::{Criterion, OutputLoss};
use crate::portion::Portion;
use crate::spec::{Defaults, LayerSpec};
use crate::target::{QreluForm, Rule, Seen, TargetRule};
use ftprop_tensor::Share;
use std::sync::Arc;

/// What such rules are tried with, in the order of the networks: each has its own units, loss and form.
struct Setting {
    activation: Activation,
    loss: OutputLoss,
    layer_loss: LayerLoss,
    form: QreluForm,
}

fn setting(number: usize) -> Setting {
    let k = 2 + number as u32 % 4;
    let activation = [Activation::Sign, Activation::Qrelu { k }, Activation::Step][number % 3];
    let loss =
        [OutputLoss::CrossEntropy, OutputLoss::SquaredMultiHinge, OutputLoss::SquaredOneVsRestHinge][number / 2 % 3];
    let layer_losses = [LayerLoss::soft_hinge(), LayerLoss::saturated_hinge()];
    let form = [QreluForm::Single, QreluForm::PerStep][number / 3 % 2];
    Setting { activation, loss, layer_loss: layer_losses[number % 2], form }
}

/// Every such rule in every network.
pub(super) fn cases() -> Result<Vec<Case>, NnError> {
    let mut cases = Vec::new();
    for (i, rule) in ["class_mean", "class_agreement", "secant", "teacher", "verified:0.2"].into_iter().enumerate() {
        let target_rule: TargetRule = rule.parse()?;
        for (network, (name, input, layers)) in networks().into_iter().enumerate() {
            let Setting { activation, loss, layer_loss, form } = setting(network + i);
            let defaults = Defaults { target_rule, qrelu_form: form, ..Defaults::new(activation, layer_loss) };
            let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 3 + network)?);
            let mut criterion = Criterion::new(loss, 0.0)?;
            if network % 2 == 1 {
                criterion = criterion.with_class_weights((0..3 + network).map(|c| 0.5 + c as f32 / 4.0).collect())?;
            }
            if loss == OutputLoss::CrossEntropy && network % 3 == 0 {
                criterion = criterion.with_mixing(Mixing::new(0.4, 1.0)?)?;
            }
            // Curvature and losses are a matter of a teacher's logits too.
            let learns = target_rule.follows_teacher() || (rule != "class_mean" && network % 2 == 0);
            let teacher = learns.then(|| taught_by(&layers, input, 3 + network, Distillation::new(2.0, 0.5)?));
            let optimizer = OptimizerSpec::sgd(0.1, 0.9)?;
            let teacher = teacher.transpose()?.map(Arc::new);
            let learning = Learning { criterion, teacher, ..Learning::new(&graph, &optimizer)? };
            let name = format!("{name}, {activation}, {rule}");
            cases.push(Case { name, graph, learning, batch: 9, n: 8, soft: false, allowed: 2e-4, examples: EXAMPLES });
        }
    }
    let weighing = weighing()?;
    cases.push(mixture(&["random_subset:0.5", "class_mean", "secant", "teacher", "verified:0.1", "gradient_sign"])?);
    // Without curvature such units are part of what follows a product, with it they stand alone.
    cases.extend([mixture(&[weighing.name()])?, mixture(&[weighing.name(), "secant"])?]);
    Ok(cases)
}

/// The paper's targets, of which none counts more than an eighth: a rule as programs have their own.
#[derive(Debug)]
struct Saturating;

impl Rule for Saturating {
    #[inline(always)]
    fn target<N: Number>(&self, seen: Seen<N>) -> N {
        seen.g.opposite_sign()
    }

    #[inline(always)]
    fn weight<N: Number>(&self, seen: Seen<N>) -> Option<N> {
        let size = seen.g.abs();
        Some(size / (N::of(1.0) + N::of(8.0) * size))
    }
}

/// That rule, registered once whoever asks.
fn weighing() -> Result<TargetRule, NnError> {
    const NAME: &str = "suite_saturating";
    NAME.parse().or_else(|_| TargetRule::register(NAME, Saturating)).or_else(|_| NAME.parse())
}

/// Layers that each have their own rule, so that curvature comes down through all kinds of them.
fn mixture(rules: &[&str]) -> Result<Case, NnError> {
    let (_, input, mut layers) = networks().swap_remove(4);
    let mut number = 0;
    give_rules(&mut layers, rules, &mut number)?;
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    let graph = Arc::new(Graph::resolve(&layers, &defaults, input, 4)?);
    let teacher = Some(Arc::new(taught_by(&networks().swap_remove(4).2, input, 4, Distillation::new(1.0, 0.3)?)?));
    let learning = Learning { teacher, ..Learning::new(&graph, &OptimizerSpec::sgd(0.1, 0.9)?)? };
    let name = format!("residual, sign, rules in turn: {}", rules.join(", "));
    Ok(Case { name, graph, learning, batch: 9, n: 9, soft: false, allowed: 2e-4, examples: EXAMPLES })
}

fn give_rules(layers: &mut [LayerSpec], rules: &[&str], number: &mut usize) -> Result<(), NnError> {
    for layer in layers {
        match layer {
            LayerSpec::Act { target_rule, .. } => {
                *target_rule = Some(rules[*number % rules.len()].parse()?);
                *number += 1;
            }
            LayerSpec::Residual { main, shortcut } => {
                give_rules(main, rules, number)?;
                give_rules(shortcut, rules, number)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Each beside the reference, and in whole steps.
pub(super) fn check(
    make: &mut Make<'_>,
    exactness: Exactness,
    report: &mut dyn FnMut(Check),
) -> Result<(), EngineError> {
    let cases = cases()?;
    for case in &cases {
        if exactness == Exactness::Float {
            report(beside_the_reference(make, case, case.allowed, true)?);
        }
        // One network of each rule, which has dropout and a norm, will do for steps as they are captured.
        if case.name.starts_with("norm") {
            report(whole_steps(make, case)?);
        }
    }
    report(parts_are_refused(make, &cases[0])?);
    Ok(())
}

/// A rule that looks at whole batches does not learn from parts of them.
fn parts_are_refused(make: &mut Make<'_>, case: &Case) -> Result<Check, EngineError> {
    let mut engine = make(case)?;
    engine.initialise(3)?;
    let (images, labels) = case.data(11);
    let portion = Portion::new(Share { rank: 0, ranks: 2 }, case.n, case.n);
    let (len, step) = (portion.count * case.graph.input().len(), Step { seed: 1, number: 0, progress: 0.0 });
    let refused = engine.learn_portion(&images[..len], &labels[..portion.count], &step, Some(portion)).is_err();
    let error = if refused { 0.0 } else { f64::INFINITY };
    Ok(Check { name: "a rule that looks at whole batches is given no part".into(), error, allowed: 0.0 })
}
