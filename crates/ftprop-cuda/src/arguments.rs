//! How what a kernel takes is declared, beside what launches it: parameter by parameter as its file has it. Tests compare
//! the two.
//!
//! Kernels take their parameters one by one and not as one struct, because pointers in a struct lose their
//! `__restrict__`, and with it the loads through the read-only cache.

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

/// A kernel as it is declared here, for the tests.
#[cfg(test)]
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) file: crate::compile::KernelFile,
    pub(crate) entry: &'static str,
    /// Names and types.
    pub(crate) parameters: &'static [(&'static str, &'static str)],
}

/// Declares what a module's kernels take: `Args = "name" in FILE { parameters }`. The module's `KERNELS` belong into the
/// list that the tests walk, or the compiler calls them unused.
macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $entry:literal in $file:path { $($field:ident: $type:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            #[repr(C)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }

            // SAFETY: names, order and types of the parameters are compared with the kernel's own by tests.
            unsafe impl $crate::arguments::Arguments for $name {
                const ENTRY: &'static str = $entry;

                fn pointers(&self) -> Vec<*mut std::ffi::c_void> {
                    vec![$((&raw const self.$field).cast_mut().cast()),*]
                }
            }
        )*

        /// Every kernel that this module launches.
        #[cfg(test)]
        pub(crate) const KERNELS: &[$crate::arguments::Signature] = &[
            $($crate::arguments::Signature {
                file: $file,
                entry: $entry,
                parameters: &[$((stringify!($field), stringify!($type))),*],
            },)*
        ];
    };
}
pub(crate) use kernels;
