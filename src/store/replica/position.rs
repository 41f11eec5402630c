//! Two facts about the store: the sequence of its last batch, and the position that the bucket has confirmed. Both are
//! rows of the batch's own transaction, so a store's rows and its position always agree.

use crate::base::id::Ulid;
use crate::base::time::Timestamp;

/// Number of a batch and time of its commit. Numbers rise by one, times never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// Number of the batch in this store's history; 0 before the first.
    pub number: u64,
    /// Time of its commit.
    pub committed_at: Timestamp,
}

impl Sequence {
    const LENGTH: usize = 16;

    /// Returns the sequence of the next batch, committed at `now`.
    pub fn next(self, now: Timestamp) -> Self {
        Self { number: self.number + 1, committed_at: self.committed_at.max(now) }
    }

    pub(in crate::store) fn encode(self) -> Vec<u8> {
        [self.number.to_be_bytes(), self.committed_at.as_millis().to_be_bytes()].concat()
    }

    pub(in crate::store) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().ok()?;
        let (number, committed_at) = bytes.split_at(8);
        Some(Self { number: integer(number), committed_at: Timestamp::from_millis(integer(committed_at)) })
    }
}

/// The last slot of the log that this store has, or has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Identifier of the replicated store.
    pub store: Ulid,
    /// Epoch of the slot.
    pub epoch: u64,
    /// Number of the slot; 0 before the first.
    pub slot: u64,
    /// SHA-256 of the slot's bytes.
    pub hash: [u8; 32],
    /// Sequence of the last batch in the log up to this slot.
    pub sequence: u64,
}

impl Position {
    const LENGTH: usize = 16 + 8 + 8 + 32 + 8;

    pub(in crate::store) fn encode(&self) -> Vec<u8> {
        [
            &self.store.0[..],
            &self.epoch.to_be_bytes(),
            &self.slot.to_be_bytes(),
            &self.hash,
            &self.sequence.to_be_bytes(),
        ]
        .concat()
    }

    pub(in crate::store) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = bytes.try_into().ok()?;
        Some(Self {
            store: Ulid(bytes[..16].try_into().ok()?),
            epoch: integer(&bytes[16..24]),
            slot: integer(&bytes[24..32]),
            hash: bytes[32..64].try_into().ok()?,
            sequence: integer(&bytes[64..]),
        })
    }
}

fn integer(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |integer, byte| integer << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_and_position_decode_as_encoded() {
        let sequence = Sequence { number: 7, committed_at: Timestamp::from_millis(1_700_000_000_000) };
        assert_eq!(Sequence::decode(&sequence.encode()), Some(sequence));
        let position = Position { store: Ulid([3; 16]), epoch: 2, slot: 1 << 40, hash: [9; 32], sequence: 11 };
        assert_eq!(Position::decode(&position.encode()), Some(position));
        assert_eq!(Position::decode(&position.encode()[1..]), None);
    }

    #[test]
    fn setting_the_clock_back_does_not_set_the_sequence_back() {
        let first = Sequence::default().next(Timestamp::from_millis(50));
        let second = first.next(Timestamp::from_millis(20));
        assert_eq!((second.number, second.committed_at), (2, Timestamp::from_millis(50)));
    }
}
