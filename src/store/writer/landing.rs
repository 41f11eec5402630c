//! The wait of a synchronous store for the bucket, between the record of a batch and its answers.

use std::sync::Arc;
use std::time::Duration;

use super::{BatchDurability, Next, RecordedBatch, Writer};
use crate::store::error::StoreError;
use crate::store::job::{Job, Urgency};
use crate::store::replica::{BatchState, Outbox};

/// Time between two checks for new callers while a batch waits for the bucket.
const REFUSE_EVERY: Duration = Duration::from_millis(50);

impl Writer {
    /// Waits for the bucket if the store is synchronous. Callers that wait longer than the configured timeout are
    /// answered that their change is in doubt. Snapshots see the change only once the bucket has it. Later callers are
    /// refused.
    pub(super) fn wait_for_bucket(&mut self, batch: &mut RecordedBatch, next_job: &mut impl FnMut(&[Job]) -> Next) {
        let Some(mut limit) = self.bucket_timeout(batch) else { return };
        let health = Arc::clone(&self.health);
        let _pause = health.writer.pause();
        while !self.is_settled(batch, limit) {
            self.doubt(batch, next_job);
            limit = REFUSE_EVERY;
        }
    }

    /// Returns the time for which the callers of a batch wait for the bucket; `None` if the batch does not need it.
    pub(in crate::store) fn bucket_timeout(&self, batch: &RecordedBatch) -> Option<Duration> {
        self.outbox_of(batch)?.sync().map(|rule| rule.timeout)
    }

    /// Waits for at most `limit` until a batch can be finished: the bucket has it, or all waits have ended.
    pub(in crate::store) fn is_settled(&self, batch: &mut RecordedBatch, limit: Duration) -> bool {
        let Some(outbox) = self.outbox_of(batch) else { return true };
        match outbox.landing(batch.sequence.number, limit) {
            BatchState::Pending => return false,
            BatchState::Ended => batch.answer_in_doubt(),
            BatchState::Landed => {}
        }
        true
    }

    /// Records that a batch has waited too long. Unless the store continues without the bucket, its callers and those
    /// that `next_job` returns are answered.
    pub(in crate::store) fn doubt(&mut self, batch: &mut RecordedBatch, next_job: &mut impl FnMut(&[Job]) -> Next) {
        if self.outbox_of(batch).is_none_or(|outbox| outbox.ends_wait(batch.sequence.number)) {
            return;
        }
        batch.answer_in_doubt();
        while let Some(job) = next_job(&[]) {
            match job.urgency {
                Urgency::Awaited => job.release(Err(StoreError::Unconfirmed)),
                Urgency::Patient => self.deferred.push(job),
            }
        }
    }

    /// Returns the outbox if `batch` waits for the bucket.
    fn outbox_of(&self, batch: &RecordedBatch) -> Option<&Outbox> {
        let is_changed = !matches!(batch.durability, BatchDurability::Unchanged);
        self.outbox.as_deref().filter(|outbox| is_changed && outbox.sync().is_some())
    }
}
