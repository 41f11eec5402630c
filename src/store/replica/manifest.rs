//! The manifest of a base. It is written last, so a base without a manifest is incomplete.

use serde::{Deserialize, Serialize};

use super::head::{Head, Kind};
use super::name::ObjectName;
use super::object::{ObjectFault, Sealer};
use crate::base::digest::Digest;
use crate::base::entropy::Entropy;
use crate::base::time::Timestamp;
use crate::store::content::compression;

const VERSION: u8 = 1;

/// A part of a base, as an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartInfo {
    /// The object's size.
    pub bytes: u64,
    /// The object's SHA-256.
    pub sha256: Digest,
}

/// One content object, with bytes of a segment that the rows of the base name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ContentRange {
    /// The end of the segment's bucket.
    pub bucket: Timestamp,
    /// The segment's number.
    pub segment: u32,
    /// Start of the bytes in the segment.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// A manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The last slot that the base includes.
    pub slot: u64,
    /// The SHA-256 of that slot.
    pub slot_sha256: Digest,
    /// Sequence number of the last batch that the base includes.
    pub sequence: u64,
    /// The time of that batch.
    pub taken_at: Timestamp,
    /// The format of the rows.
    pub row_format: u32,
    /// Number of rows.
    pub rows: u64,
    /// The parts, from 1 on.
    pub parts: Vec<PartInfo>,
    /// Content that the rows name.
    pub content: Vec<ContentRange>,
}

impl Manifest {
    /// Returns the bytes of the manifest's object.
    pub fn seal(&self, head: Head, sealer: &Sealer, entropy: &dyn Entropy) -> Vec<u8> {
        let bytes =
            postcard::to_extend(self, vec![VERSION]).unwrap_or_else(|_| unreachable!("postcard can encode a manifest"));
        let (kind, number) = (Kind::Manifest, self.slot);
        let head = Head { kind, number, ..head };
        sealer.seal(&ObjectName::Manifest(self.slot), &head, b"", &compression::compress(&bytes), entropy)
    }

    /// Opens the manifest of the base of `slot`.
    ///
    /// # Errors
    /// [`ObjectFault`].
    pub fn open(slot: u64, bytes: &[u8], sealer: &Sealer) -> Result<Self, ObjectFault> {
        let damaged = ObjectFault::Damaged("its body can't be read");
        let (head, body) = sealer.open(&ObjectName::Manifest(slot), 0, bytes)?;
        let body = compression::decompress(body.expose()).map_err(|_| damaged.clone())?;
        let manifest: Self = match body.split_first() {
            Some((&VERSION, manifest)) => postcard::from_bytes(manifest).map_err(|_| damaged)?,
            _ => return Err(damaged),
        };
        let is_own = head.kind == Kind::Manifest && manifest.slot == slot;
        if is_own { Ok(manifest) } else { Err(ObjectFault::Misplaced) }
    }
}
