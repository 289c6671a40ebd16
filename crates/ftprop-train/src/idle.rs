//! Settings that nothing comes of: whoever made them believes that something does, so it is said.

use crate::observe::Notice;
use crate::recipe::{BadImages, Recipe};
use ftprop_data::Source;
use ftprop_nn::graph::Op;
use ftprop_nn::spec::Init;
use ftprop_nn::target::HardUnit;
use ftprop_nn::{Activation, Graph, LayerSpec, ScheduleKind};

impl Recipe {
    /// The settings that are not the usual ones and change nothing in a network and its training, each with a reason.
    pub fn idle(&self, graph: &Graph) -> Vec<Notice> {
        let mut idle = Vec::new();
        let mut say = |is: bool, key, why| {
            if is {
                idle.push(Notice::NoEffect { key, why });
            }
        };
        self.idle_units(graph, &mut say);
        self.idle_data(&mut say);
        self.idle_schedule(&mut say);
        idle
    }

    fn idle_units(&self, graph: &Graph, say: &mut dyn FnMut(bool, &'static str, &'static str)) {
        let usual = Recipe::default();
        let nodes = graph.walk();
        let units = || nodes.iter().filter_map(|node| if let Op::Hard(unit, _) = &node.op { Some(unit) } else { None });
        let none = |has: &dyn Fn(&HardUnit) -> bool| !units().any(has);
        let (soft, every) = ("the network has no hard activation", "every hard activation has one of its own");
        let why = if units().next().is_none() { soft } else { every };
        let loss = self.layer_loss != usual.layer_loss;
        say(loss && none(&|unit| unit.layer_loss == self.layer_loss), "layer_loss", why);
        let rule = self.target_rule != usual.target_rule;
        say(rule && none(&|unit| unit.rule == self.target_rule), "target_rule", why);
        // A teacher's part of the loss bends, whatever the labels' part is.
        let straight = !self.train.loss.bends() && self.train.teacher.is_none();
        let curved = !none(&|unit| unit.rule.looks_at_curvature());
        say(curved && straight, "target_rule", "the loss does not bend, so that secants are gradients");
        say(!self.weighted && none(&|_| true), "weighted", soft);
        say(self.train.diagnostics && none(&|_| true), "train.diagnostics", soft);
        let stepped = |unit: &HardUnit| matches!(unit.activation, Activation::Qrelu { .. });
        let form = self.qrelu_form != usual.qrelu_form;
        say(
            form && none(&|unit| stepped(unit) && unit.form == self.qrelu_form),
            "qrelu_form",
            "there is no qReLU to have it",
        );
        let norms = nodes.iter().any(|node| matches!(node.op, Op::BatchNorm(_)));
        say(self.network.uniform_gamma && !norms, "network.uniform_gamma", "the network has no batch norm");
        let layers = self.plain_layers(graph.input()).unwrap_or_default();
        let unused = self.network.uniform_starts.iter().any(|&start| start == Init::Uniform || !starts(&layers, start));
        say(unused, "network.uniform_starts", "no convolution starts in one of these ways");
        let overridden = self.overrides_nothing(&self.network.layers);
        say(overridden, "network.layers", "an act that is not hard has neither layer loss nor target rule nor form");
    }

    /// Whether a layer of full precision has a setting that is for hard ones.
    fn overrides_nothing(&self, layers: &[LayerSpec]) -> bool {
        layers.iter().any(|layer| match layer {
            LayerSpec::Act { activation, layer_loss, target_rule, qrelu_form } => {
                let given = layer_loss.is_some() || target_rule.is_some() || qrelu_form.is_some();
                given && !activation.unwrap_or(self.activation).is_hard()
            }
            LayerSpec::Residual { main, shortcut } => self.overrides_nothing(main) || self.overrides_nothing(shortcut),
            _ => false,
        })
    }

    fn idle_data(&self, say: &mut dyn FnMut(bool, &'static str, &'static str)) {
        let data = &self.data;
        let pads = data.pad > 0 && data.random_crop;
        say(data.pad > 0 && !data.random_crop, "data.pad", "it makes room for data.random_crop, which is not set");
        say(data.reflect && !pads, "data.reflect", "it needs data.pad and data.random_crop");
        let files = matches!(data.source, Source::Folder | Source::Prepared);
        say(data.bad_images == BadImages::Skip && !files, "data.bad_images", "these are no pictures in files");
        let table = data.source == Source::Csv;
        say(!data.csv.is_default() && !table, "data.csv", "these data are no table");
        let both = data.csv.test_file.is_some() && data.csv.test_fraction.is_some();
        say(both && table, "data.csv.test_fraction", "there is a data.csv.test_file");
    }

    fn idle_schedule(&self, say: &mut dyn FnMut(bool, &'static str, &'static str)) {
        let (schedule, usual) = (&self.schedule, Recipe::default().schedule);
        let (step, plateau) = (schedule.kind == ScheduleKind::Step, schedule.kind == ScheduleKind::Plateau);
        let factor = schedule.factor != usual.factor && !step && !plateau;
        say(factor, "schedule.factor", "it is for schedule.kind = \"step\" and \"plateau\"");
        let floor = schedule.floor != usual.floor && (step || schedule.kind == ScheduleKind::Constant);
        say(floor, "schedule.floor", "a schedule of this kind has none");
        say(step && schedule.decay_at.is_empty(), "schedule.kind", "\"step\" needs schedule.decay_at");
        let late = !schedule.decay_at.is_empty() && schedule.decay_at.iter().all(|&epoch| epoch > self.train.epochs);
        say(late, "schedule.decay_at", "training ends before the first of them");
    }
}

/// Whether a convolution would start so.
fn starts(layers: &[LayerSpec], start: Init) -> bool {
    layers.iter().any(|layer| match layer {
        LayerSpec::Conv { init, .. } => *init == start,
        LayerSpec::Residual { main, shortcut } => starts(main, start) || starts(shortcut, start),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::built_in;
    use crate::recipe::Recipe;
    use ftprop_nn::Shape;

    fn keys(recipe: &Recipe) -> Vec<&'static str> {
        let (side, channels, classes) = match recipe.data.source {
            Source::Digits => (8, 1, 10),
            Source::Folder => (recipe.data.crop.unwrap_or(224), 3, 10),
            _ => (32, 3, 10),
        };
        let graph = recipe.graph(Shape { height: side, width: side, channels }, classes).unwrap();
        let key = |notice| match notice {
            Notice::NoEffect { key, .. } => key,
            other => panic!("{other}"),
        };
        recipe.idle(&graph).into_iter().map(key).collect()
    }

    #[test]
    fn every_setting_of_a_built_in_recipe_does_something() {
        for name in built_in::names() {
            let recipe = Recipe::built_in(name).unwrap().into_recipe();
            assert_eq!(keys(&recipe), [""; 0], "{name}");
        }
    }

    #[test]
    fn settings_that_change_nothing_are_named() {
        let mlp = "network.preset = \"mlp\"\nnetwork.widths = [4]\n";
        for (text, expected) in [
            ("", &[][..]),
            ("data.pad = 1", &["data.pad"]),
            ("data = { reflect = true, random_crop = true }", &["data.reflect"]),
            ("data = { reflect = true, random_crop = true, pad = 1 }", &[]),
            ("activation = \"relu\"\ntarget_rule = \"random_subset:0.5\"", &["target_rule"]),
            ("activation = \"relu\"\nlayer_loss = \"hinge\"\nweighted = false", &["layer_loss", "weighted"]),
            ("activation = \"relu\"\ntrain.diagnostics = true", &["train.diagnostics"]),
            ("target_rule = \"random_subset:0.5\"\nlayer_loss = \"hinge\"\nweighted = false", &[]),
            ("qrelu_form = \"per_step\"", &["qrelu_form"]),
            ("qrelu_form = \"per_step\"\nactivation = \"qrelu:3\"", &[]),
            ("data = { bad_images = \"skip\", csv.missing = \"mean\" }", &["data.bad_images", "data.csv"]),
            ("schedule.factor = 0.5", &["schedule.factor"]),
            ("schedule.floor = 0.5", &["schedule.floor"]),
            ("schedule = { kind = \"cosine\", floor = 0.5 }", &[]),
            ("schedule.kind = \"step\"", &["schedule.kind"]),
            ("schedule = { kind = \"step\", decay_at = [11] }", &["schedule.decay_at"]),
            ("schedule = { kind = \"step\", decay_at = [5, 11], factor = 0.3 }", &[]),
            ("network.uniform_gamma = true", &["network.uniform_gamma"]),
            ("network.uniform_starts = [\"dirac\"]", &["network.uniform_starts"]),
            ("target_rule = \"secant\"", &[]),
            ("target_rule = \"secant\"\ntrain.loss = \"crammer_singer\"", &["target_rule"]),
            ("target_rule = \"secant\"\ntrain.loss = \"squared_multi_hinge\"", &[]),
            ("target_rule = \"secant\"\ntrain = { loss = \"multi_hinge\", teacher = \"run\" }", &[]),
        ] {
            let recipe = Recipe::from_toml("test", &format!("{mlp}{text}\n")).unwrap();
            assert_eq!(keys(&recipe), expected, "{text}");
        }
        let own = "layer_loss = \"hinge\"\n[[network.layers]]\nkind = \"act\"\nlayer_loss = \"log\"\n\
                   [[network.layers]]\nkind = \"fc\"\n";
        assert_eq!(keys(&Recipe::from_toml("own", own).unwrap()), ["layer_loss"]);
        let soft = own.replace("layer_loss = \"hinge\"", "activation = \"relu\"");
        assert_eq!(keys(&Recipe::from_toml("soft", &soft).unwrap()), ["network.layers"]);
        let starts = |left_out: &str| {
            let text =
                format!("data.source = \"cifar10\"\nnetwork = {{ preset = \"fast\", uniform_starts = {left_out} }}");
            keys(&Recipe::from_toml("starts", &text).unwrap())
        };
        assert_eq!(starts("[\"dirac\", \"whitened\"]"), [""; 0]);
        assert_eq!(starts("[\"dirac\", \"normal_fan_out\"]"), ["network.uniform_starts"]);
    }
}
