//! The kernels of `basic.cu`, which know nothing of layers; whoever launches one declares what it takes.

use crate::compile::{KernelFile, Source};
use crate::precision::Precision;

pub(crate) const FILE: KernelFile = KernelFile { name: "basic.cu", text: include_str!("../kernels/basic.cu") };

pub(crate) fn source(precision: Precision) -> Source {
    Source::new(FILE, precision)
}
