//! State shared by the tasks of replication: the position in the log, the newest base, and the results of the last
//! requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::base_requests::BaseRequests;
use super::error::ReplicaError;
use super::lease::Lease;
use super::status::{BaseStatus, ReplicaStatus, Role, State};
use crate::base::digest::Digest;
use crate::base::time::Timestamp;
use crate::engine::ports::{BucketError, BucketErrorKind};
use crate::store::replica::{Outbox, Position};

/// Age of an unconfirmed batch at which replication lags.
const LAG: Duration = Duration::from_secs(5);

/// The configured mode and failover, for the status.
#[derive(Debug, Clone, Copy)]
pub struct ModeWords {
    /// `async` or `sync`.
    pub mode: &'static str,
    /// `manual` or `automatic`.
    pub failover: &'static str,
}

/// A slot of this process's epoch that the bucket has.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfirmedSlot {
    pub(super) slot: u64,
    pub(super) sequence: u64,
    pub(super) digest: Digest,
}

/// A task that removes objects. It can fail alone, for example if the credentials lack the right to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Removal {
    /// Objects that no restore needs.
    Unneeded,
    /// Keys of expired content.
    Keys,
}

#[derive(Default)]
struct Inner {
    failure: Option<(BucketErrorKind, String)>,
    /// The removals that failed last, each with its reason.
    not_removed: BTreeMap<Removal, (Option<BucketErrorKind>, String)>,
    deposed_by: Option<String>,
    last_confirmed_at: Option<Timestamp>,
    base: Option<BaseStatus>,
    restorable_from: Option<Timestamp>,
    /// Slots confirmed since a base maker began to watch.
    history: Option<Vec<ConfirmedSlot>>,
    /// Bytes and slots of the log since the newest base.
    log_bytes: u64,
    log_slots: u64,
    wants_beat: bool,
    /// Number of failures of the log that have ended.
    recoveries: u64,
    resyncs: u64,
    /// Whether the log has a gap that the next base closes.
    is_resyncing: bool,
}

/// Shared state of an active machine's replication.
pub struct Shared {
    /// Records that are not confirmed yet.
    pub outbox: Arc<Outbox>,
    /// The slot that this process claimed.
    pub claim: Position,
    /// The lease that is extended by confirmed slots.
    pub(super) lease: Arc<Lease>,
    words: ModeWords,
    holder: String,
    inner: Mutex<Inner>,
    /// Segments whose key objects are known to be in the bucket.
    pub(super) keys: Mutex<BTreeSet<(Timestamp, u32)>>,
    has_lost_keys: AtomicBool,
    confirmed: watch::Sender<u64>,
    deposed: watch::Sender<bool>,
    pub(super) beat: Notify,
    pub(super) base_requests: BaseRequests,
}

impl Shared {
    pub(super) fn new(
        outbox: Arc<Outbox>,
        claim: Position,
        lease: Arc<Lease>,
        words: ModeWords,
        holder: String,
        claimed_at: Timestamp,
    ) -> Self {
        let (confirmed, deposed) = (watch::Sender::new(claim.slot), watch::Sender::new(false));
        Self {
            outbox,
            claim,
            lease,
            words,
            holder,
            // The claim is a slot of this process, so it is also its first confirmation. The store was opened after the
            // claim.
            inner: Mutex::new(Inner { last_confirmed_at: Some(claimed_at), ..Inner::default() }),
            keys: Mutex::default(),
            has_lost_keys: AtomicBool::new(false),
            confirmed,
            deposed,
            beat: Notify::new(),
            base_requests: BaseRequests::default(),
        }
    }

    /// Returns the last slot, with everything that it confirms.
    pub(super) fn position(&self) -> Position {
        self.outbox.confirmed().unwrap_or(self.claim)
    }

    /// Records that a slot of this process is in the bucket.
    pub(super) fn confirm(&self, position: Position, bytes: u64, now: Timestamp) {
        self.outbox.confirm(position);
        let mut inner = self.inner();
        self.recover(&mut inner);
        inner.last_confirmed_at = Some(now);
        inner.log_bytes += bytes;
        inner.log_slots += 1;
        let slot = ConfirmedSlot { slot: position.slot, sequence: position.sequence, digest: position.hash };
        inner.history.iter_mut().for_each(|history| history.push(slot));
        drop(inner);
        self.confirmed.send_replace(position.slot);
    }

    /// Records that the bucket's log ends where this process expects.
    pub(super) fn reached(&self, now: Timestamp) {
        let mut inner = self.inner();
        self.recover(&mut inner);
        inner.last_confirmed_at = Some(now);
    }

    /// Records that the log reaches the bucket.
    fn recover(&self, inner: &mut Inner) {
        if inner.failure.take().is_some() {
            inner.recoveries += 1;
            self.base_requests.recovered.notify_one();
        }
    }

    /// Returns the number of failures of the log that have ended.
    pub(super) fn recoveries(&self) -> u64 {
        self.inner().recoveries
    }

    /// Records a failed request, which is retried.
    pub(super) fn failed(&self, error: &BucketError) {
        let mut inner = self.inner();
        if inner.failure.is_none() {
            tracing::warn!(%error, "could not write to the bucket; trying again");
        }
        inner.failure = Some((error.kind, error.to_string()));
    }

    /// Records the result of a removal. Reports a failure once, until the removal succeeds.
    pub(super) fn removed(&self, removal: Removal, failure: Option<&ReplicaError>) {
        let mut inner = self.inner();
        let Some(error) = failure else {
            if inner.not_removed.remove(&removal).is_some() {
                tracing::info!("removed the objects from the bucket that could not be removed before");
            }
            return;
        };
        let failed = (error.of_bucket().map(|error| error.kind), error.to_string());
        if inner.not_removed.insert(removal, failed).is_none() {
            match removal {
                Removal::Unneeded => tracing::warn!(%error, "could not remove unneeded objects; trying again later"),
                Removal::Keys => {
                    tracing::warn!(%error, "could not remove keys of expired content from the bucket; trying again");
                }
            }
        }
    }

    /// Records that another machine claimed the log.
    pub(super) fn depose(&self, holder: String) {
        self.inner().deposed_by = Some(holder);
        self.lease.usurped();
        // Batches that wait in the writer will not be confirmed. Their callers are notified that the outcome is in
        // doubt.
        self.outbox.end_waits();
        self.deposed.send_replace(true);
    }

    /// Returns the machine that claimed the log from this one.
    pub fn deposed_by(&self) -> Option<String> {
        self.inner().deposed_by.clone()
    }

    /// Returns whether the previous holder may still send mail.
    pub fn waits_for_predecessor(&self) -> bool {
        self.lease.is_waiting()
    }

    /// Resolves once another machine has claimed the log.
    pub async fn deposed(&self) {
        let mut deposed = self.deposed.subscribe();
        // This value owns the sender, so the channel stays open.
        drop(deposed.wait_for(|deposed| *deposed).await);
    }

    /// Records confirmations for a base, from the last slot on.
    pub(super) fn watch_slots(&self) {
        let Position { slot, sequence, hash: digest, .. } = self.position();
        self.inner().history = Some(vec![ConfirmedSlot { slot, sequence, digest }]);
    }

    /// Returns the first recorded slot that confirms `sequence`.
    pub(super) fn slot_of(&self, sequence: u64) -> Option<ConfirmedSlot> {
        self.inner().history.as_ref()?.iter().find(|slot| slot.sequence >= sequence).copied()
    }

    pub(super) fn stop_watching(&self) {
        self.inner().history = None;
    }

    /// Returns a receiver that is notified of each confirmed slot.
    pub(super) fn slots(&self) -> watch::Receiver<u64> {
        self.confirmed.subscribe()
    }

    /// Requests a slot without batches.
    pub(super) fn ask_for_beat(&self) {
        self.inner().wants_beat = true;
        self.beat.notify_one();
    }

    pub(super) fn take_beat(&self) -> bool {
        std::mem::take(&mut self.inner().wants_beat)
    }

    /// Sets the newest base in the bucket.
    pub(super) fn set_base(&self, base: BaseStatus) {
        self.inner().base = Some(base);
    }

    /// Sets the earliest time that can be restored.
    pub(super) fn set_restorable_from(&self, time: Timestamp) {
        self.inner().restorable_from = Some(time);
    }

    /// Records that a base is finished, and that the objects that it replaces are removed if they can be.
    pub(super) fn base_finished(&self) {
        self.inner().is_resyncing = false;
        self.base_requests.finish();
    }

    /// Restarts the counts of the log at a new base.
    pub(super) fn restart_log_count(&self) {
        let mut inner = self.inner();
        (inner.log_bytes, inner.log_slots) = (0, 0);
    }

    /// Returns the newest base, and the log's bytes and slots since.
    pub(super) fn log_since_base(&self) -> (Option<BaseStatus>, u64, u64) {
        let inner = self.inner();
        (inner.base, inner.log_bytes, inner.log_slots)
    }

    /// Counts a gap: the bucket lost objects, or the log has a gap. A new base is then made.
    pub(super) fn count_resync(&self) {
        let mut inner = self.inner();
        inner.resyncs += 1;
        inner.is_resyncing = true;
    }

    /// Returns the number of gaps that only a new base closed.
    pub fn resyncs(&self) -> u64 {
        self.inner().resyncs
    }

    /// Returns the status at `now`.
    pub fn status(&self, now: Timestamp) -> ReplicaStatus {
        let position = self.position();
        let unconfirmed = self.outbox.unconfirmed();
        let lag = unconfirmed.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
        let (owes_base, lease_left) = (self.outbox.owes_base(), self.lease.left());
        let (is_unconfirmed, is_waiting) = (self.lease.is_unconfirmed(), self.lease.is_waiting());
        let inner = self.inner();
        let refused = inner.not_removed.values().find(|(kind, _)| *kind == Some(BucketErrorKind::Forbidden));
        let state = match &inner.failure {
            _ if owes_base || inner.is_resyncing => State::Resync,
            _ if self.outbox.is_degraded() => State::Degraded,
            Some((BucketErrorKind::Forbidden, _)) => State::Forbidden,
            _ if is_unconfirmed => State::Unreachable,
            None if refused.is_some() => State::Forbidden,
            None if is_waiting && lag < LAG => State::Waiting,
            Some((BucketErrorKind::Throttled | BucketErrorKind::Conflict, _)) | None if lag < LAG => State::Ok,
            Some((BucketErrorKind::Throttled | BucketErrorKind::Conflict, _)) | None => State::Lagging,
            Some(_) => State::Unreachable,
        };
        let not_removed = inner.not_removed.values().next().map(|(_, error)| error.clone());
        let unconfirmed_words = || is_unconfirmed.then(|| "the bucket has not confirmed the lease".to_owned());
        let role = if inner.deposed_by.is_some() { Role::Deposed } else { Role::Active };
        ReplicaStatus {
            role,
            state,
            store: Some(position.store.to_string()),
            epoch: position.epoch,
            holder: Some(inner.deposed_by.clone().unwrap_or_else(|| self.holder.clone())),
            slot: position.slot,
            sequence: self.outbox.last(),
            confirmed_sequence: position.sequence,
            lag_seconds: lag.as_secs_f64(),
            backlog_bytes: unconfirmed.bytes,
            last_confirmed_at: inner.last_confirmed_at,
            mode: self.words.mode,
            failover: self.words.failover,
            lease_left_ms: lease_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            base: inner.base,
            restorable_from: inner.restorable_from,
            error: inner.failure.as_ref().map(|(_, error)| error.clone()).or_else(unconfirmed_words).or(not_removed),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets which keys the bucket has, because it may have lost some. They are written again where rows name them,
    /// and listed again.
    pub(super) fn lose_keys(&self) {
        self.keys().clear();
        self.has_lost_keys.store(true, Ordering::Release);
    }

    /// Returns whether [`Self::lose_keys`] was called since the last call.
    pub(super) fn takes_lost_keys(&self) -> bool {
        self.has_lost_keys.swap(false, Ordering::AcqRel)
    }

    pub(super) fn keys(&self) -> MutexGuard<'_, BTreeSet<(Timestamp, u32)>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
