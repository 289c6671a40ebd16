//! How much an example counts in learning, by its class.

use ftprop_nn::EngineError;
use serde::{Deserialize, Serialize};

/// How much an example counts in learning, by its class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be \"balanced\" or a list with a number for each class")]
pub enum ClassWeights {
    /// By how often the classes occur.
    ByCount(ByCount),
    /// A number for each class, in the order of the classes.
    Each(Vec<f32>),
}

/// Weights that follow from how often the classes occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByCount {
    /// All classes together count alike: examples / (classes × examples of the class). The mean over the examples is 1.
    Balanced,
}

impl ClassWeights {
    /// The weight of each of so many classes, for the examples that are learned from. A label that is no class is refused.
    pub fn of(&self, labels: impl Iterator<Item = u32>, classes: usize) -> Result<Vec<f32>, EngineError> {
        match self {
            ClassWeights::Each(weights) => Ok(weights.clone()),
            ClassWeights::ByCount(ByCount::Balanced) => {
                let mut counts = vec![0u64; classes];
                for label in labels {
                    *counts.get_mut(label as usize).ok_or(EngineError::Label { label, classes })? += 1;
                }
                let (examples, present) = (counts.iter().sum::<u64>(), counts.iter().filter(|&&n| n > 0).count());
                // A class without an example has a weight that nothing is multiplied by.
                let weight = |&n: &u64| if n == 0 { 1.0 } else { examples as f64 / (present as f64 * n as f64) };
                Ok(counts.iter().map(|n| weight(n) as f32).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_classes_count_alike_and_the_mean_is_one() {
        let labels = [0, 0, 0, 0, 0, 0, 1, 1, 3, 0];
        let weights = ClassWeights::ByCount(ByCount::Balanced).of(labels.into_iter(), 4).unwrap();
        let total = |class: u32| weights[class as usize] * labels.iter().filter(|&&l| l == class).count() as f32;
        assert!((total(0) - total(1)).abs() < 1e-5 && (total(1) - total(3)).abs() < 1e-5);
        assert!((labels.iter().map(|&l| weights[l as usize]).sum::<f32>() - 10.0).abs() < 1e-4);
        assert_eq!(weights[2], 1.0);
    }

    #[test]
    fn a_label_that_is_no_class_is_refused() {
        let refused = ClassWeights::ByCount(ByCount::Balanced).of([0, 1, 2].into_iter(), 2).unwrap_err();
        assert_eq!(refused.to_string(), "label 2 is not below 2 classes");
    }
}
