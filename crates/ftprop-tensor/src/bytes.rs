//! Numbers as they lie in files: little-endian bytes, and whether they are numbers. Loops over whole networks, kept here
//! because this crate is compiled for speed.

/// What is looked at before it is asked whether to go on.
const BLOCK: usize = 1024;
/// The exponent of infinities and of what is no number.
const SPECIAL: u32 = 0x7F80_0000;

/// Reads as many numbers as both have room for.
pub fn read_into(bytes: &[u8], numbers: &mut [f32]) {
    for (number, four) in numbers.iter_mut().zip(bytes.as_chunks().0) {
        *number = f32::from_le_bytes(*four);
    }
}

/// All whole numbers of four bytes in `bytes`.
pub fn read(bytes: &[u8]) -> Vec<f32> {
    let mut numbers = vec![0.0; bytes.len() / 4];
    read_into(bytes, &mut numbers);
    numbers
}

/// The bytes of some numbers.
pub fn write(numbers: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; 4 * numbers.len()];
    for (four, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
        *four = number.to_le_bytes();
    }
    bytes
}

/// Whether none is infinite or no number.
pub fn all_finite(numbers: &[f32]) -> bool {
    let special = |bad: bool, number: &f32| bad | (number.to_bits() & SPECIAL == SPECIAL);
    !numbers.chunks(BLOCK).any(|block| block.iter().fold(false, special))
}

/// The same of numbers as they lie in a file.
pub fn all_finite_in(bytes: &[u8]) -> bool {
    let special = |bad: bool, four: &[u8; 4]| bad | (u32::from_le_bytes(*four) & SPECIAL == SPECIAL);
    !bytes.as_chunks().0.chunks(BLOCK).any(|block| block.iter().fold(false, special))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_others_are_found() {
        let mut numbers: Vec<f32> = (0..3000).map(|i| (i as f32 - 1500.0) * 1e35).collect();
        numbers.extend([0.0, -0.0, f32::MIN_POSITIVE / 8.0, f32::MAX, f32::MIN]);
        let bytes = write(&numbers);
        assert_eq!(bytes, numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
        assert!(read(&bytes).iter().zip(&numbers).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert_eq!(read(&bytes[..10]), numbers[..2]);
        assert!(all_finite(&numbers) && all_finite_in(&bytes) && all_finite(&[]) && all_finite_in(&bytes[..3]));
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7F80_0001)] {
            for place in [0, 1023, 1024, 3004] {
                let mut wrong = numbers.clone();
                wrong[place] = bad;
                assert!(!all_finite(&wrong) && !all_finite_in(&write(&wrong)), "{bad} at {place}");
            }
        }
    }
}
