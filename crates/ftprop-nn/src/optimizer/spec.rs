//! An optimizer as a recipe writes it: a name and its settings, each with a usual value and a range.
//!
//! To add one: write its formula in `rules.rs`, and give it a name and settings in `FAMILIES`. A program adds its own
//! by [`OptimizerSpec::register`].

use super::muon::Muon;
use super::rules::{Adam, Momentum, Rmsprop, Sgd};
use super::{AnyUpdate, MatrixRule, Method, UpdateRule};
use crate::NnError;
use crate::names::{SOUND, is_sound, is_word};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// An optimizer with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct OptimizerSpec {
    name: String,
    settings: BTreeMap<String, Setting>,
}

/// A setting's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
}

/// What a recipe holds, checked by nobody yet.
#[derive(Clone, Serialize, Deserialize)]
struct Written {
    name: String,
    #[serde(flatten)]
    settings: BTreeMap<String, WrittenSetting>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenSetting {
    Flag(bool),
    Number(f64),
    Text(String),
}

/// A setting that an optimizer takes.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    name: &'static str,
    usual: Option<Setting>,
    below_one: bool,
}

impl Key {
    /// The learning rate, which every optimizer has and a recipe must give.
    pub const LR: Key = Key { name: "lr", usual: None, below_one: false };

    /// A number of at least 0.
    pub const fn number(name: &'static str, usual: f64) -> Self {
        Key { name, usual: Some(Setting::Number(usual)), below_one: false }
    }

    /// A number of at least 0 and below 1.
    pub const fn share(name: &'static str, usual: f64) -> Self {
        Key { name, usual: Some(Setting::Number(usual)), below_one: true }
    }

    /// Yes or no.
    pub const fn flag(name: &'static str, usual: bool) -> Self {
        Key { name, usual: Some(Setting::Flag(usual)), below_one: false }
    }

    fn is_flag(&self) -> bool {
        matches!(self.usual, Some(Setting::Flag(_)))
    }

    fn check(&self, value: Setting) -> Result<(), String> {
        match (self.usual, value) {
            (Some(Setting::Flag(_)), Setting::Flag(_)) => Ok(()),
            (Some(Setting::Flag(_)), Setting::Number(v)) => Err(format!("true or false, not {v}")),
            (_, Setting::Flag(v)) => Err(format!("a number, not {v}")),
            (_, Setting::Number(v)) if v.is_nan() || v.is_infinite() => Err(format!("a finite number, not {v}")),
            (_, Setting::Number(v)) if self.below_one && !(0.0..1.0).contains(&v) => {
                Err(format!("at least 0 and below 1, not {v}"))
            }
            (_, Setting::Number(v)) if v < 0.0 => Err(format!("at least 0, not {v}")),
            _ => Ok(()),
        }
    }
}

/// Says that there is no setting of a name among these.
fn unknown_key<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> NnError {
    NnError::Key { key: key.into(), known: known.collect::<Vec<_>>().join("`, `") }
}

type Make = dyn Fn(&OptimizerSpec) -> Result<Method, NnError> + Send + Sync;

/// An optimizer that has a name.
struct Family {
    name: &'static str,
    keys: &'static [Key],
    make: fn(&OptimizerSpec) -> Result<Method, NnError>,
}

const BETA1: Key = Key::share("beta1", 0.9);
const BETA2: Key = Key::share("beta2", 0.999);
const EPS: Key = Key::number("eps", 1e-8);
const DECAY: Key = Key::number("weight_decay", 0.0);
const MOMENTUM: Key = Key::share("momentum", 0.0);

/// Every optimizer that comes with the crate.
const FAMILIES: &[Family] = &[
    Family { name: "sgd", keys: &[Key::LR, MOMENTUM, Key::flag("nesterov", false), DECAY], make: sgd },
    // Weight decay is added to the gradient.
    Family { name: "adam", keys: &[Key::LR, BETA1, BETA2, EPS, DECAY], make: |s| Ok(adam(s, false)) },
    // Weight decay shrinks the weights by itself.
    Family {
        name: "adamw",
        keys: &[Key::LR, BETA1, BETA2, EPS, Key::number("weight_decay", 1e-2)],
        make: |s| Ok(adam(s, true)),
    },
    // For matrices; biases and norms need a group with another.
    Family {
        name: "muon",
        keys: &[
            Key::LR,
            Key::share("momentum", 0.95),
            Key::flag("nesterov", true),
            DECAY,
            Key::number("iterations", 5.0),
            Key::flag("normalize", false),
        ],
        make: muon,
    },
    Family { name: "rmsprop", keys: &[Key::LR, Key::share("alpha", 0.99), MOMENTUM, EPS, DECAY], make: rmsprop },
];

fn sgd(spec: &OptimizerSpec) -> Result<Method, NnError> {
    let (momentum, weight_decay) = (spec.number("momentum"), spec.number("weight_decay"));
    match (momentum, spec.flag("nesterov")) {
        (0.0, true) => Err(NnError::Setting("optimizer.nesterov needs a momentum above 0".into())),
        (0.0, false) => Ok(Method::elementwise(Sgd { weight_decay })),
        (_, nesterov) => Ok(Method::elementwise(Momentum { momentum, nesterov, weight_decay })),
    }
}

fn adam(spec: &OptimizerSpec, decoupled: bool) -> Method {
    Method::elementwise(Adam {
        beta1: spec.number("beta1"),
        beta2: spec.number("beta2"),
        eps: spec.number("eps"),
        weight_decay: spec.number("weight_decay"),
        decoupled,
    })
}

fn rmsprop(spec: &OptimizerSpec) -> Result<Method, NnError> {
    Ok(Method::elementwise(Rmsprop {
        alpha: spec.number("alpha"),
        momentum: spec.number("momentum"),
        eps: spec.number("eps"),
        weight_decay: spec.number("weight_decay"),
    }))
}

fn muon(spec: &OptimizerSpec) -> Result<Method, NnError> {
    let iterations = spec.number("iterations");
    if iterations.fract() != 0.0 || !(1.0..=20.0).contains(&iterations) {
        return Err(NnError::Setting(format!(
            "optimizer.iterations must be a whole number from 1 to 20, not {iterations}"
        )));
    }
    Ok(Method::Matrix(Arc::new(Muon {
        momentum: spec.number("momentum"),
        nesterov: spec.flag("nesterov"),
        weight_decay: spec.number("weight_decay"),
        iterations: iterations as u32,
        normalize: spec.flag("normalize"),
    })))
}

/// An optimizer that a program has added.
#[derive(Clone)]
struct Added {
    name: &'static str,
    keys: &'static [Key],
    make: Arc<Make>,
}

static ADDED: Mutex<Vec<Added>> = Mutex::new(Vec::new());

/// What a name stands for.
fn find(name: &str) -> Result<Added, NnError> {
    let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    let own = FAMILIES.iter().find(|f| f.name == name);
    let own = own.map(|f| Added { name: f.name, keys: f.keys, make: Arc::new(f.make) });
    own.or_else(|| added.iter().find(|f| f.name == name).cloned()).ok_or_else(|| {
        let names: Vec<&str> = FAMILIES.iter().map(|f| f.name).chain(added.iter().map(|f| f.name)).collect();
        NnError::Name { what: "optimizer", name: name.into(), known: format!("known are {}", names.join(", ")) }
    })
}

fn add(name: &'static str, keys: &'static [Key], make: Arc<Make>) -> Result<(), NnError> {
    let refused = |why| NnError::Register { what: "optimizer", name: name.into(), why };
    if !is_sound(name) {
        return Err(refused(SOUND));
    }
    if !keys.iter().any(|k| k.name == Key::LR.name && !k.is_flag()) {
        return Err(refused("it has no learning rate among its settings"));
    }
    for (i, key) in keys.iter().enumerate() {
        let wrong = match key.usual {
            _ if !is_word(key.name) => Some("the name of a setting has letters, digits and _ only"),
            _ if key.name == "name" => Some("a setting cannot be called name, which is the optimizer's"),
            _ if keys[..i].iter().any(|before| before.name == key.name) => Some("two of its settings have one name"),
            Some(usual) if key.check(usual).is_err() => Some("the usual value of a setting is none that it may have"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(refused(wrong));
        }
    }
    let mut added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
    if FAMILIES.iter().any(|f| f.name == name) || added.iter().any(|f| f.name == name) {
        return Err(refused("the name is taken"));
    }
    added.push(Added { name, keys, make });
    Ok(())
}

impl OptimizerSpec {
    /// An optimizer by name; what is not given has its usual value.
    pub fn new(name: &str, settings: &[(&str, Setting)]) -> Result<Self, NnError> {
        let family = find(name)?;
        let mut all: BTreeMap<String, Setting> =
            family.keys.iter().filter_map(|k| Some((k.name.to_string(), k.usual?))).collect();
        for (key, value) in settings {
            let Some(known) = family.keys.iter().find(|k| k.name == *key) else {
                return Err(unknown_key(key, family.keys.iter().map(|k| k.name)));
            };
            known.check(*value).map_err(|why| NnError::Setting(format!("optimizer.{key} must be {why}")))?;
            all.insert((*key).into(), *value);
        }
        if let Some(missing) = family.keys.iter().find(|k| !all.contains_key(k.name)) {
            return Err(NnError::MissingKey { key: missing.name });
        }
        let spec = OptimizerSpec { name: family.name.into(), settings: all };
        (family.make)(&spec)?;
        Ok(spec)
    }

    /// Stochastic gradient descent; momentum may be 0.
    pub fn sgd(lr: f64, momentum: f64) -> Result<Self, NnError> {
        OptimizerSpec::new("sgd", &[("lr", Setting::Number(lr)), ("momentum", Setting::Number(momentum))])
    }

    /// Adam with its usual constants and no weight decay.
    pub fn adam(lr: f64) -> Result<Self, NnError> {
        OptimizerSpec::new("adam", &[("lr", Setting::Number(lr))])
    }

    /// The same with another value for one setting.
    pub fn with(&self, key: &str, value: Setting) -> Result<Self, NnError> {
        let mut settings: Vec<(&str, Setting)> = self.settings.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        settings.push((key, value));
        OptimizerSpec::new(&self.name, &settings)
    }

    /// Makes an optimizer of one's own known by a name, with the settings that a recipe may give it; the learning rate
    /// ([`Key::LR`]) is one of them. A name can be given once. Whether its rule has more moments than there is room for is
    /// seen when it is first chosen.
    pub fn register<R: UpdateRule>(
        name: &'static str,
        keys: &'static [Key],
        make: impl Fn(&OptimizerSpec) -> R + Send + Sync + 'static,
    ) -> Result<(), NnError> {
        let method = move |spec: &OptimizerSpec| match make(spec) {
            rule if rule.moments() <= 2 => Ok(Method::elementwise(rule)),
            rule => Err(NnError::Setting(format!(
                "the optimizer {name} keeps {} moments a weight; there is room for 2",
                rule.moments()
            ))),
        };
        add(name, keys, Arc::new(method))
    }

    /// The same for an optimizer of whole matrices.
    pub fn register_matrix<R: MatrixRule>(
        name: &'static str,
        keys: &'static [Key],
        make: impl Fn(&OptimizerSpec) -> R + Send + Sync + 'static,
    ) -> Result<(), NnError> {
        add(name, keys, Arc::new(move |spec: &OptimizerSpec| Ok(Method::Matrix(Arc::new(make(spec))))))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The learning rate that the schedule scales.
    pub fn lr(&self) -> f64 {
        self.number("lr")
    }

    /// A setting that is a number; 0 where the optimizer has none of that name.
    pub fn number(&self, key: &str) -> f64 {
        match self.settings.get(key) {
            Some(Setting::Number(value)) => *value,
            _ => 0.0,
        }
    }

    /// A setting that is yes or no; no where the optimizer has none of that name.
    pub fn flag(&self, key: &str) -> bool {
        self.settings.get(key) == Some(&Setting::Flag(true))
    }

    /// Whether it has a setting of that name.
    pub fn has(&self, key: &str) -> bool {
        self.settings.contains_key(key)
    }

    /// What it does.
    pub(super) fn method(&self) -> Result<Method, NnError> {
        (find(&self.name)?.make)(self)
    }
}

impl TryFrom<Written> for OptimizerSpec {
    type Error = NnError;
    fn try_from(written: Written) -> Result<Self, NnError> {
        let family = find(&written.name)?;
        let mut settings = Vec::with_capacity(written.settings.len());
        for (key, value) in &written.settings {
            // Before its value: what is wrong with that of a misspelt key leads nowhere.
            let Some(known) = family.keys.iter().find(|k| k.name == *key) else {
                return Err(unknown_key(key, family.keys.iter().map(|k| k.name).chain(["name"])));
            };
            let value = match value {
                WrittenSetting::Flag(flag) => Setting::Flag(*flag),
                WrittenSetting::Number(number) => Setting::Number(*number),
                WrittenSetting::Text(text) => {
                    let what = if known.is_flag() { "true or false" } else { "a number" };
                    return Err(NnError::Setting(format!("optimizer.{key} must be {what}, not \"{text}\"")));
                }
            };
            settings.push((key.as_str(), value));
        }
        OptimizerSpec::new(&written.name, &settings)
    }
}

impl From<OptimizerSpec> for Written {
    fn from(spec: OptimizerSpec) -> Self {
        let written = |setting| match setting {
            Setting::Number(value) => WrittenSetting::Number(value),
            Setting::Flag(value) => WrittenSetting::Flag(value),
        };
        Written { name: spec.name, settings: spec.settings.into_iter().map(|(k, v)| (k, written(v))).collect() }
    }
}

impl Method {
    pub(super) fn elementwise(rule: impl UpdateRule) -> Self {
        Method::Elementwise(Arc::new(rule) as Arc<dyn AnyUpdate>)
    }
}
