//! The shapes of convolutions and poolings, checked once.

use crate::TensorError;

/// Values of one image, or weights, beyond which no machine's memory goes; products of a few sizes below it still fit a
/// `usize`.
const MOST: u128 = 1 << 40;
/// Strides beyond this are a slip; below it a stride times any offset within an image fits a `usize`.
const MOST_STRIDE: usize = 1 << 16;

/// A two-dimensional convolution of NHWC images with OHWI weights (`[out, kernel_h, kernel_w, in / groups]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvGeometry {
    /// Rows of the input.
    pub height: usize,
    /// Columns of the input.
    pub width: usize,
    /// Channels of the input.
    pub in_channels: usize,
    /// Channels of the output: how many kernels there are.
    pub out_channels: usize,
    /// Rows of a kernel.
    pub kernel_h: usize,
    /// Columns of a kernel.
    pub kernel_w: usize,
    /// How far the kernel moves between outputs, down and across.
    pub stride: usize,
    /// Rows and columns of zeros on each side of the input.
    pub pad: usize,
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl ConvGeometry {
    /// The same numbers if they describe a convolution, else what is wrong with them.
    pub fn checked(self) -> Result<Self, TensorError> {
        let g = self;
        let named = [
            (g.height, "the input's height"),
            (g.width, "the input's width"),
            (g.in_channels, "the number of input channels"),
            (g.out_channels, "the number of output channels"),
            (g.kernel_h, "the kernel's height"),
            (g.kernel_w, "the kernel's width"),
            (g.stride, "the stride"),
            (g.groups, "the number of groups"),
        ];
        for (value, what) in named {
            if value == 0 {
                return Err(TensorError::Zero { operation: "convolution", what });
            }
        }
        for (channels, which) in [(g.in_channels, "input"), (g.out_channels, "output")] {
            if channels % g.groups != 0 {
                return Err(TensorError::Groups { groups: g.groups, channels, which });
            }
        }
        check_size("convolution", g.height, g.width, g.pad, g.in_channels.max(g.out_channels))?;
        check_window("convolution", g.kernel_h, g.kernel_w, g.height, g.width, g.pad)?;
        check_stride("convolution", g.stride)?;
        if g.fan_in() as u128 * g.out_channels as u128 > MOST {
            return Err(TensorError::TooManyWeights { inputs: g.fan_in(), outputs: g.out_channels });
        }
        Ok(g)
    }

    /// Panics unless the numbers describe a convolution: what every kernel asks before it touches a buffer.
    pub(crate) fn expect_sound(&self) {
        self.checked().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Rows of the output.
    pub fn out_height(&self) -> usize {
        (self.height + 2 * self.pad - self.kernel_h) / self.stride + 1
    }

    /// Columns of the output.
    pub fn out_width(&self) -> usize {
        (self.width + 2 * self.pad - self.kernel_w) / self.stride + 1
    }

    /// Input values of one image.
    pub fn in_len(&self) -> usize {
        self.height * self.width * self.in_channels
    }

    /// Output values of one image.
    pub fn out_len(&self) -> usize {
        self.out_height() * self.out_width() * self.out_channels
    }

    /// How many inputs one output sums over.
    pub fn fan_in(&self) -> usize {
        self.kernel_h * self.kernel_w * self.in_channels / self.groups
    }

    /// Weights of all kernels.
    pub fn weight_len(&self) -> usize {
        self.out_channels * self.fan_in()
    }

    /// Multiply-adds of one image's forward pass.
    pub fn multiply_adds(&self) -> usize {
        self.out_len().saturating_mul(self.fan_in())
    }
}

/// Pooling of NHWC images with a square window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolGeometry {
    /// Rows of the input.
    pub height: usize,
    /// Columns of the input.
    pub width: usize,
    /// Channels of input and output.
    pub channels: usize,
    /// Rows, and columns, of the window.
    pub kernel: usize,
    /// How far the window moves between outputs, down and across.
    pub stride: usize,
    /// Rows and columns on each side of the input, at most half a window.
    pub pad: usize,
}

impl PoolGeometry {
    /// The same numbers if they describe a pooling, else what is wrong with them.
    pub fn checked(self) -> Result<Self, TensorError> {
        let g = self;
        let named = [
            (g.height, "the input's height"),
            (g.width, "the input's width"),
            (g.channels, "the number of channels"),
            (g.kernel, "the window"),
            (g.stride, "the stride"),
        ];
        for (value, what) in named {
            if value == 0 {
                return Err(TensorError::Zero { operation: "pooling", what });
            }
        }
        check_size("pooling", g.height, g.width, g.pad, g.channels)?;
        if g.pad > g.kernel / 2 {
            return Err(TensorError::PoolPadding { pad: g.pad, kernel: g.kernel });
        }
        check_window("pooling", g.kernel, g.kernel, g.height, g.width, g.pad)?;
        check_stride("pooling", g.stride)?;
        Ok(g)
    }

    /// Panics unless the numbers describe a pooling: what every kernel asks before it touches a buffer.
    pub(crate) fn expect_sound(&self) {
        self.checked().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Rows of the output.
    pub fn out_height(&self) -> usize {
        (self.height + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Columns of the output.
    pub fn out_width(&self) -> usize {
        (self.width + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Input values of one image.
    pub fn in_len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Output values of one image.
    pub fn out_len(&self) -> usize {
        self.out_height() * self.out_width() * self.channels
    }

    /// The part of output row (or column) `o`'s window that lies on an input of `size`: window offsets.
    pub(crate) fn window(&self, o: usize, size: usize) -> std::ops::Range<usize> {
        let start = o * self.stride;
        self.pad.saturating_sub(start)..self.kernel.min(size + self.pad - start)
    }
}

/// Refuses sizes beyond any machine's memory, whose products would not even be numbers.
fn check_size(
    operation: &'static str,
    height: usize,
    width: usize,
    pad: usize,
    channels: usize,
) -> Result<(), TensorError> {
    let padded = |size: usize| size as u128 + 2 * pad as u128;
    if padded(height).saturating_mul(padded(width)).saturating_mul(channels as u128) > MOST {
        return Err(TensorError::TooLarge { operation, height, width, pad, channels });
    }
    Ok(())
}

fn check_stride(operation: &'static str, stride: usize) -> Result<(), TensorError> {
    if stride > MOST_STRIDE {
        return Err(TensorError::StrideTooLarge { operation, stride, most: MOST_STRIDE });
    }
    Ok(())
}

/// The product of two sizes, which buffers in memory have.
///
/// # Panics
/// If it is no size at all: a wrapped one would let a kernel leave its buffers.
pub(crate) fn size(a: usize, b: usize) -> usize {
    a.checked_mul(b).unwrap_or_else(|| panic!("{a} times {b} values are more than any memory holds"))
}

fn check_window(
    operation: &'static str,
    kernel_h: usize,
    kernel_w: usize,
    height: usize,
    width: usize,
    pad: usize,
) -> Result<(), TensorError> {
    if height + 2 * pad < kernel_h || width + 2 * pad < kernel_w {
        return Err(TensorError::WindowTooLarge { operation, kernel_h, kernel_w, height, width, pad });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_cannot_be_are_refused() {
        let conv = ConvGeometry {
            height: 4,
            width: 4,
            in_channels: 6,
            out_channels: 8,
            kernel_h: 3,
            kernel_w: 3,
            stride: 1,
            pad: 0,
            groups: 2,
        };
        assert_eq!(conv.checked().map(|g| (g.out_height(), g.fan_in())), Ok((2, 27)));
        assert!(ConvGeometry { kernel_h: 5, ..conv }.checked().is_err());
        assert!(ConvGeometry { kernel_h: 5, pad: 1, ..conv }.checked().is_ok());
        assert!(ConvGeometry { groups: 4, ..conv }.checked().is_err());
        assert!(ConvGeometry { stride: 0, ..conv }.checked().is_err());
        assert!(ConvGeometry { pad: usize::MAX / 2, ..conv }.checked().is_err());
        assert!(ConvGeometry { out_channels: usize::MAX - 1, ..conv }.checked().is_err());
        let one = ConvGeometry { height: 1, width: 1, kernel_h: 1, kernel_w: 1, groups: 1, ..conv };
        let many = ConvGeometry { in_channels: 1 << 36, out_channels: 1 << 36, ..one };
        assert!(matches!(many.checked(), Err(TensorError::TooManyWeights { .. })));
        let stride = 100_000_000_000;
        assert!(matches!(ConvGeometry { stride, ..conv }.checked(), Err(TensorError::StrideTooLarge { .. })));
        let pool = PoolGeometry { height: 5, width: 5, channels: 1, kernel: 3, stride: 2, pad: 1 };
        assert_eq!(pool.checked().map(|g| g.out_height()), Ok(3));
        assert!(PoolGeometry { pad: 2, ..pool }.checked().is_err());
        assert!(PoolGeometry { stride, ..pool }.checked().is_err());
        assert_eq!((pool.window(0, 5), pool.window(1, 5), pool.window(2, 5)), (1..3, 0..3, 0..2));
    }
}
