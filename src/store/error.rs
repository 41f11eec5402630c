//! The third kind of error: the store itself failed. Nobody's input is at fault, nothing unsynced was acknowledged.

use super::schema::Table;

/// The store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database reported an I/O error, or one of its invariants broken. Fatal: the process must end and
    /// be started again.
    #[error("the database failed: {0}")]
    Database(String),
    /// The database's file is damaged where everything depends on it. Fatal: a restart does not help.
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
    /// A row can't be trusted: its checksum does not fit, or its page can't be read. Other rows may be whole.
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
    #[error("a content segment failed: {0}")]
    Content(String),
    /// A sync failed: nobody knows what is on the disk. Fatal, and never tried again.
    #[error("could not sync {0}")]
    Unsynced(String),
    /// No room left on the device. Nothing was damaged; it recovers when room returns.
    #[error("no space is left for content")]
    Full,
    /// An operation panicked; its changes were dropped whole.
    #[error("an operation of the store panicked")]
    Panicked,
    /// The store is shutting down or has failed before.
    #[error("the store is closed")]
    Closed,
    /// Earlier changes wait for the bucket of the replica. Nothing was changed.
    #[error("the bucket has not confirmed earlier changes")]
    Unconfirmed,
    /// The change is on this machine's disk, and the bucket of the replica has not confirmed it in time. It counts once
    /// the bucket does.
    #[error("the bucket has not confirmed the change yet")]
    InDoubt,
}

impl StoreError {
    /// Whether one row is at fault, and the store itself works: only what needs that row fails.
    pub const fn is_of_row(&self) -> bool {
        match self {
            Self::Row { .. } | Self::Damaged { .. } => true,
            Self::Database(_)
            | Self::Corrupted(_)
            | Self::Unsynced(_)
            | Self::Content(_)
            | Self::Full
            | Self::Panicked
            | Self::Closed
            | Self::Unconfirmed
            | Self::InDoubt => false,
        }
    }

    /// A row that another row promises does not exist.
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
                    error => Self::Database(error.to_string()),
                }
            }
        }
    )*};
}
from_redb!(StorageError, TableError, TransactionError, CommitError, DatabaseError);

/// Why an operation did not happen: the business said no, or the store failed.
#[derive(Debug)]
pub enum Stop<R> {
    /// The business says no; nothing is changed.
    Refused(R),
    /// The store failed.
    Failed(StoreError),
}

impl<R, E: Into<StoreError>> From<E> for Stop<R> {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
