//! Limits of the store. A running store uses the defaults, which were measured or argued. A simulation run draws its
//! own from its seed, so that it also reaches rare states: a full journal, a cache that evicts, a nearly full disk.

use std::time::Duration;

/// Size of the database cache: large enough for the hot pages of a small service, small enough for a small machine.
pub(super) const CACHE_BYTES: usize = 32 << 20;

/// Limits of one opened store.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Size of the database cache.
    pub(super) cache_bytes: usize,
    /// Maximum number of changed rows in a batch for which a single caller is answered before the rows are written into
    /// the database. Snapshots then wait for some tenths of a millisecond. With many callers, all of their snapshots
    /// would wait.
    pub(super) lone_rows_max: usize,
    /// Maximum size of a batch's sealed bodies that are inlined in the journal. They are written twice, which costs
    /// less than a sync as long as they are few.
    pub(super) carried_bytes_max: usize,
    /// Number of segment files that are kept open for reading, and the same number for writing.
    pub(super) open_files_max: usize,
    /// Size of the body cache, which keeps bodies in memory until they are sent.
    pub(super) body_cache_bytes_max: usize,
    /// Size of the journal that triggers a checkpoint. No caller is answered during a checkpoint, and it takes longer
    /// the more pages changed. With 16 clients and 10 KB on a busy machine it takes 31 ms after 400 messages, 42 after
    /// 1,270, and 70 after 3,100. A message takes 3.4 KiB of the journal until it is delivered, so about 600 of them
    /// fit between two checkpoints.
    pub(super) journal_bytes_max: u64,
    /// Size of the journal that triggers a checkpoint if the device has little free space: a checkpoint needs space for
    /// every page that changed since the last one.
    pub(super) journal_bytes_max_short: u64,
    /// Free space below which the device counts as nearly full.
    pub(super) short_bytes: u64,
    /// Age of the first record that triggers a checkpoint, so that an idle store has nothing to replay.
    pub(super) journal_age_max: Duration,
    /// Maximum number of segments with an outstanding sync before a checkpoint. Their files stay open for it.
    pub(super) owed_segments_max: usize,
    /// Space on the device reserved for outcomes. They mostly go to pages that the database already has.
    pub(super) reserve_bytes: u64,
    /// Free space below which the reserve is released.
    pub(super) reserve_short_bytes: u64,
    /// Free space from which the reserve is taken again. It is below the default of `limits.min_free_bytes` (64 MiB),
    /// so that by default messages are accepted only with the reserve.
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
            reserve_plenty_bytes: 32 << 20,
        }
    }
}
