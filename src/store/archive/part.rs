//! Parts of a backup, and their encoding.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Kind;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::content::compression;

/// The first part: the description of the backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Store format of the backed-up store.
    pub store_format: u32,
    /// Time of the backup: it contains everything committed until then, and nothing later.
    pub taken_at: Timestamp,
    /// Version of Postrider that made the backup.
    pub program: String,
    /// Whether the backup contains message bodies.
    pub has_content: bool,
    /// Whether the backup contains the master key.
    pub has_master_key: bool,
    /// Number of rows that follow.
    pub rows: u64,
}

/// The last part: totals of the parts before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Rows of all tables.
    pub rows: u64,
    /// Number of content segments, including those without any bytes.
    pub segments: u64,
    /// Bytes of content.
    pub content_bytes: u64,
}

/// One part.
#[derive(Debug)]
pub enum Part {
    /// Description of the backup; the first part.
    Head(Head),
    /// The master key, if the backup contains it.
    MasterKey(Zeroizing<[u8; MasterKey::LENGTH]>),
    /// Rows of one table, in the order of their keys.
    Rows {
        /// The table's name.
        table: String,
        /// Keys and values.
        rows: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// Size of the content that follows.
    ContentAhead {
        /// Bytes of segments.
        bytes: u64,
    },
    /// A piece of a content segment. In a backup without content, each segment has one empty piece that reserves its
    /// number.
    Segment {
        /// End of its bucket.
        bucket: Timestamp,
        /// Number.
        number: u32,
        /// Place of the piece in the segment.
        offset: u64,
        /// The sealed bytes.
        bytes: Vec<u8>,
    },
    /// The slots of the segments' keys, sealed under the master key.
    Keys(Vec<u8>),
    /// A file that belongs to the store.
    File {
        /// Name.
        name: String,
        /// Content of the file.
        bytes: Vec<u8>,
    },
    /// The end.
    End(Totals),
}

/// Begins the payload of a part with rows, before compression.
pub(super) fn begin_rows(table: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, table.as_bytes());
    bytes
}

/// Appends bytes with their length.
pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    // The database does not accept values of 4 GiB.
    to.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend_from_slice(bytes);
}

/// Returns the payload of a piece of a segment.
pub(super) fn segment(bucket: Timestamp, number: u32, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&bucket.as_millis().to_be_bytes()[..], &number.to_be_bytes(), &offset.to_be_bytes(), bytes].concat()
}

/// Returns the payload of a file.
pub(super) fn file(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    put_bytes(&mut payload, name.as_bytes());
    payload.extend_from_slice(bytes);
    payload
}

impl Part {
    /// Decodes a payload; `None` if it does not match its kind.
    pub(super) fn decode(kind: Kind, payload: &[u8]) -> Option<Self> {
        Some(match kind {
            Kind::Head => Self::Head(postcard::from_bytes(payload).ok()?),
            Kind::MasterKey => Self::MasterKey(Zeroizing::new(payload.try_into().ok()?)),
            Kind::Rows => rows(&compression::decompress(payload).ok()?)?,
            Kind::ContentAhead => Self::ContentAhead { bytes: u64::from_be_bytes(payload.try_into().ok()?) },
            Kind::Segment => {
                let (bucket, rest) = payload.split_first_chunk::<8>()?;
                let (number, rest) = rest.split_first_chunk::<4>()?;
                let (offset, bytes) = rest.split_first_chunk::<8>()?;
                Self::Segment {
                    bucket: Timestamp::from_millis(u64::from_be_bytes(*bucket)),
                    number: u32::from_be_bytes(*number),
                    offset: u64::from_be_bytes(*offset),
                    bytes: bytes.to_vec(),
                }
            }
            Kind::Keys => Self::Keys(payload.to_vec()),
            Kind::File => {
                let mut rest = payload;
                let name = std::str::from_utf8(take_bytes(&mut rest)?).ok()?.to_owned();
                Self::File { name, bytes: rest.to_vec() }
            }
            Kind::End => Self::End(postcard::from_bytes(payload).ok()?),
        })
    }
}

fn rows(bytes: &[u8]) -> Option<Part> {
    let mut rest = bytes;
    let table = std::str::from_utf8(take_bytes(&mut rest)?).ok()?.to_owned();
    let mut rows = Vec::new();
    while !rest.is_empty() {
        let key = take_bytes(&mut rest)?.to_vec();
        rows.push((key, take_bytes(&mut rest)?.to_vec()));
    }
    Some(Part::Rows { table, rows })
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let (bytes, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *rest = after;
    Some(bytes)
}
