//! The bucket of an object store that holds a replica. Floor `net` implements the port with S3, tests implement it with
//! a map.
//!
//! The port never repeats a call. The caller decides whether to retry a failed create, because it keeps the object's
//! bytes unchanged.

use std::sync::Arc;

use bytes::Bytes;

use super::BoxFuture;
use crate::base::time::Timestamp;

/// Maximum size of an object that is written or read, in bytes: one part of a base plus the overhead of sealing.
pub const OBJECT_BYTES_MAX: usize = 65 * 1024 * 1024;

/// Result of a conditional create that the bucket answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// The object did not exist, and now has exactly these bytes.
    Created,
    /// An object of this name exists. It may be the same one, if an earlier answer was lost: read it and compare.
    Exists,
}

/// Reason why a call to the bucket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BucketErrorKind {
    /// There was no complete answer, or a 5xx. The call may have been done already, or may be done later.
    Unknown,
    /// 429 or SlowDown: not done; the bucket asks for fewer requests.
    Throttled,
    /// 401 or 403: not done.
    Forbidden,
    /// The connection failed: not done.
    Unreachable,
    /// Another 4xx, or an oversized answer: a retry has the same result.
    Refused,
    /// 501: the service does not support the operation, or the condition of a create.
    Unsupported,
    /// 409: another conditional create of the name is in flight. Not done; try again.
    Conflict,
}

impl BucketErrorKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Throttled,
        Self::Forbidden,
        Self::Unreachable,
        Self::Refused,
        Self::Unsupported,
        Self::Conflict,
    ];

    /// Returns the name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Throttled => "throttled",
            Self::Forbidden => "forbidden",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::Conflict => "conflict",
        }
    }

    /// Returns whether the same call may succeed later, although nobody changes the credentials or the configuration.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unknown | Self::Throttled | Self::Unreachable | Self::Conflict)
    }
}

/// A failed call to the bucket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} of {name}: {message}")]
pub struct BucketError {
    /// The kind, which decides the next step.
    pub kind: BucketErrorKind,
    /// The operation.
    pub operation: BucketOperation,
    /// The object's name below the prefix, or the prefix that was listed.
    pub name: String,
    /// The cause in words, with the bucket's own code and request identifier. Contains no credentials.
    pub message: String,
}

/// The operations, under their names in metrics and errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BucketOperation {
    /// A conditional create.
    Create,
    /// A read of an object or a range of it.
    Read,
    /// A list of names.
    List,
    /// An unconditional write.
    Overwrite,
    /// A removal.
    Remove,
    /// A read of the bucket's settings.
    Settings,
}

impl BucketOperation {
    /// All operations.
    pub const ALL: [Self; 6] = [Self::Create, Self::Read, Self::List, Self::Overwrite, Self::Remove, Self::Settings];

    /// Returns the name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::List => "list",
            Self::Overwrite => "overwrite",
            Self::Remove => "remove",
            Self::Settings => "settings",
        }
    }
}

impl std::fmt::Display for BucketOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name below the prefix.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

/// One page of a list, in ascending order of the names' bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectPage {
    /// The objects: 1,000 at most.
    pub objects: Vec<ObjectInfo>,
    /// Whether this page is the last.
    pub is_last: bool,
}

/// Result of a call to the bucket.
pub type BucketResult<T> = Result<T, BucketError>;

/// The objects below one prefix of a bucket. Names are relative to the prefix. Every call is one request and ends
/// within the configured time.
pub trait Bucket: Send + Sync {
    /// Creates an object unless one with its name exists (`If-None-Match: *`).
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<Creation>>;
    /// Returns the object's bytes, or `None` if there is no such object.
    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<Option<Bytes>>>;
    /// Returns at most `length` bytes from `from` on; fewer at the object's end. `None` if there is no such object.
    fn read_range<'a>(&'a self, name: &'a str, from: u64, length: u64) -> BoxFuture<'a, BucketResult<Option<Bytes>>>;
    /// Returns one page of the objects whose names begin with `prefix` and are greater than `after`.
    fn list<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, BucketResult<ObjectPage>>;
    /// Writes an object, whether it exists or not.
    fn overwrite<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<()>>;
    /// Removes an object. Succeeds if it does not exist.
    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<()>>;
    /// Returns the bucket's clock: the `Date` of its last answer plus the time since. `None` before the first answer.
    fn date(&self) -> Option<Timestamp>;
}

/// Whether a bucket keeps objects that were overwritten or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// Keeps no overwritten or removed objects.
    Off,
    /// Keeps earlier versions.
    Enabled,
    /// Keeps versions from before the suspension; a removal still leaves a marker.
    Suspended,
}

/// A lifecycle rule that removes objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// The rule's identifier; empty if it has none.
    pub id: String,
    /// Prefix of the full names that the rule applies to; empty for all.
    pub prefix: String,
}

/// Settings that decide whether a bucket may hold a replica. A store without such a setting answers with
/// [`BucketErrorKind::Unsupported`] or [`BucketErrorKind::Refused`]. Credentials without the right to read it get
/// [`BucketErrorKind::Forbidden`].
pub trait BucketSettings: Send + Sync {
    /// Returns whether the bucket keeps versions.
    fn versioning(&self) -> BoxFuture<'_, BucketResult<Versioning>>;
    /// Returns whether objects are locked against removal by default.
    fn has_object_lock(&self) -> BoxFuture<'_, BucketResult<bool>>;
    /// Returns the enabled lifecycle rules that remove objects below the replica's prefix.
    fn expiries(&self) -> BoxFuture<'_, BucketResult<Vec<Expiry>>>;
}

impl<B: Bucket + ?Sized> Bucket for Arc<B> {
    fn create<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<Creation>> {
        (**self).create(name, bytes)
    }

    fn read<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        (**self).read(name)
    }

    fn read_range<'a>(&'a self, name: &'a str, from: u64, length: u64) -> BoxFuture<'a, BucketResult<Option<Bytes>>> {
        (**self).read_range(name, from, length)
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, BucketResult<ObjectPage>> {
        (**self).list(prefix, after)
    }

    fn overwrite<'a>(&'a self, name: &'a str, bytes: Bytes) -> BoxFuture<'a, BucketResult<()>> {
        (**self).overwrite(name, bytes)
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, BucketResult<()>> {
        (**self).remove(name)
    }

    fn date(&self) -> Option<Timestamp> {
        (**self).date()
    }
}

impl<B: BucketSettings + ?Sized> BucketSettings for Arc<B> {
    fn versioning(&self) -> BoxFuture<'_, BucketResult<Versioning>> {
        (**self).versioning()
    }

    fn has_object_lock(&self) -> BoxFuture<'_, BucketResult<bool>> {
        (**self).has_object_lock()
    }

    fn expiries(&self) -> BoxFuture<'_, BucketResult<Vec<Expiry>>> {
        (**self).expiries()
    }
}
