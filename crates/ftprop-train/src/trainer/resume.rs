//! Going on with a run: from its checkpoint, on the same data, with settings that a run under way can take.

use super::Trainer;
use crate::changes::{self, Change};
use crate::checkpoint::{Checkpoint, Note};
use crate::error::Error;
use crate::observe::Notice;
use crate::recipe::Recipe;
use crate::storage::Storage;
use ftprop_nn::Tally;

impl Trainer {
    /// Goes on where a checkpoint stands.
    pub(super) fn take_up(&mut self, saved: &Checkpoint) -> Result<(), Error> {
        let recipe = saved.recipe()?;
        // Other data may change what is made of a setting, such as a batch that is larger than they are; another setting
        // may change which data there are.
        let other_settings = changes::between(&recipe, &self.recipe)?.iter().any(|c| c.key.starts_with("data."));
        if !other_settings {
            self.check_origin(saved)?;
        }
        self.check_changes(&recipe)?;
        let graph = self.engine.graph().clone();
        let contents = saved.contents(&graph)?;
        let average = contents.optimizer.as_ref().and_then(|o| o.average.as_ref());
        self.averaged = average.map(|average| average.statistics.to_vec());
        let Some(training) = contents.training() else {
            return Err(
                saved.other("it was saved for use, without the optimizer, so training cannot go on".to_string())
            );
        };
        if saved.header.model.classes != self.model.classes {
            return Err(saved.other("its classes are not those of the data".into()));
        }
        if other_settings {
            self.check_origin(saved)?;
        }
        let state = saved.header.state;
        if state.batch > self.steps_per_epoch() || Tally::from(state.tally).examples > self.train_examples() as u64 {
            return Err(saved.other("its epoch has more examples than the data".into()));
        }
        self.engine.restore(&training).map_err(|e| saved.other(e.to_string()))?;
        self.notes.extend(saved.notes.iter().cloned().map(Notice::Checkpoint));
        // The network that it began with may be gone by now.
        self.model.origin.begun_with = saved.header.model.origin.begun_with;
        self.state = state;
        self.before = self.state.seconds;
        self.recall_schedules()
    }

    /// Takes up the schedules that the epochs before had, so that what they decided stays.
    fn recall_schedules(&mut self) -> Result<(), Error> {
        let Some(folder) = self.storage.as_ref().map(Storage::folder) else { return Ok(()) };
        let recorded = folder.changes()?.into_iter().map(|changed| (changed.epoch, changed.change));
        let now = self.changes.iter().map(|change| (self.state.epoch, change.clone()));
        let path = || folder.path().join("changes.jsonl");
        let past = changes::schedules(&self.recipe.schedule, &recorded.chain(now).collect::<Vec<_>>())
            .map_err(|why| Error::Damaged { path: path(), why })?;
        self.recipe.set_past(past);
        Ok(())
    }

    /// Refuses other data, and another teacher, than the run learned from so far.
    fn check_origin(&mut self, saved: &Checkpoint) -> Result<(), Error> {
        let Some(storage) = &self.storage else { return Ok(()) };
        let then = &saved.header.model.origin;
        then.check(&self.model.origin, storage.folder().path())?;
        if then.data.is_none() {
            let path = saved.path().to_path_buf();
            self.notes.push(Notice::Checkpoint(Note::NoOrigin { path }));
        }
        Ok(())
    }

    /// Tells changes that were asked for, now or before the run was last ended, from a recipe that is another.
    fn check_changes(&self, saved: &Recipe) -> Result<(), Error> {
        let Some(folder) = self.storage.as_ref().map(Storage::folder) else { return Ok(()) };
        let recorded = folder.changes()?;
        let told = |change: &Change| {
            let mut known = recorded.iter().map(|changed| &changed.change).chain(&self.changes);
            known.any(|other| other.ends_like(change))
        };
        let (told, untold): (Vec<Change>, Vec<Change>) =
            changes::between(saved, &self.recipe)?.into_iter().partition(told);
        let path = || folder.path().to_path_buf();
        if !untold.is_empty() {
            return Err(Error::RecipeChanged { path: path(), keys: changes::said(&untold) });
        }
        let wrong: Vec<Change> = told.into_iter().filter(|change| !change.means_something()).collect();
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(Error::Unchangeable { path: path(), keys: changes::said(&wrong) }),
        }
    }
}
