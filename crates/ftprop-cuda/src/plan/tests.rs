use super::*;
use ftprop_nn::spec::{Defaults, LayerSpec};
use ftprop_nn::{LayerLoss, presets};

fn plan(layers: &[LayerSpec], input: Shape, classes: usize) -> FusionPlan {
    let defaults = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
    FusionPlan::new(&Graph::resolve(layers, &defaults, input, classes).unwrap(), Role::Pupil(&[]))
}

fn preset(name: &str, side: usize) -> FusionPlan {
    let input = Shape { height: side, width: side, channels: 3 };
    plan(&presets::layers(name, input, &[]).unwrap(), input, 10)
}

fn kinds(plan: &FusionPlan) -> String {
    let letter = |pass: &FusedPass| match pass {
        FusedPass::Product(p) if p.bias.is_some() => 'B',
        FusedPass::Product(_) => 'P',
        FusedPass::Epilogue(f) if f.residual.is_some() => 'S',
        FusedPass::Epilogue(_) => 'F',
        FusedPass::AveragePool(_) => 'A',
        FusedPass::Targets(_) => 'T',
    };
    plan.passes.iter().map(letter).collect()
}

#[test]
fn each_product_is_followed_by_one_epilogue_and_the_last_adds_its_own_bias() {
    assert_eq!(kinds(&preset("convnet4", 32)), "PFPFPFB");
    assert_eq!(kinds(&preset("convnet8", 32)), "PFPFPFPFPFPFPFB");
}

#[test]
fn a_residual_sum_is_one_epilogue_with_both_norms_and_the_activation() {
    let plan = preset("resnet18", 224);
    // The stem with its pooling, then blocks; three of them project their shortcut.
    let block = "PFPS";
    let projecting = "PFPPS";
    let expected = format!("PF{}{}B", block.repeat(2), format!("{projecting}{block}").repeat(3));
    assert_eq!(kinds(&plan).replace('A', ""), expected);
    for pass in &plan.passes {
        if let FusedPass::Epilogue(f) = pass {
            assert!(!f.adds && !f.adds_residual);
        }
    }
    // Of two paths that part, the one reached last on the way back adds its slopes.
    let adding = plan.passes.iter().filter(|p| matches!(p, FusedPass::Product(p) if p.adds)).count();
    assert_eq!(adding, 8);
}

#[test]
fn an_activation_beside_a_way_around_is_part_of_the_pass_before() {
    let plan = preset("bireal18", 32);
    // The stem; then of each block a product and its sum, three of them with a mean and a projection.
    let block = "PS";
    let projecting = "PAPS";
    let expected = format!("PF{}{}AB", block.repeat(4), format!("{projecting}{}", block.repeat(3)).repeat(3));
    assert_eq!(kinds(&plan), expected);
    let epilogues = plan.passes.iter().filter_map(|p| if let FusedPass::Epilogue(f) = p { Some(f) } else { None });
    // All but the last sum, which nothing thresholds; each is the only one to write the slopes of what it reads.
    assert_eq!(epilogues.clone().filter(|f| f.branch.is_some()).count(), 16);
    assert!(epilogues.clone().all(|f| !f.adds && !f.adds_residual && f.activation.is_none()));
    for (_, out) in epilogues.filter_map(|f| f.branch) {
        assert!(plan.passes.iter().any(|p| matches!(p, FusedPass::Product(p) if p.x == out && !p.adds)));
    }
}

#[test]
fn pictures_are_padded_to_four_channels_where_only_convolutions_read_them() {
    let plan4 = preset("convnet4", 32);
    assert_eq!(plan4.tensors[plan4.input].stored, 4);
    let input = Shape { height: 5, width: 5, channels: 3 };
    let fc = LayerSpec::Fc { out: None, bias: None };
    let norm = LayerSpec::BatchNorm { eps: 1e-5, momentum: 0.1 };
    for layers in [vec![fc.clone()], vec![norm, fc]] {
        let plan = plan(&layers, input, 2);
        assert_eq!(plan.tensors[plan.input].stored, 3);
    }
}

#[test]
fn a_window_as_large_as_its_image_is_a_fully_connected_layer() {
    let plan = preset("convnet8", 32);
    let products =
        plan.passes.iter().filter_map(|p| if let FusedPass::Product(p) = p { Some(p.geometry) } else { None });
    let last_but_one = products.rev().nth(1).unwrap();
    assert_eq!((last_but_one.height, last_but_one.in_channels, last_but_one.out_channels), (1, 2048, 512));
}

#[test]
fn odd_orders_are_taken_apart() {
    use LayerSpec as L;
    let act = || L::Act { activation: None, layer_loss: None, target_rule: None, qrelu_form: None };
    let norm = || L::BatchNorm { eps: 1e-5, momentum: 0.1 };
    let fc = |out, bias| L::Fc { out, bias };
    let layers = [
        norm(),
        act(),
        L::Dropout { p: 0.5 },
        act(),
        fc(Some(6), Some(true)),
        norm(),
        norm(),
        L::Residual { main: vec![norm()], shortcut: vec![] },
        fc(None, None),
        act(),
    ];
    let plan = plan(&layers, Shape::vector(5), 3);
    let names: Vec<&str> = plan
        .passes
        .iter()
        .filter_map(|p| if let FusedPass::Epilogue(f) = p { Some(&f.name[..]) } else { None })
        .collect();
    assert_eq!(names[..2], ["layer 2 (dropout)", "layer 3 (act)"]);
    // The bias before a norm stays with its product, and the sum of a tensor with its own norm takes two passes.
    assert_eq!(kinds(&plan), "FFBFFFSPF");
    assert!(!plan.tensors[plan.input].needs_slopes && plan.tensors[plan.output].needs_slopes);
}

#[test]
fn units_whose_rule_looks_further_stand_alone() {
    let input = Shape { height: 32, width: 32, channels: 3 };
    let graph = |name: &str, rule: &str| {
        let layers = presets::layers(name, input, &[]).unwrap();
        let usual = Defaults::new(Activation::Sign, LayerLoss::soft_hinge());
        Graph::resolve(&layers, &Defaults { target_rule: rule.parse().unwrap(), ..usual }, input, 10).unwrap()
    };
    for rule in ["class_mean", "secant", "verified:0.1"] {
        let plan = FusionPlan::new(&graph("convnet8", rule), Role::Pupil(&[]));
        // Dropout has a pass of its own then.
        assert_eq!((kinds(&plan), plan.curved), (format!("{}FPFTB", "PFT".repeat(6)), rule == "secant"));
    }
    // Where a teacher is followed by some layers, the others are as ever.
    let followed = [None, Some(4), None];
    let plan = FusionPlan::new(&graph("convnet4", "teacher"), Role::Pupil(&followed));
    assert_eq!(kinds(&plan), "PFPFTPFB");
    // What goes around a unit adds its slopes first.
    let plan = FusionPlan::new(&graph("bireal18", "secant"), Role::Pupil(&[]));
    let alone = plan.passes.iter().filter_map(|pass| if let FusedPass::Targets(t) = pass { Some(t) } else { None });
    assert!(alone.clone().count() >= 16 && alone.clone().filter(|t| t.adds).count() >= 16);
    // A teacher sets no targets; what its activations are of is kept in their order.
    let plan = FusionPlan::new(&graph("convnet4", "secant"), Role::Teacher { kept: true });
    let shapes: Vec<Shape> = plan.pre_activations.iter().map(|&tensor| plan.tensors[tensor].shape).collect();
    let graph = graph("convnet4", "secant");
    let hard = graph.walk().into_iter().filter(|node| matches!(node.op, Op::Hard(..)));
    assert_eq!(shapes, hard.map(|node| node.input).collect::<Vec<_>>());
    assert!(!plan.curved && !kinds(&plan).contains('T'), "{}", kinds(&plan));
}
