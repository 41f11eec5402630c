//! Options for opening a store.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::OnJournalDamage;
use crate::store::limits::Limits;
use crate::store::migrate::Migration;
use crate::store::replica::Position;

/// Slow work of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartWork {
    /// Verification of the database's pages.
    Verifying,
    /// Repair of the database after a crash.
    Repairing,
    /// Migration of the store to the current format.
    Migrating(Migration),
    /// Counting of rows for missing totals, with the number done so far.
    Counting(u64),
}

/// Start of a replicated store, after its claim: the position in its log.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaStart {
    /// Position in the log. Its last slot is this process's claim.
    pub confirmed: Position,
    /// Maximum size of unconfirmed records on disk, in bytes.
    pub backlog_bytes_max: u64,
    /// Set if replication is synchronous: a batch counts only once the bucket has it.
    pub sync: Option<SyncRule>,
}

/// Rule of synchronous replication: every batch waits for the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncRule {
    /// Maximum wait of an answer.
    pub timeout: Duration,
    /// Whether a batch without the bucket's confirmation stays in doubt. Otherwise the store continues without the
    /// bucket.
    pub stops: bool,
}

/// Options of a start.
pub struct StartOptions {
    /// Policy for a damaged journal.
    pub on_journal_damage: OnJournalDamage,
    /// Monotonic clock, as time since a fixed moment: for the age of the journal.
    pub monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Called during slow work of a start, so that a supervisor can be asked for more time.
    pub progress: Rc<dyn Fn(StartWork)>,
    /// Maximum size in bytes of a database whose pages are verified first. Requires that no other process has it open.
    /// A larger database is verified while the service runs. With 0 no database is verified first.
    pub verified_bytes_max: u64,
    /// Lowers the priority of the calling thread, for the verification while the service runs.
    pub lower_priority: fn(),
    /// Limits of the store.
    pub limits: Limits,
    /// Replication; `None` without it.
    pub replica: Option<ReplicaStart>,
}

impl Default for StartOptions {
    /// Refuses a damaged journal, and uses the process's own monotonic clock.
    fn default() -> Self {
        let began = Instant::now();
        Self {
            on_journal_damage: OnJournalDamage::Refuse,
            monotonic: Arc::new(move || began.elapsed()),
            progress: Rc::new(|_| {}),
            verified_bytes_max: 0,
            lower_priority: || {},
            limits: Limits::default(),
            replica: None,
        }
    }
}
