//! From a graph's nodes to the CPU's layers, compiled for one batch size.

use crate::NnError;
use crate::graph::{Affine, BatchNorm, Conv, Fc, Graph, Node, Op};
use crate::layers::{self, Chain, Layer, Link, Watch};
use ftprop_tensor::{Cpu, cpu};

/// A graph's layers, and what they need in common.
pub(crate) struct Lowered {
    pub(crate) chain: Chain,
    /// The largest scratch that a layer needs.
    pub(crate) scratch: usize,
    /// The widest place in the network, in values an example.
    pub(crate) widest: usize,
}

/// Compiles a graph for batches of at most `batch` examples. With a watch, the hard layers report to it what they see,
/// and each of them is a layer of its own.
pub(crate) fn lower(graph: &Graph, cpu: &Cpu, batch: usize, watch: Option<&Watch>) -> Result<Lowered, NnError> {
    let mut lowering = Lowering {
        graph,
        cpu,
        batch,
        watch,
        activations: 0,
        parameters: 0,
        scratch: 0,
        widest: 0,
        below: "input".into(),
    };
    let chain = lowering.chain(graph.nodes(), graph.input().len())?;
    Ok(Lowered { chain, scratch: lowering.scratch, widest: lowering.widest })
}

struct Lowering<'a> {
    graph: &'a Graph,
    cpu: &'a Cpu,
    batch: usize,
    watch: Option<&'a Watch>,
    /// Values of all outputs so far, for a whole batch, and parameters.
    activations: usize,
    parameters: usize,
    scratch: usize,
    widest: usize,
    /// The last product, in words.
    below: String,
}

impl Lowering<'_> {
    fn chain(&mut self, nodes: &[Node], input: usize) -> Result<Chain, NnError> {
        self.widest = self.widest.max(input);
        let mut links: Vec<Link> = Vec::with_capacity(nodes.len());
        for node in nodes {
            let layer = self.layer(node)?;
            self.count(node)?;
            let pooled = layer.max_pool().zip(links.last()).and_then(|(g, l)| l.layer.with_max_pool(g, self.batch));
            match (pooled, links.last_mut()) {
                (Some(pooled), Some(link)) => {
                    self.needs(cpu::conv_pool::scratch_len(self.cpu, &pooled.geometry, self.batch));
                    self.activations -= node.input.len() * self.batch;
                    (link.kind, link.layer) = ("conv with max_pool", Box::new(pooled));
                }
                _ => links.push(Link { name: node.name(), kind: node.op.kind(), layer }),
            }
        }
        self.widest = links.iter().fold(self.widest, |widest, link| widest.max(link.layer.out_len()));
        Ok(Chain::new(links, self.batch))
    }

    fn layer(&mut self, node: &Node) -> Result<Box<dyn Layer>, NnError> {
        let graph = self.graph;
        let range = |id| graph.parameter(id).range.clone();
        let statistic = |id| graph.statistic(id).range.clone();
        let input = node.input;
        Ok(match &node.op {
            Op::Conv(Conv { geometry: g, weight, bias }) => {
                self.needs(cpu::conv::scratch_len(self.cpu, g, self.batch));
                self.needs(cpu::reduce::column_scratch_len(
                    self.batch * g.out_height() * g.out_width(),
                    g.out_channels,
                ));
                Box::new(layers::Conv { geometry: *g, weight: range(*weight), bias: bias.map(range) })
            }
            Op::Fc(Fc { outputs, weight, bias }) => {
                let (inputs, outputs) = (input.len(), *outputs);
                self.needs(cpu::linear::scratch_len(self.cpu, inputs, outputs, self.batch));
                self.needs(cpu::reduce::column_scratch_len(self.batch, outputs));
                Box::new(layers::Fc { inputs, outputs, weight: range(*weight), bias: bias.map(range) })
            }
            Op::Pool(kind, geometry) => Box::new(layers::Pool { kind: *kind, geometry: *geometry }),
            Op::BatchNorm(BatchNorm { eps, momentum, gamma, beta, mean, variance }) => {
                self.needs(cpu::norm::scratch_len(self.batch * input.height * input.width, input.channels));
                let learned = [range(*gamma), range(*beta)];
                let running = [statistic(*mean), statistic(*variance)];
                Box::new(layers::Norm::new(input, *eps, *momentum, learned, running))
            }
            Op::Affine(Affine { scale, shift }) => {
                let rows = self.batch * input.height * input.width;
                self.needs(cpu::norm::scratch_len(rows, input.channels));
                self.needs(cpu::reduce::column_scratch_len(rows, input.channels));
                Box::new(layers::Affine::new(input, scale.map(range), range(*shift)))
            }
            Op::Hard(unit, number) => {
                let layer = layers::HardLayer::new(*unit, *number, input.len());
                match self.watch {
                    None => Box::new(layer),
                    Some(watch) => {
                        Box::new(layers::Watched::new(layer, watch, &node.path, &self.below, self.parameters))
                    }
                }
            }
            Op::Soft(activation) => Box::new(layers::SoftLayer { activation: *activation, len: input.len() }),
            Op::Dropout(dropout) => Box::new(layers::Dropout { shape: input, dropout: *dropout }),
            Op::Residual { main, shortcut } => {
                let main = self.chain(main, input.len())?;
                let shortcut = self.chain(shortcut, input.len())?;
                Box::new(layers::Residual::new(main, shortcut, input.len(), node.output.len(), self.batch))
            }
        })
    }

    /// Asks for as much memory as the layers so far need, and gives it back: better refused here than killed later.
    fn count(&mut self, node: &Node) -> Result<(), NnError> {
        self.activations = self.activations.saturating_add(node.output.len().saturating_mul(self.batch));
        for id in node.parameters() {
            self.parameters = self.parameters.max(self.graph.parameter(id).range.end);
        }
        if node.multiply_adds() > 0 {
            self.below = node.description();
        }
        // Parameters, gradients and two moments; outputs; scratch.
        let floats = self.parameters.saturating_mul(4).saturating_add(self.activations).saturating_add(self.scratch);
        let bytes = floats.saturating_mul(4);
        Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| NnError::Value {
            layer: node.name(),
            what: format!(
                "up to here the network needs {:.1} GB, more than there is; make it smaller, or its batches",
                bytes as f64 / 1e9
            ),
        })
    }

    fn needs(&mut self, scratch: usize) {
        self.scratch = self.scratch.max(scratch);
    }
}
