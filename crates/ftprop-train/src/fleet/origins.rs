//! Whether the runs of a fleet that are there learned from what the others would learn from now: they are to be compared, so
//! none may be of other data, another teacher, or another beginning.

use super::{Job, Yard};
use crate::checkpoint::{Checkpoint, Origin};
use crate::error::Error;
use crate::model::{Model, Which};
use crate::recipe::Recipe;
use ftprop_data::DataMark;
use ftprop_tensor::Cpu;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What there is to learn from now, each looked at once.
#[derive(Default)]
struct Now {
    data: HashMap<String, Option<DataMark>>,
    networks: HashMap<PathBuf, Option<u32>>,
}

impl Yard {
    /// Refuses a fleet with a run that is there already, finished or not, and learned from something else.
    pub(super) fn check_origins(&self, jobs: &[Job]) -> Result<(), Error> {
        let mut now = Now::default();
        for job in jobs {
            let saved = |name: &str| Checkpoint::read(&job.folder.join(name)).ok();
            // What cannot be read says nothing, and is complained about by whoever uses it.
            let saved = saved("best.safetensors").or_else(|| saved("checkpoint.safetensors"));
            if let Some(saved) = saved {
                saved.header.model.origin.check(&now.origin(&job.recipe, self)?, &job.folder)?;
            }
        }
        Ok(())
    }
}

impl Now {
    fn origin(&mut self, recipe: &Recipe, yard: &Yard) -> Result<Origin, Error> {
        let key = Yard::key(recipe);
        let data = match self.data.get(&key) {
            Some(mark) => mark.clone(),
            None => {
                // Where no run waits for the data nothing else opens them; where they are gone, nothing can be compared.
                let mark = match yard.datasets.get(&key) {
                    Some(dataset) => Some(dataset.mark()),
                    None => recipe.data.open().ok().map(|dataset| dataset.mark()),
                };
                self.data.entry(key).or_insert(mark).clone()
            }
        };
        Ok(Origin {
            data,
            teacher: self.network(recipe.train.teacher.as_deref()),
            begun_with: self.network(recipe.train.init_from.as_deref()),
        })
    }

    /// Nothing where there is none any more: runs that have a checkpoint do without the one that they began with, and others
    /// say that they miss it.
    fn network(&mut self, path: Option<&Path>) -> Option<u32> {
        let path = path?;
        if let Some(mark) = self.networks.get(path) {
            return *mark;
        }
        let load = |cpu: Cpu| Model::load(path, Which::Best, Arc::new(cpu), 1).ok();
        let mark = Cpu::new(1).ok().and_then(load).map(|model| model.mark());
        *self.networks.entry(path.to_path_buf()).or_insert(mark)
    }
}
