//! Deep networks with hard-threshold activations: trained by feasible target propagation, proved by search, packed for use.

#![forbid(unsafe_code)]

pub use ftprop_data as data;
pub use ftprop_export as export;
pub use ftprop_lab as lab;
pub use ftprop_nn as nn;
pub use ftprop_runtime as runtime;
pub use ftprop_search as search;
pub use ftprop_tensor as tensor;
pub use ftprop_train as train;
