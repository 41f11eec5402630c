//! Options for opening a store.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::OnJournalDamage;
use crate::store::limits::Limits;
use crate::store::migrate::Migration;
use crate::store::replica::Position;

/// Work of a start that may take long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartWork {
    /// The database is repaired after a crash.
    Repairing,
    /// The store is brought to the format of this version.
    Migrating(Migration),
    /// Rows are counted for totals that the store lacks: so many are done.
    Counting(u64),
}

/// The start of a store that is replicated: where its log stands after the claim.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaStart {
    /// The position of the log: its last slot is this process's claim.
    pub confirmed: Position,
    /// Bytes of unconfirmed records that are kept on disk.
    pub backlog_bytes_max: u64,
    /// Set where a batch counts only once the bucket has it.
    pub sync: Option<SyncRule>,
}

/// The rule of synchronous replication: every batch waits for the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncRule {
    /// The longest wait of an answer.
    pub timeout: Duration,
    /// Whether a batch without the bucket's confirmation stays in doubt. Otherwise the store goes on without the
    /// bucket.
    pub stops: bool,
}

/// The choices of a start.
pub struct StartOptions {
    /// Policy for a damaged journal.
    pub on_journal_damage: OnJournalDamage,
    /// Time since some fixed moment, which never goes back: for the age of the journal.
    pub monotonic: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// Called while a start does what may take long, so that a supervisor can be asked for more time.
    pub progress: Rc<dyn Fn(StartWork)>,
    /// The bounds that the store keeps.
    pub limits: Limits,
    /// None without replication.
    pub replica: Option<ReplicaStart>,
}

impl Default for StartOptions {
    /// A damaged journal is refused, and time is the process's own.
    fn default() -> Self {
        let began = Instant::now();
        Self {
            on_journal_damage: OnJournalDamage::Refuse,
            monotonic: Arc::new(move || began.elapsed()),
            progress: Rc::new(|_| {}),
            limits: Limits::default(),
            replica: None,
        }
    }
}
