//! What the pieces of a step have to move and to multiply, by the kernels that were chosen for them, and what a GPU can do of that in
//! a second: together the least time that a piece could take.

use crate::precision::Precision;
use std::ops::Add;

/// What a piece of a step does at the least: bytes of the tensors that its kernels read and write, each once a kernel, and
/// multiplications and additions of products. What is small beside these, such as sums of blocks and numbers of channels, is left
/// out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Read and written.
    pub bytes: usize,
    /// Of products; a multiplication and its addition are two.
    pub operations: usize,
}

impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work { bytes: self.bytes + other.bytes, operations: self.operations + other.operations }
    }
}

/// What a GPU can do in a second, at its highest clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roof {
    /// Of its memory.
    pub bytes: f64,
    /// Of its matrix units with a precision, or of its other units with `f32`, where that is known.
    pub operations: Option<f64>,
}

impl Roof {
    /// The least seconds that work could take.
    pub fn seconds(&self, work: Work) -> f64 {
        let multiplying = self.operations.map_or(0.0, |operations| work.operations as f64 / operations);
        multiplying.max(work.bytes as f64 / self.bytes)
    }
}

/// Operations that a multiprocessor does in one clock, dense and with sums in f32, by compute capability; none for those whose
/// number depends on which product they were sold in.
pub(crate) fn operations_per_clock(capability: (u32, u32), precision: Precision) -> Option<u32> {
    let bf16 = match capability {
        (8, 0) => 2048,
        (9, 0) => 4096,
        (10, 0) => 8192,
        _ => return None,
    };
    Some(match precision {
        Precision::Bf16 => bf16,
        Precision::Tf32 => bf16 / 2,
        Precision::F32 if capability == (8, 0) => 128,
        Precision::F32 => 256,
    })
}

/// The three pieces of a pass. Those that are no product have no gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PassWork {
    pub(crate) forward: Work,
    pub(crate) back: Work,
    pub(crate) gradients: Work,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_time_is_that_of_memory_or_of_multiplying_whichever_is_longer() {
        let roof = Roof { bytes: 4e12, operations: Some(8e14) };
        assert_eq!(roof.seconds(Work { bytes: 4_000_000, operations: 0 }), 1e-6);
        assert_eq!(roof.seconds(Work { bytes: 4_000_000, operations: 1_600_000_000 }), 2e-6);
        assert_eq!(Roof { operations: None, ..roof }.seconds(Work { bytes: 8, operations: 1 << 40 }), 2e-12);
    }

    #[test]
    fn an_h200_is_what_its_maker_says() {
        // 132 multiprocessors; NVIDIA's figures, 989 and 495 TFLOP/s, are at 1.83 GHz.
        let operations =
            |precision| f64::from(operations_per_clock((9, 0), precision).unwrap()) * 132.0 * 1.83e9 / 1e12;
        assert_eq!(operations(Precision::Bf16).round(), 989.0);
        assert_eq!(operations(Precision::Tf32).round(), 495.0);
        assert_eq!(operations_per_clock((8, 9), Precision::Bf16), None);
    }
}
