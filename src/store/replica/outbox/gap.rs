//! A gap in the log: records were dropped, and only a new base closes it.

use std::io;

use super::{Outbox, QueuedRecords};

impl Outbox {
    /// Drops all records and every later one, until [`Self::resume`].
    pub(super) fn drop_all(&self) {
        // The backlog stays locked, so that the end of an earlier base does not remove the mark.
        let mut backlog = self.backlog();
        if let Err(error) = backlog.mark_base_owed() {
            tracing::warn!(%error, "could not mark on disk that the replica needs a new base; trying again later");
        }
        let mut state = self.state();
        (state.has_gap, state.owes_base, state.resumed) = (true, true, None);
        if self.sync().is_some() {
            let last = state.staged.take().or_else(|| state.waiting.pop_back());
            state.newest = last.or(state.newest.take());
        }
        state.waiting.clear();
        state.staged = None;
        (state.memory_bytes, state.bytes) = (0, 0);
        drop(state);
        backlog.clear();
        drop(backlog);
        self.added.notify_one();
    }

    /// Returns whether records are dropped because the log has a gap.
    pub fn has_gap(&self) -> bool {
        self.state().has_gap
    }

    /// Returns whether only a new base makes the log usable again after a gap.
    pub fn owes_base(&self) -> bool {
        self.state().owes_base
    }

    /// Records that a base was made after the last gap.
    ///
    /// # Errors
    /// File system errors; the next start makes another base.
    pub fn base_made(&self) -> io::Result<()> {
        let backlog = self.backlog();
        let mut state = self.state();
        if state.has_gap || !state.owes_base {
            return Ok(());
        }
        state.owes_base = false;
        state.end_degradation_at_rest();
        drop(state);
        self.landed.notify_all();
        backlog.unmark_base_owed()
    }

    /// Drops all records and the confirmed position: the log begins again with a new base.
    pub fn begin_gap(&self) {
        self.drop_all();
    }

    /// Collects records again after a gap. Returns the sequence of the last dropped record, which the next base must
    /// include ([`Self::base_floor`]).
    ///
    /// # Errors
    /// The disk can't hold the mark that a base is owed, and the gap stays. Once the bucket has records after the gap,
    /// only the mark shows the gap to a later start.
    pub fn resume(&self) -> io::Result<u64> {
        let backlog = self.backlog();
        backlog.mark_base_owed()?;
        let mut state = self.state();
        state.has_gap = false;
        let last = state.last;
        let mut newest = state.newest.take();
        if newest.as_ref().is_some_and(|newest| state.staging == Some(newest.sequence.number)) {
            state.staged = newest.take();
        }
        // A payload that is only in the dropped backlog is lost.
        let newest = newest.filter(|newest| newest.sequence.number == last && newest.payload.is_some());
        let dropped = last - u64::from(newest.is_some());
        (state.resumed, state.base_floor) = (Some(dropped), dropped);
        if let Some(newest) = newest {
            state.push(QueuedRecords { stored: None, ..newest });
        }
        drop(state);
        drop(backlog);
        self.added.notify_one();
        Ok(dropped)
    }

    /// Returns the sequence that the next base must include. 0 if no base is required.
    pub fn base_floor(&self) -> u64 {
        let state = self.state();
        if state.owes_base { state.base_floor } else { 0 }
    }

    /// Returns the sequence after which the log continues after a gap; `None` once the bucket has it, or without a gap.
    pub fn resumed(&self) -> Option<u64> {
        self.state().resumed
    }
}
