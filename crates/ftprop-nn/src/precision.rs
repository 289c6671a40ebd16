//! What the matrix units of a GPU compute with.

use crate::NnError;
use crate::names::serde_by_name;
use std::fmt;
use std::str::FromStr;

/// How exact products are. Sums, parameters and the optimizer are f32 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Precision {
    /// No matrix units: products of f32.
    F32 = 0,
    /// Factors rounded to 10 bits behind the point, activations kept in f32.
    #[default]
    Tf32 = 1,
    /// Factors and activations in bf16.
    Bf16 = 2,
}

impl Precision {
    /// Bytes of one activation.
    pub fn activation_bytes(self) -> usize {
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
    type Err = NnError;

    fn from_str(text: &str) -> Result<Self, NnError> {
        let known = || "known are f32, tf32 and bf16".to_string();
        [Precision::F32, Precision::Tf32, Precision::Bf16]
            .into_iter()
            .find(|p| p.to_string() == text)
            .ok_or_else(|| NnError::Name { what: "precision", name: text.to_string(), known: known() })
    }
}

serde_by_name!(Precision);
