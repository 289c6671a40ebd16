//! Numbers and times in words.

use std::time::Duration;

/// How many of something: `1 epoch`, `3 epochs`.
pub fn counted(number: impl Into<u64>, what: &str) -> String {
    match number.into() {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// A duration in words that fit its size: `8.2 s`, `48 s`, `12 min 30 s`, `3 h 05 min`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match seconds {
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        assert_eq!([0u32, 1, 2].map(|n| counted(n, "epoch")), ["0 epochs", "1 epoch", "2 epochs"]);
    }

    #[test]
    fn durations_fit_their_size() {
        let said = |seconds: f64| duration(Duration::from_secs_f64(seconds));
        assert_eq!(said(0.04), "0.0 s");
        assert_eq!(said(8.24), "8.2 s");
        assert_eq!(said(9.7), "10 s");
        assert_eq!(said(59.7), "1 min 00 s");
        assert_eq!(said(750.0), "12 min 30 s");
        assert_eq!(said(11_100.0), "3 h 05 min");
    }
}
