//! What the matrix units compute with.

use crate::CudaError;
use std::fmt;
use std::str::FromStr;

/// How exact products are. Sums, parameters and the optimizer are f32 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// No matrix units: products of f32.
    F32,
    /// Factors rounded to 10 bits behind the point, activations kept in f32.
    #[default]
    Tf32,
    /// Factors and activations in bf16.
    Bf16,
}

impl Precision {
    /// Bytes of one activation.
    pub(crate) fn activation_bytes(self) -> usize {
        if self == Precision::Bf16 { 2 } else { 4 }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
        })
    }
}

impl FromStr for Precision {
    type Err = CudaError;
    fn from_str(text: &str) -> Result<Self, CudaError> {
        [Precision::F32, Precision::Tf32, Precision::Bf16]
            .into_iter()
            .find(|p| p.to_string() == text)
            .ok_or_else(|| CudaError::UnknownName { what: "precision", name: text.into(), known: "f32, tf32 and bf16" })
    }
}
