//! Just enough of the protocol buffers' wire format to write a message.

/// A message under construction.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn number(mut self, field: u32, value: i64) -> Self {
        self.key(field, 0);
        // Negative numbers are written as 64-bit two's complement, as the format has it.
        self.varint(value as u64);
        self
    }

    pub(super) fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub(super) fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub(super) fn message(self, field: u32, value: &Message) -> Self {
        self.bytes(field, &value.0)
    }

    /// The same field once for each.
    pub(super) fn each<T>(self, all: impl IntoIterator<Item = T>, add: impl Fn(Self, T) -> Self) -> Self {
        all.into_iter().fold(self, add)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_format_has_them() {
        let inner = Message::default().number(1, 150);
        let message = Message::default().message(3, &inner).text(20, "hi").float(2, 1.0).number(1, -1);
        let expected =
            [&[0x1a, 3, 8, 0x96, 1, 0xa2, 1, 2, b'h', b'i', 0x15, 0, 0, 0x80, 0x3f, 8][..], &[0xff; 9], &[1]].concat();
        assert_eq!(message.into_bytes(), expected);
    }
}
