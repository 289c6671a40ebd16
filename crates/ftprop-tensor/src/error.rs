//! What can go wrong below the layers.

/// An error of this crate, with the operation and the numbers in it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TensorError {
    #[error("{operation}: a {kernel_h}×{kernel_w} window does not fit an input of {height}×{width} padded by {pad}")]
    WindowTooLarge {
        operation: &'static str,
        kernel_h: usize,
        kernel_w: usize,
        height: usize,
        width: usize,
        pad: usize,
    },
    #[error("{operation}: {channels} channels of {height}×{width} padded by {pad} are more than any memory holds")]
    TooLarge { operation: &'static str, height: usize, width: usize, pad: usize, channels: usize },
    #[error("{operation}: {what} must be at least 1")]
    Zero { operation: &'static str, what: &'static str },
    #[error("convolution: {groups} groups do not divide {channels} {which} channels")]
    Groups { groups: usize, channels: usize, which: &'static str },
    #[error("pooling: padding {pad} is more than half of the window {kernel}, so a window could see padding only")]
    PoolPadding { pad: usize, kernel: usize },
    #[error("could not start {threads} worker threads: {reason}; try a smaller --threads")]
    Threads { threads: usize, reason: String },
}
