//! Keys of [`Table::Meta`](super::Table::Meta).

/// The store's format, four bytes.
pub const FORMAT: &[u8] = b"format";
/// A value that only the store's own master key opens.
pub const MASTER_KEY_PROOF: &[u8] = b"master_key_proof";
/// The last identifier that the writer assigned.
pub const LAST_ID: &[u8] = b"last_id";
/// The greatest accepted message identifier.
pub const LAST_MESSAGE_ID: &[u8] = b"last_message_id";
/// The service's time at the last batch, eight bytes. Present only while it is behind the last identifier, because a
/// clock that was ahead has been corrected.
pub const TIME: &[u8] = b"time";
/// Epoch of the journal records that the database lacks, sixteen bytes.
pub const JOURNAL: &[u8] = b"journal";
/// Number of waiting timers, sixteen bytes.
pub const WAITING: &[u8] = b"waiting";
/// Version of the totals in the store, one byte: see [`crate::store::totals`].
pub const TOTALS: &[u8] = b"totals";
/// Progress of a migration. Present only in the copy written by the migration.
pub const MIGRATION: &[u8] = b"migration";
/// The number of the last batch and the time of its commit, sixteen bytes: [`crate::store::replica::Sequence`].
pub const SEQUENCE: &[u8] = b"sequence";
/// The part of the bucket's log that the store has: [`crate::store::replica::Position`].
pub const REPLICA: &[u8] = b"replica";
/// The content that was destroyed: [`crate::store::row::destroyed_content::DestroyedContent`].
pub const DESTROYED: &[u8] = b"destroyed";
/// The backup from which the store was restored.
pub const RESTORED: &[u8] = b"restored";
