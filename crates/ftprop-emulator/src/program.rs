//! Kernels ready to run: every name has become a place.

use crate::convert::Conversion;
use crate::registers::{Compute, Line, Operands, Source, Truth};
use crate::text::Space;
use crate::together::Together;
use crate::warpgroup::GroupProduct;
use std::collections::HashMap;
use std::sync::Arc;

/// What a thread is told about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    Warp,
    Multiprocessor,
    Clock,
}

/// An address: a register, if any, and a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) base: Option<(Source, bool)>,
    pub(crate) offset: u64,
    pub(crate) space: Space,
}

/// Which bytes are read or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) address: Address,
    /// Bytes of one number.
    pub(crate) unit: usize,
    /// Numbers that lie side by side.
    pub(crate) count: usize,
    pub(crate) signed: bool,
    /// Whether someone else's writing may be waited for.
    pub(crate) polls: bool,
}

/// What an atomic instruction does with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    AddF32,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
    /// One more, or zero past a limit.
    Increase,
}

/// What an instruction does.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    Compute(Compute),
    Convert(Conversion),
    Special(Special),
    Load(Access),
    Store(Access),
    Atomic(Access, Change),
    /// From global to shared memory, some time before it is waited for: bytes, and how many of them are not zero.
    CopyAside {
        to: Address,
        from: Address,
        bytes: usize,
        some: Option<Source>,
    },
    CommitCopies,
    /// Until no more than so many groups of copies are under way.
    AwaitCopies(usize),
    Together(Together),
    /// A product of four warps, by its number among the kernel's.
    GroupProduct(u32),
    CommitProducts,
    /// Until no more than so many groups of products are under way.
    AwaitProducts(usize),
    Branch(u32),
    /// Of all threads of the block.
    Barrier,
    /// Of so many threads, at the barrier whose number is the first operand.
    PartBarrier(u32),
    Exit,
    Trap,
    Nothing,
}

/// One instruction.
pub(crate) struct Instruction {
    pub(crate) action: Action,
    /// A predicate, and whether its contrary is asked for.
    pub(crate) guard: Option<Truth>,
    pub(crate) operands: Operands,
    /// As it was written.
    pub(crate) text: Box<str>,
}

/// A kernel.
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) code: Vec<Instruction>,
    pub(crate) group_products: Vec<GroupProduct>,
    /// Offsets and sizes of its arguments.
    pub(crate) parameters: Vec<(usize, usize)>,
    pub(crate) most_threads: Option<u32>,
    /// Lines of registers and number of predicates.
    pub(crate) lines: usize,
    pub(crate) predicates: usize,
    pub(crate) constants: Arc<[Line]>,
    /// Bytes of shared memory before what the launch adds.
    pub(crate) shared: usize,
    /// Bytes of its own that each thread has.
    pub(crate) local: usize,
}

/// The kernels of one text, and what memory they share. It stays as long as the program, like a driver's.
pub(crate) struct Program {
    pub(crate) kernels: HashMap<String, Arc<Kernel>>,
    /// Initialised memory: where it is and its bytes.
    pub(crate) variables: Vec<Box<[u64]>>,
}
