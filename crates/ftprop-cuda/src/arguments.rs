//! What each kernel takes, parameter by parameter as its file has it; a test compares the two.
//!
//! Kernels take their parameters one by one and not as one struct, because pointers in a struct lose their
//! `__restrict__`, and with it the loads through the read-only cache.

use crate::abi::{DevicePtr, NormBackward, NormParameters, NormSaved};
use std::ffi::c_void;

/// What a kernel takes.
///
/// # Safety
/// `pointers` has one for each of the kernel's parameters, in order, to a value of that parameter's type.
pub(crate) unsafe trait Arguments {
    /// The kernel's name in its file.
    const ENTRY: &'static str;
    /// One pointer a parameter, into `self`.
    fn pointers(&self) -> Vec<*mut c_void>;
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $file:ident::$entry:literal { $($field:ident: $type:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }

            // SAFETY: names, order and types of the parameters are compared with the kernel's own by the test below.
            unsafe impl Arguments for $name {
                const ENTRY: &'static str = $entry;

                fn pointers(&self) -> Vec<*mut c_void> {
                    vec![$((&raw const self.$field).cast_mut().cast()),*]
                }
            }
        )*

        /// File, name and parameters of every kernel.
        #[cfg(test)]
        const ALL: &[(crate::compile::File, &str, &[(&str, &str)])] = &[
            $((crate::compile::File::$file, $entry, &[$((stringify!($field), stringify!($type))),*]),)*
        ];
    };
}

kernels! {
    /// A tiled product.
    GemmArgs = Gemm::"gemm" {
        left: DevicePtr,
        right: DevicePtr,
        out: DevicePtr,
        bias: DevicePtr,
        addend: DevicePtr,
        workspace: DevicePtr,
        counters: DevicePtr,
        n: i32,
        split_k: i32,
    }

    /// A convolution of pictures.
    PatchForwardArgs = PatchForward::"patch_forward" {
        x: DevicePtr,
        w: DevicePtr,
        y: DevicePtr,
        n: i32,
    }

    /// The slopes by a convolution's input.
    PatchBackwardArgs = PatchBackward::"patch_backward" {
        dy: DevicePtr,
        w: DevicePtr,
        dx: DevicePtr,
        accumulate: i32,
    }

    /// Each block's sums of the gradient of filters.
    PatchGradientArgs = PatchGradient::"patch_gradient" {
        dy: DevicePtr,
        x: DevicePtr,
        sums: DevicePtr,
        n: i32,
    }

    /// Adds up what the blocks of [`PatchGradientArgs`] wrote.
    PatchGradientReduceArgs = PatchGradient::"patch_gradient_reduce" {
        sums: DevicePtr,
        out: DevicePtr,
        blocks: i32,
    }

    /// What follows a product.
    EpilogueForwardArgs = Epilogue::"epilogue_forward" {
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        y2: DevicePtr,
        scale2: DevicePtr,
        shift2: DevicePtr,
        out: DevicePtr,
        argmax: DevicePtr,
        step: DevicePtr,
        n: i32,
        training: i32,
    }

    /// From the slopes by the output to those by the pre-activation.
    EpilogueBackwardArgs = Epilogue::"epilogue_backward" {
        dout: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        y2: DevicePtr,
        scale2: DevicePtr,
        shift2: DevicePtr,
        argmax: DevicePtr,
        dz: DevicePtr,
        dz2: DevicePtr,
        norm1: NormBackward,
        norm2: NormBackward,
        biased: i32,
        partial: DevicePtr,
        counter: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }

    /// Adds up what the blocks of [`EpilogueBackwardArgs`] wrote, which is a bias's gradient.
    BiasGradientArgs = Epilogue::"bias_gradient" {
        partial: DevicePtr,
        d_bias: DevicePtr,
        blocks: i32,
    }

    /// From the slopes by the pre-activation to those by the inputs.
    EpilogueBackwardInputArgs = Epilogue::"epilogue_backward_input" {
        dz: DevicePtr,
        y: DevicePtr,
        y2: DevicePtr,
        mean1: DevicePtr,
        coefficients1: DevicePtr,
        mean2: DevicePtr,
        coefficients2: DevicePtr,
        dy: DevicePtr,
        dy2: DevicePtr,
        n: i32,
    }

    /// Statistics and what follows them.
    EpilogueForwardCooperativeArgs = EpilogueCooperative::"epilogue_forward_cooperative" {
        y: DevicePtr,
        norm: NormParameters,
        saved: NormSaved,
        partial: DevicePtr,
        barrier: DevicePtr,
        out: DevicePtr,
        argmax: DevicePtr,
        step: DevicePtr,
        n: i32,
    }

    /// The way back through an epilogue with one norm.
    EpilogueBackwardCooperativeArgs = EpilogueCooperative::"epilogue_backward_cooperative" {
        dout: DevicePtr,
        y: DevicePtr,
        scale: DevicePtr,
        shift: DevicePtr,
        argmax: DevicePtr,
        dy: DevicePtr,
        norm: NormBackward,
        partial: DevicePtr,
        barrier: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        labels: DevicePtr,
        n: i32,
    }

    /// A norm's statistics over a batch.
    NormStatisticsArgs = Norm::"norm_statistics" {
        y: DevicePtr,
        norm: NormParameters,
        saved: NormSaved,
        partial: DevicePtr,
        counter: DevicePtr,
        rows: i32,
    }

    /// Scale and shift from the running statistics.
    NormRunningArgs = Norm::"norm_running" {
        norm: NormParameters,
        saved: NormSaved,
    }

    /// The sums of a matrix's columns.
    ColumnSumsArgs = Norm::"column_sums" {
        x: DevicePtr,
        out: DevicePtr,
        partial: DevicePtr,
        counter: DevicePtr,
        rows: i32,
    }

    /// Average pooling.
    AveragePoolForwardArgs = AveragePool::"average_pool_forward" {
        x: DevicePtr,
        y: DevicePtr,
        n: i32,
    }

    /// The slopes by what was pooled.
    AveragePoolBackwardArgs = AveragePool::"average_pool_backward" {
        dy: DevicePtr,
        dx: DevicePtr,
        n: i32,
        accumulate: i32,
    }

    /// The loss, its slopes and the tally.
    OutputLossArgs = OutputLoss::"output_loss" {
        logits: DevicePtr,
        labels: DevicePtr,
        slopes: DevicePtr,
        tally: DevicePtr,
        partial: DevicePtr,
        counter: DevicePtr,
        n: i32,
        learning: i32,
    }

    /// An optimizer's pass over the flat buffers.
    OptimizeArgs = Optimizer::"optimize" {
        values: DevicePtr,
        grads: DevicePtr,
        moment1: DevicePtr,
        moment2: DevicePtr,
        average: DevicePtr,
        bf16_values: DevicePtr,
        groups: DevicePtr,
        clip_scale: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        counter: DevicePtr,
        count: u32,
        advance: i32,
    }

    /// A batch of a data set on the device.
    GatherBatchArgs = Basic::"gather_batch" {
        pixels: DevicePtr,
        all_labels: DevicePtr,
        numbers: DevicePtr,
        tables: DevicePtr,
        images: DevicePtr,
        labels: DevicePtr,
        step: DevicePtr,
        examples: u32,
        batch: u32,
        height: i32,
        width: i32,
        channels: i32,
        stored: i32,
        window_h: i32,
        window_w: i32,
        pad: i32,
        shuffle: i32,
        crop: i32,
        flip: i32,
    }

    /// A batch that the host brought.
    LoadStagedArgs = Basic::"load_staged" {
        staged: DevicePtr,
        staged_labels: DevicePtr,
        images: DevicePtr,
        labels: DevicePtr,
        step: DevicePtr,
        slot_len: u32,
        slot_batch: u32,
        len: u32,
        n: u32,
        channels: u32,
        stored: u32,
    }

    /// Moves an evaluation on to its next batch.
    NextBatchArgs = Basic::"next_batch" {
        step: DevicePtr,
    }

    /// The bf16 copy of the parameters.
    RoundValuesArgs = Basic::"round_values" {
        values: DevicePtr,
        bf16_values: DevicePtr,
        count: u32,
    }

    /// From bf16 to f32.
    WidenValuesArgs = Basic::"widen_values" {
        from: DevicePtr,
        to: DevicePtr,
        count: u32,
    }

    /// What the gradient is multiplied by so that its norm is at most `most`.
    ClipArgs = Basic::"clip" {
        grads: DevicePtr,
        partial: DevicePtr,
        counter: DevicePtr,
        scale: DevicePtr,
        norm: DevicePtr,
        count: u32,
        most: f64,
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use std::collections::BTreeSet;

    /// Every kernel of a file's text: its name and its parameters' names and types.
    fn kernels_of(text: &str) -> Vec<(String, Vec<(String, String)>)> {
        let parameter = |text: &str| {
            let text = text.trim();
            let start = text.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
            let (kind, name) = text.split_at(start);
            let kind = match kind.trim() {
                pointer if pointer.contains('*') => "DevicePtr",
                "int" => "i32",
                "u32" => "u32",
                "double" => "f64",
                other => other,
            };
            (name.to_string(), kind.to_string())
        };
        let kernel = |part: &str| {
            let head = part.split_once(" {").expect("a kernel has a body").0;
            let (head, parameters) = head.rsplit_once('(').expect("a kernel has parameters");
            let name = head.rsplit(|c: char| c.is_whitespace()).next().expect("a kernel has a name");
            let parameters = parameters.trim_end().trim_end_matches(')');
            (name.to_string(), parameters.split(',').map(parameter).collect())
        };
        text.split("extern \"C\" __global__ void").skip(1).map(kernel).collect()
    }

    #[test]
    fn every_kernel_takes_what_its_file_says() {
        for (file, entry, parameters) in ALL {
            let kernels = kernels_of(file.text());
            let found = kernels.iter().find(|(name, _)| name == entry);
            let (_, found) = found.unwrap_or_else(|| panic!("{entry} is not in {}", file.name()));
            let found: Vec<(&str, &str)> = found.iter().map(|(name, kind)| (&name[..], &kind[..])).collect();
            assert_eq!(&found[..], *parameters, "{entry} in {}", file.name());
        }
    }

    #[test]
    fn every_kernel_of_every_file_is_listed() {
        let listed: BTreeSet<&str> = ALL.iter().map(|(_, entry, _)| *entry).collect();
        for (file, ..) in ALL {
            for (name, _) in kernels_of(file.text()) {
                assert!(listed.contains(&name[..]), "{name} in {}", file.name());
            }
        }
    }
}
