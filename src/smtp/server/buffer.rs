//! The bytes of a message that is coming in. A vector that grows holds up to three times its content while it moves;
//! with many large messages at once that is what memory is used for. So a message grows by pieces, and is joined once.

/// Bytes up to which a message is one piece: moving them costs less than joining.
const ONE_PIECE_MAX: usize = 64 << 10;
/// Bytes of the smallest further piece, and by which the first one grows at least.
const PIECE_MIN: usize = 4 << 10;
/// Bytes of the largest piece.
const PIECE_MAX: usize = 1 << 20;

/// A message in pieces. Its capacity exceeds its length by a quarter or by 4 KiB, whichever is more.
#[derive(Debug, Default)]
pub(super) struct MessageBuffer {
    /// Full pieces.
    full: Vec<Vec<u8>>,
    /// The piece that is being filled.
    last: Vec<u8>,
    length: usize,
}

impl MessageBuffer {
    /// Adds bytes to the end.
    pub(super) fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.last.extend_from_slice(now);
            self.length += now.len();
            bytes = later;
        }
    }

    /// Makes room in the last piece and returns how much there is.
    fn room(&mut self) -> usize {
        if self.last.len() == self.last.capacity() {
            let more = (self.length / 4).clamp(PIECE_MIN, PIECE_MAX);
            if self.length < ONE_PIECE_MAX {
                self.last.reserve_exact(more);
            } else {
                self.full.push(std::mem::replace(&mut self.last, Vec::with_capacity(more)));
            }
        }
        self.last.capacity() - self.last.len()
    }

    /// Frees the memory.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The message as one. Each piece is freed as soon as it is copied.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        if self.full.is_empty() {
            return self.last;
        }
        let mut bytes = Vec::with_capacity(self.length);
        for piece in self.full {
            bytes.extend_from_slice(&piece);
        }
        bytes.extend_from_slice(&self.last);
        bytes
    }

    /// Bytes of memory that it takes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.last.capacity() + self.full.iter().map(Vec::capacity).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_in_comes_out_and_memory_exceeds_it_by_a_quarter_at_most() {
        let content: Vec<u8> = (0..9_000_000_u32).map(|number| (number % 251) as u8).collect();
        for piece in [70, 16 * 1024, 3 << 20] {
            let mut buffer = MessageBuffer::default();
            for (place, bytes) in content.chunks(piece).enumerate() {
                buffer.extend(bytes);
                let length = content.len().min((place + 1) * piece);
                assert!(
                    buffer.capacity() <= length + (length / 4).max(PIECE_MIN),
                    "{} for {length}",
                    buffer.capacity()
                );
            }
            assert!(buffer.into_bytes() == content);
        }
    }

    #[test]
    fn a_buffer_that_is_cleared_takes_no_memory() {
        let mut buffer = MessageBuffer::default();
        buffer.extend(&[0; 200_000]);
        buffer.clear();
        assert_eq!(buffer.capacity(), 0);
        assert!(buffer.into_bytes().is_empty());
    }
}
