//! From a graph's nodes to the passes a GPU runs.
//!
//! Nodes are gathered into two kinds of pass. A *product* is a convolution or a fully connected layer. An
//! *epilogue* is whatever follows until the next product, as far as one kernel can do it: norm or bias, a
//! residual sum, max pooling, the activation, dropout. Parameters keep the places that the graph
//! gives them, so values, statistics and moments move between devices as they are.
//!
//! Hard units whose target rule looks further than at their own numbers stand alone, as a pass of their own kind, between
//! tensors that hold their pre-activations and their outputs. Where one of them looks at the loss's curvature, which has to come
//! down through all of them, all do.

use ftprop_nn::Shape;
use ftprop_nn::activation::Activation;
use ftprop_nn::graph::{self, BatchNorm, Conv, Dropout, Fc, Graph, Node, Op, ParameterId};
use ftprop_nn::spec::PoolKind;
use ftprop_nn::target::{Further, HardUnit, TargetRule};
use ftprop_tensor::geometry::{ConvGeometry, PoolGeometry};
use std::ops::Range;

/// A place in the network where a batch's values, and the slopes by them, are kept.
pub(crate) type TensorId = usize;

pub(crate) struct PlannedTensor {
    pub(crate) shape: Shape,
    /// Whether anything that is learned lies below, so that slopes are needed.
    pub(crate) needs_slopes: bool,
    /// Channels that a pixel is stored with: more than it has where zeros make it a multiple of four.
    pub(crate) stored: usize,
}

pub(crate) enum FusedPass {
    Product(Product),
    Epilogue(Box<Epilogue>),
    AveragePool(AveragePool),
    Targets(TargetLayer),
}

/// A convolution, or a fully connected layer as the convolution of a 1×1 image.
pub(crate) struct Product {
    /// The last layer in it, as messages name it.
    pub(crate) name: String,
    pub(crate) x: TensorId,
    pub(crate) y: TensorId,
    pub(crate) geometry: ConvGeometry,
    pub(crate) weight: Range<usize>,
    /// A bias that no epilogue takes along.
    pub(crate) bias: Option<Range<usize>>,
    /// Whether another pass has written slopes by x before, which this one adds to.
    pub(crate) adds: bool,
}

pub(crate) struct Epilogue {
    /// The last layer in it, as messages name it.
    pub(crate) name: String,
    pub(crate) y: TensorId,
    pub(crate) affine: Affine,
    /// The other summand of a residual sum.
    pub(crate) residual: Option<(TensorId, Option<Norm>)>,
    pub(crate) pool: Option<PoolGeometry>,
    /// Whether the pool follows the activation.
    pub(crate) pool_last: bool,
    pub(crate) activation: Option<ActivationOp>,
    pub(crate) dropout: Option<Dropout>,
    pub(crate) out: TensorId,
    /// Where another path begins with an activation of the output, that and where its values go.
    pub(crate) branch: Option<(ActivationOp, TensorId)>,
    pub(crate) adds: bool,
    pub(crate) adds_residual: bool,
}

impl Epilogue {
    /// The activation that it computes, of its output or in it.
    pub(crate) fn any_activation(&self) -> Option<ActivationOp> {
        self.branch.map(|(op, _)| op).or(self.activation)
    }

    /// Whether the windows of its pool have slopes of their own, which places add up: where the pool comes before the activation,
    /// and where slopes are proportional to what comes down.
    pub(crate) fn has_slopes_by_windows(&self) -> bool {
        !self.pool_last
            || match self.activation {
                Some(ActivationOp::Hard(unit, _)) => unit.is_proportional(),
                Some(ActivationOp::Soft(_)) | None => true,
            }
    }

    /// Whether norms go over its inputs first.
    pub(crate) fn takes_statistics(&self) -> bool {
        let takes = |norm: &Norm| !norm.is_fixed();
        let second = self.residual.as_ref().and_then(|(_, norm)| norm.as_ref());
        matches!(&self.affine, Affine::Norm(norm) if takes(norm)) || second.is_some_and(takes)
    }
}

/// What is done to a product's output first.
#[derive(Clone)]
pub(crate) enum Affine {
    Identity,
    Norm(Norm),
    Bias(Range<usize>),
}

#[derive(Clone)]
pub(crate) struct Norm {
    pub(crate) gamma: Range<usize>,
    pub(crate) beta: Range<usize>,
    /// What is normalised by; without it the factor and the summand of a channel are all.
    pub(crate) running: Option<Running>,
}

/// A norm's running statistics.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) mean: Range<usize>,
    pub(crate) variance: Range<usize>,
    pub(crate) eps: f32,
    pub(crate) momentum: f32,
}

impl Norm {
    /// Whether no statistics of a batch come into it.
    pub(crate) fn is_fixed(&self) -> bool {
        self.running.is_none()
    }
}

/// What an epilogue's units output.
#[derive(Clone, Copy)]
pub(crate) enum ActivationOp {
    /// Hard units, and what tells their layer from other hard ones.
    Hard(HardUnit, u64),
    Soft(Activation),
}

pub(crate) struct AveragePool {
    /// The last layer in it, as messages name it.
    pub(crate) name: String,
    pub(crate) x: TensorId,
    pub(crate) out: TensorId,
    pub(crate) geometry: PoolGeometry,
    pub(crate) adds: bool,
}

/// Hard units that stand alone.
pub(crate) struct TargetLayer {
    /// The layer, as messages name it.
    pub(crate) name: String,
    /// Their pre-activations.
    pub(crate) z: TensorId,
    pub(crate) out: TensorId,
    pub(crate) unit: HardUnit,
    /// What tells their layer from other hard ones.
    pub(crate) number: u64,
    /// Which of a teacher's activations they go by, where they do.
    pub(crate) followed: Option<usize>,
    pub(crate) adds: bool,
}

pub(crate) struct FusionPlan {
    pub(crate) tensors: Vec<PlannedTensor>,
    pub(crate) passes: Vec<FusedPass>,
    pub(crate) input: TensorId,
    pub(crate) output: TensorId,
    /// Whether the loss's curvature comes down beside the slopes.
    pub(crate) curved: bool,
    /// What each activation is of, in the order of the graph's nodes, where they are all kept.
    pub(crate) pre_activations: Vec<TensorId>,
}

/// A tensor with what is still to be done to it.
struct PendingEpilogue {
    /// The last layer in it.
    name: String,
    tensor: TensorId,
    /// The pass that made the tensor, where it is a product with a pending bias.
    product: Option<usize>,
    affine: Affine,
    residual: Option<(TensorId, Option<Norm>)>,
    pool: Option<PoolGeometry>,
    pool_last: bool,
    activation: Option<ActivationOp>,
    dropout: Option<Dropout>,
}

impl PendingEpilogue {
    fn of(tensor: TensorId) -> Self {
        PendingEpilogue {
            name: String::new(),
            tensor,
            product: None,
            affine: Affine::Identity,
            residual: None,
            pool: None,
            pool_last: false,
            activation: None,
            dropout: None,
        }
    }

    /// Nothing but the first step is pending.
    fn is_early(&self) -> bool {
        self.residual.is_none() && self.pool.is_none() && self.activation.is_none() && self.dropout.is_none()
    }

    fn is_done(&self) -> bool {
        matches!(self.affine, Affine::Identity) && self.is_early()
    }
}

struct Builder<'a> {
    graph: &'a Graph,
    role: Role<'a>,
    plan: FusionPlan,
}

/// What a plan is for.
#[derive(Clone, Copy)]
pub(crate) enum Role<'a> {
    /// To learn; hard layers may go by a teacher's activations, see [`Teacher::followed`](ftprop_nn::engine::Teacher).
    Pupil(&'a [Option<usize>]),
    /// To be learned from: no targets are set, and pre-activations may be asked for.
    Teacher { kept: bool },
}

impl FusionPlan {
    /// The passes of a graph.
    pub(crate) fn new(graph: &Graph, role: Role<'_>) -> Self {
        let learns = matches!(role, Role::Pupil(_));
        let mut rules = graph.walk().into_iter().filter_map(|node| node.op.target_rule());
        let curved = learns && rules.any(|rule| rule.further() == Some(Further::Curvature));
        let pre_activations = Vec::new();
        let plan = FusionPlan { tensors: vec![], passes: vec![], input: 0, output: 0, curved, pre_activations };
        let mut builder = Builder { graph, role, plan };
        let x = builder.tensor(graph.input(), false);
        let last = builder.chain(graph.nodes(), x);
        builder.plan.output = match last {
            // The product adds its bias itself where nothing else follows.
            PendingEpilogue { tensor, product: Some(at), affine: Affine::Bias(bias), .. }
                if last.residual.is_none()
                    && last.pool.is_none()
                    && last.activation.is_none()
                    && last.dropout.is_none() =>
            {
                builder.bias_in_product(at, bias);
                tensor
            }
            other => builder.materialize(other),
        };
        let mut plan = builder.plan;
        // Curvature comes down, and outputs are tried, pass by pass.
        if !plan.curved && !plan.passes.iter().any(|pass| matches!(pass, FusedPass::Targets(_))) {
            plan.branch();
        }
        plan.mark_sums();
        plan.pad_input();
        plan
    }

    /// Whether a target rule has the layers above it run again on the way back, which writes what is kept of them.
    pub(crate) fn asks_above(&self) -> bool {
        let asks = |t: &TargetLayer| t.unit.rule.further() == Some(Further::Above);
        self.passes.iter().any(|pass| matches!(pass, FusedPass::Targets(t) if asks(t)))
    }

    /// Pictures have three channels, which no wide copy can read; products skip a fourth that is zero.
    fn pad_input(&mut self) {
        let input = self.input;
        let reads_padded = |pass: &FusedPass| match pass {
            FusedPass::Product(p) => p.x != input || p.geometry.groups == 1,
            FusedPass::Epilogue(f) => f.y != input && f.residual.as_ref().is_none_or(|(tensor, _)| *tensor != input),
            FusedPass::AveragePool(a) => a.x != input,
            FusedPass::Targets(t) => t.z != input,
        };
        // A fully connected layer reads a whole picture as one pixel.
        let whole = |pass: &FusedPass| matches!(pass, FusedPass::Product(p) if p.x == input && p.geometry.in_channels != self.tensors[input].shape.channels);
        if input != self.output && self.passes.iter().all(|p| reads_padded(p) && !whole(p)) {
            self.tensors[input].stored = self.tensors[input].shape.channels.next_multiple_of(4);
        }
    }

    fn shape(&self, tensor: TensorId) -> Shape {
        self.tensors[tensor].shape
    }

    /// On the way back the first pass to reach a tensor writes its slopes, every other adds to them.
    fn mark_sums(&mut self) {
        let mut written = vec![false; self.tensors.len()];
        for pass in self.passes.iter_mut().rev() {
            let mut reach = |tensor: TensorId| std::mem::replace(&mut written[tensor], true);
            match pass {
                FusedPass::Product(p) => p.adds = reach(p.x),
                FusedPass::Epilogue(f) => {
                    f.adds_residual = f.residual.as_ref().is_some_and(|(tensor, _)| reach(*tensor));
                    f.adds = reach(f.y);
                }
                FusedPass::AveragePool(a) => a.adds = reach(a.x),
                FusedPass::Targets(t) => t.adds = reach(t.z),
            }
        }
    }
}

impl Builder<'_> {
    fn tensor(&mut self, shape: Shape, needs_slopes: bool) -> TensorId {
        self.plan.tensors.push(PlannedTensor { shape, needs_slopes, stored: shape.channels });
        self.plan.tensors.len() - 1
    }

    fn bias_in_product(&mut self, at: usize, bias: Range<usize>) {
        if let FusedPass::Product(product) = &mut self.plan.passes[at] {
            product.bias = Some(bias);
        }
    }

    fn chain(&mut self, nodes: &[Node], input: TensorId) -> PendingEpilogue {
        let mut now = PendingEpilogue::of(input);
        for node in nodes {
            now = PendingEpilogue { name: node.name(), ..self.layer(node, now) };
        }
        now
    }

    fn layer(&mut self, node: &Node, mut now: PendingEpilogue) -> PendingEpilogue {
        match &node.op {
            Op::Conv(Conv { geometry, weight, bias }) => {
                let x = self.materialize(now);
                self.product(node, x, *geometry, *weight, *bias)
            }
            Op::Fc(Fc { outputs, weight, bias }) => {
                let x = self.materialize(now);
                let geometry = ConvGeometry {
                    height: 1,
                    width: 1,
                    in_channels: node.input.len(),
                    out_channels: *outputs,
                    kernel_h: 1,
                    kernel_w: 1,
                    stride: 1,
                    pad: 0,
                    groups: 1,
                };
                self.product(node, x, geometry, *weight, *bias)
            }
            Op::BatchNorm(norm) => {
                let (range, statistic) = (|id| self.graph.parameter(id).range.clone(), |id| self.graph.statistic(id));
                let &BatchNorm { eps, momentum, gamma, beta, mean, variance } = norm;
                let (mean, variance) = (statistic(mean).range.clone(), statistic(variance).range.clone());
                let running = Some(Running { mean, variance, eps, momentum });
                self.affine(Affine::Norm(Norm { gamma: range(gamma), beta: range(beta), running }), now)
            }
            Op::Affine(graph::Affine { scale, shift }) => {
                let range = |id: ParameterId| self.graph.parameter(id).range.clone();
                let beta = range(*shift);
                let affine = match scale.map(range) {
                    Some(gamma) => Affine::Norm(Norm { gamma, beta, running: None }),
                    None => Affine::Bias(beta),
                };
                self.affine(affine, now)
            }
            Op::Pool(PoolKind::Max, geometry) => {
                let free = now.residual.is_none() && now.pool.is_none() && now.dropout.is_none();
                if !free {
                    now = PendingEpilogue::of(self.materialize(now));
                }
                now.pool_last = now.activation.is_some();
                now.pool = Some(*geometry);
                now
            }
            Op::Pool(PoolKind::Average, geometry) => {
                let x = self.materialize(now);
                let out = self.tensor(node.output, self.plan.tensors[x].needs_slopes);
                let pass = AveragePool { name: node.name(), x, out, geometry: *geometry, adds: false };
                self.plan.passes.push(FusedPass::AveragePool(pass));
                PendingEpilogue::of(out)
            }
            Op::Hard(unit, number) => self.hard(node, *unit, *number, now),
            Op::Soft(activation) => self.activation(ActivationOp::Soft(*activation), now),
            Op::Dropout(dropout) => {
                if dropout.p == 0.0 {
                    return now;
                }
                if now.dropout.is_some() {
                    now = PendingEpilogue::of(self.materialize(now));
                }
                now.dropout = Some(*dropout);
                now
            }
            Op::Residual { main, shortcut } => {
                let x = self.materialize(now);
                let (main, shortcut) = (self.chain(main, x), self.chain(shortcut, x));
                self.residual(main, shortcut)
            }
        }
    }

    /// Norms and affine layers: the first thing that an epilogue does.
    fn affine(&mut self, affine: Affine, mut now: PendingEpilogue) -> PendingEpilogue {
        match (now.is_early(), now.product, &now.affine) {
            (true, _, Affine::Identity) => {}
            (true, Some(at), Affine::Bias(bias)) => {
                self.bias_in_product(at, bias.clone());
                now.affine = Affine::Identity;
            }
            _ => now = PendingEpilogue::of(self.materialize(now)),
        }
        // A later bias is not the product's own.
        now.product = None;
        now.affine = affine;
        now
    }

    fn activation(&mut self, op: ActivationOp, mut now: PendingEpilogue) -> PendingEpilogue {
        let kept = matches!(self.role, Role::Teacher { kept: true });
        if kept || now.activation.is_some() || now.dropout.is_some() {
            now = PendingEpilogue::of(self.materialize(now));
        }
        if kept {
            self.plan.pre_activations.push(now.tensor);
        }
        now.activation = Some(op);
        now
    }

    /// Hard units, as a part of an epilogue where they can be.
    fn hard(&mut self, node: &Node, mut unit: HardUnit, number: u64, now: PendingEpilogue) -> PendingEpilogue {
        let followed = match self.role {
            Role::Pupil(followed) => followed.get(number as usize).copied().flatten(),
            Role::Teacher { .. } => None,
        };
        // What sets no targets, and what finds no teacher's layer to go by, may as well have the paper's.
        if matches!(self.role, Role::Teacher { .. }) || (unit.rule.follows_teacher() && followed.is_none()) {
            unit.rule = TargetRule::gradient_sign();
        }
        if !self.plan.curved && unit.rule.further().is_none() {
            return self.activation(ActivationOp::Hard(unit, number), now);
        }
        let z = self.materialize(now);
        let out = self.tensor(node.output, self.plan.tensors[z].needs_slopes);
        let layer = TargetLayer { name: node.name(), z, out, unit, number, followed, adds: false };
        self.plan.passes.push(FusedPass::Targets(layer));
        PendingEpilogue::of(out)
    }

    /// The sum of two paths, in the epilogue of the first.
    fn residual(&mut self, mut a: PendingEpilogue, mut b: PendingEpilogue) -> PendingEpilogue {
        if !b.is_early() || matches!(b.affine, Affine::Bias(_)) {
            b = PendingEpilogue::of(self.materialize(b));
        }
        if !a.is_early() || a.tensor == b.tensor {
            a = PendingEpilogue::of(self.materialize(a));
        }
        let norm = match b.affine {
            Affine::Norm(norm) => Some(norm),
            _ => None,
        };
        a.residual = Some((b.tensor, norm));
        a
    }

    fn product(
        &mut self,
        node: &Node,
        x: TensorId,
        mut geometry: ConvGeometry,
        weight: ParameterId,
        bias: Option<ParameterId>,
    ) -> PendingEpilogue {
        let range = |id| self.graph.parameter(id).range.clone();
        let (weight, bias) = (range(weight), bias.map(range));
        let g = &mut geometry;
        if (g.kernel_h, g.kernel_w, g.pad, g.groups) == (g.height, g.width, 0, 1) {
            // A window as large as its image is a fully connected layer, weight for weight.
            g.in_channels *= g.height * g.width;
            (g.height, g.width, g.kernel_h, g.kernel_w, g.stride) = (1, 1, 1, 1, 1);
        }
        let y = self.tensor(Shape { height: g.out_height(), width: g.out_width(), channels: g.out_channels }, true);
        let pass = Product { name: node.name(), x, y, geometry, weight, bias: None, adds: false };
        self.plan.passes.push(FusedPass::Product(pass));
        let mut pending = PendingEpilogue::of(y);
        if let Some(bias) = bias {
            pending.product = Some(self.plan.passes.len() - 1);
            pending.affine = Affine::Bias(bias);
        }
        pending
    }

    /// Does what is pending, if anything is.
    fn materialize(&mut self, now: PendingEpilogue) -> TensorId {
        if now.is_done() {
            return now.tensor;
        }
        let mut shape = self.plan.shape(now.tensor);
        if let Some(pool) = &now.pool {
            (shape.height, shape.width) = (pool.out_height(), pool.out_width());
        }
        let needs = |tensor: TensorId| self.plan.tensors[tensor].needs_slopes;
        let learned = !matches!(now.affine, Affine::Identity)
            || needs(now.tensor)
            || now.residual.as_ref().is_some_and(|(tensor, norm)| norm.is_some() || needs(*tensor));
        let out = self.tensor(shape, learned);
        let PendingEpilogue { name, tensor, affine, residual, pool, pool_last, activation, dropout, .. } = now;
        let epilogue = Epilogue {
            name,
            y: tensor,
            affine,
            residual,
            pool,
            pool_last,
            activation,
            dropout,
            out,
            branch: None,
            adds: false,
            adds_residual: false,
        };
        self.plan.passes.push(FusedPass::Epilogue(Box::new(epilogue)));
        out
    }
}

mod branch;
#[cfg(test)]
mod tests;
