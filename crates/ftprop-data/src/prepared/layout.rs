//! The bytes of a prepared file: little-endian, every part with a checksum (CRC-32).

use crate::pictures::Entry;

/// What a file begins with.
pub(super) const MAGIC: [u8; 8] = *b"FTPIMGS\0";
pub(super) const VERSION: u32 = 1;
/// Bytes of a header, of what stands before each picture, and of an entry of the table.
pub(super) const HEADER: usize = 128;
pub(super) const RECORD: usize = 32;
pub(super) const ENTRY: usize = 24;
/// What a picture begins with.
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"PIC1");

/// How the folder was laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// A part for training and one for testing.
    Two,
    /// In one piece; whoever opens it divides it.
    One,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) parts: Parts,
    /// The shorter edge of every picture.
    pub(super) edge: u32,
    pub(super) classes: u32,
    /// Pictures of each part; all are in the first where there is one part.
    pub(super) examples: [u64; 2],
    /// Bytes of the whole file; 0 while it is being written.
    pub(super) bytes: u64,
    pub(super) table: u64,
    pub(super) names: u64,
    /// Tells whether a file under way is of the same pictures.
    pub(super) fingerprint: u64,
    /// Of the table and the names.
    pub(super) table_sum: u32,
}

impl Header {
    /// Of a file that is being written.
    pub(super) fn begun(parts: Parts, edge: u32, classes: u32, fingerprint: u64) -> Self {
        let (examples, bytes, table, names, table_sum) = ([0; 2], 0, 0, 0, 0);
        Header { parts, edge, classes, examples, bytes, table, names, fingerprint, table_sum }
    }

    pub(super) fn encode(&self) -> [u8; HEADER] {
        let parts: u32 = if self.parts == Parts::Two { 2 } else { 1 };
        let mut bytes = MAGIC.to_vec();
        [VERSION, parts, self.edge, self.classes].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        let long = [self.examples[0], self.examples[1], self.bytes, self.table, self.names, self.fingerprint];
        long.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend(self.table_sum.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.resize(HEADER, 0);
        std::array::from_fn(|i| bytes[i])
    }

    /// A header, or what is wrong with it.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Result<Header, String> {
        if bytes[..8] != MAGIC {
            return Err("it does not begin as one".into());
        }
        let version = short(bytes, 8);
        if version != VERSION {
            return Err(format!("it has version {version}, and this program reads version {VERSION}"));
        }
        if crc32fast::hash(&bytes[..76]) != short(bytes, 76) || bytes[80..].iter().any(|&b| b != 0) {
            return Err("its header is damaged; make it again".into());
        }
        let parts = match short(bytes, 12) {
            1 => Parts::One,
            2 => Parts::Two,
            other => return Err(format!("it has {other} parts, not one or two; make it again")),
        };
        Ok(Header {
            parts,
            edge: short(bytes, 16),
            classes: short(bytes, 20),
            examples: [long(bytes, 24), long(bytes, 32)],
            bytes: long(bytes, 40),
            table: long(bytes, 48),
            names: long(bytes, 56),
            fingerprint: long(bytes, 64),
            table_sum: short(bytes, 72),
        })
    }
}

impl Entry {
    pub(super) fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        for (at, n) in [(8, self.height), (12, self.width), (16, self.label), (20, self.sum)] {
            bytes[at..at + 4].copy_from_slice(&n.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Entry {
        Entry {
            offset: long(bytes, 0),
            height: short(bytes, 8),
            width: short(bytes, 12),
            label: short(bytes, 16),
            sum: short(bytes, 20),
        }
    }

    /// What stands before its pixels, so that an interrupted file can be taken up; `number` is its place among the
    /// pictures of the folder.
    pub(super) fn record(&self, number: u32) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let numbers = [RECORD_MAGIC, number, self.height, self.width, self.label, self.sum];
        for (i, n) in numbers.iter().enumerate() {
            bytes[4 * i..4 * i + 4].copy_from_slice(&n.to_le_bytes());
        }
        let sum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The picture whose record, at `offset`, this is, and its number.
    pub(super) fn of_record(bytes: &[u8; RECORD], offset: u64) -> Option<(Entry, u32)> {
        let whole = short(bytes, 0) == RECORD_MAGIC && short(bytes, 28) == crc32fast::hash(&bytes[..28]);
        let entry = Entry {
            offset: offset + RECORD as u64,
            height: short(bytes, 8),
            width: short(bytes, 12),
            label: short(bytes, 16),
            sum: short(bytes, 20),
        };
        (whole && entry.checked_len().is_some()).then_some((entry, short(bytes, 4)))
    }
}

/// Names one after the other, each with its length before it.
pub(super) fn encode_names(names: &[String]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend(name.as_bytes());
    }
    bytes
}

pub(super) fn decode_names(mut bytes: &[u8], count: u32) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for _ in 0..count {
        let (len, rest) = bytes.split_at_checked(4)?;
        let (name, rest) = rest.split_at_checked(short(len, 0) as usize)?;
        names.push(String::from_utf8(name.to_vec()).ok()?);
        bytes = rest;
    }
    bytes.is_empty().then_some(names)
}

fn short(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read_and_every_changed_byte_is_noticed() {
        let mut header = Header::begun(Parts::Two, 160, 10, 0x0123_4567_89ab_cdef);
        (header.examples, header.bytes, header.table, header.names) = ([7, 8], 1 << 40, 900, 1000);
        header.table_sum = 77;
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for at in 0..HEADER {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(Header::decode(&changed).is_err(), "{at}");
        }
        let entry = Entry { offset: 128 + RECORD as u64, height: 5, width: 7, label: 3, sum: 9 };
        assert_eq!(Entry::decode(&entry.encode()), entry);
        let record = entry.record(12);
        assert_eq!(Entry::of_record(&record, 128), Some((entry, 12)));
        for at in 0..RECORD {
            let mut changed = record;
            changed[at] ^= 4;
            assert_eq!(Entry::of_record(&changed, 128), None, "{at}");
        }
        let names = ["a".to_owned(), String::new(), "größe".to_owned()];
        let bytes = encode_names(&names);
        assert_eq!(decode_names(&bytes, 3).as_deref(), Some(&names[..]));
        assert!(decode_names(&bytes, 2).is_none() && decode_names(&bytes, 4).is_none());
        assert!(decode_names(&[255, 255, 255, 255, 0], 1).is_none());
    }
}
