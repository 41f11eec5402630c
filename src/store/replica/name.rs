//! Names of objects below the replica's prefix. Numbers have a fixed width, so that names sort by number.

use std::fmt;
use std::str::FromStr;

use crate::base::time::Timestamp;

/// Greatest number of a slot: 12 digits.
pub const SLOT_MAX: u64 = 999_999_999_999;
/// Greatest number of a part: 6 digits.
pub const PART_MAX: u32 = 999_999;

/// Prefix of the names of slots.
pub const LOG: &str = "log/";
/// Prefix of the names of bases.
pub const BASE: &str = "base/";
/// Prefix of the names of content.
pub const CONTENT: &str = "content/";
/// Prefix of the names of keys.
pub const KEYS: &str = "keys/";
/// Prefix of the names of probes.
pub const PROBE: &str = "probe/";

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectName {
    /// `store`: identity and format of the store.
    Store,
    /// `log/<slot>`.
    Slot(u64),
    /// `base/<slot>/<part>`, parts from 1.
    Part {
        /// The last slot that the base includes.
        slot: u64,
        /// The part's number.
        part: u32,
    },
    /// `base/<slot>/manifest`.
    Manifest(u64),
    /// `content/<bucket>/<segment>/<offset>`.
    Content {
        /// The end of the segment's bucket.
        bucket: Timestamp,
        /// The segment's number.
        segment: u32,
        /// Start of the piece in the segment.
        offset: u64,
    },
    /// `keys/<bucket>/<segment>`.
    Key {
        /// The end of the segment's bucket.
        bucket: Timestamp,
        /// The segment's number.
        segment: u32,
    },
    /// `probe/<random>`, in lower-case letters and digits.
    Probe(String),
}

impl ObjectName {
    /// Prefix of the names of one segment's pieces.
    pub fn content_prefix(bucket: Timestamp, segment: u32) -> String {
        format!("{CONTENT}{:013}/{segment:06}/", bucket.as_millis())
    }

    /// Prefix of the names of one base's parts.
    pub fn base_prefix(slot: u64) -> String {
        format!("{BASE}{slot:012}/")
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store => f.write_str("store"),
            Self::Slot(slot) => write!(f, "{LOG}{slot:012}"),
            Self::Part { slot, part } => write!(f, "{BASE}{slot:012}/{part:06}"),
            Self::Manifest(slot) => write!(f, "{BASE}{slot:012}/manifest"),
            Self::Content { bucket, segment, offset } => {
                write!(f, "{CONTENT}{:013}/{segment:06}/{offset:015}", bucket.as_millis())
            }
            Self::Key { bucket, segment } => write!(f, "{KEYS}{:013}/{segment:06}", bucket.as_millis()),
            Self::Probe(random) => write!(f, "{PROBE}{random}"),
        }
    }
}

/// Error for a text that is not the name of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an object of a replica")]
pub struct InvalidName;

impl FromStr for ObjectName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let parsed = parse(text).ok_or(InvalidName)?;
        // Only one spelling is accepted: another spelling is another object in the bucket.
        if parsed.to_string() == text { Ok(parsed) } else { Err(InvalidName) }
    }
}

fn parse(text: &str) -> Option<ObjectName> {
    let mut parts = text.split('/');
    let kind = parts.next()?;
    let rest: Vec<_> = parts.take(4).collect();
    Some(match (kind, rest.as_slice()) {
        ("store", []) => ObjectName::Store,
        ("log", [slot]) => ObjectName::Slot(number(slot, SLOT_MAX)?),
        ("base", [slot, "manifest"]) => ObjectName::Manifest(number(slot, SLOT_MAX)?),
        ("base", [slot, part]) => ObjectName::Part {
            slot: number(slot, SLOT_MAX)?,
            part: number(part, PART_MAX.into())?.try_into().ok().filter(|part| *part > 0)?,
        },
        ("content", [bucket, segment, offset]) => ObjectName::Content {
            bucket: moment(bucket)?,
            segment: number(segment, u32::MAX.into())?.try_into().ok()?,
            offset: number(offset, u64::MAX)?,
        },
        ("keys", [bucket, segment]) => {
            ObjectName::Key { bucket: moment(bucket)?, segment: number(segment, u32::MAX.into())?.try_into().ok()? }
        }
        ("probe", [random]) => {
            let is_valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let is_probe = (1..=64).contains(&random.len()) && random.bytes().all(is_valid);
            ObjectName::Probe(is_probe.then(|| (*random).to_owned())?)
        }
        _ => return None,
    })
}

fn number(text: &str, max: u64) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= max)
}

fn moment(text: &str) -> Option<Timestamp> {
    number(text, Timestamp::MAX.as_millis()).map(Timestamp::from_millis)
}
