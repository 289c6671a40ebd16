//! Whole files, gzipped or not.
//!
//! A packed file of some bytes can unpack to gigabytes, so how much it may unpack to is bounded before memory is taken:
//! by [`room`], far above what data compress to. What is larger is refused, with the advice to unpack it first; a plain
//! file is as large as it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::error::{DataError, TooMuch};

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// What any file may unpack to.
const LEAST_ROOM: u64 = 64 << 20;
/// How many times its own size a file may unpack to.
const MOST_TIMES: u64 = 8;
/// What is read at most of something that has no size, such as a pipe.
const MOST_OF_A_PIPE: u64 = 1 << 30;

/// How many bytes a packed file of `size` may unpack to.
pub(crate) fn room(size: u64) -> u64 {
    LEAST_ROOM.max(size.saturating_mul(MOST_TIMES))
}

/// A file, unpacked on the way if its first bytes say that it is gzipped, whatever it is called.
pub(crate) struct Unpacked {
    reader: Box<dyn Read>,
    left: u64,
    room: u64,
}

impl Unpacked {
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let failed = |why| DataError::read(path, why);
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        // What comes through a pipe may be packed too, and is bounded by itself.
        let (size, most) = if about.is_file() { (about.len(), u64::MAX) } else { (0, MOST_OF_A_PIPE) };
        Self::new(BufReader::new(file.take(most)), size).map_err(failed)
    }

    fn new(mut file: impl BufRead + 'static, size: u64) -> io::Result<Self> {
        let mut head = Vec::new();
        file.by_ref().take(GZIP.len() as u64).read_to_end(&mut head)?;
        let packed = head == GZIP;
        let whole = Cursor::new(head).chain(file);
        let reader: Box<dyn Read> = if packed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        let room = if packed { room(size) } else { u64::MAX };
        Ok(Unpacked { reader, left: room, room })
    }
}

impl Read for Unpacked {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(to)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(TooMuch { room: self.room })),
        }
        Ok(count)
    }
}

/// A whole text file, gzipped or not.
pub fn read_text(path: &Path) -> Result<String, DataError> {
    let utf8 = |why: std::string::FromUtf8Error| DataError::Format {
        path: path.to_owned(),
        wanted: "a text file in UTF-8",
        why: why.to_string(),
    };
    String::from_utf8(read(path)?).map_err(utf8)
}

/// A whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    Unpacked::open(path)?.read_to_end(&mut bytes).map_err(|why| DataError::read(path, why))?;
    Ok(bytes)
}

/// What gzipped bytes unpack to.
pub(crate) fn unpack(gzipped: &'static [u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Unpacked::new(gzipped, gzipped.len() as u64)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
