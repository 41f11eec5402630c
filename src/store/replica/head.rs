//! The unencrypted first line of every object: `postrider replica 1 <kind> <number> <epoch> <holder> <time>`. It shows
//! an operator with a bucket browser the kind of the object, and nothing about customers.

use std::fmt;
use std::str::FromStr;

use crate::base::time::Timestamp;

/// Format of objects that is written.
pub const FORMAT: u32 = 1;
/// Maximum length of a line in bytes, with its line end.
pub const LINE_BYTES_MAX: usize = 256;
const MAGIC: &str = "postrider replica ";
const HOLDER_BYTES_MAX: usize = 100;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $text:literal,)*) => {
        /// The kinds of objects.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Returns the word in the line.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $text,)*
                }
            }
        }
    };
}

kinds! {
    /// The identity of the store.
    Store = "store",
    /// A slot that begins an epoch.
    Claim = "claim",
    /// A slot with batches of rows.
    Batches = "batches",
    /// A slot that only confirms the lease.
    Beat = "beat",
    /// A slot that ends an epoch in an orderly way.
    Release = "release",
    /// A part of a base.
    Part = "part",
    /// The manifest of a base.
    Manifest = "manifest",
    /// A piece of a segment of content.
    Content = "content",
    /// The key of a segment of content.
    Key = "key",
    /// A probe of the bucket.
    Probe = "probe",
}

impl Kind {
    /// Returns whether objects of this kind are slots of the log.
    pub const fn is_slot(self) -> bool {
        matches!(self, Self::Claim | Self::Batches | Self::Beat | Self::Release)
    }
}

/// The name of a data directory that writes to the bucket: 1 to 100 letters, digits, dots, hyphens and underscores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(String);

/// Error for a malformed holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a holder has 1 to 100 letters, digits, dots, hyphens and underscores")]
pub struct InvalidHolder;

impl Holder {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Holder {
    type Err = InvalidHolder;

    fn from_str(text: &str) -> Result<Self, InvalidHolder> {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_holder = (1..=HOLDER_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_valid);
        if is_holder { Ok(Self(text.to_owned())) } else { Err(InvalidHolder) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The first line of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The kind of the object.
    pub kind: Kind,
    /// Number of the slot for slots, parts and manifests; of the segment for content and keys; else 0.
    pub number: u64,
    /// Epoch of its writer; 0 before the first claim.
    pub epoch: u64,
    /// Writer.
    pub holder: Holder,
    /// The writer's time when the bytes were created.
    pub time: Timestamp,
}

/// Reason why a first line can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    /// The bytes do not begin like an object of a replica.
    #[error("it does not begin with the first line of a replica object")]
    Strange,
    /// A later version of Postrider wrote the object.
    #[error("it has format {0}, and this version supports formats up to {FORMAT}; use a newer version of Postrider")]
    Newer(u32),
}

impl Head {
    /// Returns the line with its line end.
    pub fn encode(&self) -> Vec<u8> {
        let Self { kind, number, epoch, holder, time } = self;
        format!("{MAGIC}{FORMAT} {} {number} {epoch} {holder} {time}\n", kind.as_str()).into_bytes()
    }

    /// Reads the line at the start of `bytes`, and returns the bytes after it.
    ///
    /// # Errors
    /// [`HeadFault`], if there is no line in a known format.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), HeadFault> {
        let front = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        let end = front.iter().position(|byte| *byte == b'\n').ok_or(HeadFault::Strange)?;
        let line = std::str::from_utf8(&front[..end]).map_err(|_| HeadFault::Strange)?;
        let rest = line.strip_prefix(MAGIC).ok_or(HeadFault::Strange)?;
        let (format, rest) = rest.split_once(' ').ok_or(HeadFault::Strange)?;
        let format: u32 = integer(format).and_then(|format| format.try_into().ok()).ok_or(HeadFault::Strange)?;
        if format > FORMAT {
            return Err(HeadFault::Newer(format));
        }
        let head = fields(rest).filter(|_| format == FORMAT).ok_or(HeadFault::Strange)?;
        // Only one spelling is accepted, so that equal heads have equal bytes.
        let is_same = head.encode() == bytes[..=end];
        if is_same { Ok((head, &bytes[end + 1..])) } else { Err(HeadFault::Strange) }
    }
}

fn fields(rest: &str) -> Option<Head> {
    let mut words = rest.split(' ');
    let mut next = || words.next();
    let kind = next()?;
    let head = Head {
        kind: *Kind::ALL.iter().find(|known| known.as_str() == kind)?,
        number: integer(next()?)?,
        epoch: integer(next()?)?,
        holder: next()?.parse().ok()?,
        time: next()?.parse().ok()?,
    };
    next().is_none().then_some(head)
}

fn integer(text: &str) -> Option<u64> {
    let is_integer = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_integer)
}
