//! Whether batches are what a network needs. A batch norm that sees a single value a channel makes the same number of every
//! value, and a network behind it learns nothing; a target rule that looks at a whole batch has to see one.

use crate::checked::CheckedRecipe;
use crate::error::Error;
use crate::observe::Notice;
use ftprop_nn::Graph;
use ftprop_nn::graph::{Node, Op};
use ftprop_nn::target::TargetRule;
use ftprop_tensor::Share;

impl CheckedRecipe {
    /// Checks batches of a network with so many training examples, of which each rank has its share. Batches of one value
    /// a channel are refused; where only the last one of an epoch is so, it is something to say. Batches that are taken in
    /// parts are refused where a target rule looks at the whole.
    pub fn check_batches(&self, graph: &Graph, examples: usize, share: Share) -> Result<Option<Notice>, Error> {
        let mut rules = graph.walk().into_iter().filter_map(|node| node.op.target_rule());
        if self.train.accumulate > 1 && rules.any(TargetRule::looks_at_batch) {
            let must = "must be 1 where a target rule looks at the whole batch: it would see each part alone";
            return Err(Error::Setting { key: "train.accumulate", must });
        }
        let Some((layer, places)) = smallest_norm(graph) else { return Ok(None) };
        let batch = self.train.batch.min(examples.max(1));
        // Ranks have the same number of examples, or one more; or their norms see those of all.
        let ranks = if self.train.sync_norm { 1 } else { share.ranks };
        let values = |batch: usize| places * (batch / ranks).max(1);
        if values(batch) == 1 {
            return Err(Error::LoneValue { layer: layer.name(), batch, ranks });
        }
        let last = examples % batch;
        Ok((last > 0 && values(last) == 1).then(|| Notice::LoneExample { layer: layer.name(), batch, last }))
    }
}

/// The batch norm with the smallest picture, and its pixels.
fn smallest_norm(graph: &Graph) -> Option<(&Node, usize)> {
    let norms = graph.walk().into_iter().filter(|node| matches!(node.op, Op::BatchNorm(_)));
    norms.map(|node| (node, node.input.height * node.input.width)).min_by_key(|&(_, places)| places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;
    use ftprop_nn::{LayerSpec, Shape};

    #[test]
    fn a_rule_that_looks_at_the_whole_batch_is_not_shown_parts() {
        let check = |accumulate: usize, rule: &str| {
            let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
            (recipe.network.preset, recipe.network.widths) = (None, Vec::new());
            let fc = |out| LayerSpec::Fc { out, bias: None };
            // In a layer of its own, so that the recipe's own rule does not show it.
            let rule = Some(rule.parse().unwrap());
            let act = LayerSpec::Act { activation: None, layer_loss: None, target_rule: rule, qrelu_form: None };
            recipe.network.layers = vec![fc(Some(4)), act, fc(None)];
            recipe.train.accumulate = accumulate;
            let graph = recipe.graph(Shape::vector(4), 3).unwrap();
            recipe.checked().unwrap().check_batches(&graph, 80, Share::WHOLE)
        };
        for rule in ["class_mean", "class_agreement"] {
            assert!(check(1, rule).is_ok());
            assert!(check(2, rule).unwrap_err().to_string().starts_with("train.accumulate must be 1"), "{rule}");
        }
        assert!(check(2, "secant").is_ok());
    }

    /// What matters is how many examples a norm sees: of a rank, or of all where they share their statistics.
    #[test]
    fn ranks_have_enough_examples_each() {
        let check = |batch: usize, examples: usize, ranks: usize, sync_norm: bool| {
            let mut recipe = Recipe::built_in("digits").unwrap().into_recipe();
            (recipe.network.preset, recipe.network.layers) = (Some("auto".into()), Vec::new());
            (recipe.train.batch, recipe.train.sync_norm) = (batch, sync_norm);
            let graph = recipe.graph(Shape::vector(4), 3).unwrap();
            recipe.checked().unwrap().check_batches(&graph, examples, Share { rank: 0, ranks })
        };
        assert!(matches!(check(8, 80, 1, false), Ok(None)));
        assert!(matches!(check(8, 80, 4, false), Ok(None)));
        assert!(matches!(check(8, 81, 1, false), Ok(Some(Notice::LoneExample { last: 1, batch: 8, .. }))));
        assert!(matches!(check(8, 83, 2, false), Ok(Some(Notice::LoneExample { last: 3, .. }))));
        assert!(matches!(check(8, 83, 2, true), Ok(None)));
        assert!(matches!(check(8, 80, 8, false), Err(Error::LoneValue { ranks: 8, .. })));
        assert!(matches!(check(8, 80, 8, true), Ok(None)));
        assert!(check(8, 1, 1, false).unwrap_err().to_string().contains("batches of 1,"));
    }
}
