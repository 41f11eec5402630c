//! Reasons why replication can't continue.

use std::io;

use crate::engine::bucket::probe::Unfit;
use crate::engine::executor::WorkPanicked;
use crate::engine::ports::BucketError;
use crate::store::error::StoreError;
use crate::store::open::OpenError;
use crate::store::replica::{FollowError, ObjectFault};
use crate::store::restore::RestoreError;
use crate::store::schema::FORMAT;

/// Reason why replication can't continue.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// A call to the bucket failed.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// This machine's clock differs from the bucket's.
    #[error(transparent)]
    Clock(Unfit),
    /// An object's content does not match its name.
    #[error("{name}: {fault}")]
    Object {
        /// Name below the prefix.
        name: String,
        /// The problem with the object.
        fault: ObjectFault,
    },
    /// An object is missing.
    #[error("{name} is missing")]
    Missing {
        /// Name below the prefix.
        name: String,
    },
    /// Another machine claimed the log.
    #[error("{holder} claimed the log at slot {slot}")]
    Claimed {
        /// The slot of the claim.
        slot: u64,
        /// The machine that claimed the log.
        holder: String,
    },
    /// The directory has followed the log of another machine, which has not released it.
    #[error("this directory follows the log of {holder}, which has not released it")]
    Followed {
        /// The machine that owns the log.
        holder: String,
    },
    /// The log grew while a standby claimed it, so its holder is alive.
    #[error("the log grew while it was claimed, so its holder is alive")]
    Moved,
    /// The bucket holds another store.
    #[error("the bucket holds the replica of another store")]
    OtherStore,
    /// The directory was restored from a backup, and the log continues without it.
    #[error("this directory was restored from a backup, and the log in the bucket continues without it")]
    Fork,
    /// The log continues after missing slots, or contradicts this directory.
    #[error("the log in the bucket can't be followed from slot {slot}: {why}")]
    Broken {
        /// The last slot that this directory has.
        slot: u64,
        /// The reason.
        why: String,
    },
    /// This directory has batches that the log does not contain.
    #[error("the log continues without batches {from} to {to}, which only this directory has")]
    Stranded {
        /// The first of the batches.
        from: u64,
        /// The last of the batches.
        to: u64,
    },
    /// The bucket has no base to start from.
    #[error("the bucket has no base of the store")]
    NoBase,
    /// The bucket is empty, and this directory owned the log that it had.
    #[error(
        "the bucket is empty, but contained the log of this machine, which served last. If no other machine serves, \
         start the service here, or run `postrider promote --without-bucket`"
    )]
    Emptied,
    /// The log was written by a later version.
    #[error("the log has rows of format {found}, and this version supports formats up to {FORMAT}")]
    Newer {
        /// The format found.
        found: u32,
    },
    /// The store can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory could not be built from the base.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A file of the data directory failed.
    #[error("{what}: {error}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The cause.
        error: io::Error,
    },
}

impl ReplicaError {
    /// Returns whether a new base can help, because the log, or the remaining part of it, does not continue from here.
    pub const fn needs_base(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    /// Returns whether the disk has no room. The store must be opened again.
    pub fn is_disk_full(&self) -> bool {
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        let of_store = |error: &StoreError| matches!(error, StoreError::Full | StoreError::DatabaseFull);
        match self {
            Self::Store(error) | Self::Open(OpenError::Failed(error)) | Self::Restore(RestoreError::Store(error)) => {
                of_store(error)
            }
            Self::Io { error, .. }
            | Self::Open(OpenError::Io { error, .. })
            | Self::Restore(RestoreError::Io { error, .. }) => is_full(error),
            _ => false,
        }
    }

    /// Returns the bucket's failure, which may be transient.
    pub const fn of_bucket(&self) -> Option<&BucketError> {
        match self {
            Self::Bucket(error) => Some(error),
            _ => None,
        }
    }
}

impl From<FollowError> for ReplicaError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Diverged { from, have } => Self::Stranded { from, to: have },
            FollowError::Gap { .. } => Self::Broken { slot: 0, why: error.to_string() },
            FollowError::Store(error) => Self::Store(error),
        }
    }
}

/// Returns the error of work that panicked.
pub(super) fn panicked(error: WorkPanicked) -> ReplicaError {
    ReplicaError::Io { what: "running replication work".to_owned(), error: io::Error::other(error) }
}
