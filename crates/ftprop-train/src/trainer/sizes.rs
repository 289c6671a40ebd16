//! Training at sizes that change with the epochs, and measuring at one.
//!
//! The trainer's own engine has the size that is measured at. For an epoch of another size there is a second one, with a
//! loader of its own; it takes over the state, learns, and hands the state back, so that everything else, checkpoints
//! among it, knows one engine.

use super::Trainer;
use super::epoch::EpochTimes;
use crate::checked::CheckedRecipe;
use crate::device::Place;
use crate::engine::{self, Parts};
use crate::error::Error;
use crate::observe::Observer;
use crate::recipe::input_shape;
use ftprop_data::{Dataset, Loader, LoaderConfig, Shape, Split};
use ftprop_nn::{Engine, Graph};
use std::mem::swap;

/// What is needed to learn at another size.
pub(super) struct Sizes {
    dataset: Dataset,
    train: Split,
    place: Place,
    /// The one in use.
    now: Option<Sized>,
}

struct Sized {
    side: usize,
    engine: Box<dyn Engine>,
    train: Loader,
}

impl Sizes {
    /// Nothing where the recipe has one size. `graph` is the network at the size that is measured at: its parameters must be
    /// the same at all of them.
    pub(super) fn new(
        recipe: &CheckedRecipe,
        dataset: &Dataset,
        train: &Split,
        place: &Place,
        graph: &Graph,
    ) -> Result<Option<Self>, Error> {
        if recipe.data.sizes.is_empty() {
            return Ok(None);
        }
        for &(_, side) in &recipe.data.sizes {
            let shape = train.at_side(side)?.shape();
            let other = recipe.graph(input_shape(shape), dataset.classes.len())?;
            let names = |graph: &Graph| -> Vec<_> {
                graph.parameters().iter().map(|p| (p.name.clone(), p.range.clone())).collect()
            };
            if names(&other) != names(graph) {
                let must = "needs a network whose parameters do not depend on the size of its input, such as one with a \
                            mean over the image before its last layer";
                return Err(Error::Setting { key: "data.sizes", must });
            }
        }
        let (dataset, train, place) = (dataset.clone(), train.clone(), place.clone());
        Ok(Some(Sizes { dataset, train, place, now: None }))
    }

    /// The engine and the loader for a side; those of another side are given up before.
    fn take(&mut self, recipe: &CheckedRecipe, config: &LoaderConfig, side: usize) -> Result<Sized, Error> {
        if let Some(now) = self.now.take().filter(|now| now.side == side) {
            return Ok(now);
        }
        let split = self.train.at_side(side)?;
        let shape = Shape::new(side, side, split.shape().channels);
        let dataset = Dataset { shape, train: split.clone(), ..self.dataset.clone() };
        let train = Loader::new(&split, LoaderConfig { pixels: false, ..config.clone() })?;
        let parts = Parts { train: Some(&split), validation: None, test: None };
        let teacher = engine::teacher::load(recipe, &dataset, &self.place)?;
        let engine = engine::open(recipe, &dataset, &parts, &self.place, teacher)?;
        let train = if engine.takes_pixels() && recipe.train.accumulate == 1 { train.delivering(true)? } else { train };
        Ok(Sized { side, engine, train })
    }
}

impl Trainer {
    /// The steps of one epoch at its size, see [`learn_epoch`](Self::learn_epoch).
    pub(super) fn learn_at_size(&mut self, observer: &mut dyn Observer) -> Result<Option<EpochTimes>, Error> {
        let side = self.recipe.data.side_at(self.state.epoch);
        let other = side.filter(|&side| side != self.test.shape().height);
        let (Some(side), Some(mut sizes)) = (other, self.sizes.take()) else { return self.learn_epoch(observer) };
        let learned = self.learn_with(&mut sizes, side, observer);
        self.sizes = Some(sizes);
        learned
    }

    fn learn_with(
        &mut self,
        sizes: &mut Sizes,
        side: usize,
        observer: &mut dyn Observer,
    ) -> Result<Option<EpochTimes>, Error> {
        let mut sized = sizes.take(&self.recipe, self.train.config(), side)?;
        sized.engine.restore(&self.engine.state()?)?;
        swap(&mut self.engine, &mut sized.engine);
        swap(&mut self.train, &mut sized.train);
        let learned = self.learn_epoch(observer);
        swap(&mut self.engine, &mut sized.engine);
        swap(&mut self.train, &mut sized.train);
        let learned = learned?;
        self.engine.restore(&sized.engine.state()?)?;
        sizes.now = Some(sized);
        Ok(learned)
    }
}
