//! Reading numbers off a slice without trusting any of them.

use crate::error::{Error, Result};
use crate::memory;

/// A place in a section. Every read is checked; nothing is allocated before its bytes are known to be there.
pub(super) struct Cursor<'a> {
    section: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(section: &'static str, bytes: &'a [u8]) -> Self {
        Cursor { section, bytes, at: 0 }
    }

    pub(super) fn invalid<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::Invalid { place: format!("{} at byte {}", self.section, self.at), what: what.into() })
    }

    pub(super) fn bytes(&mut self, count: u64) -> Result<&'a [u8]> {
        let left = self.bytes.len() - self.at;
        if count > left as u64 {
            return Err(Error::Truncated { section: self.section, at: self.bytes.len() });
        }
        let taken = &self.bytes[self.at..self.at + count as usize];
        self.at += count as usize;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N as u64)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn size(&mut self) -> Result<usize> {
        Ok(self.u32()? as usize)
    }

    pub(super) fn pair(&mut self) -> Result<[usize; 2]> {
        Ok([self.size()?, self.size()?])
    }

    pub(super) fn f32s(&mut self, count: usize) -> Result<Vec<f32>> {
        let bytes = self.bytes(count as u64 * 4)?;
        memory::collect(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])))
    }

    pub(super) fn i64s(&mut self, count: usize) -> Result<Vec<i64>> {
        let bytes = self.bytes(count as u64 * 8)?;
        let number = |eight: &[u8]| {
            i64::from_le_bytes([eight[0], eight[1], eight[2], eight[3], eight[4], eight[5], eight[6], eight[7]])
        };
        memory::collect(bytes.chunks_exact(8).map(number))
    }

    pub(super) fn string(&mut self) -> Result<String> {
        let length = self.u32()?;
        let bytes = self.bytes(length as u64)?;
        match String::from_utf8(memory::copy(bytes)?) {
            Ok(text) => Ok(text),
            Err(_) => self.invalid("a text is not UTF-8"),
        }
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.at != self.bytes.len() {
            return self.invalid(format!("{} bytes are left over", self.bytes.len() - self.at));
        }
        Ok(())
    }
}
