//! What a terminal can show: how wide it is, whether it can draw, and prose that is broken between words.

use ftprop_lab::report::columns::width;
use std::borrow::Cow;
use std::io::IsTerminal;

/// Where something is said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

impl Stream {
    fn is_terminal(self) -> bool {
        match self {
            Stream::Out => std::io::stdout().is_terminal(),
            Stream::Err => std::io::stderr().is_terminal(),
        }
    }

    /// The columns of the terminal there; none where there is none, or where it does not say.
    pub(crate) fn columns(self) -> Option<usize> {
        let term = match self {
            Stream::Out => console::Term::stdout(),
            Stream::Err => console::Term::stderr(),
        };
        let columns = term.size_checked().map(|(_, columns)| usize::from(columns));
        columns.filter(|&columns| self.is_terminal() && columns > 0)
    }

    /// A text as it is best read there: on a terminal prose is broken between words, elsewhere it stays as it is.
    pub(crate) fn fitted(self, text: &str) -> Cow<'_, str> {
        match self.columns() {
            Some(columns) => {
                Cow::Owned(text.split('\n').map(|line| wrapped(line, columns)).collect::<Vec<_>>().join("\n"))
            }
            None => Cow::Borrowed(text),
        }
    }
}

/// Whether a bar can be drawn on standard error: a terminal that calls itself dumb cannot move its cursor, and gets lines.
pub(crate) fn draws() -> bool {
    Stream::Err.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of the label before what `solve`, `separable` and `verify` say, as in `status    optimal`.
const LABEL: usize = 10;

/// A label with the spaces behind it, where a line has one, and what it says.
fn labelled(line: &str) -> (&str, &str) {
    let (label, prose) = line.split_at_checked(LABEL).unwrap_or(("", line));
    let is_label = label.ends_with(' ') && label.is_ascii() && !label.trim_end().contains("  ");
    if is_label && label.contains("  ") && !prose.starts_with(' ') { (label, prose) } else { ("", line) }
}

/// A line broken between words; what follows a label stays behind it. What is laid out in columns stays as it is, and so does
/// a command, which is to be copied.
fn wrapped(line: &str, columns: usize) -> String {
    let (label, prose) = labelled(line);
    if width(line) <= columns || prose.contains("  ") || line.starts_with(' ') {
        return line.to_owned();
    }
    // In a narrow place the words need all of it.
    let indent = if columns >= 3 * LABEL { label.len() } else { 0 };
    let (mut text, mut used) = (label.to_owned(), label.len());
    for (number, piece) in pieces(prose).into_iter().enumerate() {
        let wide = width(&piece);
        let fits = used + 1 + wide <= columns;
        if number > 0 && fits {
            text.push(' ');
        } else if number > 0 {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&piece);
        used = match number {
            0 => label.len() + wide,
            _ if fits => used + 1 + wide,
            _ => indent + wide,
        };
        // What goes over the edge ends in a column that nobody knows.
        if used > columns {
            used = columns;
        }
    }
    text
}

/// The words of a line, a command of this program counting as one.
fn pieces(line: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut in_command = false;
    for word in line.split(' ') {
        match pieces.last_mut().filter(|_| in_command) {
            Some(command) => *command = format!("{command} {word}"),
            None => pieces.push(word.to_owned()),
        }
        in_command |= word.trim_start_matches('(') == "ftprop";
        in_command &= !word.ends_with([',', ';', ')', '.']);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_broken_between_words() {
        assert_eq!(wrapped("as it is", 8), "as it is");
        assert_eq!(wrapped("as it is", 7), "as it\nis");
        assert_eq!(wrapped("猫 犬 cat", 7), "猫 犬\ncat");
        assert_eq!(wrapped("one two three", 3), "one\ntwo\nthree");
        assert_eq!(wrapped("a/very/long/path and more", 8), "a/very/long/path\nand more");
        let saved = "all saved; go on with: ftprop train --resume runs/digits";
        assert_eq!(wrapped(saved, 30), "all saved; go on with:\nftprop train --resume runs/digits");
        let known = "no recipe 'x' (ftprop recipes lists them) here";
        assert_eq!(wrapped(known, 20), "no recipe 'x'\n(ftprop recipes lists them)\nhere");
    }

    #[test]
    fn what_a_label_says_stays_behind_it() {
        let status = "status    stopped, not proved optimal; between 0 and 16 errors are possible: the time is over";
        let broken = "status    stopped, not proved optimal;\n          between 0 and 16 errors are\n          possible: the time is over";
        assert_eq!(wrapped(status, 40), broken);
        assert_eq!(wrapped(status, 200), status);
        assert_eq!(wrapped("on trust  found by a search", 20), "on trust  found by a\nsearch");
        for line in broken.lines() {
            assert!(width(line) <= 40, "{line}");
        }
    }

    #[test]
    fn columns_stay_columns() {
        for line in ["class     examples  precision", "  indented by two or more of them"] {
            assert_eq!(wrapped(line, 10), line);
        }
    }
}
