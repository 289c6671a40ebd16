//! Recipes that were checked: what training takes.

use crate::built_in::built_in;
use crate::error::Error;
use crate::recipe::Recipe;
use ftprop_nn::{Schedule, ScheduleKind};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// A recipe whose settings fit each other. It is made once, by [`Recipe::checked`], and cannot be changed; whoever wants
/// to takes the recipe [out](CheckedRecipe::into_recipe) and checks it again.
///
/// ```
/// use ftprop_train::recipe::Recipe;
///
/// let mut recipe = Recipe::built_in("digits")?.into_recipe();
/// recipe.train.epochs = 0;
/// assert_eq!(recipe.checked().unwrap_err().to_string(), "train.epochs must be at least 1");
/// # Ok::<(), ftprop_train::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedRecipe {
    recipe: Recipe,
    /// What a run that goes on had before.
    past: Vec<PastSchedule>,
}

/// A schedule that a run had before another took its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PastSchedule {
    /// The first epoch, from 1, that had another.
    pub(crate) until: u32,
    pub(crate) schedule: Schedule,
}

impl Recipe {
    /// Checks what can be wrong with a recipe before any data is read.
    pub fn checked(self) -> Result<CheckedRecipe, Error> {
        let wrong = |key: &'static str, must: &'static str| Err(Error::Setting { key, must });
        let Recipe { train, data, network, .. } = &self;
        if train.epochs == 0 {
            return wrong("train.epochs", "must be at least 1");
        }
        if train.batch == 0 {
            return wrong("train.batch", "must be at least 1");
        }
        if train.checkpoint_seconds.is_nan() || train.checkpoint_seconds < 0.0 {
            return wrong("train.checkpoint_seconds", "must be 0 or more");
        }
        if train.patience == Some(0) {
            return wrong("train.patience", "must be at least 1");
        }
        if train.patience.is_some() && data.validation == 0.0 {
            return wrong("train.patience", "needs examples held out to judge by: set data.validation");
        }
        if train.ema.is_some_and(|ema| !(ema > 0.0 && ema < 1.0)) {
            return wrong("train.ema", "must be between 0 and 1, neither of them");
        }
        let teaching = train.teacher_weight.is_some() || train.teacher_temperature.is_some();
        if teaching && train.teacher.is_none() {
            return wrong("train.teacher", "must be given where its weight or temperature is");
        }
        if self.target_rule.follows_teacher() && train.teacher.is_none() {
            return wrong("train.teacher", "must be given where target_rule = \"teacher\"");
        }
        if train.clip.is_some_and(|clip| !(clip > 0.0 && clip.is_finite())) {
            return wrong("train.clip", "must be a positive number");
        }
        if train.batch < 2 && (train.mixup > 0.0 || train.cutmix > 0.0) {
            return wrong("train.batch", "must be at least 2 where examples are mixed with each other");
        }
        if train.accumulate == 0 {
            return wrong("train.accumulate", "must be at least 1");
        }
        if train.accumulate > 1 && train.diagnostics {
            return wrong("train.accumulate", "does not go with train.diagnostics, which looks at steps of one batch");
        }
        if self.schedule.kind == ScheduleKind::Plateau && data.validation == 0.0 {
            return wrong("schedule.kind", "= \"plateau\" needs examples held out to judge by: set data.validation");
        }
        let share_or_count = data.validation < 1.0 || data.validation.fract() == 0.0;
        if !(data.validation >= 0.0 && data.validation.is_finite() && share_or_count) {
            return wrong("data.validation", "must be 0, a share below 1, or a whole number of examples");
        }
        let begin = data.sizes.iter().map(|&(first, _)| first);
        if begin.clone().any(|first| first == 0) || !begin.is_sorted_by(|a, b| a < b) {
            return wrong(
                "data.sizes",
                "names epochs from 1 on, each later than the one before: [[1, 128], [60, 192]]",
            );
        }
        if data.sizes.iter().any(|&(_, side)| side == 0) {
            return wrong("data.sizes", "has sides of at least one pixel");
        }
        if network.preset.is_some() && !network.layers.is_empty() {
            return wrong("network.preset", "and network.layers are both given; keep one of them");
        }
        if !matches!(network.preset.as_deref(), Some("mlp" | "auto")) && !network.widths.is_empty() {
            return wrong("network.widths", "goes with network.preset = \"mlp\" or \"auto\"");
        }
        if network.affine.is_some_and(|scale| !(scale >= 0.0 && scale.is_finite())) {
            return wrong("network.affine", "must be 0 or a positive number");
        }
        self.schedule.check()?;
        self.criterion()?.with_mixing(self.mixing()?)?;
        self.distillation()?;
        Ok(CheckedRecipe { recipe: self, past: Vec::new() })
    }

    /// A recipe that the crate carries, by its file's name without the ending: `digits`, `convnet8-sign-ftpsh`.
    pub fn built_in(name: &str) -> Result<CheckedRecipe, Error> {
        let text = built_in(name).ok_or_else(|| Error::no_recipe(name))?;
        Recipe::from_toml(&format!("the built-in recipe {name}.toml"), text)?.checked()
    }
}

impl CheckedRecipe {
    /// The same for data of so many training examples: a batch has no more.
    pub(crate) fn with_batch_of_at_most(mut self, examples: usize) -> Self {
        self.recipe.train.batch = self.recipe.train.batch.min(examples.max(1));
        self
    }

    /// The schedules that a run had before this one, in their order.
    pub(crate) fn past(&self) -> &[PastSchedule] {
        &self.past
    }

    pub(crate) fn set_past(&mut self, past: Vec<PastSchedule>) {
        self.past = past;
    }

    /// The schedule that a run's epoch had, counted from 1.
    pub(crate) fn schedule_of(&self, epoch: u32) -> &Schedule {
        self.past.iter().find(|past| epoch < past.until).map_or(&self.recipe.schedule, |past| &past.schedule)
    }

    /// The recipe, for changes; it has to be checked again.
    pub fn into_recipe(self) -> Recipe {
        self.recipe
    }
}

impl Deref for CheckedRecipe {
    type Target = Recipe;

    fn deref(&self) -> &Recipe {
        &self.recipe
    }
}
