//! Steps that are announced together, where no other crate has them.

/// Consecutive training steps of one epoch.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The run's seed.
    pub seed: u64,
    /// Which epoch's order and augmentation.
    pub epoch: u64,
    /// The first batch, counted in the epoch.
    pub first_batch: usize,
    /// The first step's number, counted over the whole run.
    pub first_step: u64,
    /// For each step what the learning rate is multiplied by, and the share of training done.
    pub steps: Vec<(f64, f32)>,
}
