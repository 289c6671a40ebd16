//! Whole files, gzipped or not.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::DataError;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A whole file, unpacked if its first bytes say that it is gzipped, whatever it is called.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let raw = fs::read(path).map_err(|why| DataError::read(path, why))?;
    if raw.starts_with(&GZIP) { unpack(&raw).map_err(|why| DataError::read(path, why)) } else { Ok(raw) }
}

pub(crate) fn unpack(gzipped: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    MultiGzDecoder::new(gzipped).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A reader of a file that may be large, unpacked on the way if it is gzipped.
pub(crate) fn stream(path: &Path) -> std::io::Result<Box<dyn Read>> {
    let mut head = Vec::new();
    File::open(path)?.take(2).read_to_end(&mut head)?;
    let file = BufReader::new(File::open(path)?);
    Ok(if head == GZIP { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
}
