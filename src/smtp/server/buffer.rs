//! The bytes of a message that is coming in. A vector that doubles holds up to three times its content while it moves,
//! and many large messages come in at once. So a small message grows by a quarter, and a large one moves once, into the
//! address space of the largest message: of that only the pages that are written take memory, and the system may take
//! them back whichever thread frees them.

/// Bytes from which on a message has the address space of the largest one.
const LARGE: usize = 256 << 10;
/// Bytes by which a small message grows at least.
const SPARE_MIN: usize = 4 << 10;

/// A message of at most so many bytes.
#[derive(Debug)]
pub(super) struct MessageBuffer {
    bytes: Vec<u8>,
    max: usize,
}

impl MessageBuffer {
    /// An empty one, without memory.
    pub(super) const fn new(max: usize) -> Self {
        Self { bytes: Vec::new(), max }
    }

    /// Adds bytes to the end.
    pub(super) fn extend(&mut self, more: &[u8]) {
        let length = self.bytes.len() + more.len();
        if length > self.bytes.capacity() && !(length > LARGE && self.take_address_space()) {
            self.bytes.reserve_exact(more.len() + (length / 4).max(SPARE_MIN));
        }
        self.bytes.extend_from_slice(more);
    }

    /// Reserves the address space of the largest message; false where the system counts it as memory and has none.
    fn take_address_space(&mut self) -> bool {
        self.bytes.try_reserve_exact(self.max.saturating_sub(self.bytes.len())).is_ok()
    }

    /// Frees the memory.
    pub(super) fn clear(&mut self) {
        self.bytes = Vec::new();
    }

    /// The message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes that are reserved.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_message_grows_by_a_quarter_and_a_large_one_moves_once() {
        let max = 20 << 20;
        let content: Vec<u8> = (0..9_000_000_u32).map(|number| (number % 251) as u8).collect();
        for piece in [70, 16 * 1024, 3 << 20] {
            let mut buffer = MessageBuffer::new(max);
            for (place, bytes) in content.chunks(piece).enumerate() {
                buffer.extend(bytes);
                let length = content.len().min((place + 1) * piece);
                let is_large = length > LARGE;
                let capacity = buffer.capacity();
                assert!(capacity <= length + (length / 4).max(SPARE_MIN) || is_large && capacity == max, "{capacity}");
            }
            assert_eq!(buffer.capacity(), max);
            assert!(buffer.into_bytes() == content);
        }
    }

    #[test]
    fn a_buffer_that_is_cleared_takes_no_memory() {
        let mut buffer = MessageBuffer::new(1 << 20);
        buffer.extend(&[0; 200_000]);
        buffer.clear();
        assert_eq!(buffer.capacity(), 0);
        assert!(buffer.into_bytes().is_empty());
    }
}
