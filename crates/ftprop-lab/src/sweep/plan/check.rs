//! What is wrong with a study that somebody wrote, in words about what to write, all of it at once.

use crate::sweep::Axis;
use toml::{Table, Value};

/// What a key's value has to be.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    /// A whole number from 1 on.
    Count,
    Variants,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Texts => "a list of texts",
            Kind::Count => "a whole number from 1 on",
            Kind::Variants => "a list of tables, each with a name and perhaps a list of texts, set",
        }
    }

    fn takes(self, value: &Value) -> bool {
        match self {
            Kind::Text => value.is_str(),
            Kind::Texts => value.as_array().is_some_and(|all| all.iter().all(Value::is_str)),
            Kind::Count => value.as_integer().is_some_and(|count| (1..=i64::from(u32::MAX)).contains(&count)),
            Kind::Variants => value.as_array().is_some_and(|all| all.iter().all(is_variant)),
        }
    }
}

fn is_variant(value: &Value) -> bool {
    let is = |(key, value): (&String, &Value)| match key.as_str() {
        "name" => Kind::Text.takes(value),
        "set" => Kind::Texts.takes(value),
        _ => false,
    };
    value.as_table().is_some_and(|table| table.contains_key("name") && table.iter().all(is))
}

/// The keys of a study: what each has to be, whether it must be there, and an example.
const KEYS: [(&str, Kind, bool, &str); 7] = [
    ("question", Kind::Text, true, "\"Does a larger rate help?\""),
    ("recipes", Kind::Texts, true, "[\"convnet8-sign-ftpsh\"]"),
    ("grid", Kind::Texts, false, "[\"optimizer.lr=1e-3,5e-4\"]"),
    (
        "variants",
        Kind::Variants,
        false,
        "[{ name = \"as it is\" }, { name = \"no flips\", set = [\"data.flip=false\"] }]",
    ),
    ("set", Kind::Texts, false, "[\"data.validation=5000\"]"),
    ("seeds", Kind::Count, true, "3"),
    ("epochs", Kind::Count, false, "20"),
];

/// Everything that is wrong with a study, each with what is to be written instead; empty where it is sound.
pub(super) fn mistakes(study: &Table) -> Vec<String> {
    let mut mistakes = Vec::new();
    for (key, kind, needed, example) in KEYS {
        match study.get(key) {
            None if needed => mistakes.push(format!("{key} is missing: {}, such as {key} = {example}", kind.words())),
            Some(value) if !kind.takes(value) => {
                mistakes.push(format!("{key} is {}, such as {key} = {example}", kind.words()));
            }
            _ => {}
        }
    }
    let known = KEYS.map(|(key, ..)| key);
    for key in study.keys().filter(|key| !known.contains(&key.as_str())) {
        mistakes.push(format!("{key} is no key of a study; these are {}", known.join(", ")));
    }
    let tables = |key: &str| study.get(key).and_then(Value::as_array).into_iter().flatten();
    let set: Vec<&str> =
        tables("set").filter_map(|setting| Some(setting.as_str()?.split_once('=')?.0.trim())).collect();
    for axis in tables("grid").filter_map(Value::as_str) {
        match axis.parse::<Axis>() {
            Err(error) => mistakes.push(format!("grid: {error}")),
            Ok(Axis { key, .. }) if set.contains(&key.as_str()) => {
                mistakes.push(format!(
                    "{key} is in set, and the grid gives it a value in every run: leave one of them out"
                ));
            }
            Ok(_) => {}
        }
    }
    let names: Vec<&str> = tables("variants").filter_map(|variant| variant.get("name")?.as_str()).collect();
    let twice = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name));
    mistakes.extend(twice.map(|(_, name)| format!("two variants are called {name}")));
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        mistakes(&text.parse().unwrap()).join("; ")
    }

    #[test]
    fn a_study_is_corrected_in_one_go() {
        let sound = "question = \"Which?\"\nrecipes = [\"digits\"]\nseeds = 1\n";
        assert_eq!(of(sound), "");
        let all = of("");
        for words in [
            "question is missing: a text, such as question = \"",
            "recipes is missing: a list of texts, such as recipes = [\"convnet8-sign-ftpsh\"]",
            "seeds is missing: a whole number from 1 on, such as seeds = 3",
        ] {
            assert!(all.contains(words), "{all}");
        }
        assert!(!all.contains("grid") && !all.contains("epochs"), "{all}");
        for seeds in ["0", "-1", "1.5", "\"three\"", "5000000000"] {
            let said = of(&sound.replace("seeds = 1", &format!("seeds = {seeds}")));
            assert_eq!(said, "seeds is a whole number from 1 on, such as seeds = 3");
        }
        let grid = "grid is a list of texts, such as grid = [\"optimizer.lr=1e-3,5e-4\"]";
        for text in ["[grid]\n\"optimizer.lr\" = [1e-3, 1e-4]", "grid = \"optimizer.lr=1e-3\"", "grid = [1]"] {
            assert_eq!(of(&format!("{sound}{text}\n")), grid);
        }
        for text in ["[\"a\"]", "[{ set = [] }]", "[{ name = \"a\", sets = [] }]", "[{ name = 1 }]", "{ name = \"a\" }"]
        {
            let said = of(&format!("{sound}variants = {text}\n"));
            assert!(
                said.starts_with("variants is a list of tables, each with a name") && !said.contains("; "),
                "{said}"
            );
        }
        for (text, says) in [
            ("seed = 3", "seed is no key of a study; these are question, recipes, grid, variants, set, seeds, epochs"),
            ("grid = [\"layer_loss\"]", "grid: layer_loss: expected KEY=VALUE"),
            (
                "set = [\"weighted=true\"]\ngrid = [\"weighted=true,false\"]",
                "weighted is in set, and the grid gives it",
            ),
            ("variants = [{ name = \"a\" }, { name = \"a\" }]", "two variants are called a"),
        ] {
            let said = of(&format!("{sound}{text}\n"));
            assert!(said.contains(says), "{said}");
        }
    }
}
