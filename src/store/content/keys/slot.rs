//! One slot of the key file: a segment's key, sealed under the master key and bound to its bucket and number.
//!
//! `magic, bucket, number, sealed key, zeros, checksum`, 128 bytes, integers big-endian. A slot never crosses a sector,
//! so a power cut leaves the old or the new one. The checksum needs no key, which distinguishes damage from a wrong
//! master key. Only a slot of zeros is free.

use serde::{Deserialize, Serialize};

use crate::base::entropy::Entropy;
use crate::base::secret::{MasterKey, SealedSecret};
use crate::base::signature::hmac_sha256;
use crate::base::time::Timestamp;

/// Length of a slot in bytes.
pub(super) const SLOT: usize = 128;
/// Number of bytes before the checksum.
const CHECKED: usize = SLOT - 16;
/// First bytes of a slot with a key, and of a retired slot.
const MAGIC: [u8; 8] = *b"PRKEY\0\0\x02";
const MAGIC_RETIRED: [u8; 8] = *b"PRKEYRET";
const CONTEXT: &[u8] = b"content segment";
/// Start of the sealed key, and its length: nonce, key and tag.
const SEALED_AT: usize = 8 + 8 + 4;
const SEALED: usize = 12 + MasterKey::LENGTH + 16;

/// Identifies a segment: its bucket, and its number there.
pub(super) type SegmentId = (Timestamp, u32);

/// The bytes of a slot.
pub(super) type Bytes = [u8; SLOT];

/// The content of a slot.
pub(super) enum Slot {
    /// Zeros: no key.
    Free,
    /// A key that the master key opens.
    Key {
        segment: SegmentId,
        key: Box<[u8; MasterKey::LENGTH]>,
        /// Whether the slot uses format 1, without a checksum.
        is_first: bool,
    },
    /// A slot that was damaged and is never reused.
    Retired,
    /// Anything else, with the bucket that it names, which may be damaged too.
    Damaged { named: Option<Timestamp> },
}

/// A slot of format 1. Its bucket and number are not verified.
#[derive(Serialize, Deserialize)]
struct SlotV1 {
    version: u8,
    bucket: Timestamp,
    number: u32,
    key: SealedSecret,
}

/// Returns the slot of a key.
pub(super) fn encode(
    segment: SegmentId,
    key: &[u8; MasterKey::LENGTH],
    master: &MasterKey,
    entropy: &dyn Entropy,
) -> Bytes {
    let sealed = master.seal(&context(segment), key, entropy).0;
    let mut bytes = [0; SLOT];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&segment.0.as_millis().to_be_bytes());
    bytes[16..SEALED_AT].copy_from_slice(&segment.1.to_be_bytes());
    bytes[SEALED_AT..SEALED_AT + SEALED].copy_from_slice(&sealed);
    checked(bytes)
}

/// Returns a retired slot.
pub(super) fn retired() -> Bytes {
    let mut bytes = [0; SLOT];
    bytes[..8].copy_from_slice(&MAGIC_RETIRED);
    checked(bytes)
}

/// Reads a slot. At the end of a truncated file it has fewer bytes.
pub(super) fn read(bytes: &[u8], master: &MasterKey) -> Slot {
    if bytes.iter().all(|byte| *byte == 0) {
        return Slot::Free;
    }
    let named = named(bytes);
    let Some((front, check)) = bytes.split_at_checked(CHECKED) else { return Slot::Damaged { named } };
    if check == checksum(front) {
        return match front.split_first_chunk() {
            Some((magic, _)) if *magic == MAGIC_RETIRED => Slot::Retired,
            Some((magic, _)) if *magic == MAGIC => second(front, master).unwrap_or(Slot::Damaged { named }),
            Some(_) | None => Slot::Damaged { named },
        };
    }
    first(bytes, master).unwrap_or(Slot::Damaged { named })
}

fn second(front: &[u8], master: &MasterKey) -> Option<Slot> {
    let bucket = Timestamp::from_millis(u64::from_be_bytes(front[8..16].try_into().ok()?));
    let segment = (bucket, u32::from_be_bytes(front[16..SEALED_AT].try_into().ok()?));
    let key = master.open(&context(segment), &front[SEALED_AT..SEALED_AT + SEALED]).ok()?;
    Some(Slot::Key { segment, key: Box::new(key.expose().try_into().ok()?), is_first: false })
}

fn first(bytes: &[u8], master: &MasterKey) -> Option<Slot> {
    let (slot, rest) = postcard::take_from_bytes::<SlotV1>(bytes).ok()?;
    if slot.version != 1 || rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let key = master.open(CONTEXT, &slot.key.0).ok()?;
    let segment = (slot.bucket, slot.number);
    Some(Slot::Key { segment, key: Box::new(key.expose().try_into().ok()?), is_first: true })
}

/// Returns the bucket that the bytes of a slot name, verified or not.
fn named(bytes: &[u8]) -> Option<Timestamp> {
    if let Ok((slot, _)) = postcard::take_from_bytes::<SlotV1>(bytes) {
        return Some(slot.bucket);
    }
    let bucket = bytes.get(8..16)?.try_into().ok()?;
    Some(Timestamp::from_millis(u64::from_be_bytes(bucket)))
}

fn context((bucket, number): SegmentId) -> Vec<u8> {
    [CONTEXT, &bucket.as_millis().to_be_bytes(), &number.to_be_bytes()].concat()
}

/// Returns a slot with the checksum of the preceding bytes.
pub(super) fn checked(mut bytes: Bytes) -> Bytes {
    let check = checksum(&bytes[..CHECKED]);
    bytes[CHECKED..].copy_from_slice(&check);
    bytes
}

fn checksum(front: &[u8]) -> [u8; SLOT - CHECKED] {
    let digest = hmac_sha256(b"content key slot", &[front]);
    let mut check = [0; SLOT - CHECKED];
    check.copy_from_slice(&digest[..SLOT - CHECKED]);
    check
}

/// Returns a slot of format 1, for tests of upgrades.
#[cfg(test)]
pub(super) fn encode_first(
    segment: SegmentId,
    key: &[u8; MasterKey::LENGTH],
    master: &MasterKey,
    entropy: &dyn Entropy,
) -> Vec<u8> {
    let key = master.seal(CONTEXT, key, entropy);
    let mut bytes =
        postcard::to_stdvec(&SlotV1 { version: 1, bucket: segment.0, number: segment.1, key }).unwrap_or_default();
    bytes.resize(SLOT, 0);
    bytes
}
