//! Large files that are read here and there.

use crate::FileError;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A file's bytes without the memory for them: mapped, or read piece by piece where the system does not map it, as under
/// a limit on address space.
#[derive(Debug)]
pub struct Pages {
    path: PathBuf,
    len: u64,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(memmap2::Mmap),
    Read(File),
}

impl Pages {
    /// Opens a file. Whoever shortens it while it is open ends this process, so it must belong to those who use it.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let opened = || -> io::Result<Pages> {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            // SAFETY: the mapping is read only, and only as bytes, of which every pattern is a value. That nobody
            // shortens the file meanwhile is asked of the user, above: files of this program are replaced, never cut.
            #[allow(unsafe_code)]
            let mapped = if len > 0 { unsafe { memmap2::Mmap::map(&file) }.ok() } else { None };
            // A file that grew or shrank since is as long as it was when it was measured, or not mapped.
            let mapped = mapped.filter(|map| map.len() as u64 == len);
            Ok(Pages { path: path.to_owned(), len, bytes: mapped.map_or(Bytes::Read(file), Bytes::Mapped) })
        };
        opened().map_err(|error| FileError::new("read", path, error))
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// So many bytes from `start` on: those of the mapping, or `aside` with them read into it.
    pub fn get<'a>(&'a self, start: u64, len: usize, aside: &'a mut Vec<u8>) -> Result<&'a [u8], FileError> {
        let failed = |error| FileError::new("read", &self.path, error);
        if start.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        match &self.bytes {
            Bytes::Mapped(map) => Ok(&map[start as usize..start as usize + len]),
            Bytes::Read(file) => {
                aside.resize(len, 0);
                read_at(file, aside, start).map_err(failed)?;
                Ok(aside)
            }
        }
    }
}

#[cfg(unix)]
fn read_at(file: &File, to: &mut [u8], start: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, to, start)
}

#[cfg(windows)]
fn read_at(file: &File, mut to: &mut [u8], mut start: u64) -> io::Result<()> {
    while !to.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, to, start)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => (to, start) = (&mut to[count..], start + count as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_or_read_the_bytes_are_the_files() {
        let path = std::env::temp_dir().join(format!("ftprop-files-pages-{}", std::process::id()));
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7 % 251) as u8).collect();
        crate::write(&path, &bytes).unwrap();
        let mapped = Pages::open(&path).unwrap();
        let read = Pages { path: path.clone(), len: mapped.len(), bytes: Bytes::Read(File::open(&path).unwrap()) };
        for pages in [&mapped, &read] {
            let mut aside = Vec::new();
            for (start, len) in [(0, 1), (17, 4000), (9_999, 1), (10_000, 0)] {
                assert_eq!(pages.get(start, len, &mut aside).unwrap(), &bytes[start as usize..][..len]);
            }
            for (start, len) in [(9_999, 2), (10_001, 0), (u64::MAX, 1)] {
                let why = pages.get(start, len, &mut aside).unwrap_err().to_string();
                assert!(why.contains("ends too early"), "{why}");
            }
        }
        assert!(matches!(mapped.bytes, Bytes::Mapped(_)));
        std::fs::remove_file(&path).unwrap();
    }
}
