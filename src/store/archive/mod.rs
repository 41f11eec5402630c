//! The backup format: a stream with a first line that names it, parts with a checksum each, and an end part that proves
//! it complete. [`Writer`] writes it and [`Reader`] reads it; neither knows the meaning of a row.
//!
//! ```text
//! "postrider backup 1\n"  kind(1) length(4) payload checksum(16)  kind length payload checksum  ...
//! ```
//!
//! Each checksum covers the one before it, so a part that is missing, repeated or misplaced is found as surely as a
//! flipped bit. Checksums detect damage; they do not protect against a forged backup.

mod part;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::io;

use serde::{Deserialize, Serialize};

pub use part::{Head, Part, Totals};
pub use reader::Reader;
pub(super) use writer::Writer;

use crate::base::signature::hmac_sha256;

/// First bytes of a backup, before the number of its format and a line end.
const MAGIC: &[u8] = b"postrider backup ";
/// Format that is written.
const FORMAT: u32 = 1;
/// Maximum size of a part: far above any that is written, and the most memory that a damaged length can cost.
const PART_BYTES_MAX: u32 = 32 * 1024 * 1024;
const CHECKSUM: usize = 16;

/// Reason why a backup can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It does not begin like a backup.
    #[error("not a Postrider backup file")]
    Strange,
    /// It was made by a later version of Postrider.
    #[error("the backup has format {found}, and this version supports formats up to {FORMAT}")]
    Newer {
        /// The format found.
        found: u32,
    },
    /// It ends too early: the backup was interrupted, or copied in part.
    #[error("the backup is incomplete: it ends after {bytes} bytes")]
    Truncated {
        /// Number of bytes.
        bytes: u64,
    },
    /// The content differs from what was written.
    #[error("the backup is damaged at byte {byte}: {what}")]
    Damaged {
        /// Start of the part.
        byte: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// Reading it, or writing its content, failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Kinds of parts, as their first byte. A number is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
enum Kind {
    Head = 1,
    MasterKey = 2,
    Rows = 3,
    ContentAhead = 4,
    Segment = 5,
    Keys = 6,
    File = 7,
    End = 8,
}

impl Kind {
    const ALL: [Self; 8] =
        [Self::Head, Self::MasterKey, Self::Rows, Self::ContentAhead, Self::Segment, Self::Keys, Self::File, Self::End];

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The running checksum of a stream: each part's checksum includes the one before.
struct Chain([u8; 32]);

impl Chain {
    fn begin() -> Self {
        Self(hmac_sha256(MAGIC, &[&FORMAT.to_be_bytes()]))
    }

    fn next(&mut self, kind: u8, payload: &[u8]) -> [u8; CHECKSUM] {
        self.0 = hmac_sha256(&self.0, &[&[kind], payload]);
        let mut checksum = [0; CHECKSUM];
        checksum.copy_from_slice(&self.0[..CHECKSUM]);
        checksum
    }
}
