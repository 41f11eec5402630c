//! The payload of a `batches` slot before compression: records of the journal, each with its sequence number and time.
//! A record that is larger than a slot is split into pieces, so no batch is too large for the log.
//!
//! ```text
//! 1  sequence(8)  committed at(8)  total(4)  from(4)  length(4)  bytes
//! ```
//!
//! Integers are big-endian. A sequence number of 0 marks bodies that precede the batches that name them.

use crate::base::time::Timestamp;

/// Maximum size of a slot's payload in bytes. With its line, its sealing and incompressible bytes a slot has at most 32
/// MiB.
pub const PAYLOAD_BYTES_MAX: usize = 31 << 20;

const BATCH: u8 = 1;
const BATCH_HEAD: usize = 1 + 8 + 8 + 4 + 4 + 4;

/// A piece of a batch; most batches are one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPiece<'a> {
    /// The batch's sequence number; 0 for preceding bodies.
    pub sequence: u64,
    /// The service's time at its commit.
    pub committed_at: Timestamp,
    /// Size of the whole batch in bytes.
    pub total: u32,
    /// Start of the piece in the batch.
    pub from: u32,
    /// The piece of the journal's record.
    pub bytes: &'a [u8],
}

impl BatchPiece<'_> {
    /// Returns whether the batch ends with this piece.
    pub fn is_last(&self) -> bool {
        self.from as usize + self.bytes.len() == self.total as usize
    }
}

/// Builds payloads of bounded size.
#[derive(Debug)]
pub struct Packer {
    bytes: Vec<u8>,
    limit: usize,
}

impl Default for Packer {
    fn default() -> Self {
        Self::with_limit(PAYLOAD_BYTES_MAX)
    }
}

impl Packer {
    /// Creates a packer of payloads of `limit` bytes, so that tests need no large ones.
    pub fn with_limit(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit: limit.clamp(BATCH_HEAD + 1, PAYLOAD_BYTES_MAX) }
    }

    /// Returns whether nothing was added yet.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the size of the payload so far.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether a batch of `length` bytes fits as one piece.
    pub const fn fits(&self, length: usize) -> bool {
        self.bytes.len() + BATCH_HEAD + length <= self.limit
    }

    /// Adds as much of `batch` from its byte `from` on as fits, and returns the number of added bytes. 0 means that the
    /// payload is full.
    pub fn batch(&mut self, sequence: u64, committed_at: Timestamp, batch: &[u8], from: usize) -> usize {
        let rest = batch.get(from..).unwrap_or_default();
        let taken = self.room().min(rest.len());
        if taken > 0 {
            self.bytes.push(BATCH);
            self.bytes.extend(sequence.to_be_bytes());
            self.bytes.extend(committed_at.as_millis().to_be_bytes());
            self.bytes.extend(length(batch.len()).to_be_bytes());
            self.bytes.extend(length(from).to_be_bytes());
            self.bytes.extend(length(taken).to_be_bytes());
            self.bytes.extend_from_slice(&rest[..taken]);
        }
        taken
    }

    /// Returns the payload and empties the packer.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len() + BATCH_HEAD)
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or_else(|_| unreachable!("a batch is at most one journal record, below 4 GiB"))
}

/// Returns the pieces of a payload, in order. They end at the first one that can't be read.
pub const fn pieces(payload: &[u8]) -> Pieces<'_> {
    Pieces { rest: payload, is_damaged: false }
}

/// Error for a payload that is not made of pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the payload has a piece that can't be read")]
pub struct DamagedPayload;

/// Iterator over the pieces of a payload.
#[derive(Debug)]
pub struct Pieces<'a> {
    rest: &'a [u8],
    is_damaged: bool,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Result<BatchPiece<'a>, DamagedPayload>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.is_damaged {
            return None;
        }
        let piece = self.piece().ok_or(DamagedPayload);
        self.is_damaged = piece.is_err();
        Some(piece)
    }
}

impl<'a> Pieces<'a> {
    fn piece(&mut self) -> Option<BatchPiece<'a>> {
        let [BATCH] = self.take()? else { return None };
        let (sequence, committed_at) = (self.long()?, self.moment()?);
        let (total, from, length) = (self.short()?, self.short()?, self.short()?);
        let (bytes, rest) = self.rest.split_at_checked(length as usize)?;
        self.rest = rest;
        let is_within = from.checked_add(length)? <= total;
        (is_within && length > 0).then_some(BatchPiece { sequence, committed_at, total, from, bytes })
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn short(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn moment(&mut self) -> Option<Timestamp> {
        self.long().filter(|millis| *millis <= Timestamp::MAX.as_millis()).map(Timestamp::from_millis)
    }
}

/// Joins the pieces of batches. Holds at most one batch.
#[derive(Debug, Clone, Default)]
pub struct Assembler {
    /// Sequence number, time and total size of the batch that is being joined, and its bytes so far.
    open: Option<(u64, Timestamp, u32, Vec<u8>)>,
}

/// Error for pieces that do not join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pieces of a batch do not join")]
pub struct MisplacedPiece;

impl Assembler {
    /// Returns whether the pieces so far end with a complete batch.
    pub const fn is_at_rest(&self) -> bool {
        self.open.is_none()
    }

    /// Adds a piece. Returns the batch's bytes after its last one.
    ///
    /// # Errors
    /// The piece does not continue the one before. The batch is then dropped.
    pub fn take(&mut self, piece: &BatchPiece<'_>) -> Result<Option<Vec<u8>>, MisplacedPiece> {
        let begun = self.open.take();
        let mut bytes = match begun {
            None if piece.from == 0 => Vec::new(),
            Some((sequence, committed_at, total, bytes))
                if (sequence, committed_at, total) == (piece.sequence, piece.committed_at, piece.total)
                    && bytes.len() == piece.from as usize =>
            {
                bytes
            }
            None | Some(_) => return Err(MisplacedPiece),
        };
        bytes.extend_from_slice(piece.bytes);
        if piece.is_last() {
            return Ok(Some(bytes));
        }
        self.open = Some((piece.sequence, piece.committed_at, piece.total, bytes));
        Ok(None)
    }
}
