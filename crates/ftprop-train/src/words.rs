//! Numbers and times in words, and words that came from files.
//!
//! Class names, recipes' names, cells and file names are data, whatever they say. Whoever shows one puts it through
//! [`plain`], which leaves nothing that a terminal would obey or that looks like a line of our own; what a format
//! obeys beyond that (HTML, Markdown) is the business of who writes the format.

use std::borrow::Cow;
use std::time::Duration;

/// A text on one line, with every character that is not meant to be seen written out, as in `\u{1b}` and `\n`.
pub fn plain(text: &str) -> Cow<'_, str> {
    written_out(text, |_| false)
}

/// The same for a text that may have several lines.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    written_out(text, |c| c == '\n')
}

fn written_out(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let hides = |c: char| is_unseen(c) && !kept(c);
    if !text.contains(hides) {
        return text.into();
    }
    let write = |c: char| if hides(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(write).collect::<String>().into()
}

/// Control characters, and those that end lines or turn the direction of writing.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Seconds in words, as [`duration`] gives them; `?` where no time can be so long, as in a file that somebody edited.
pub fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "?".into(), duration)
}

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
    fn words_of_files_are_shown_and_not_obeyed() {
        assert_eq!(plain("Läufer 3, \u{4f60}\u{597d}"), "Läufer 3, \u{4f60}\u{597d}");
        assert_eq!(plain("a\n1.png: cat\r\t\u{1b}[31m\u{9b}2J"), "a\\n1.png: cat\\r\\t\\u{1b}[31m\\u{9b}2J");
        assert_eq!(plain("exe.\u{202e}gnp"), "exe.\\u{202e}gnp");
        assert_eq!(plain_lines("a\nb\u{7}"), "a\nb\\u{7}");
    }

    #[test]
    fn impossible_times_are_no_panic() {
        assert_eq!([-1.0, 1e300, f64::NAN, f64::INFINITY].map(seconds), ["?"; 4]);
        assert_eq!(seconds(59.7), "1 min 00 s");
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
