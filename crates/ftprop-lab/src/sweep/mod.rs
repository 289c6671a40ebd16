//! A grid over recipe keys: every combination trained, then compared.
//!
//! ```
//! use ftprop_lab::sweep::Axis;
//!
//! let axis: Axis = "layer_loss=soft_hinge,saturated_hinge".parse()?;
//! assert_eq!((axis.key.as_str(), axis.values.len()), ("layer_loss", 2));
//! # Ok::<(), ftprop_lab::error::Error>(())
//! ```

mod differences;
pub mod plan;
pub mod report;

use crate::error::Error;
use ftprop_train::fleet::Job;
use ftprop_train::recipe::Recipe;
use ftprop_train::run::folder_name;
use std::path::Path;
use std::str::FromStr;

/// A key and the values it takes, as written on the command line: `optimizer.lr=1e-3,5e-4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The recipe key.
    pub key: String,
    /// Its values, as text.
    pub values: Vec<String>,
    /// What each value sets in a recipe.
    settings: Vec<Vec<String>>,
}

impl Axis {
    /// An axis whose values are several settings each, by names of their own.
    pub fn named(key: &str, variants: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        let (values, settings) = variants.into_iter().unzip();
        Axis { key: key.to_string(), values, settings }
    }
}

impl FromStr for Axis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Axis { text: text.to_string(), why: why.to_string() };
        let (key, list) = text.split_once('=').ok_or_else(|| wrong("expected KEY=VALUE,VALUE,…"))?;
        let values: Vec<String> = listed(list).into_iter().map(|value| value.trim().to_string()).collect();
        if key.trim().is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong("expected KEY=VALUE,VALUE,…, without empty ones"));
        }
        if let Some(twice) = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) {
            return Err(wrong(&format!("{} is there twice", twice.1)));
        }
        let settings = values.iter().map(|value| vec![format!("{}={value}", key.trim())]).collect();
        Ok(Axis { key: key.trim().to_string(), values, settings })
    }
}

/// Takes a list apart at its commas, but not at those inside brackets or quotes: values may be TOML lists.
fn listed(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth, mut quote) = (Vec::new(), 0, 0_usize, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) => quote = (letter != open).then_some(open),
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

/// A recipe with a name, before the grid is laid over it.
pub struct Base {
    /// What its runs and figures are called by.
    pub name: String,
    /// The recipe, for settings to be laid over.
    pub layers: ftprop_train::config::Layers,
}

/// One combination of the grid.
#[derive(Clone, Debug)]
pub struct Point {
    /// The recipe it comes from.
    pub base: String,
    /// The axes' values, in their order.
    pub values: Vec<String>,
    /// A run for each seed.
    pub jobs: Vec<Job>,
}

impl Point {
    /// `soft_hinge, 1e-3`, or the recipe's name where there is no axis.
    pub fn name(&self) -> String {
        if self.values.is_empty() { self.base.clone() } else { self.values.join(", ") }
    }
}

/// All combinations, the last axis changing fastest, in `out/runs/RECIPE/KEY-VALUE_KEY-VALUE/seed-N`. `finish` makes the
/// last changes to each recipe.
pub fn points(
    bases: &[Base],
    axes: &[Axis],
    seeds: u32,
    out: &Path,
    finish: impl Fn(Recipe) -> Result<Recipe, ftprop_train::Error>,
) -> Result<Vec<Point>, Error> {
    if let Some(twice) = axes.iter().enumerate().find(|(i, axis)| axes[..*i].iter().any(|a| a.key == axis.key)) {
        return Err(Error::AxisTwice { key: twice.1.key.clone() });
    }
    let mut points = Vec::new();
    for base in bases {
        // Which value each axis has.
        let mut combinations: Vec<Vec<usize>> = vec![Vec::new()];
        for axis in axes {
            let mut longer = Vec::new();
            for combination in &combinations {
                longer.extend((0..axis.values.len()).map(|value| [combination.as_slice(), &[value]].concat()));
            }
            combinations = longer;
        }
        for combination in combinations {
            let chosen = || axes.iter().zip(&combination);
            let mut layers = base.layers.clone();
            for setting in chosen().flat_map(|(axis, &value)| &axis.settings[value]) {
                layers = layers.grid(setting)?;
            }
            let values: Vec<&str> = chosen().map(|(axis, &value)| axis.values[value].as_str()).collect();
            let recipe: Recipe = finish(layers.build()?)?;
            let named: Vec<String> = axes.iter().zip(&values).map(|(axis, v)| format!("{}-{v}", axis.key)).collect();
            let mut folder = out.join("runs").join(folder_name(&base.name));
            if !named.is_empty() {
                folder.push(folder_name(&named.join("_")));
            }
            let job = |seed: u32| {
                let mut recipe = recipe.clone();
                recipe.train.seed = u64::from(seed);
                // What progress and errors call it.
                recipe.name = [&[base.name.clone()][..], &named].concat().join(" ");
                Ok(Job { recipe: recipe.checked()?, folder: folder.join(format!("seed-{seed}")) })
            };
            let jobs = (1..=seeds).map(job).collect::<Result<_, Error>>()?;
            let values = values.into_iter().map(str::to_string).collect();
            points.push(Point { base: base.name.clone(), values, jobs });
        }
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_train::built_in::DIGITS;

    #[test]
    fn axes_are_lists_of_values() {
        let values = |text: &str| text.parse::<Axis>().unwrap().values;
        assert_eq!(values("a=1"), ["1"]);
        assert_eq!(values("schedule.decay_at=[2,3], [4],'x,y'"), ["[2,3]", "[4]", "'x,y'"]);
        for (wrong, says) in [("a", "KEY=VALUE"), ("=1", "KEY=VALUE"), ("a=1,", "empty"), ("a=1,2,1", "twice")] {
            let message = wrong.parse::<Axis>().unwrap_err().to_string();
            assert!(message.contains(says) && message.contains(wrong), "{message}");
        }
    }

    #[test]
    fn a_grid_has_every_combination_once() {
        let base = |name: &str| Base {
            name: name.into(),
            layers: Recipe::defaults().unwrap().text("digits", DIGITS).unwrap(),
        };
        let axes: Vec<Axis> =
            ["layer_loss=hinge,linear", "optimizer.lr=1e-2,1e-3,1e-4"].map(|a| a.parse().unwrap()).into();
        let all = points(&[base("a"), base("b")], &axes, 2, Path::new("out"), |r| Ok(r.scaled(4))).unwrap();
        assert_eq!(all.len(), 12);
        assert_eq!((all[1].name(), all[6].base.as_str()), ("hinge, 1e-3".to_string(), "b"));
        let job = &all[1].jobs[1];
        assert_eq!((job.recipe.layer_loss.to_string(), job.recipe.train.seed), ("hinge".to_string(), 2));
        assert_eq!((job.recipe.optimizer.lr(), job.recipe.train.epochs), (1e-3, 4));
        assert_eq!(job.folder, Path::new("out/runs/a/layer_loss-hinge_optimizer.lr-1e-3/seed-2"));
        let mut folders: Vec<_> = all.iter().flat_map(|p| &p.jobs).map(|j| &j.folder).collect();
        folders.sort();
        folders.dedup();
        assert_eq!(folders.len(), 24);

        let both = vec!["layer_loss=hinge".to_string(), "optimizer.lr=1e-2".to_string()];
        let variants = Axis::named("variant", [("as it is".to_string(), vec![]), ("both".to_string(), both)]);
        let named = points(&[base("a")], &[variants], 1, Path::new("out"), Ok).unwrap();
        let recipe = &named[1].jobs[0].recipe;
        assert_eq!(
            (named[1].name(), recipe.layer_loss.to_string(), recipe.optimizer.lr()),
            ("both".into(), "hinge".into(), 1e-2)
        );
        assert_eq!(named[0].jobs[0].recipe.layer_loss.to_string(), "soft_hinge");
        assert_eq!(named[1].jobs[0].folder, Path::new("out/runs/a/variant-both/seed-1"));

        let message = |axes: &[&str]| {
            let axes: Vec<Axis> = axes.iter().map(|a| a.parse().unwrap()).collect();
            points(&[base("a")], &axes, 1, Path::new("out"), Ok).unwrap_err().to_string()
        };
        assert!(message(&["layer_los=hinge"]).contains("layer_loss"));
        assert!(message(&["layer_loss=soft,hinge"]).contains("soft_hinge"));
        assert!(message(&["a=1", "a=2"]).contains("twice"));
    }
}
