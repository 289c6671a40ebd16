//! The rows of a table's text, and the line that each begins at.
//!
//! What the library counts is where the row before ended: the second half of its line end, and blank lines, are still to
//! come. So all line ends become one byte here, and lines are counted from the end of a row back to its beginning.

use std::io::{self, Read};
use std::path::Path;

use csv::{Reader, ReaderBuilder, StringRecord};

use crate::DataError;

/// Reads one row after the other.
pub(super) struct Rows<'a, R> {
    path: &'a Path,
    reader: Reader<Lines<R>>,
    cells: StringRecord,
}

impl<'a, R: Read> Rows<'a, R> {
    pub(super) fn new(path: &'a Path, text: R, delimiter: u8) -> Self {
        let text = Lines { text, missing: 2, returned: false, bytes: 0, end: None };
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text);
        Rows { path, reader, cells: StringRecord::new() }
    }

    /// The cells of the next row without spaces around them, and its line, counted from 1; none behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &StringRecord)>, DataError> {
        let failed = |error: csv::Error| match error.into_kind() {
            csv::ErrorKind::Io(why) => DataError::read(self.path, why),
            other => DataError::read(self.path, io::Error::other(format!("{other:?}"))),
        };
        let mut record = std::mem::take(&mut self.cells).into_byte_record();
        if !self.reader.read_byte_record(&mut record).map_err(failed)? {
            return Ok(None);
        }
        let at = self.reader.position();
        let within = record.as_slice().iter().filter(|&&byte| byte == b'\n').count() as u64;
        // A quote that nothing closes goes on to the end, and no line end follows it.
        let closed = self.reader.get_ref().end != Some(at.byte());
        let line = at.line() - within - u64::from(closed);
        let why = "not valid UTF-8; save the table as UTF-8";
        self.cells = StringRecord::from_byte_record(record).map_err(|_| DataError::Row {
            path: self.path.to_owned(),
            line,
            why: why.into(),
        })?;
        self.cells.trim();
        Ok(Some((line, &self.cells)))
    }
}

/// A text whose lines all end with `\n` alone, with two such line ends more than it has: one may end the last row, and then the
/// other one is behind it.
struct Lines<R> {
    text: R,
    /// How many line ends are still to be added.
    missing: u8,
    /// Whether the last byte was a `\r`, which a `\n` may follow.
    returned: bool,
    /// How many bytes were given.
    bytes: u64,
    /// How many there are, once the last one was given.
    end: Option<u64>,
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() || self.end.is_some() {
            return Ok(0);
        }
        let mut kept = 0;
        while kept == 0 {
            let count = self.text.read(to)?;
            if count == 0 {
                (to[0], kept) = (b'\n', 1);
                self.missing -= 1;
                self.end = (self.missing == 0).then_some(self.bytes + 1);
            }
            for at in 0..count {
                let byte = to[at];
                let after_return = std::mem::replace(&mut self.returned, byte == b'\r');
                if !(after_return && byte == b'\n') {
                    to[kept] = if byte == b'\r' { b'\n' } else { byte };
                    kept += 1;
                }
            }
        }
        self.bytes += kept as u64;
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever comes at a time.
    #[test]
    fn line_ends_become_one_byte() {
        struct Drops<'a>(&'a [u8], usize);
        impl Read for Drops<'_> {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let most = self.1.min(to.len());
                self.0.read(&mut to[..most])
            }
        }
        for drop in [1, 2, 3, 100] {
            let texts =
                [("a\r\n\r\nb\rc\n\n", "a\n\nb\nc\n\n\n\n"), ("", "\n\n"), ("\r\r\n", "\n\n\n\n"), ("a", "a\n\n")];
            for (text, wanted) in texts {
                let mut lines =
                    Lines { text: Drops(text.as_bytes(), drop), missing: 2, returned: false, bytes: 0, end: None };
                let mut found = String::new();
                lines.read_to_string(&mut found).unwrap();
                assert_eq!((found.as_str(), lines.end), (wanted, Some(wanted.len() as u64)), "{text:?}");
            }
        }
    }
}
