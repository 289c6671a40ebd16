//! The loss as it is learned by: with weights of classes and with mixed examples, which measuring knows nothing of.

use crate::error::Error;
use crate::recipe::Recipe;
use ftprop_data::Split;
use ftprop_nn::{Criterion, Graph, Mixing};

impl Recipe {
    /// The loss that a network learns these examples by.
    pub fn training_criterion(&self, graph: &Graph, train: &Split) -> Result<Criterion, Error> {
        let mut criterion = self.criterion()?.with_mixing(self.mixing()?)?;
        if let Some(weights) = &self.train.class_weights {
            let labels = (0..train.len()).map(|i| train.label(i));
            criterion = criterion.with_class_weights(weights.of(labels, graph.classes())?)?;
            criterion.check_classes(graph.classes())?;
        }
        let input = graph.input();
        if self.train.cutmix > 0.0 && input.height * input.width == 1 {
            return Err(Error::Setting {
                key: "train.cutmix",
                must: "needs pictures, this is a table; try train.mixup",
            });
        }
        Ok(criterion)
    }

    /// How examples are mixed, where they are.
    pub(crate) fn mixing(&self) -> Result<Option<Mixing>, Error> {
        Ok(Mixing::new(self.train.mixup, self.train.cutmix)?)
    }
}
