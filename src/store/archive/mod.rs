//! A backup as a stream of bytes: a line that names it, parts with a checksum each, and an end without which it is no
//! whole one. [`Writer`] makes it, [`Reader`] reads it back; neither knows what a row means.
//!
//! ```text
//! "postrider backup 1\n"  kind(1) length(4) payload checksum(16)  kind length payload checksum  ...
//! ```
//!
//! Each checksum covers the one before it, so a part that is missing, doubled or out of its place is found as surely as
//! a flipped bit. They find damage; they are no proof against somebody who writes a backup of his own.

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

/// Beginning of a backup, before the number of its format and a line end.
const MAGIC: &[u8] = b"postrider backup ";
/// The format that is written.
const FORMAT: u32 = 1;
/// Bytes of a part at most: far above any that is written, and all that a damaged length can make us hold.
const PART_BYTES_MAX: u32 = 32 * 1024 * 1024;
const CHECKSUM: usize = 16;

/// Why a backup can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It does not begin like one.
    #[error("it is no backup of this program")]
    Strange,
    /// It was made by a later version of this program.
    #[error("the backup has format {found}, and this program knows formats up to {FORMAT}")]
    Newer {
        /// The format found.
        found: u32,
    },
    /// It ends too early: the backup was broken off, or copied in part.
    #[error("the backup ends after {bytes} bytes, before its end is written: it is not complete")]
    Truncated {
        /// Number of bytes.
        bytes: u64,
    },
    /// The content differs from what was written.
    #[error("the backup is damaged at byte {byte}: {what}")]
    Damaged {
        /// Where the part begins.
        byte: u64,
        /// Description of the damage.
        what: &'static str,
    },
    /// It could not be read, or what is made of it not written.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The kinds of parts, as their first byte. A number is never used again for something else.
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

/// The checksums of a stream, each made with the one before.
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
