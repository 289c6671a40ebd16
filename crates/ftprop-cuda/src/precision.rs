//! What the matrix units compute with: recipes name it, also where there is no GPU.

pub use ftprop_nn::Precision;
