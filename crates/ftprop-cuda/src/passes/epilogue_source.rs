//! What an epilogue's kernels are compiled for.

use crate::compile::{File, Source};
use crate::plan::{ActivationOp, Affine, Dropout, Epilogue};
use crate::precision::Precision;
use ftprop_nn::activation::Activation;
use ftprop_nn::target::QreluForm;
use ftprop_nn::{LayerLoss, Shape};

/// The kernels of an epilogue whose input has that shape, with so many channels a thread, column sums of that kind, and
/// the rows that a thread keeps where the launch is cooperative.
pub(super) fn source(
    f: &Epilogue,
    shape: Shape,
    precision: Precision,
    vector_width: usize,
    threads_x: usize,
    rows_per_thread: Option<usize>,
) -> Source {
    let pooled = f.pool.map_or((shape.height, shape.width), |p| (p.out_height(), p.out_width()));
    let (kernel, stride, pad) = f.pool.map_or((1, 1, 0), |p| (p.kernel, p.stride, p.pad));
    let (p, number) = f.dropout.map_or((0.0, 0), |d| (d.p, d.number));
    let affine = match f.affine {
        Affine::Identity => "AFFINE_IDENTITY",
        Affine::Norm(_) => "AFFINE_NORM",
        Affine::Bias(_) => "AFFINE_BIAS",
    };
    let residual = match f.residual {
        None => "RESIDUAL_NONE",
        Some((_, None)) => "RESIDUAL_PLAIN",
        Some((_, Some(_))) => "RESIDUAL_NORM",
    };
    let dropout = match f.dropout {
        None => "DROPOUT_NONE",
        Some(Dropout { by_channel: false, .. }) => "DROPOUT_VALUES",
        Some(Dropout { by_channel: true, .. }) => "DROPOUT_CHANNELS",
    };
    let file = if rows_per_thread.is_some() { File::EpilogueCooperative } else { File::Epilogue };
    let source = Source::new(file, precision)
        .int("ROWS_PER_THREAD", rows_per_thread.unwrap_or(0))
        .int("THREADS_X", threads_x)
        .int("C", shape.channels)
        .int("VEC", vector_width)
        .int("HEIGHT", shape.height)
        .int("WIDTH", shape.width)
        .int("POOL", usize::from(f.pool.is_some()))
        .int("POOL_KERNEL", kernel)
        .int("POOL_STRIDE", stride)
        .int("POOL_PAD", pad)
        .int("POOL_H", pooled.0)
        .int("POOL_W", pooled.1)
        .name("AFFINE", affine)
        .name("RESIDUAL", residual)
        .name("DROPOUT", dropout)
        .float("DROPOUT_P", p)
        .int("DROPOUT_NUMBER", number as usize)
        .int("ACCUMULATE1", usize::from(f.adds))
        .int("ACCUMULATE2", usize::from(f.adds_residual));
    activation_macros(source, f.activation)
}

/// The name of an activation in the kernels, and its levels.
fn activation_macro(activation: Option<Activation>) -> (&'static str, usize) {
    match activation {
        None => ("ACTIVATION_NONE", 2),
        Some(Activation::Sign) => ("ACTIVATION_SIGN", 2),
        Some(Activation::Step) => ("ACTIVATION_STEP", 2),
        Some(Activation::Qrelu { k }) => ("ACTIVATION_QRELU", k as usize),
        Some(Activation::Relu) => ("ACTIVATION_RELU", 2),
        Some(Activation::SaturatedRelu) => ("ACTIVATION_SATURATED_RELU", 2),
    }
}

/// The name of a layer loss in the kernels, and its parameter; a full-precision activation has none.
fn layer_loss_macro(layer_loss: Option<LayerLoss>) -> (&'static str, f32) {
    match layer_loss {
        None => ("LAYER_LOSS_NONE", 1.0),
        Some(LayerLoss::Linear) => ("LAYER_LOSS_LINEAR", 1.0),
        Some(LayerLoss::Perceptron) => ("LAYER_LOSS_PERCEPTRON", 1.0),
        Some(LayerLoss::Hinge) => ("LAYER_LOSS_HINGE", 1.0),
        Some(LayerLoss::SaturatedHinge) => ("LAYER_LOSS_SATURATED_HINGE", 1.0),
        Some(LayerLoss::SoftHinge) => ("LAYER_LOSS_SOFT_HINGE", 1.0),
        Some(LayerLoss::SquaredHinge) => ("LAYER_LOSS_SQUARED_HINGE", 1.0),
        Some(LayerLoss::SaturatedSquaredHinge) => ("LAYER_LOSS_SATURATED_SQUARED_HINGE", 1.0),
        Some(LayerLoss::Log) => ("LAYER_LOSS_LOG", 1.0),
        Some(LayerLoss::Sigmoid { a }) => ("LAYER_LOSS_SIGMOID", a),
        Some(LayerLoss::Ramp) => ("LAYER_LOSS_RAMP", 1.0),
        Some(LayerLoss::ApproxSign) => ("LAYER_LOSS_APPROX_SIGN", 1.0),
        Some(LayerLoss::AnnealedTanh) => ("LAYER_LOSS_ANNEALED_TANH", 1.0),
    }
}

fn activation_macros(source: Source, op: Option<ActivationOp>) -> Source {
    let (activation, levels) = activation_macro(op.map(|op| op.activation));
    let hard = op.filter(|op| op.activation.is_hard());
    let (layer_loss, a) = layer_loss_macro(hard.map(|op| op.layer_loss));
    source
        .name("ACTIVATION", activation)
        .int("LEVELS", levels)
        .name("LAYER_LOSS", layer_loss)
        .float("LAYER_LOSS_A", a)
        .int("PER_STEP", usize::from(hard.is_some_and(|op| op.form == QreluForm::PerStep)))
        .int("WEIGHTED", usize::from(hard.is_none_or(|op| op.weighted)))
}
