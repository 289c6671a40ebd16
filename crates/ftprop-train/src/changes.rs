//! In what two recipes differ, for a run that is to go on: what may change on the way, and what is kept of it.

use crate::checked::PastSchedule;
use crate::error::Error;
use crate::recipe::Recipe;
use ftprop_nn::Schedule;
use serde::{Deserialize, Serialize};
use std::fmt;
use toml::Value;

/// Keys that do not change what a step computes: a run may go on with others, and nothing needs to be said.
const FREE: [&str; 2] = ["name", "train.epochs"];

/// Keys that change how the network goes on learning, but neither what it is, nor which examples it knows, nor what the
/// optimizer remembers. A name that ends with a point stands for all keys that begin with it.
const CHANGEABLE: [&str; 27] = [
    "layer_loss",
    "target_rule",
    "qrelu_form",
    "weighted",
    "data.pad",
    "data.reflect",
    "data.random_crop",
    "data.flip",
    "data.alternate_flips",
    "data.cutout",
    "data.area",
    "data.brightness",
    "data.contrast",
    "data.saturation",
    "data.trivial_augment",
    "data.bad_images",
    "train.label_smoothing",
    "train.class_weights",
    "train.mixup",
    "train.cutmix",
    "train.accumulate",
    "train.sync_norm",
    "train.clip",
    "train.patience",
    "train.precision",
    "train.deterministic",
    "schedule.",
];

/// What is said of a setting without a value.
const NOT_SET: &str = "not set";

/// A setting that a run goes on with in place of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The full key.
    pub key: String,
    /// What it was, as a recipe writes it.
    pub before: String,
    /// What it is.
    pub now: String,
}

/// When a setting changed, a line of a run folder's `changes.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The epoch that it first counts in, from 1.
    pub epoch: u32,
    /// Batches of all epochs that had been learned from before.
    pub step: u64,
    /// What changed.
    #[serde(flatten)]
    pub change: Change,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {} and is {}", self.key, self.before, self.now)
    }
}

impl Change {
    /// Whether a run can go on with it.
    pub(crate) fn means_something(&self) -> bool {
        let optimizer = self.key.starts_with("optimizer.") && self.key != "optimizer.name";
        let among = |name: &&str| self.key == *name || (name.ends_with('.') && self.key.starts_with(*name));
        optimizer || CHANGEABLE.iter().any(among)
    }

    /// Whether another leads to the same setting.
    pub(crate) fn ends_like(&self, other: &Change) -> bool {
        (&self.key, &self.now) == (&other.key, &other.now)
    }
}

/// The changes as a list in words.
pub(crate) fn said(changes: &[Change]) -> String {
    changes.iter().map(Change::to_string).collect::<Vec<_>>().join(", ")
}

/// The schedules that a run had before this one, in their order, by what changed in which epoch. Gives what is wrong with
/// a change, where one is not as it was recorded.
pub(crate) fn schedules(now: &Schedule, changes: &[(u32, Change)]) -> Result<Vec<PastSchedule>, String> {
    let mut table = toml::Table::try_from(now).map_err(|e| e.to_string())?;
    let (mut past, mut until) = (Vec::new(), u32::MAX);
    for (epoch, change) in changes.iter().rev() {
        let Some(name) = change.key.strip_prefix("schedule.") else { continue };
        let unreadable =
            || format!("{} was no such setting; put the file back as it was, or begin a new run", change.key);
        match change.before.as_str() {
            NOT_SET => table.remove(name),
            before => {
                let line: toml::Table = format!("value = {before}").parse().map_err(|_| unreadable())?;
                line.into_iter().next().and_then(|(_, value)| table.insert(name.into(), value))
            }
        };
        // Where a run fell back to an older checkpoint, what came later did not last.
        until = until.min(*epoch);
        past.push(PastSchedule { until, schedule: table.clone().try_into().map_err(|_| unreadable())? });
    }
    past.reverse();
    Ok(past)
}

/// What is trained now in place of what was; nothing where only that differs which belongs to a machine, or changes no
/// step.
pub(crate) fn between(before: &Recipe, now: &Recipe) -> Result<Vec<Change>, Error> {
    let value = |recipe: &Recipe| {
        let unwritable = |e: toml::ser::Error| Error::Unwritable { what: "the recipe".into(), why: e.to_string() };
        Value::try_from(recipe.portable()).map_err(unwritable)
    };
    let mut changes = Vec::new();
    compare("", Some(&value(before)?), Some(&value(now)?), &mut changes);
    Ok(changes)
}

fn compare(key: &str, before: Option<&Value>, now: Option<&Value>, changes: &mut Vec<Change>) {
    if before == now || FREE.contains(&key) {
        return;
    }
    if let (Some(Value::Table(before)), Some(Value::Table(now))) = (before, now) {
        let added = now.keys().filter(|name| !before.contains_key(*name));
        for name in before.keys().chain(added) {
            let path = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            compare(&path, before.get(name), now.get(name), changes);
        }
        return;
    }
    let said = |value: Option<&Value>| match value {
        None => NOT_SET.to_string(),
        // Layers would fill the screen.
        Some(Value::Array(values)) if values.iter().any(Value::is_table) => format!("{} of them", values.len()),
        Some(value) => value.to_string(),
    };
    changes.push(Change { key: key.into(), before: said(before), now: said(now) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_nn::{OutputLoss, ScheduleKind};

    #[test]
    fn keys_that_differ_are_named_with_both_values() {
        let before = Recipe::built_in("digits").unwrap().into_recipe();
        let mut now = before.clone();
        (now.name, now.train.epochs, now.train.threads) = ("other".into(), 99, 7);
        now.data.path = Some("elsewhere".into());
        assert_eq!(between(&before, &now).unwrap(), []);
        (now.train.seed, now.train.loss) = (5, OutputLoss::MultiHinge);
        now.data.validation = 0.25;
        now.train.clip = Some(2.0);
        let changes = between(&before, &now).unwrap();
        let keys = said(&changes);
        for part in
            ["train.seed was 0 and is 5", "data.validation was", "train.loss was", "train.clip was not set and is 2"]
        {
            assert!(keys.contains(part), "{keys}");
        }
        assert!(!keys.contains("epochs") && !keys.contains("path") && !keys.contains("name"), "{keys}");
        let possible: Vec<&str> = changes.iter().filter(|c| c.means_something()).map(|c| c.key.as_str()).collect();
        assert_eq!(possible, ["train.clip"]);
    }

    #[test]
    fn schedules_of_the_past_follow_from_what_changed() {
        let first = Recipe::built_in("digits").unwrap().into_recipe();
        let mut second = first.clone();
        second.schedule = Schedule { kind: ScheduleKind::Plateau, patience: 2, factor: 0.5, ..Schedule::default() };
        let mut third = second.clone();
        third.schedule = Schedule { kind: ScheduleKind::Step, decay_at: vec![9, 11], ..Schedule::default() };
        let told = |epoch, before: &Recipe, now: &Recipe| {
            between(before, now).unwrap().into_iter().map(move |change| (epoch, change))
        };
        let mut all: Vec<_> = told(4, &first, &second).chain(told(8, &second, &third)).collect();
        let at = |now: &Recipe, changes: &[(u32, Change)], epoch| {
            let mut recipe = now.clone().checked().unwrap();
            recipe.set_past(schedules(&now.schedule, changes).unwrap());
            recipe.schedule_of(epoch).clone()
        };
        for (epoch, expected) in [(1, &first), (3, &first), (4, &second), (7, &second), (8, &third), (99, &third)] {
            assert_eq!(at(&third, &all, epoch), expected.schedule, "{epoch}");
        }
        // It goes on from an older checkpoint by the first again.
        all.extend(told(6, &third, &first));
        for (epoch, expected) in [(3, &first), (5, &second), (6, &first), (9, &first)] {
            assert_eq!(at(&first, &all, epoch), expected.schedule, "{epoch}");
        }
        all[0].1.before = "]".into();
        assert!(schedules(&first.schedule, &all).unwrap_err().contains("schedule."));
    }

    #[test]
    fn every_key_that_may_change_is_one_of_a_recipe() {
        // Every key that is not always written, written.
        let text = "[data]\nreflect = true\nalternate_flips = true\ncutout = 3\narea = [0.5, 1.0]\nbrightness = 0.1\n\
                    contrast = 0.1\nsaturation = 0.1\ntrivial_augment = true\n[train]\nclass_weights = \"balanced\"\n\
                    mixup = 0.1\ncutmix = 0.1\naccumulate = 2\nsync_norm = true\nclip = 1.0\npatience = 3\n";
        let recipe = Recipe::from_toml("all", text).unwrap();
        let written = Value::try_from(&recipe).unwrap();
        for key in CHANGEABLE {
            let found = key.split('.').filter(|part| !part.is_empty()).try_fold(&written, |at, part| at.get(part));
            assert!(found.is_some(), "{key}");
        }
    }
}
