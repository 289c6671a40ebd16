//! Fully connected layers of so many weights that what their gradients take to write and to read again counts: these are learned by the
//! kernel that computes the gradient, which nothing else sees.

use crate::CudaError;
use crate::abi::DevicePtr;
use crate::arguments::kernels;
use crate::compile::{KernelFile, Source};
use crate::device::Device;
use crate::environment::tries;
use crate::kernel::{Kernel, LaunchConfig};
use crate::optimizer;
use crate::passes::{BatchContext, CompileOptions};
use crate::plan::{FusedPass, FusionPlan, Product};
use crate::precision::Precision;
use crate::stream::CudaStream;
use ftprop_nn::Learning;
use std::ops::Range;

pub(crate) const FILE: KernelFile =
    KernelFile { name: "learned_product.cu", text: include_str!("../kernels/learned_product.cu") };

kernels! {
    /// A gradient and a step along it.
    LearnProductArgs = "learn_product" in FILE {
        dy: DevicePtr,
        x: DevicePtr,
        values: DevicePtr,
        moment1: DevicePtr,
        moment2: DevicePtr,
        average: DevicePtr,
        operands: DevicePtr,
        step: DevicePtr,
        scalars: DevicePtr,
        n: i32,
    }
}

/// Weights, at least.
const LEAST: usize = 1 << 21;
/// Examples, at most: with more of them the products take longer than the memory, and others multiply faster.
const MOST_EXAMPLES: usize = 128;
/// Channels of a tile, out and in.
const TILE: (usize, usize) = (64, 128);

/// Such a layer.
#[derive(Clone)]
pub(crate) struct LearnedProduct {
    /// Its pass.
    pub(crate) pass: usize,
    x: usize,
    y: usize,
    out: usize,
    inputs: usize,
    /// Where its weights are.
    pub(crate) weights: Range<usize>,
    group: usize,
}

impl LearnedProduct {
    /// All of a network's, if nothing has to see the whole gradient before the first step along it, or what the layers keep after it.
    pub(crate) fn all(plan: &FusionPlan, learning: &Learning, options: &CompileOptions) -> Vec<LearnedProduct> {
        let by_matrices = learning.groups.groups().iter().any(|group| group.matrix_method().is_some());
        let whole = learning.clip.is_some() || by_matrices || plan.asks_above();
        let unsuited = options.batch > MOST_EXAMPLES || !options.alone || options.precision == Precision::F32;
        if whole || unsuited || tries("late") || tries("unlearned") {
            return Vec::new();
        }
        let products = plan.passes.iter().enumerate().filter_map(|(pass, fused)| match fused {
            FusedPass::Product(product) if product.y != plan.output => LearnedProduct::of(pass, product, learning),
            _ => None,
        });
        products.collect()
    }

    fn of(pass: usize, product: &Product, learning: &Learning) -> Option<LearnedProduct> {
        let (g, weights) = (&product.geometry, product.weight.clone());
        let connected = g.height * g.width * g.kernel_h * g.kernel_w == 1 && g.groups == 1 && g.pad == 0;
        let even = g.out_channels.is_multiple_of(TILE.0) && g.in_channels.is_multiple_of(TILE.1);
        let large = weights.len() >= LEAST && weights.start.is_multiple_of(8);
        let spans = learning.groups.spans();
        let span = spans.iter().find(|s| s.range.start <= weights.start && weights.end <= s.range.end)?;
        (connected && even && large).then_some(LearnedProduct {
            pass,
            x: product.x,
            y: product.y,
            out: g.out_channels,
            inputs: g.in_channels,
            weights,
            group: span.group,
        })
    }

    pub(crate) fn source(&self, learning: &Learning, options: &CompileOptions) -> Source {
        let source = Source::new(FILE, options.precision).int("LEARNED_OUT", self.out).int("LEARNED_IN", self.inputs);
        optimizer::with_updates(source.int("LEARNED_GROUP", self.group), learning, &options.scalars)
    }

    pub(crate) fn compile(
        &self,
        device: &Device,
        learning: &Learning,
        options: &CompileOptions,
    ) -> Result<Kernel<LearnProductArgs>, CudaError> {
        Kernel::find(&device.module(self.source(learning, options))?)
    }

    /// Learns its weights from the batch's slopes by so many blocks, once nothing reads the weights any more.
    pub(crate) fn run(
        &self,
        (kernel, blocks): (&Kernel<LearnProductArgs>, usize),
        batch: &BatchContext<'_>,
        stream: &CudaStream,
    ) -> Result<(), CudaError> {
        let (parameters, start) = (batch.parameters, self.weights.start);
        let inside = |flat: DevicePtr| if flat.is_null() { flat } else { flat.after_floats(start) };
        let args = LearnProductArgs {
            dy: batch.slopes(self.y),
            x: batch.values(self.x),
            values: parameters.value(start),
            moment1: inside(parameters.moment(0)),
            moment2: inside(parameters.moment(1)),
            average: inside(parameters.average()),
            operands: parameters.operand(start),
            step: batch.step,
            scalars: batch.scalars,
            n: batch.n as i32,
        };
        let tiles = self.inputs / TILE.1 * (self.out / TILE.0);
        let grid = (tiles.min(blocks) as u32, 1, 1);
        // SAFETY: the flat buffers have these weights, and there are as many moments as the kernel was compiled for.
        unsafe { kernel.launch(stream, LaunchConfig { grid, threads: 256, shared: 0 }, &args) }
    }
}
