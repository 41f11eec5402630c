//! Why replication can't go on.

use crate::engine::ports::BucketError;
use crate::store::error::StoreError;
use crate::store::open::OpenError;
use crate::store::replica::{FollowError, ObjectFault};
use crate::store::restore::RestoreError;
use crate::store::schema::FORMAT;

/// Why replication can't go on.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The bucket did not do what it was asked for.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// An object is not what its name says.
    #[error("{name}: {fault}")]
    Object {
        /// Its name below the prefix.
        name: String,
        /// The problem with the object.
        fault: ObjectFault,
    },
    /// An object is missing.
    #[error("{name} is missing")]
    Missing {
        /// Its name below the prefix.
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
    /// The log moved while a standby claimed it: its holder lives.
    #[error("the log moved while it was claimed; its holder lives")]
    Moved,
    /// The bucket holds another store.
    #[error("the bucket holds the replica of another store")]
    OtherStore,
    /// The directory was restored from a backup, and the log goes on without it.
    #[error("this directory was restored from a backup, and the log in the bucket goes on after it")]
    Fork,
    /// The log goes on after slots that are missing, or that this directory contradicts.
    #[error("the log in the bucket can't be followed from slot {slot}: {why}")]
    Broken {
        /// The last slot that this directory has.
        slot: u64,
        /// Why not.
        why: String,
    },
    /// This directory has batches that the log went on without.
    #[error("the log goes on without batches {from} to {to}, which only this directory has")]
    Stranded {
        /// The first of them.
        from: u64,
        /// The last of them.
        to: u64,
    },
    /// The bucket has no base to begin with.
    #[error("the bucket has no base of the store")]
    NoBase,
    /// The log is of a later version.
    #[error("the log has rows of format {found}, and this program knows formats up to {FORMAT}")]
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
    /// A file of the data directory.
    #[error("{what}: {error}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The cause.
        error: std::io::Error,
    },
}

impl ReplicaError {
    /// Whether a new base can bridge it: the log itself, or the part of it that is left, does not lead on.
    pub const fn needs_base(&self) -> bool {
        matches!(self, Self::Broken { .. })
    }

    /// The bucket's failure, which a later try may not have.
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
            FollowError::Gap { .. } => Self::Broken { slot: 0, why: error.to_string() },
            FollowError::Store(error) => Self::Store(error),
        }
    }
}
