//! The store's bounds. A running store has the defaults, which were measured or argued; a simulation run draws its own
//! from its seed, so that what the defaults seldom reach runs too: a full journal, a cache that evicts, little room.

use std::time::Duration;

/// The database's cache: enough for the hot pages of a small service, little enough for a small machine.
pub(super) const CACHE_BYTES: usize = 32 << 20;

/// The bounds of one opened store.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The database's cache.
    pub(super) cache_bytes: usize,
    /// Rows that a batch changes at most for a lone answer to come before they are written into the database: whoever
    /// takes a snapshot meanwhile waits for some tenths of a millisecond. Among many callers all would wait.
    pub(super) lone_rows_max: usize,
    /// Bodies of a batch, sealed, that the journal carries at most. They are written twice then, which costs less than
    /// a sync as long as they are few.
    pub(super) carried_bytes_max: usize,
    /// Segment files kept open for reading, and as many for writing.
    pub(super) open_files_max: usize,
    /// Bodies kept in memory until they are sent.
    pub(super) body_cache_bytes_max: usize,
    /// Records before a checkpoint. Nobody is answered during a checkpoint, and it takes the longer the more pages
    /// changed: with 16 clients and 10 KB on a busy machine 31 ms after 400 messages, 42 after 1,270, 70 after 3,100. A
    /// message takes 3.4 KiB of the journal until it is delivered, so there are some 600 of them between two
    /// checkpoints.
    pub(super) journal_bytes_max: u64,
    /// The same where the device has little room left: a checkpoint needs room for every page that changed since the
    /// last.
    pub(super) journal_bytes_max_short: u64,
    /// Below this much free room the device has little left.
    pub(super) short_bytes: u64,
    /// Age of the first record before a checkpoint, so that a store at rest has nothing to replay.
    pub(super) journal_age_max: Duration,
    /// Segments that are owed their sync before a checkpoint: so many files stay open for it.
    pub(super) owed_segments_max: usize,
    /// Room on the device that is kept for outcomes: they mostly go to pages that the database has already.
    pub(super) reserve_bytes: u64,
    /// Below this much free room the reserve is given back.
    pub(super) reserve_short_bytes: u64,
    /// From this much free room on it is taken.
    pub(super) reserve_plenty_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cache_bytes: CACHE_BYTES,
            lone_rows_max: 40,
            carried_bytes_max: 16 << 10,
            open_files_max: 64,
            body_cache_bytes_max: 4 << 20,
            journal_bytes_max: 2 << 20,
            journal_bytes_max_short: 1 << 20,
            short_bytes: 256 << 20,
            journal_age_max: Duration::from_secs(5),
            owed_segments_max: 64,
            reserve_bytes: 4 << 20,
            reserve_short_bytes: 8 << 20,
            reserve_plenty_bytes: 128 << 20,
        }
    }
}
