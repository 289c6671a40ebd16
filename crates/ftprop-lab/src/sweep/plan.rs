//! Sweeps that are written down: which recipes, which grid, how many seeds, and the question that they answer.

mod check;

use super::Axis;
use crate::error::Error;
use ftprop_train::files;
use serde::Deserialize;
use std::path::Path;

/// A sweep as a file has it; everything is written as on the command line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What it is to find out.
    pub question: String,
    /// Built-in recipes by their names, or files.
    pub recipes: Vec<String>,
    /// Keys and their values, `optimizer.lr=1e-3,5e-4`.
    #[serde(default)]
    pub grid: Vec<String>,
    /// Sets of settings that are compared, by names, the one that the others are measured by first.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// Settings of every recipe, `data.validation=5000`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Seeds 1 to this one for each combination.
    pub seeds: u32,
    /// Epochs of each run, where they are not the recipe's.
    pub epochs: Option<u32>,
}

/// Settings with a name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What reports call it.
    pub name: String,
    /// What it sets, `data.reflect=false`.
    #[serde(default)]
    pub set: Vec<String>,
}

macro_rules! plans {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../studies/", $name, ".toml")))),+]
    };
}

/// Those that come with the crate.
const PLANS: &[(&str, &str)] = plans![
    "decay-l2",
    "decay-adamw",
    "ten-seeds",
    "norm-start",
    "forms",
    "resnet18-cifar10",
    "resnet18-cifar100",
    "target-rules",
    "target-rules-bireal18",
    "target-rules-taught",
    "target-rules-bireal18-taught",
    "target-rules-cpu",
    "target-rules-quick",
    "ingredients",
    "ingredients-cpu",
];

impl Plan {
    /// The names of those that come with the crate.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PLANS.iter().map(|(name, _)| *name)
    }

    /// One that comes with the crate, or else a TOML file.
    pub fn find(name: &Path) -> Result<Self, Error> {
        let known = PLANS.iter().find(|(known, _)| name.as_os_str() == *known);
        let wrong = |why: String| Error::Plan { name: name.display().to_string(), why };
        let text = match known {
            Some((_, text)) => (*text).to_string(),
            None if !name.exists() => {
                let names: Vec<&str> = Plan::names().collect();
                return Err(wrong(format!("there is no such file; known by name are {}", names.join(", "))));
            }
            None => String::from_utf8(files::read(name)?).map_err(|e| wrong(e.to_string()))?,
        };
        let syntax = |error: toml::de::Error| {
            let line = error.span().map(|span| format!("line {}: ", 1 + text[..span.start].matches('\n').count()));
            wrong(format!("{}{}", line.unwrap_or_default(), error.message()))
        };
        let mistakes = check::mistakes(&toml::from_str(&text).map_err(syntax)?);
        if !mistakes.is_empty() {
            return Err(wrong(mistakes.join("; ")));
        }
        toml::from_str(&text).map_err(syntax)
    }

    /// The axis of its variants, where it has some.
    pub fn variant_axis(&self) -> Option<Axis> {
        let variants = self.variants.iter().map(|variant| (variant.name.clone(), variant.set.clone()));
        (!self.variants.is_empty()).then(|| Axis::named("variant", variants))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Axis, Base, points};
    use ftprop_train::recipe::Recipe;

    #[test]
    fn every_plan_names_recipes_and_keys_that_there_are() {
        for name in Plan::names() {
            let plan = Plan::find(Path::new(name)).unwrap();
            let base = |recipe: &String| {
                let mut layers = Recipe::layers_of(Path::new(recipe)).unwrap();
                // Whoever runs it says who the teacher is.
                let teacher = name.ends_with("taught").then(|| "train.teacher=RUN".to_string());
                for setting in plan.set.iter().chain(&teacher) {
                    layers = layers.set(setting).unwrap();
                }
                Base { name: recipe.clone(), layers }
            };
            let bases: Vec<Base> = plan.recipes.iter().map(base).collect();
            let grid = plan.grid.iter().map(|text| text.parse().unwrap());
            let axes: Vec<Axis> = plan.variant_axis().into_iter().chain(grid).collect();
            let points = points(&bases, &axes, plan.seeds, Path::new("out"), Ok).unwrap();
            let each: usize = axes.iter().map(|axis| axis.values.len()).product();
            assert_eq!(points.len(), plan.recipes.len() * each, "{name}");
            assert!(plan.question.len() > 20 && points.iter().all(|p| p.jobs.len() == plan.seeds as usize), "{name}");
        }
        let message = Plan::find(Path::new("nothing")).unwrap_err().to_string();
        assert!(message.contains("decay-l2") && message.contains("nothing"), "{message}");
        let file = std::env::temp_dir().join(format!("ftprop-plan-{}.toml", std::process::id()));
        for (text, says) in [("seeds = 3\n", "question is missing"), ("seeds = 3\nrecipes = [\n", "line ")] {
            std::fs::write(&file, text).unwrap();
            let message = Plan::find(&file).unwrap_err().to_string();
            assert!(message.contains(says) && message.lines().count() == 1, "{message}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
