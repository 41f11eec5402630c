//! The outbox: records of committed batches on their way from the writer to the bucket, in order.
//!
//! The writer adds a record after the batch is durable. Before a checkpoint voids the journal's records, it stores all
//! unconfirmed ones in the backlog. Stored records can be dropped from memory.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::backlog::{Backlog, StoredRecord};
use super::position::{Position, Sequence};
use super::record;
use crate::base::time::Timestamp;
use crate::store::disk::Disk;
use crate::store::open::{ReplicaStart, SyncRule};

mod gap;
mod landing;

pub(in crate::store) use landing::BatchState;

/// Size of the records in memory above which stored ones are dropped from it.
const MEMORY_BYTES: usize = 64 << 20;

/// The record of one committed batch.
#[derive(Clone, Debug)]
pub struct BatchRecord {
    /// Sequence.
    pub sequence: Sequence,
    /// The payload of its journal record.
    pub payload: Arc<[u8]>,
}

/// Numbers of records that the bucket has not confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Records.
    pub records: u64,
    /// Size of the records in bytes.
    pub bytes: u64,
    /// Commit time of the oldest record.
    pub oldest: Option<Timestamp>,
    /// Bytes of the backlog's files.
    pub backlog_bytes: u64,
}

struct QueuedRecords {
    sequence: Sequence,
    bytes: usize,
    payload: Option<Arc<[u8]>>,
    stored: Option<StoredRecord>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<QueuedRecords>,
    /// The batch that a checkpoint is about to make durable. It is stored, and must not be sent before.
    staged: Option<QueuedRecords>,
    /// The sequence of the staged batch, which is not committed yet.
    staging: Option<u64>,
    memory_bytes: usize,
    bytes: u64,
    confirmed: Option<Position>,
    /// Whether [`Self::confirmed`] is not in a row yet.
    is_unrecorded: bool,
    /// Slot of the last position in a row.
    recorded: u64,
    /// Set while records are dropped: the log has a gap, which only a new base closes.
    has_gap: bool,
    /// Whether the log has had a gap since its newest base. It is marked on disk too.
    owes_base: bool,
    /// The sequence that the next base must include: that of the last record that the log lacks.
    base_floor: u64,
    /// The last record, while records are dropped. Its batch may still wait for the bucket, so the log begins with it.
    newest: Option<QueuedRecords>,
    /// The sequence after which the log continues after a gap, until the bucket has it.
    resumed: Option<u64>,
    last: u64,
    /// Set while the store continues without the bucket, until the log has caught up.
    is_degraded: bool,
    /// Set while a batch waits for the bucket longer than callers wait for an answer.
    is_in_doubt: bool,
    /// Set once the bucket will confirm nothing more.
    has_ended: bool,
}

/// The outbox of one open store.
pub struct Outbox {
    state: Mutex<State>,
    backlog: Mutex<Backlog>,
    backlog_bytes_max: u64,
    /// Notified when a record is added.
    added: Notify,
    sync: Option<SyncRule>,
    /// Notified when the bucket has confirmed more, or the wait for it ends.
    landed: Condvar,
}

impl Outbox {
    /// Opens the outbox of a store at the sequence `last`, with a log that is confirmed up to `confirmed`. Unconfirmed
    /// records come from the backlog.
    ///
    /// # Errors
    /// File system errors.
    pub(in crate::store) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        last: Sequence,
        confirmed: Option<Position>,
        start: &ReplicaStart,
    ) -> io::Result<Self> {
        let ReplicaStart { backlog_bytes_max, sync, .. } = *start;
        let (backlog, found) = Backlog::open(disk, directory, last.number)?;
        let from = confirmed.map_or(0, |position| position.sequence);
        let is_unrecorded = confirmed.is_some();
        let recorded = confirmed.map_or(0, |position| position.slot);
        let mut state = State { confirmed, is_unrecorded, recorded, last: last.number, ..State::default() };
        let mut next = from + 1;
        for found in found.iter().filter(|found| found.sequence > from) {
            let payload = backlog.read(found.stored)?;
            let Some(sequence) = record::sequence_of(&payload) else { break };
            state.has_gap |= sequence.number != next;
            next = sequence.number + 1;
            let bytes = payload.len();
            state.bytes += bytes as u64;
            state.waiting.push_back(QueuedRecords { sequence, bytes, payload: None, stored: Some(found.stored) });
        }
        state.has_gap |= next != last.number + 1;
        (state.owes_base, state.base_floor) = (backlog.owes_base(), last.number);
        let outbox = Self {
            state: Mutex::new(state),
            backlog: Mutex::new(backlog),
            backlog_bytes_max,
            added: Notify::new(),
            sync,
            landed: Condvar::new(),
        };
        if outbox.has_gap() {
            outbox.drop_all();
        }
        Ok(outbox)
    }

    /// Adds the record of a durable batch.
    pub(in crate::store) fn add(&self, sequence: Sequence, payload: &[u8]) {
        let mut state = self.state();
        state.last = sequence.number;
        let waiting = QueuedRecords::new(sequence, payload);
        if state.has_gap {
            state.newest = self.sync.map(|_| waiting);
            return;
        }
        state.push(waiting);
        drop(state);
        self.added.notify_one();
    }

    /// Keeps the record of a batch that a checkpoint will make durable, for [`Self::store`].
    pub(in crate::store) fn stage(&self, sequence: Sequence, payload: &[u8]) {
        let mut state = self.state();
        state.staging = Some(sequence.number);
        let staged = QueuedRecords::new(sequence, payload);
        match state.has_gap {
            true => state.newest = self.sync.map(|_| staged),
            false => state.staged = Some(staged),
        }
    }

    /// Adds the staged record, whose batch is durable now.
    pub(in crate::store) fn release_staged(&self) {
        let mut state = self.state();
        let Some(sequence) = state.staging.take() else { return };
        state.last = sequence;
        match state.staged.take() {
            Some(staged) => {
                state.push(staged);
                drop(state);
                self.added.notify_one();
            }
            // The gap ended while the batch was staged, so the log lacks its record.
            None if !state.has_gap => {
                drop(state);
                self.drop_all();
            }
            None => {}
        }
    }

    /// Stores all unconfirmed records durably. If that fails, or the backlog exceeds its limit, all of them are dropped
    /// and a new base replaces them.
    pub(in crate::store) fn store(&self) {
        let pending: Vec<(u64, Arc<[u8]>)> = {
            let state = self.state();
            let unstored = state.waiting.iter().chain(&state.staged).filter(|waiting| waiting.stored.is_none());
            unstored.filter_map(|waiting| Some((waiting.sequence.number, waiting.payload.clone()?))).collect()
        };
        if pending.is_empty() {
            return;
        }
        let mut backlog = self.backlog();
        let appended = backlog.append(pending.iter().map(|(sequence, payload)| (*sequence, &**payload)));
        let length = backlog.length();
        drop(backlog);
        match appended {
            Ok(_) if length > self.backlog_bytes_max => {
                tracing::error!(
                    bytes = length,
                    "the replication backlog exceeded replica.backlog_bytes and was dropped; a new base replaces it"
                );
                self.drop_all();
            }
            Ok(stored) => self.mark_stored(&pending, &stored),
            Err(error) => {
                tracing::error!(%error, "could not write the replication backlog; a new base replaces it");
                self.drop_all();
            }
        }
    }

    fn mark_stored(&self, pending: &[(u64, Arc<[u8]>)], stored: &[StoredRecord]) {
        let mut state = self.state();
        let State { waiting, staged, memory_bytes, .. } = &mut *state;
        for ((sequence, _), stored) in pending.iter().zip(stored) {
            let found = waiting.binary_search_by_key(sequence, |waiting| waiting.sequence.number);
            let waiting = match found {
                Ok(index) => waiting.get_mut(index),
                Err(_) => staged.as_mut().filter(|staged| staged.sequence.number == *sequence),
            };
            if let Some(waiting) = waiting {
                waiting.stored = Some(*stored);
                if *memory_bytes > MEMORY_BYTES {
                    *memory_bytes -= waiting.payload.take().map_or(0, |payload| payload.len());
                }
            }
        }
    }

    /// Returns the first records of the outbox with at most `bytes` bytes in total, and at least one record.
    ///
    /// # Errors
    /// A record of the backlog can't be read.
    pub fn front(&self, bytes: usize) -> io::Result<Vec<BatchRecord>> {
        let chosen: Vec<_> = {
            let state = self.state();
            let mut left = bytes;
            let fits = |waiting: &&QueuedRecords| {
                let fits = left == bytes || waiting.bytes <= left;
                left = left.saturating_sub(waiting.bytes);
                fits
            };
            let chosen = state.waiting.iter().take_while(fits);
            chosen.map(|waiting| (waiting.sequence, waiting.payload.clone(), waiting.stored)).collect()
        };
        let mut records = Vec::with_capacity(chosen.len());
        for (sequence, payload, stored) in chosen {
            let payload = match (payload, stored) {
                (Some(payload), _) => payload,
                (None, Some(stored)) => self.backlog().read(stored)?.into(),
                (None, None) => return Err(io::Error::other("a record is missing from both memory and the backlog")),
            };
            records.push(BatchRecord { sequence, payload });
        }
        Ok(records)
    }

    /// Records that the bucket has everything up to `position`.
    pub fn confirm(&self, position: Position) {
        let mut state = self.state();
        while state.waiting.front().is_some_and(|waiting| waiting.sequence.number <= position.sequence) {
            let Some(waiting) = state.waiting.pop_front() else { break };
            state.bytes -= waiting.bytes as u64;
            state.memory_bytes -= waiting.payload.map_or(0, |payload| payload.len());
        }
        state.confirmed = Some(position);
        state.is_unrecorded = true;
        state.resumed = state.resumed.filter(|resumed| *resumed > position.sequence);
        state.end_degradation_at_rest();
        drop(state);
        self.landed.notify_all();
        self.backlog().confirmed(position.sequence);
    }

    /// Returns the position that the bucket has confirmed.
    pub fn confirmed(&self) -> Option<Position> {
        self.state().confirmed
    }

    /// Returns the confirmed position for the row of the next batch; `None` if the row already has it.
    pub(in crate::store) fn take_unrecorded(&self) -> Option<Position> {
        let mut state = self.state();
        let unrecorded = state.confirmed.filter(|_| state.is_unrecorded);
        state.is_unrecorded = false;
        state.recorded = unrecorded.map_or(state.recorded, |position| position.slot);
        unrecorded
    }

    /// Returns the slot from which the next start continues: before the first batch, the slot of this start's claim.
    pub fn recorded_slot(&self) -> u64 {
        self.state().recorded
    }

    /// Returns the sequence of the last committed batch.
    pub fn last(&self) -> u64 {
        self.state().last
    }

    /// Counts the unconfirmed records.
    pub fn unconfirmed(&self) -> Unconfirmed {
        let backlog_bytes = self.backlog().length();
        let state = self.state();
        Unconfirmed {
            records: state.waiting.len() as u64,
            bytes: state.bytes,
            oldest: state.waiting.front().map(|waiting| waiting.sequence.committed_at),
            backlog_bytes: backlog_bytes.max(state.bytes),
        }
    }

    /// Resolves after a record was added since the last call.
    pub async fn added(&self) {
        self.added.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Continues with the bucket if it has everything.
    fn end_degradation_at_rest(&mut self) {
        if self.confirmed.map_or(0, |confirmed| confirmed.sequence) >= self.last {
            self.end_degradation();
        }
    }

    /// Continues with the bucket, unless a gap precedes the records that it has.
    fn end_degradation(&mut self) {
        if self.is_degraded && !self.owes_base {
            self.is_degraded = false;
            tracing::info!("the bucket confirms changes in time again; answers wait for it");
        }
    }

    fn push(&mut self, waiting: QueuedRecords) {
        self.memory_bytes += waiting.payload.as_ref().map_or(0, |payload| payload.len());
        self.bytes += waiting.bytes as u64;
        self.waiting.push_back(waiting);
    }
}

impl QueuedRecords {
    fn new(sequence: Sequence, payload: &[u8]) -> Self {
        Self { sequence, bytes: payload.len(), payload: Some(payload.into()), stored: None }
    }
}
