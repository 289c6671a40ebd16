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

/// A line broken between words. What is laid out in columns stays as it is, and so does a command, which is to be copied.
fn wrapped(line: &str, columns: usize) -> String {
    if width(line) <= columns || line.contains("  ") || line.starts_with(' ') {
        return line.to_owned();
    }
    let (mut text, mut used) = (String::new(), 0);
    for piece in pieces(line) {
        let wide = width(&piece);
        let fits = used + 1 + wide <= columns;
        if !text.is_empty() {
            text.push(if fits { ' ' } else { '\n' });
        }
        text.push_str(&piece);
        used = if fits && used > 0 { used + 1 + wide } else { wide };
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
    fn columns_stay_columns() {
        for line in ["class     examples  precision", "  indented by two or more of them"] {
            assert_eq!(wrapped(line, 10), line);
        }
    }
}
