//! What rank 0 begins with, on every rank.

use super::Trainer;
use crate::checked::PastSchedule;
use crate::checkpoint::State;
use crate::error::Error;
use crate::run::EpochMetrics;
use ftprop_nn::engine::{NetworkState, TrainingState};
use ftprop_ranks::RankError;
use serde::{Deserialize, Serialize};

/// What comes before the numbers.
#[derive(Serialize, Deserialize)]
struct Header {
    state: State,
    metrics: Vec<EpochMetrics>,
    schedules: Vec<PastSchedule>,
    /// Steps that the optimizer has taken.
    steps: u64,
    /// How many numbers each part has: parameters, statistics, moments, and the averages where there are any.
    values: usize,
    statistics: usize,
    moments: Vec<usize>,
    average: Option<usize>,
    averaged: Option<usize>,
}

impl Trainer {
    /// Has all ranks begin where rank 0 stands: what it took from a checkpoint, or from another network. The others need not
    /// see the run folder.
    pub(super) fn spread(&mut self) -> Result<(), Error> {
        let Some(team) = self.team.clone().filter(|team| !team.share().is_whole()) else { return Ok(()) };
        let own = if team.is_first() { self.pack()? } else { Vec::new() };
        let bytes = team.share_first(own)?;
        if !team.is_first() {
            self.unpack(&bytes)?;
        }
        Ok(())
    }

    fn pack(&self) -> Result<Vec<u8>, Error> {
        let training = self.engine.state()?;
        let header = Header {
            state: self.state,
            metrics: self.metrics.clone(),
            schedules: self.recipe.past().to_vec(),
            steps: training.steps,
            values: training.network.values.len(),
            statistics: training.network.statistics.len(),
            moments: training.moments.iter().map(|moment| moment.len()).collect(),
            average: training.average.as_ref().map(|average| average.len()),
            averaged: self.averaged.as_ref().map(Vec::len),
        };
        let text = serde_json::to_vec(&header)
            .map_err(|e| Error::Unwritable { what: "the training state".into(), why: e.to_string() })?;
        let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
        bytes.extend(text);
        let mut add = |numbers: &[f32]| numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        add(&training.network.values);
        add(&training.network.statistics);
        training.moments.iter().for_each(|moment| add(moment));
        training.average.iter().for_each(|average| add(average));
        self.averaged.iter().for_each(|averaged| add(averaged));
        Ok(bytes)
    }

    fn unpack(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let short = || RankError::OutOfStep { rank: 0, got: bytes.len() as u64, expected: bytes.len() as u64 + 1 };
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let length = u64::from_le_bytes(*length) as usize;
        let (text, mut rest) = rest.split_at_checked(length).ok_or_else(short)?;
        let header: Header = serde_json::from_slice(text).map_err(|_| short())?;
        let mut take = |count: usize| {
            let (numbers, after) = rest.split_at_checked(4 * count).ok_or_else(short)?;
            rest = after;
            let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            Ok::<Vec<f32>, RankError>(numbers.chunks_exact(4).map(number).collect())
        };
        let (values, statistics) = (take(header.values)?.into(), take(header.statistics)?.into());
        let moments =
            header.moments.into_iter().map(|count| Ok(take(count)?.into())).collect::<Result<_, RankError>>()?;
        let average = header.average.map(|count| Ok::<_, RankError>(take(count)?.into())).transpose()?;
        self.averaged = header.averaged.map(&mut take).transpose()?;
        let network = NetworkState { values, statistics };
        self.engine.restore(&TrainingState { network, steps: header.steps, moments, average })?;
        (self.state, self.metrics) = (header.state, header.metrics);
        self.recipe.set_past(header.schedules);
        self.before = self.state.seconds;
        Ok(())
    }
}
