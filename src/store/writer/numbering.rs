//! Rows about the store itself that a batch brings up to date: its number, and the service's time.

use super::Writer;
use crate::base::time::Timestamp;
use crate::machine::service_clock::{DIFFERENCE_MAX, STOPPED_MAX};
use crate::store::changes::Changes;
use crate::store::replica::Sequence;
use crate::store::schema::{Table, meta};

impl Writer {
    /// Records the service's time while the last identifier is far from it. Otherwise a restart would begin at the time
    /// of that identifier: deadlines would pass too early, or the wall clock would be doubtful again.
    pub(super) fn keep_time(&mut self, now: Timestamp, changes: &mut Changes) {
        if changes.get(Table::Meta, meta::TIME).is_some() {
            // This batch sets the time itself. The next batch updates or removes it.
            self.keeps_time = true;
            return;
        }
        let last = self.last_id.timestamp();
        let is_apart = last > now + DIFFERENCE_MAX || now > last + STOPPED_MAX;
        if is_apart || self.keeps_time {
            let kept = is_apart.then(|| now.as_millis().to_be_bytes().to_vec());
            changes.put(Table::Meta, meta::TIME.to_vec(), kept);
        }
        self.keeps_time = is_apart;
    }

    /// Gives a batch its sequence number, and records the bucket's confirmations since the last batch.
    pub(super) fn number(&self, now: Timestamp, changes: &mut Changes) -> Sequence {
        let sequence = self.sequence.next(now);
        changes.put(Table::Meta, meta::SEQUENCE.to_vec(), Some(sequence.encode()));
        if let Some(position) = self.outbox.as_ref().and_then(|outbox| outbox.take_unrecorded()) {
            changes.put(Table::Meta, meta::REPLICA.to_vec(), Some(position.encode()));
        }
        sequence
    }
}
