//! The checksum over a checkpoint's file.
//!
//! It is a CRC-32 of every byte of the file but its own eight digits, which stand in the file's metadata: other readers
//! of safetensors take the file as it is. A flipped bit anywhere, in tensors, names, shapes or state, is noticed; a hand that
//! means to deceive is not.

use std::ops::Range;

/// Holds the digits' place until they are known.
pub(super) const UNKNOWN: &str = "00000000";
/// What stands before the digits: JSON within a string of JSON.
const BEFORE: &[u8] = br#"\"checksum\":\""#;

/// Puts the checksum where [`UNKNOWN`] stands.
pub(super) fn put(file: &mut [u8]) {
    if let Some(place) = place(file) {
        let digits = digits(file, &place);
        file[place].copy_from_slice(digits.as_bytes());
    }
}

/// Whether a file is as it was written; none where it has no checksum.
pub(super) fn matches(file: &[u8]) -> Option<bool> {
    let place = place(file)?;
    // As text: a flipped bit can make a digit's letter large.
    Some(digits(file, &place).as_bytes() == &file[place])
}

fn digits(file: &[u8], place: &Range<usize>) -> String {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&file[..place.start]);
    crc.update(&file[place.end..]);
    format!("{:08x}", crc.finalize())
}

/// Where the digits stand in a safetensors file: eight bytes of length, then so many of JSON.
fn place(file: &[u8]) -> Option<Range<usize>> {
    let length = u64::from_le_bytes(file.get(..8)?.try_into().ok()?);
    let header = &file[8..file.len().min(usize::try_from(length).ok()?.saturating_add(8))];
    let start = 8 + header.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    let place = start..start + UNKNOWN.len();
    (place.end <= file.len()).then_some(place)
}
