//! Weights for PyTorch and from it: safetensors with PyTorch's names, shapes and layouts.
//!
//! The names are those of `torchvision.models.resnet18` for the preset `resnet18`. Any other network is an
//! `nn.Sequential` of its layers without the dropout and with an `nn.Flatten` before the first fully connected one; a
//! residual block is a module with the sequences `main` and `shortcut`, an affine layer one with a `weight`, if it has
//! factors, and a `bias`.

use crate::error::Error;
use crate::numbers::channels_first;
use ftprop_nn::Network;
use ftprop_nn::graph::{Graph, Node, Op, ParameterId, StatisticId};
use ftprop_train::files;
use ftprop_train::recipe::Recipe;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The file's bytes: the same for the same network.
pub fn to_bytes(recipe: &Recipe, network: &Network) -> Result<Vec<u8>, Error> {
    let graph = network.graph();
    let names = Names::new(recipe, graph)?;
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (id, name) in names.parameters {
        let p = graph.parameter(id);
        let values = channels_first(p, &network.values()[p.range.clone()]);
        tensors.push((name, p.torch_shape(), bytes_of(&values)));
    }
    for (id, name) in names.statistics {
        let s = graph.statistic(id);
        tensors.push((name, vec![s.range.len()], bytes_of(&network.stats()[s.range.clone()])));
    }
    let views: Result<Vec<_>, _> = tensors
        .iter()
        .map(|(name, shape, bytes)| TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name, view)))
        .collect();
    // What PyTorch's own writer of safetensors puts there.
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    views
        .and_then(|views| safetensors::serialize(views, Some(metadata)))
        .map_err(|e| Error::Unwritable { what: "the weights", why: e.to_string() })
}

/// Puts a file's weights into a network, all of them or none.
pub fn read(path: &Path, recipe: &Recipe, network: &mut Network) -> Result<(), Error> {
    let bytes = files::read(path)?;
    let not = |why: String| Error::NotAModel { path: path.to_path_buf(), why };
    let other = |difference: String| Error::OtherNetwork { path: path.to_path_buf(), difference };
    let tensors = SafeTensors::deserialize(&bytes).map_err(|e| not(format!("not a safetensors file ({e})")))?;
    let graph = network.graph().clone();
    let names = Names::new(recipe, &graph)?;
    // PyTorch counts a norm's batches; nothing here depends on that.
    let mut left: HashSet<&str> =
        tensors.names().into_iter().filter(|n| !n.ends_with(".num_batches_tracked")).collect();
    let mut take = |name: String, shape: &[usize]| -> Result<Vec<f32>, Error> {
        let view = tensors.tensor(&name).map_err(|_| other(format!("it has no {name}")))?;
        if view.dtype() != Dtype::F32 {
            return Err(other(format!("{name} is {:?} there; save it as float32", view.dtype())));
        }
        if view.shape() != shape {
            return Err(other(format!("{name} is {:?} there and {shape:?} here", view.shape())));
        }
        left.remove(name.as_str());
        let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        let values: Vec<f32> = view.data().chunks_exact(4).map(number).collect();
        match values.iter().all(|v| v.is_finite()) {
            true => Ok(values),
            false => Err(other(format!("{name} holds something that is not a finite number"))),
        }
    };
    let (mut values, mut stats) = (network.values().to_vec(), network.stats().to_vec());
    for (id, name) in names.parameters {
        let p = graph.parameter(id);
        let theirs = take(name, &p.torch_shape())?;
        let ours = &mut values[p.range.clone()];
        ours.iter_mut().enumerate().for_each(|(i, v)| *v = theirs[p.torch_index(i)]);
    }
    for (id, name) in names.statistics {
        let s = graph.statistic(id);
        stats[s.range.clone()].copy_from_slice(&take(name, &[s.range.len()])?);
    }
    if let Some(name) = left.into_iter().min() {
        return Err(other(format!("it has {name}, which this network has no place for")));
    }
    network.values_mut().copy_from_slice(&values);
    network.stats_mut().copy_from_slice(&stats);
    Ok(())
}

/// What PyTorch calls a network's parameters and statistics, in their order.
struct Names {
    parameters: Vec<(ParameterId, String)>,
    statistics: Vec<(StatisticId, String)>,
}

impl Names {
    fn new(recipe: &Recipe, graph: &Graph) -> Result<Self, Error> {
        let mut names = Names { parameters: Vec::new(), statistics: Vec::new() };
        if recipe.network.preset.as_deref() == Some("resnet18") {
            for node in graph.walk().into_iter().filter(|node| node.parameters().next().is_some()) {
                let name = torchvision(&node.path).ok_or_else(|| Error::NoTorchName { name: node.path.clone() })?;
                names.add(node, &name);
            }
        } else {
            names.add_sequence(graph.nodes(), "");
        }
        Ok(names)
    }

    /// The layers of an `nn.Sequential`.
    fn add_sequence(&mut self, nodes: &[Node], prefix: &str) {
        let (mut place, mut flattened) = (0, false);
        for node in nodes {
            if let Op::Dropout(_) = node.op {
                continue;
            }
            if matches!(node.op, Op::Fc(_)) && !flattened {
                (place, flattened) = (place + 1, true);
            }
            let name = format!("{prefix}{place}");
            if let Op::Residual { main, shortcut } = &node.op {
                self.add_sequence(main, &format!("{name}.main."));
                self.add_sequence(shortcut, &format!("{name}.shortcut."));
            }
            self.add(node, &name);
            place += 1;
        }
    }

    /// What a module of that name has.
    fn add(&mut self, node: &Node, module: &str) {
        // A summand alone is a bias.
        let roles = match &node.op {
            Op::Affine(affine) if affine.scale.is_none() => ["bias", ""],
            _ => ["weight", "bias"],
        };
        for (id, role) in node.parameters().zip(roles) {
            self.parameters.push((id, format!("{module}.{role}")));
        }
        if let Op::BatchNorm(norm) = &node.op {
            let roles = [(norm.mean, "running_mean"), (norm.variance, "running_var")];
            self.statistics.extend(roles.map(|(id, role)| (id, format!("{module}.{role}"))));
        }
    }
}

/// The path of a layer of the preset `resnet18` in torchvision's.
fn torchvision(path: &str) -> Option<String> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let number: usize = first.parse().ok()?;
    Some(match (number, rest) {
        (0, "") => "conv1".into(),
        (1, "") => "bn1".into(),
        (21, "") => "fc".into(),
        // Eight blocks, each followed by an activation, two to a stage.
        (4..=18, _) => {
            let block = (number - 4) / 2;
            let part = match rest {
                "main.0" => "conv1",
                "main.1" => "bn1",
                "main.3" => "conv2",
                "main.4" => "bn2",
                "shortcut.0" => "downsample.0",
                "shortcut.1" => "downsample.1",
                _ => return None,
            };
            format!("layer{}.{}.{part}", block / 2 + 1, block % 2)
        }
        _ => return None,
    })
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftprop_nn::Shape;

    fn names(preset: &str, input: Shape) -> Vec<String> {
        let mut recipe = Recipe::default();
        recipe.network.preset = Some(preset.into());
        if preset == "mlp" {
            recipe.network.widths = vec![16, 12];
        }
        let names = Names::new(&recipe, &recipe.graph(input, 10).unwrap()).unwrap();
        let parameters = names.parameters.into_iter().map(|(_, name)| name);
        parameters.chain(names.statistics.into_iter().map(|(_, name)| name)).collect()
    }

    #[test]
    fn names_are_those_of_pytorch() {
        let small = Shape { height: 32, width: 32, channels: 3 };
        let mlp = ["1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"];
        assert_eq!(names("mlp", Shape::vector(20)), mlp);
        let convnet4 = ["0.weight", "0.bias", "3.weight", "3.bias", "7.weight", "7.bias", "9.weight", "9.bias"];
        assert_eq!(names("convnet4", small), convnet4);
        let convnet8 = names("convnet8", small);
        assert!(convnet8.ends_with(&["20.running_mean".into(), "20.running_var".into()]), "{convnet8:?}");
        assert!(convnet8.contains(&"23.bias".to_string()) && convnet8.contains(&"19.weight".to_string()));
        let resnet18 = names("resnet18", Shape { height: 224, width: 224, channels: 3 });
        for name in [
            "conv1.weight",
            "bn1.bias",
            "layer1.0.conv1.weight",
            "layer2.0.downsample.1.running_var",
            "layer4.1.bn2.running_mean",
            "fc.weight",
            "fc.bias",
        ] {
            assert!(resnet18.iter().any(|n| n == name), "{name}");
        }
        // 62 parameters and 40 statistics, no two of one name.
        assert_eq!(resnet18.iter().collect::<HashSet<_>>().len(), 102);
    }
}
