//! The bytes of a message that is being received. A vector that doubles uses up to three times its content during a
//! move, and many large messages arrive at once. So a small message grows by a quarter. A large one moves once, to an
//! address range of the maximum size. Only written pages of that range use memory, and the system can reclaim them from
//! any thread.

/// Size in bytes from which a message uses an address range of the maximum size.
const LARGE: usize = 256 << 10;
/// Minimum growth of a small message in bytes.
const SPARE_MIN: usize = 4 << 10;

/// A buffer for a message of limited size.
#[derive(Debug)]
pub(super) struct MessageBuffer {
    bytes: Vec<u8>,
    max: usize,
}

impl MessageBuffer {
    /// Creates an empty buffer without memory.
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

    /// Reserves an address range of the maximum size; false if the system counts it as memory and has none.
    fn take_address_space(&mut self) -> bool {
        self.bytes.try_reserve_exact(self.max.saturating_sub(self.bytes.len())).is_ok()
    }

    /// Frees the memory.
    pub(super) fn clear(&mut self) {
        self.bytes = Vec::new();
    }

    /// Returns the message.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the number of reserved bytes.
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
    fn a_cleared_buffer_uses_no_memory() {
        let mut buffer = MessageBuffer::new(1 << 20);
        buffer.extend(&[0; 200_000]);
        buffer.clear();
        assert_eq!(buffer.capacity(), 0);
        assert!(buffer.into_bytes().is_empty());
    }
}
