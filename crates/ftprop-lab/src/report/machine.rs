//! What runs ran on: the processor, the operating system, this program's version, and the time.

use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A machine, as far as a reader of results wants to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor by its maker's name, or its kind where that is not told.
    pub processor: String,
    /// Cores that this program may use.
    pub cores: usize,
    /// The operating system and the kind of processor.
    pub system: String,
    /// This program's version.
    pub ftprop: String,
}

impl Machine {
    /// The machine that this runs on.
    pub fn here() -> Self {
        Machine {
            processor: processor().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            ftprop: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// What Linux says of the first core; other systems say nothing without being asked by a library.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_owned()).filter(|value| !value.is_empty())
    };
    field("model name").or_else(|| field("Hardware"))
}

/// A moment as `2026-11-15 13:40:05 UTC`.
pub fn utc(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// The date so many days after the first of January 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let (mut year, mut left) = (1970, days);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    loop {
        let length = 365 + u64::from(leap(year));
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known moments, from `date -u -d @SECONDS`.
    #[test]
    fn moments_have_dates() {
        for (seconds, known) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), known);
        }
    }

    #[test]
    fn this_machine_has_a_name() {
        let machine = Machine::here();
        assert!(!machine.processor.is_empty() && machine.cores >= 1 && !machine.ftprop.is_empty());
    }
}
