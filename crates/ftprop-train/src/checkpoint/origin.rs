//! What a network learned from, as far as a checkpoint can know it again.

use crate::error::Error;
use ftprop_data::DataMark;
use ftprop_nn::engine::NetworkState;
use ftprop_tensor::bytes;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a network learned from. Checkpoints of older versions do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataMark>,
    /// A CRC-32 of its teacher's numbers, where it has a teacher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teacher: Option<u32>,
    /// The same of the network that it began with, where it began with another one's numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_with: Option<u32>,
}

impl Origin {
    pub(super) fn is_unknown(&self) -> bool {
        *self == Origin::default()
    }

    /// Refuses to go on with a run, here called by its place, on anything else than it learned from so far.
    pub(crate) fn check(&self, now: &Origin, run: &Path) -> Result<(), Error> {
        if let (Some(then), Some(now)) = (&self.data, &now.data)
            && let Some(difference) = then.difference(now)
        {
            return Err(Error::DataChanged { path: run.to_path_buf(), difference });
        }
        let another = |then: Option<u32>, now: Option<u32>| then.zip(now).is_some_and(|(then, now)| then != now);
        let path = || run.to_path_buf();
        if another(self.teacher, now.teacher) {
            return Err(Error::TeacherChanged { path: path() });
        }
        if another(self.begun_with, now.begun_with) { Err(Error::BeginningChanged { path: path() }) } else { Ok(()) }
    }
}

/// By which a network that another learned from, or began with, is known again.
pub(crate) fn mark_of(network: &NetworkState<'_>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes::write(&network.values));
    hasher.update(&bytes::write(&network.statistics));
    hasher.finalize()
}
