//! The device that a recipe or a caller asks for, by name.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// A device by name: `auto`, `cpu`, or `cuda:0` and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceChoice {
    /// The first GPU if one can be used, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let ordinal = match name {
            "auto" => return Ok(DeviceChoice::Auto),
            "cpu" => return Ok(DeviceChoice::Cpu),
            "cuda" => Some(0),
            _ => name.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
        };
        let why = "known are auto, cpu and cuda:N, such as cuda:0";
        ordinal.map(DeviceChoice::Cuda).ok_or_else(|| Error::Device { device: name.into(), why: why.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_name() {
        for (name, known) in
            [("auto", DeviceChoice::Auto), ("cpu", DeviceChoice::Cpu), ("cuda:12", DeviceChoice::Cuda(12))]
        {
            assert_eq!(name.parse::<DeviceChoice>().unwrap(), known);
            assert_eq!(known.to_string(), name);
        }
        assert_eq!("cuda".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cuda(0));
        for wrong in ["gpu", "cuda:", "cuda:x", "cuda:-1", ""] {
            let message = wrong.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(message.contains("cuda:0") && !message.contains('\n'), "{message}");
        }
    }
}
