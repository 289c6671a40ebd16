//! In what two recipes differ, for a run that is to go on.

use crate::error::Error;
use crate::recipe::Recipe;
use toml::Value;

/// Keys that do not change what a step computes: a run may go on with others.
const FREE: [&str; 2] = ["name", "train.epochs"];

/// The keys in which what is trained now differs from what was, with both values; none where a run may go on. What belongs
/// to a machine does not count.
pub(crate) fn between(before: &Recipe, now: &Recipe) -> Result<Option<String>, Error> {
    let value = |recipe: &Recipe| {
        let unwritable = |e: toml::ser::Error| Error::Unwritable { what: "the recipe".into(), why: e.to_string() };
        Value::try_from(recipe.portable()).map_err(unwritable)
    };
    let mut keys = Vec::new();
    compare("", Some(&value(before)?), Some(&value(now)?), &mut keys);
    Ok((!keys.is_empty()).then(|| keys.join(", ")))
}

fn compare(key: &str, before: Option<&Value>, now: Option<&Value>, keys: &mut Vec<String>) {
    if before == now || FREE.contains(&key) {
        return;
    }
    if let (Some(Value::Table(before)), Some(Value::Table(now))) = (before, now) {
        let added = now.keys().filter(|name| !before.contains_key(*name));
        for name in before.keys().chain(added) {
            let path = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            compare(&path, before.get(name), now.get(name), keys);
        }
        return;
    }
    let said = |value: Option<&Value>| match value {
        None => "not set".to_string(),
        // Layers would fill the screen.
        Some(Value::Array(values)) if values.iter().any(Value::is_table) => format!("{} of them", values.len()),
        Some(value) => value.to_string(),
    };
    keys.push(format!("{key} was {} and is {}", said(before), said(now)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_nn::OutputLoss;

    #[test]
    fn keys_that_differ_are_named_with_both_values() {
        let before = Recipe::built_in("digits").unwrap().into_recipe();
        let mut now = before.clone();
        (now.name, now.train.epochs, now.train.threads) = ("other".into(), 99, 7);
        now.data.path = Some("elsewhere".into());
        assert_eq!(between(&before, &now).unwrap(), None);
        (now.train.seed, now.train.loss) = (5, OutputLoss::MultiHinge);
        now.data.validation = 0.25;
        now.train.clip = Some(2.0);
        let keys = between(&before, &now).unwrap().unwrap();
        for part in
            ["train.seed was 0 and is 5", "data.validation was", "train.loss was", "train.clip was not set and is 2"]
        {
            assert!(keys.contains(part), "{keys}");
        }
        assert!(!keys.contains("epochs") && !keys.contains("path") && !keys.contains("name"), "{keys}");
    }
}
