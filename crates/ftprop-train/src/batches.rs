//! Whether batches have enough examples for a network's norms: a batch norm that sees a single value a channel makes the
//! same number of every value, and a network behind it learns nothing.

use crate::checked::CheckedRecipe;
use crate::error::Error;
use crate::observe::Notice;
use ftprop_nn::Graph;
use ftprop_nn::graph::{Node, Op};
use ftprop_tensor::Share;

impl CheckedRecipe {
    /// Checks batches of a network with so many training examples, of which each rank has its share. Batches of one value
    /// a channel are refused; where only the last one of an epoch is so, it is something to say.
    pub fn check_batches(&self, graph: &Graph, examples: usize, share: Share) -> Result<Option<Notice>, Error> {
        let Some((layer, places)) = smallest_norm(graph) else { return Ok(None) };
        let batch = self.train.batch.min(examples.max(1));
        // Ranks have the same number of examples, or one more.
        let values = |batch: usize| places * (batch / share.ranks).max(1);
        if values(batch) == 1 {
            return Err(Error::LoneValue { layer: layer.name(), batch, ranks: share.ranks });
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
