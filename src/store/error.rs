//! Errors of the store itself. They are not refusals, and not errors in the caller's input. Nothing unsynced was
//! acknowledged.

use super::schema::Table;

/// A failure of the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database reported an I/O error or a broken invariant. Fatal: the process must be restarted.
    #[error("the database failed: {0}")]
    Database(String),
    /// The database file is damaged in a place that everything depends on. Fatal: a restart does not help.
    #[error("the database is damaged: {0}")]
    Corrupted(String),
    /// A row does not decode.
    #[error("a row of table {} is damaged or of a later version: {fault}", .table.name())]
    Row {
        /// The table.
        table: Table,
        /// Description of the damage.
        fault: String,
    },
    /// A row can't be trusted: its checksum does not match, or its page can't be read. Other rows may be intact.
    #[error("row {row} of table {} is damaged: {fault}", .table.name())]
    Damaged {
        /// The table.
        table: Table,
        /// The identifiers in its key.
        row: String,
        /// Description of the damage.
        fault: String,
    },
    /// A content segment could not be written or read.
    #[error("could not read or write content: {0}")]
    Content(String),
    /// A sync failed, so the state of the disk is unknown. Fatal, and never retried.
    #[error("could not sync {0}")]
    Unsynced(String),
    /// The device is full. Nothing is damaged; writes work again once there is free space.
    #[error("the disk is too full to store content")]
    Full,
    /// The device was full while the database was written. Fatal: the pages in memory may differ from the file.
    #[error("the disk is too full for the database")]
    DatabaseFull,
    /// An operation panicked; all its changes were dropped.
    #[error("an operation of the store panicked")]
    Panicked,
    /// The store is shutting down or has failed before.
    #[error("the store is closed")]
    Closed,
    /// Earlier changes wait for the replica's bucket. Nothing was changed.
    #[error("the bucket has not confirmed earlier changes")]
    Unconfirmed,
    /// The change is on this machine's disk, but the replica's bucket has not confirmed it in time. It takes effect
    /// once the bucket confirms it.
    #[error("the bucket has not confirmed the change yet")]
    InDoubt,
}

impl StoreError {
    /// Returns whether only one row is affected: operations that need it fail, and the rest of the store works.
    pub const fn is_of_row(&self) -> bool {
        match self {
            Self::Row { .. } | Self::Damaged { .. } => true,
            Self::Database(_)
            | Self::Corrupted(_)
            | Self::Unsynced(_)
            | Self::Content(_)
            | Self::Full
            | Self::DatabaseFull
            | Self::Panicked
            | Self::Closed
            | Self::Unconfirmed
            | Self::InDoubt => false,
        }
    }

    /// Returns the error for a missing row to which another row refers.
    pub fn missing(table: Table) -> Self {
        Self::Row { table, fault: "it does not exist, though another row refers to it".to_owned() }
    }
}

macro_rules! from_redb {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                match redb::Error::from(error) {
                    redb::Error::Corrupted(fault) => Self::Corrupted(fault),
                    redb::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => Self::DatabaseFull,
                    error => Self::Database(error.to_string()),
                }
            }
        }
    )*};
}
from_redb!(StorageError, TableError, TransactionError, CommitError, DatabaseError);

/// Reason why an operation was not applied: a refusal or a failure of the store.
#[derive(Debug)]
pub enum OpError<R> {
    /// The operation was refused for a business reason; nothing is changed.
    Refused(R),
    /// The store failed.
    Failed(StoreError),
}

impl<R, E: Into<StoreError>> From<E> for OpError<R> {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Returns whether an error of the file system means that the device, or the user's part of it, is full.
pub fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
