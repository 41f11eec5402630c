//! Parts of a backup, and their encoding.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Kind;
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::content::compression;

/// The first part: what the backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The format of the store that it was taken of.
    pub store_format: u32,
    /// When it was taken: everything that was committed until then is in it, and nothing else.
    pub taken_at: Timestamp,
    /// The version of the program that took it.
    pub program: String,
    /// Whether message bodies are in it.
    pub has_content: bool,
    /// Whether the master key is in it.
    pub has_master_key: bool,
    /// Number of rows that follow.
    pub rows: u64,
}

/// The last part: what came before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Rows of all tables.
    pub rows: u64,
    /// Segments of content, those without a byte of it included.
    pub segments: u64,
    /// Bytes of content.
    pub content_bytes: u64,
}

/// One part.
#[derive(Debug)]
pub enum Part {
    /// Description of the backup; the first part.
    Head(Head),
    /// The master key, where it is in the backup.
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
    /// A piece of a segment of content. Without content every segment has one piece, which is empty: its number must
    /// not be given to another.
    Segment {
        /// The end of its bucket.
        bucket: Timestamp,
        /// Its number.
        number: u32,
        /// Where the piece stands in it.
        offset: u64,
        /// The sealed bytes.
        bytes: Vec<u8>,
    },
    /// The slots of the segments' keys, sealed under the master key.
    Keys(Vec<u8>),
    /// A file that stands beside the store.
    File {
        /// Its name.
        name: String,
        /// Content of the file.
        bytes: Vec<u8>,
    },
    /// The end.
    End(Totals),
}

/// Rows on their way into a part, as its bytes before compression.
pub(super) fn begin_rows(table: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_bytes(&mut bytes, table.as_bytes());
    bytes
}

/// Adds what has a length of its own.
pub(super) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    // A value of 4 GiB is beyond what the database takes.
    to.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend_from_slice(bytes);
}

/// The payload of a piece of a segment.
pub(super) fn segment(bucket: Timestamp, number: u32, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&bucket.as_millis().to_be_bytes()[..], &number.to_be_bytes(), &offset.to_be_bytes(), bytes].concat()
}

/// The payload of a file.
pub(super) fn file(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    put_bytes(&mut payload, name.as_bytes());
    payload.extend_from_slice(bytes);
    payload
}

impl Part {
    /// Reads a payload; none where it is not what its kind says.
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
