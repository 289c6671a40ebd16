//! A trained network's numbers, found by its graph: what exporters write beside the nodes.

use ftprop_nn::Network;
use ftprop_nn::graph::{Graph, Node, ParameterId, StatisticId};
use ftprop_nn::parameter::Parameter;

/// A graph with the numbers of a trained network.
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    graph: &'a Graph,
    values: &'a [f32],
    statistics: &'a [f32],
}

impl<'a> Numbers<'a> {
    /// Those of a network on the CPU.
    pub fn of(network: &'a Network) -> Self {
        Numbers { graph: network.graph(), values: network.values(), statistics: network.stats() }
    }

    /// The network's layers.
    pub fn nodes(&self) -> &'a [Node] {
        self.graph.nodes()
    }

    /// A parameter as it lies in memory: output, row, column, channel.
    pub fn channels_last(&self, id: ParameterId) -> &'a [f32] {
        &self.values[self.graph.parameter(id).range.clone()]
    }

    /// A parameter as PyTorch and ONNX have it: output, channel, row, column.
    pub fn channels_first(&self, id: ParameterId) -> Vec<f32> {
        channels_first(self.graph.parameter(id), self.channels_last(id))
    }

    /// A running statistic.
    pub fn statistic(&self, id: StatisticId) -> &'a [f32] {
        &self.statistics[self.graph.statistic(id).range.clone()]
    }
}

/// A parameter's values in PyTorch's order.
pub fn channels_first(parameter: &Parameter, values: &[f32]) -> Vec<f32> {
    let mut moved = vec![0.0; values.len()];
    values.iter().enumerate().for_each(|(i, &v)| moved[parameter.torch_index(i)] = v);
    moved
}
