//! The wait of a synchronous store for the bucket: a batch counts once the bucket has it.

use std::sync::PoisonError;
use std::time::Duration;

use super::{Outbox, State};
use crate::store::open::SyncRule;

/// State of a batch that waits for the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum BatchState {
    /// The batch counts.
    Landed,
    /// The bucket will confirm nothing more.
    Ended,
    /// The bucket has not confirmed the batch yet.
    Pending,
}

impl State {
    /// Returns whether the bucket has the batch, and no gap precedes it. The base that closes a gap needs the batches
    /// in the gap, so these must not wait for it.
    fn is_restorable(&self, sequence: u64) -> bool {
        self.confirmed.is_some_and(|confirmed| confirmed.sequence >= sequence)
            && (!self.owes_base || sequence <= self.base_floor)
    }
}

impl Outbox {
    /// Returns the rule by which batches wait for the bucket; `None` without such a rule.
    pub const fn sync(&self) -> Option<SyncRule> {
        self.sync
    }

    /// Waits until the batch `sequence` counts, for at most `limit`: it can be restored from the bucket, or the store
    /// continues without the bucket. A batch after a gap can't be restored before the next base.
    pub(in crate::store) fn landing(&self, sequence: u64, limit: Duration) -> BatchState {
        let has_landed = |state: &State| state.is_degraded || state.is_restorable(sequence);
        let is_pending = |state: &mut State| !state.has_ended && !has_landed(state);
        let waited = self.landed.wait_timeout_while(self.state(), limit, is_pending);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if has_landed(&state) {
            state.is_in_doubt = false;
            return BatchState::Landed;
        }
        if state.has_ended { BatchState::Ended } else { BatchState::Pending }
    }

    /// Records that the batch `sequence` has waited too long for the bucket. Returns whether its callers need not be
    /// answered that it is in doubt: the store continues without the bucket, or the bucket has it by now.
    pub(in crate::store) fn ends_wait(&self, sequence: u64) -> bool {
        let mut state = self.state();
        if state.is_restorable(sequence) {
            return true;
        }
        if self.sync.is_some_and(|rule| rule.stops) {
            state.is_in_doubt = true;
            return false;
        }
        tracing::error!("the bucket has not confirmed a change in time; continuing without the bucket");
        state.is_degraded = true;
        true
    }

    /// Lets answers wait for the bucket again: it has confirmed within the timeout everything that was committed when
    /// the slot was built. A busy store always has newer batches, so it need not have everything.
    pub fn has_caught_up(&self) {
        self.state().end_degradation();
    }

    /// Ends all waits for the bucket, now and later: the process stops, or another machine has the log.
    pub fn end_waits(&self) {
        self.state().has_ended = true;
        self.landed.notify_all();
    }

    /// Returns whether a synchronous store continues without the bucket.
    pub fn is_degraded(&self) -> bool {
        self.state().is_degraded
    }

    /// Returns whether a batch waits for the bucket longer than callers wait for an answer.
    pub fn is_in_doubt(&self) -> bool {
        self.state().is_in_doubt
    }

    /// Returns whether the bucket lacks a batch.
    pub fn has_unconfirmed(&self) -> bool {
        let state = self.state();
        state.confirmed.map_or(0, |confirmed| confirmed.sequence) < state.last
    }
}
