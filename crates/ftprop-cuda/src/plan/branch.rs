//! Activations that are computed beside what goes around them.

use super::{Affine, Epilogue, FusedPass, FusionPlan, TensorId};

impl FusedPass {
    fn reads(&self, tensor: TensorId) -> bool {
        match self {
            FusedPass::Product(p) => p.x == tensor,
            FusedPass::Epilogue(f) => f.y == tensor || f.residual.as_ref().is_some_and(|(other, _)| *other == tensor),
            FusedPass::AveragePool(a) => a.x == tensor,
            FusedPass::Targets(t) => t.z == tensor,
        }
    }
}

impl Epilogue {
    /// Whether it is an activation and nothing else.
    fn is_activation(&self) -> bool {
        let alone = self.residual.is_none() && self.pool.is_none() && self.dropout.is_none();
        alone && matches!(self.affine, Affine::Identity) && self.activation.is_some()
    }

    /// Whether an activation of its output can be computed beside it.
    fn can_branch(&self) -> bool {
        let bare = self.pool.is_none() && self.dropout.is_none() && self.activation.is_none();
        bare && self.branch.is_none()
    }
}

impl FusionPlan {
    /// Where a path begins with an activation of what goes around it as well, both come from the pass that makes the
    /// latter, which saves a pass each way.
    pub(super) fn branch(&mut self) {
        let mut at = 0;
        while at < self.passes.len() {
            let found = match &self.passes[at] {
                FusedPass::Epilogue(f) if f.is_activation() => f.activation.map(|op| (f.y, op, f.out)),
                _ => None,
            };
            let made_by =
                |pass: &FusedPass, tensor| matches!(pass, FusedPass::Epilogue(f) if f.out == tensor && f.can_branch());
            let maker = found.and_then(|(y, ..)| self.passes[..at].iter().position(|pass| made_by(pass, y)));
            // Somebody else has to write the slopes that the activation's are added to.
            let others = |y: TensorId| self.passes.iter().enumerate().any(|(i, pass)| i != at && pass.reads(y));
            match (found, maker) {
                (Some((y, op, out)), Some(maker)) if others(y) => {
                    if let FusedPass::Epilogue(f) = &mut self.passes[maker] {
                        f.branch = Some((op, out));
                    }
                    self.passes.remove(at);
                }
                _ => at += 1,
            }
        }
    }
}
