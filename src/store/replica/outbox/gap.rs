//! A gap in the log: records were dropped, and only a new base closes it.

use std::io;

use super::Outbox;

impl Outbox {
    /// Drops all records and every later one, until [`Self::resume`].
    pub(super) fn drop_all(&self) {
        // Marked first: a process that ends before the base is made must not forget that the log has a gap.
        // The backlog stays locked, so that the end of an earlier base does not remove the mark.
        let mut backlog = self.backlog();
        if let Err(error) = backlog.mark_base_owed() {
            tracing::error!(%error, "could not mark on disk that the replica needs a new base; restart only after it");
        }
        let mut state = self.state();
        (state.has_gap, state.owes_base, state.resumed) = (true, true, None);
        state.waiting.clear();
        state.staged = None;
        (state.memory_bytes, state.bytes) = (0, 0);
        drop(state);
        backlog.clear();
        drop(backlog);
        self.added.notify_one();
    }

    /// Whether records are dropped because the log has a gap.
    pub fn has_gap(&self) -> bool {
        self.state().has_gap
    }

    /// Whether only a new base makes the log usable again after a gap.
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
        drop(state);
        backlog.unmark_base_owed()
    }

    /// Drops all records and the confirmed position: the log begins again with a new base.
    pub fn begin_gap(&self) {
        self.drop_all();
    }

    /// Collects records again after a gap, and returns the sequence of the last dropped record. A base that is taken
    /// afterwards must include it.
    pub fn resume(&self) -> u64 {
        let mut state = self.state();
        state.has_gap = false;
        state.resumed = Some(state.last);
        let last = state.last;
        drop(state);
        self.added.notify_one();
        last
    }

    /// Returns the sequence after which the log continues after a gap; `None` once the bucket has it, or without a gap.
    pub fn resumed(&self) -> Option<u64> {
        self.state().resumed
    }
}
