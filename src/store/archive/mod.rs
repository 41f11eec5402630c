//! The backup format: a stream with a first line that names it, parts with a checksum each, and an end part that proves
//! it complete. [`Writer`] writes it and [`Reader`] reads it. Both are independent of the meaning of the rows.
//!
//! ```text
//! "postrider backup 1\n"  kind(1) length(4) payload checksum(16)  kind length payload checksum  ...
//! ```
//!
//! Each checksum covers the one before it. A missing, repeated or misplaced part is therefore found as surely as a
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
/// Maximum size of a part. It is far above the size of any written part, and limits the memory that a damaged length
/// can cost.
const PART_BYTES_MAX: u32 = 32 * 1024 * 1024;
const CHECKSUM: usize = 16;

/// Reason why a backup can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file does not begin like a backup.
    #[error("not a Postrider backup file")]
    Strange,
    /// A later version of Postrider made the backup.
    #[error("the backup has format {found}, and this version supports formats up to {FORMAT}")]
    Newer {
        /// The format found.
        found: u32,
    },
    /// The file ends too early: the backup was interrupted, or only partly copied.
    #[error("the backup is incomplete: it ends after {bytes} bytes")]
    Truncated {
        /// Number of bytes.
        bytes: u64,
    },
    /// The content differs from the written content.
    #[error("the backup is damaged at byte {byte}: {what}")]
    Damaged {
        /// Start of the part.
        byte: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// An I/O error while the backup was read or its content written.
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
