//! Several processes that train one network together, each on its share of every batch.
//!
//! After each step all ranks have the same parameters, moments and running statistics, to the byte: gradients are summed in a
//! fixed order, and everything else follows from them. So nothing has to be sent when a checkpoint is written, which rank 0
//! does alone, and a run may go on with another number of ranks. What they have to agree in is small: what they tallied,
//! and whether somebody wants to stop.

use crate::error::Error;
use crate::recipe::Recipe;
use ftprop_data::Dataset;
use ftprop_nn::engine::Reducer;
use ftprop_nn::{EngineError, Graph, Tally};
use ftprop_ranks::{Group, RankError};
use ftprop_tensor::Share;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toml::Value;

/// Which way gradients take between GPUs. Between CPUs they go through the host's memory in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By NCCL, but through the host's memory where ranks share a GPU.
    #[default]
    Auto,
    /// By NCCL.
    Nccl,
    /// Through the host's memory.
    Host,
    /// The same, over TCP even where MPI could be used.
    Tcp,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Auto => "auto",
            Way::Nccl => "nccl",
            Way::Host => "host",
            Way::Tcp => "tcp",
        })
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = [Way::Auto, Way::Nccl, Way::Host, Way::Tcp];
        known.into_iter().find(|way| way.to_string() == name).ok_or_else(|| "known are auto, nccl, host and tcp".into())
    }
}

/// The ranks that train one network together, as one of them sees them. Clones share it.
#[derive(Clone)]
pub struct Team {
    group: Arc<Mutex<Group>>,
    share: Share,
    way: Way,
}

/// What the ranks have come to, by all their accounts.
pub(crate) struct Settled {
    /// What all have tallied since the last time.
    pub(crate) tally: Tally,
    /// Whether any wants to stop.
    pub(crate) stop: bool,
    /// How long rank 0 took for it.
    pub(crate) took: Duration,
}

impl Team {
    /// A group that exchanges gradients this way.
    pub fn new(group: Group, way: Way) -> Self {
        let share = Share { rank: group.rank(), ranks: group.size() };
        Team { group: Arc::new(Mutex::new(group)), share, way }
    }

    /// Which part of everything is this rank's.
    pub fn share(&self) -> Share {
        self.share
    }

    /// Whether this rank writes the run folder.
    pub fn is_first(&self) -> bool {
        self.share.rank == 0
    }

    /// Which way gradients take between GPUs.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Tells the others that this rank cannot go on, and why.
    pub fn abandon(&self, why: &str) {
        self.group().abandon(why);
    }

    /// How long this rank has been exchanging things, most of which is waiting for others.
    pub fn waited(&self) -> Duration {
        self.group().waited()
    }

    fn group(&self) -> MutexGuard<'_, Group> {
        // A panic in the middle of an exchange ends this process, and with it the group.
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What sums gradients through the host's memory.
    pub(crate) fn reducer(&self) -> Box<dyn Reducer> {
        Box::new(HostReducer(self.clone()))
    }

    /// Has something done once another rank is lost.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_loss(&self, then: Box<dyn FnOnce() + Send>) {
        self.group().on_loss(then);
    }

    /// Rank 0's bytes.
    pub(crate) fn share_first(&self, own: Vec<u8>) -> Result<Vec<u8>, RankError> {
        self.group().share_first(own)
    }

    /// A short name of each rank.
    #[cfg(feature = "cuda")]
    pub(crate) fn names(&self, own: &str) -> Result<Vec<Vec<u8>>, RankError> {
        let mut fixed = own.as_bytes().to_vec();
        fixed.resize(128, 0);
        self.group().gather(&fixed)
    }

    /// Every number's sum over the ranks, in their order.
    pub(crate) fn sums<const N: usize>(&self, mut own: [f64; N]) -> Result<[f64; N], RankError> {
        self.sum_few(&mut own)?;
        Ok(own)
    }

    /// The same of as many as there are, in place. Each rank is sent all others' numbers, so there should be few.
    fn sum_few(&self, numbers: &mut [f64]) -> Result<(), RankError> {
        let own: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        numbers.fill(0.0);
        for rank in self.group().gather(&own)? {
            for (sum, number) in numbers.iter_mut().zip(rank.chunks_exact(8)) {
                *sum += f64::from_le_bytes(number.try_into().unwrap_or_default());
            }
        }
        Ok(())
    }

    /// A tally over all ranks. Counts are exact: they stay below 2⁵³.
    pub(crate) fn total(&self, own: &Tally) -> Result<Tally, RankError> {
        let [examples, top1, top5, loss_sum] =
            self.sums([own.examples as f64, own.top1 as f64, own.top5 as f64, own.loss_sum])?;
        Ok(Tally { examples: examples as u64, top1: top1 as u64, top5: top5 as u64, loss_sum })
    }

    /// Brings what the ranks have tallied together, and agrees on what follows from it.
    pub(crate) fn settle(&self, own: &Tally, stop: bool, took: Duration) -> Result<Settled, RankError> {
        let took = if self.is_first() { took.as_secs_f64() } else { 0.0 };
        let mine =
            [own.examples as f64, own.top1 as f64, own.top5 as f64, own.loss_sum, f64::from(u8::from(stop)), took];
        let [examples, top1, top5, loss_sum, stop, took] = self.sums(mine)?;
        let tally = Tally { examples: examples as u64, top1: top1 as u64, top5: top5 as u64, loss_sum };
        Ok(Settled { tally, stop: stop > 0.0, took: Duration::try_from_secs_f64(took).unwrap_or_default() })
    }

    /// Whether any rank says so.
    pub(crate) fn any(&self, own: bool) -> Result<bool, RankError> {
        Ok(self.sums([f64::from(u8::from(own))])?[0] > 0.0)
    }

    /// Every value becomes its mean over the ranks.
    pub(crate) fn mean(&self, values: &mut [f32]) -> Result<(), RankError> {
        self.group().sum(values)?;
        let share = 1.0 / self.share.ranks as f32;
        values.iter_mut().for_each(|value| *value *= share);
        Ok(())
    }
}

/// Sums gradients through the host's memory.
struct HostReducer(Team);

impl Reducer for HostReducer {
    fn reduce(&mut self, gradients: &mut [f32], statistics: &mut [f32]) -> Result<(), EngineError> {
        let failed = |error: RankError| EngineError::Ranks(Box::new(error));
        self.0.group().sum(gradients).map_err(failed)?;
        if statistics.is_empty() { Ok(()) } else { self.0.mean(statistics).map_err(failed) }
    }

    fn sum(&mut self, numbers: &mut [f64]) -> Result<(), EngineError> {
        self.0.sum_few(numbers).map_err(|error| EngineError::Ranks(Box::new(error)))
    }
}

/// What ranks that train together must agree in: the version, every setting that belongs to no machine, the data and the
/// network.
pub fn claims(recipe: &Recipe, dataset: &Dataset, graph: &Graph, device: &str) -> Result<Vec<(String, String)>, Error> {
    let unwritable = |e: toml::ser::Error| Error::Unwritable { what: "the recipe".into(), why: e.to_string() };
    let mut claims = vec![("version".to_string(), env!("CARGO_PKG_VERSION").to_string())];
    flatten("", &Value::try_from(recipe.portable()).map_err(unwritable)?, &mut claims);
    claims.push(("a device of the kind".into(), device.into()));
    let shape = dataset.shape;
    claims.push(("examples of".into(), format!("{}×{}×{}", shape.height, shape.width, shape.channels)));
    claims.push(("classes".into(), format!("{:?}", dataset.classes)));
    let normalize = format!("{:?} {:?}", dataset.normalize.mean, dataset.normalize.std);
    claims.push(("data normalised by".into(), normalize));
    for (part, split) in [("training data", &dataset.train), ("test data", &dataset.test)] {
        claims.push((part.into(), format!("{} examples with the checksum {:08x}", split.len(), split.mark().checksum)));
    }
    let mut hasher = crc32fast::Hasher::new();
    for parameter in graph.parameters() {
        hasher.update(format!("{} {:?} {:?}\n", parameter.name, parameter.kind, parameter.range).as_bytes());
    }
    for statistic in graph.statistics() {
        hasher.update(format!("{} {:?}\n", statistic.name, statistic.range).as_bytes());
    }
    let network = format!("{} parameters with the checksum {:08x}", graph.parameter_count(), hasher.finalize());
    claims.push(("a network of".into(), network));
    Ok(claims)
}

/// A recipe's settings, each with its full path.
fn flatten(key: &str, value: &Value, claims: &mut Vec<(String, String)>) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                let path = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(&path, value, claims);
            }
        }
        other => claims.push((key.to_string(), other.to_string())),
    }
}
