//! What can go wrong below the layers.

/// An error of this crate, with the operation and the numbers in it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TensorError {
    /// A window larger than what it slides over.
    #[error("{operation}: a {kernel_h}×{kernel_w} window does not fit an input of {height}×{width} padded by {pad}")]
    WindowTooLarge {
        /// Convolution or pooling.
        operation: &'static str,
        /// Rows of the window.
        kernel_h: usize,
        /// Columns of the window.
        kernel_w: usize,
        /// Rows of the input.
        height: usize,
        /// Columns of the input.
        width: usize,
        /// Padding on each side.
        pad: usize,
    },
    /// An image that no memory holds.
    #[error("{operation}: {channels} channels of {height}×{width} padded by {pad} are more than any memory holds")]
    TooLarge {
        /// Convolution or pooling.
        operation: &'static str,
        /// Rows of the input.
        height: usize,
        /// Columns of the input.
        width: usize,
        /// Padding on each side.
        pad: usize,
        /// Channels of the input or the output.
        channels: usize,
    },
    /// More weights than a machine could hold.
    #[error("convolution: {outputs} kernels of {inputs} weights are more than any memory holds")]
    TooManyWeights {
        /// Weights of one kernel.
        inputs: usize,
        /// Kernels.
        outputs: usize,
    },
    /// A stride that no image is large enough for.
    #[error("{operation}: a stride of {stride} is more than {most}")]
    StrideTooLarge {
        /// Convolution or pooling.
        operation: &'static str,
        /// The stride asked for.
        stride: usize,
        /// The largest one.
        most: usize,
    },
    /// A size of nothing.
    #[error("{operation}: {what} must be at least 1")]
    Zero {
        /// Convolution or pooling.
        operation: &'static str,
        /// Which size.
        what: &'static str,
    },
    /// Groups of unequal size.
    #[error("convolution: {groups} groups do not divide {channels} {which} channels")]
    Groups {
        /// How many groups.
        groups: usize,
        /// How many channels.
        channels: usize,
        /// Input or output.
        which: &'static str,
    },
    /// Padding that could fill a window.
    #[error("pooling: padding {pad} is more than half of the window {kernel}, so a window could see padding only")]
    PoolPadding {
        /// Padding on each side.
        pad: usize,
        /// The window's side.
        kernel: usize,
    },
    /// Kernels for another machine.
    #[error("this machine has no {isa:?} instructions")]
    Isa {
        /// What was asked for.
        isa: crate::cpu::Isa,
    },
    /// The system starts no more threads.
    #[error("could not start {threads} worker threads: {reason}; try a smaller --threads")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}
