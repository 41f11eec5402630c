//! One record of the journal: a header that can be verified without the payload, and the payload.
//!
//! The header holds a magic number, the record's number in its epoch, the payload's length, the payload's checksum and
//! a checksum of the header itself. Both checksums are keyed with the epoch and bound to the place in the file. A
//! record of an earlier epoch or at another place therefore never verifies. All integers are little-endian.
//!
//! Journals of stores of format 1 have records without a magic number and a version ([`Layout::First`]). They are only
//! read, when a store is upgraded.

use std::ops::Range;

use super::Epoch;
use super::redo;
use crate::base::signature::hmac_sha256;

/// Length of a header in bytes: magic, number, length, checksum of the payload, checksum of the header.
pub(super) const HEAD: usize = 4 + 4 + 4 + CHECK + CHECK;
/// First bytes of every record.
const MAGIC: [u8; 4] = *b"PRJ\x02";
/// Length of a checksum in bytes.
const CHECK: usize = 16;
/// Number of header bytes before its own checksum.
const CHECKED: usize = HEAD - CHECK;
/// Length of a header of [`Layout::First`]: length and checksum.
const FIRST_HEAD: usize = 4 + CHECK;

type Check = [u8; CHECK];

/// Format of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Format in stores of format 1: `length, checksum, payload`.
    First,
    /// Format that is written now.
    Second,
}

/// A verified record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) layout: Layout,
    /// Number of the record in its epoch; `None` in [`Layout::First`].
    pub(super) number: Option<u32>,
    /// Place of its payload in the file.
    pub(super) payload: Range<usize>,
}

/// Content at a place of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScannedRecord {
    /// A complete record.
    Whole(Record),
    /// A verified header whose payload does not verify.
    HeaderOnly {
        /// The record's number in its epoch.
        number: u32,
    },
    /// No record of the epoch.
    Nothing,
}

/// Fills in the header of `record`, whose payload is complete: it becomes record `number` of `epoch`, at `begin`.
/// Returns false if the payload is too long for a record.
pub(super) fn seal(epoch: &Epoch, begin: u64, number: u32, record: &mut [u8]) -> bool {
    let (head, payload) = record.split_at_mut(HEAD);
    let Ok(length) = u32::try_from(payload.len()) else { return false };
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&number.to_le_bytes());
    head[8..12].copy_from_slice(&length.to_le_bytes());
    head[12..CHECKED].copy_from_slice(&check(epoch, begin, b"payload", payload));
    let of_head = check(epoch, begin, b"header", &head[..CHECKED]);
    head[CHECKED..].copy_from_slice(&of_head);
    true
}

/// Returns the record of `epoch` at `begin` of a journal's `bytes`.
pub(super) fn at(bytes: &[u8], begin: usize, epoch: &Epoch) -> ScannedRecord {
    let Some(rest) = bytes.get(begin..) else { return ScannedRecord::Nothing };
    match second_at(rest, begin, epoch) {
        ScannedRecord::Nothing => first_at(rest, begin, epoch),
        found => found,
    }
}

/// Returns the first place from `from` on at which a record may begin, so that a search calculates few checksums.
pub(super) fn candidate(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let is_second = |at: usize| rest[at] == MAGIC[0] && rest[at..].starts_with(&MAGIC);
    let is_first = |at: usize| {
        // The count of tables, the length of a name, and its first letter.
        matches!(rest.get(at + FIRST_HEAD..at + FIRST_HEAD + 3), Some([1..=64, 1..=64, b'a'..=b'z']))
    };
    (0..rest.len()).find(|at| is_second(*at) || is_first(*at)).map(|at| from + at)
}

fn second_at(rest: &[u8], begin: usize, epoch: &Epoch) -> ScannedRecord {
    let Some((head, payload)) = rest.split_at_checked(HEAD) else { return ScannedRecord::Nothing };
    if head[..4] != MAGIC || check(epoch, begin as u64, b"header", &head[..CHECKED]) != head[CHECKED..] {
        return ScannedRecord::Nothing;
    }
    let number = integer(&head[4..8]);
    let length = integer(&head[8..12]) as usize;
    match payload.get(..length) {
        Some(payload) if check(epoch, begin as u64, b"payload", payload) == head[12..CHECKED] => {
            let begin = begin + HEAD;
            ScannedRecord::Whole(Record {
                layout: Layout::Second,
                number: Some(number),
                payload: begin..begin + length,
            })
        }
        Some(_) | None => ScannedRecord::HeaderOnly { number },
    }
}

/// Reads a record of the first layout. Its checksum covers only the payload, so its length can be trusted only if the
/// checksum matches. A payload begins with the names of tables; without one no checksum is calculated, which keeps a
/// search fast.
fn first_at(rest: &[u8], begin: usize, epoch: &Epoch) -> ScannedRecord {
    let Some((head, payload)) = rest.split_at_checked(FIRST_HEAD) else { return ScannedRecord::Nothing };
    let length = integer(&head[..4]) as usize;
    let Some(payload) = payload.get(..length).filter(|payload| redo::begins_first_layout(payload)) else {
        return ScannedRecord::Nothing;
    };
    let digest = hmac_sha256(epoch, &[&(begin as u64).to_le_bytes(), payload]);
    if digest[..CHECK] != head[4..] {
        return ScannedRecord::Nothing;
    }
    let begin = begin + FIRST_HEAD;
    ScannedRecord::Whole(Record { layout: Layout::First, number: None, payload: begin..begin + length })
}

fn integer(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

/// Returns the keyed checksum of a part of a record.
fn check(epoch: &Epoch, begin: u64, part: &[u8], bytes: &[u8]) -> Check {
    let digest = hmac_sha256(epoch, &[part, &begin.to_le_bytes(), bytes]);
    let (check, _) = digest.split_first_chunk().unwrap_or_else(|| unreachable!("a digest has 32 bytes"));
    *check
}

/// Returns a record of the first layout, for tests of upgrades.
#[cfg(test)]
pub(super) fn of_first_layout(epoch: &Epoch, begin: u64, payload: &[u8]) -> Vec<u8> {
    let digest = hmac_sha256(epoch, &[&begin.to_le_bytes(), payload]);
    [&u32::try_from(payload.len()).unwrap().to_le_bytes()[..], &digest[..CHECK], payload].concat()
}
