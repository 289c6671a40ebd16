//! Pixels that a stride passes over taken as one with more channels, in place: what a first convolution reads has few channels,
//! which libraries are slow with, but lies pixel by pixel, so that with a stride of 4 a row of 224 pixels of 4 channels is one of
//! 56 pixels of 16. Only filters have to be laid out anew, with zeros where a window begins or ends within such a pixel.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::basic;
use crate::device::Device;
use crate::kernel::{Kernel, LaunchConfig};
use crate::precision::Precision;
use crate::stream::CudaStream;
use ftprop_tensor::geometry::ConvGeometry;

kernels! {
    /// Filters laid out for joined pixels.
    JoinFiltersArgs = "join_filters" in basic::FILE {
        from: DevicePtr,
        to: DevicePtr,
        rows: u32,
        width: u32,
        channels: u32,
        span: u32,
        stored: u32,
        shift: u32,
    }

    /// Their gradients laid out as filters are.
    PartFiltersArgs = "part_filters" in basic::FILE {
        from: DevicePtr,
        to: DevicePtr,
        rows: u32,
        width: u32,
        channels: u32,
        span: u32,
        stored: u32,
        shift: u32,
    }
}

/// A convolution over joined pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Joined {
    /// Columns of the input, and channels of each.
    pub(crate) width: usize,
    pub(crate) channels: usize,
    /// Columns of a filter.
    pub(crate) kernel_w: usize,
    /// Columns of zeros on the left and on the right.
    pub(crate) before: usize,
    pub(crate) after: usize,
    /// Pixels of the first column that come before the window.
    shift: usize,
    /// Rows of all filters.
    rows: usize,
    /// Channels that a pixel is stored with.
    stored: usize,
}

impl Joined {
    /// Where it is of use and comes out even.
    pub(crate) fn of(g: &ConvGeometry, stored: usize, precision: Precision) -> Option<Self> {
        let (stride, padded) = (g.stride, stored > g.in_channels);
        let wide = (stored * stride * precision.activation_bytes()).is_multiple_of(16);
        let suits = precision != Precision::F32 && padded && g.groups == 1;
        if !suits || stride < 2 || !g.width.is_multiple_of(stride) || !wide {
            return None;
        }
        let (width, before) = (g.width / stride, g.pad.div_ceil(stride));
        let shift = before * stride - g.pad;
        let kernel_w = (shift + g.kernel_w).div_ceil(stride);
        let after = (g.out_width() - 1 + kernel_w).checked_sub(before + width)?;
        let rows = g.out_channels * g.kernel_h;
        Some(Joined { width, channels: stride * stored, kernel_w, before, after, shift, rows, stored })
    }

    /// Numbers in all filters.
    pub(crate) fn filters_len(&self) -> usize {
        self.rows * self.kernel_w * self.channels
    }

    /// What both kernels are told of the filters' two layouts, in the order of their arguments.
    fn layout(&self, g: &ConvGeometry) -> [u32; 6] {
        let span = self.kernel_w * self.channels / self.stored;
        [self.rows, g.kernel_w, g.in_channels, span, self.stored, self.shift].map(|number| number as u32)
    }
}

/// The kernels that lay filters out.
pub(crate) struct JoinKernels {
    join: Kernel<JoinFiltersArgs>,
    part: Kernel<PartFiltersArgs>,
}

impl JoinKernels {
    pub(crate) fn new(device: &Device, precision: Precision) -> Result<Self, CudaError> {
        let module = device.module(basic::source(precision))?;
        Ok(JoinKernels { join: Kernel::find(&module)?, part: Kernel::find(&module)? })
    }

    /// # Safety
    /// `from` has the product's filters and `to` room for those over joined pixels.
    pub(crate) unsafe fn join(
        &self,
        g: &ConvGeometry,
        joined: &Joined,
        (from, to): (DevicePtr, DevicePtr),
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        let [rows, width, channels, span, stored, shift] = joined.layout(g);
        let args = JoinFiltersArgs { from, to, rows, width, channels, span, stored, shift };
        // SAFETY: the caller's promise.
        unsafe { self.join.launch(stream, LaunchConfig::for_items(joined.filters_len()), &args) }
    }

    /// # Safety
    /// `from` has gradients of the filters over joined pixels and `to` room for those of the product's own.
    pub(crate) unsafe fn part(
        &self,
        g: &ConvGeometry,
        joined: &Joined,
        (from, to): (DevicePtr, DevicePtr),
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        let [rows, width, channels, span, stored, shift] = joined.layout(g);
        let args = PartFiltersArgs { from, to, rows, width, channels, span, stored, shift };
        // SAFETY: the caller's promise.
        unsafe { self.part.launch(stream, LaunchConfig::for_items(g.weight_len()), &args) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_tensor::geometry::ConvGeometry;

    fn first(width: usize, kernel_w: usize, stride: usize, pad: usize) -> ConvGeometry {
        let (height, in_channels, out_channels, kernel_h, groups) = (9, 3, 5, 2, 1);
        ConvGeometry { height, width, in_channels, out_channels, kernel_h, kernel_w, stride, pad, groups }
    }

    /// Every window covers the same pixels, with the same weights, and there are as many windows.
    #[test]
    fn windows_over_joined_pixels_are_the_same() {
        let cases = [(224, 12, 4, 0), (224, 7, 2, 3), (12, 5, 2, 2), (15, 4, 3, 1), (30, 3, 2, 1)];
        for (width, kernel, stride, pad) in cases {
            let geometry = first(width, kernel, stride, pad);
            let joined = Joined::of(&geometry, 4, Precision::Tf32).unwrap_or_else(|| panic!("{geometry:?}"));
            let outputs = geometry.out_width();
            assert_eq!(joined.width + joined.before + joined.after - joined.kernel_w + 1, outputs);
            for (out, tap) in (0..outputs).flat_map(|out| (0..kernel).map(move |tap| (out, tap))) {
                let pixel = (out * stride + tap) as isize - pad as isize;
                let place = joined.shift + tap;
                assert!(place < joined.kernel_w * stride);
                let column = (out + place / stride) as isize - joined.before as isize;
                assert_eq!(column * stride as isize + (place % stride) as isize, pixel);
            }
        }
    }

    #[test]
    fn only_what_comes_out_even_is_joined() {
        let bf16 = |geometry: &ConvGeometry| Joined::of(geometry, 4, Precision::Bf16);
        assert!(bf16(&first(224, 7, 2, 3)).is_some());
        // No stride, a width that it does not divide, pixels that cannot be read in pieces of 16 bytes.
        for geometry in [first(224, 7, 1, 3), first(225, 7, 2, 3), first(15, 3, 3, 0)] {
            assert!(bf16(&geometry).is_none(), "{geometry:?}");
        }
        assert!(Joined::of(&first(224, 7, 2, 3), 4, Precision::F32).is_none());
        assert!(Joined::of(&first(224, 7, 2, 3), 3, Precision::Bf16).is_none());
    }
}
