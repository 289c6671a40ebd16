//! What can happen to a file.

/// SplitMix64: the same numbers everywhere.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to, not including, `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// Numbers at which programs have gone wrong.
const NUMBERS: [&str; 18] = [
    "0",
    "-1",
    "1",
    "2",
    "-0.0",
    "0.5",
    "255",
    "65536",
    "4294967295",
    "2147483648",
    "9223372036854775807",
    "18446744073709551615",
    "1e308",
    "1e999",
    "-1e-320",
    "nan",
    "inf",
    "123456789012345678901234567890",
];

/// A changed copy: one to four changes, each of bytes, of a number, or of a piece that is cut out, repeated or moved.
pub(crate) fn mutate(original: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=numbers.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = numbers.below(bytes.len());
        let end = at + numbers.below((bytes.len() - at).min(64)) + 1;
        match numbers.below(9) {
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes[at] = numbers.below(256) as u8,
            2 => bytes[at] = b"\"'{}[]:,=.-\n\\\0 "[numbers.below(15)],
            3 => drop(bytes.drain(at..end)),
            4 => {
                let piece = bytes[at..end].to_vec();
                let to = numbers.below(bytes.len());
                bytes.splice(to..to, piece);
            }
            5 => bytes.truncate(at),
            6 => bytes[at..end].fill(0),
            _ => replace_number(&mut bytes, at, numbers),
        }
    }
    bytes
}

/// Puts another number in the place of the next one.
fn replace_number(bytes: &mut Vec<u8>, from: usize, numbers: &mut Numbers) {
    let digit = |b: &u8| b.is_ascii_digit();
    let Some(start) = bytes[from..].iter().position(digit).map(|offset| from + offset) else { return };
    let length = bytes[start..].iter().position(|b| !digit(b)).unwrap_or(bytes.len() - start);
    let number = NUMBERS[numbers.below(NUMBERS.len())];
    bytes.splice(start..start + length, number.bytes());
}
