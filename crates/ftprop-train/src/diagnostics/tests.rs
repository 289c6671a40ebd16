use super::*;
use crate::engine::build_network;
use crate::files;
use ftprop_nn::Network;
use ftprop_nn::engine::NetworkState;

const RECIPE: &str = r#"
name = "two layers"
network.preset = "mlp"
network.widths = [24, 12]
data.source = "digits"
data.validation = 0.1
data.pad = 1
data.random_crop = true
train.epochs = 2
train.batch = 100
optimizer.lr = 0.01
schedule.kind = "cosine"
"#;

struct Setting {
    recipe: Recipe,
    dataset: Dataset,
    cpu: Arc<Cpu>,
    network: Network,
}

fn setting(changes: &str) -> Setting {
    let recipe = Recipe::from_toml("a test", &format!("{RECIPE}\n{changes}")).unwrap();
    let dataset = recipe.data.open().unwrap();
    let cpu = Arc::new(Cpu::new(1).unwrap());
    let mut network = build_network(&recipe, &dataset, cpu.clone(), recipe.train.batch).unwrap();
    network.initialise(recipe.train.seed);
    Setting { recipe, dataset, cpu, network }
}

impl Setting {
    fn diagnostics(&self) -> Diagnostics {
        Diagnostics::new(&self.recipe, &self.dataset, self.cpu.clone()).unwrap()
    }

    fn optimizer(&self) -> Optimizer {
        Optimizer::new(&self.recipe.optimizer, self.network.values().len()).unwrap()
    }

    /// The network's state, with an optimizer that has no past.
    fn state(&self) -> TrainingState<'static> {
        let optimizer = self.optimizer();
        let (steps, moments) = optimizer.state();
        let (values, statistics) = (self.network.values().to_vec().into(), self.network.stats().to_vec().into());
        let moments = moments.map(|m| m.to_vec().into()).collect();
        TrainingState { network: NetworkState { values, statistics }, steps, moments, average: None }
    }

    /// The state after so many epochs of 13 steps, with an optimizer that has no past.
    fn look(&self, diagnostics: &mut Diagnostics, epoch: u32) -> Record {
        diagnostics.look(epoch, u64::from(epoch) * 13, 1.0, &self.state()).unwrap().unwrap()
    }
}

#[test]
fn the_step_looked_at_is_the_next_one_of_the_run() {
    let setting = setting("");
    let mut diagnostics = setting.diagnostics();
    let record = setting.look(&mut diagnostics, 1);

    let mut optimizer = setting.optimizer();
    let Setting { recipe, dataset, mut network, .. } = setting;
    let (train, _) = recipe.data.hold_out(&dataset.train, recipe.train.seed).unwrap();
    let config = LoaderConfig {
        augment: recipe.data.augment(),
        ..LoaderConfig::training(recipe.train.batch, recipe.train.seed, dataset.normalize.clone())
    };
    let mut epoch = Loader::new(&train, config).unwrap().epoch(2, 0);
    let batch = epoch.next_batch().unwrap().unwrap();
    let step = Step { seed: recipe.train.seed, number: 13, progress: 0.5 };
    let tally = network.learn(batch.images, batch.labels, &recipe.criterion().unwrap(), &step);
    let (cpu, values, grads) = network.values_and_grads();
    optimizer.step(cpu, values, grads, recipe.schedule.factor_at(2, 0, 13, 2), None);
    assert_eq!(diagnostics.probe.network().values(), network.values());
    assert_eq!((record.epoch, record.step, record.diagnosis.loss), (1, 13, tally.loss()));
    let paths: Vec<_> = record.diagnosis.layers.iter().map(|l| (l.layer.as_str(), l.units)).collect();
    assert_eq!(paths, [("1", 24), ("3", 12)]);
}

#[test]
fn there_is_a_step_to_look_at_after_the_last_epoch() {
    let setting = setting("");
    let mut diagnostics = setting.diagnostics();
    let record = setting.look(&mut diagnostics, 2);
    // The cosine has come down to zero there, but its last step was still above.
    assert_ne!(diagnostics.probe.network().values(), setting.network.values());
    assert!(record.diagnosis.loss_after < record.diagnosis.loss);
    // A state of another network is refused.
    let mut short = setting.state();
    short.network.values = vec![0.0; 7].into();
    assert!(diagnostics.look(0, 0, 1.0, &short).is_err());
    assert!(diagnostics.look(0, 0, 1.0, &TrainingState { moments: Vec::new(), ..setting.state() }).is_err());
}

/// Two layers that start far out: the saturated hinge leaves them there, the soft hinge does not.
#[test]
fn dead_units_stop_the_gradient() {
    let look = |layer_loss: &str, scale: f32| {
        let mut setting = setting(&format!("layer_loss = \"{layer_loss}\""));
        setting.network.values_mut().iter_mut().for_each(|w| *w *= scale);
        setting.look(&mut setting.diagnostics(), 0).diagnosis.layers
    };
    let (near, far, soft) = (look("saturated_hinge", 1.0), look("saturated_hinge", 8.0), look("soft_hinge", 8.0));
    for layer in 0..2 {
        assert!(near[layer].beyond < 0.5 && far[layer].beyond > 0.7, "{near:?} {far:?}");
        assert_eq!(far[layer].beyond, soft[layer].beyond);
        assert!(soft[layer].faint < far[layer].faint, "{soft:?} {far:?}");
        let passed = |l: &LayerDiagnosis| l.slope / l.gradient;
        assert!(passed(&far[layer]) < passed(&near[layer]));
    }
}

#[test]
fn records_survive_their_file_and_are_cut_where_a_run_goes_on() {
    let setting = setting("");
    let mut diagnostics = setting.diagnostics();
    let folder = std::env::temp_dir().join(format!("ftprop-diagnostics-{}", std::process::id()));
    files::create_folder(&folder).unwrap();
    let mut records = Records::before(&folder, 0).unwrap();
    for epoch in 0..3 {
        records.add(setting.look(&mut diagnostics, epoch)).unwrap();
    }

    assert_eq!(Records::read(&folder).unwrap().all(), records.all());
    let cut = Records::before(&folder, 2).unwrap();
    assert_eq!(cut.all(), &records.all()[..2]);
    assert_eq!(Records::read(&folder).unwrap().all(), cut.all());
    std::fs::remove_dir_all(&folder).unwrap();

    let scalars = records.all()[0].scalars();
    assert!(scalars.iter().any(|(tag, value)| tag == "diagnostics.beyond/3" && (0.0..1.0).contains(value)));
    assert_eq!(scalars.len(), 2 + 2 * 12);
}
