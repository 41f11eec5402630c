//! A batch between its record and its answers.

use std::time::Instant;

use super::Effects;
use crate::store::changes::Changes;
use crate::store::error::StoreError;
use crate::store::job::{Job, Urgency};
use crate::store::replica::Sequence;
use crate::store::timer_counts::TimerCounts;

/// Way in which a batch becomes durable.
pub(super) enum BatchDurability {
    /// An empty batch: it changes nothing.
    Unchanged,
    /// A journal record: the database does not have the batch yet.
    Recorded,
    /// The checkpoint that finishes the batch.
    Checkpoint,
}

/// A recorded batch that is not finished yet. In a synchronous store it waits for the bucket.
pub(in crate::store) struct RecordedBatch {
    /// Jobs whose answers are not released yet.
    pub(super) jobs: Vec<Job>,
    pub(super) sequence: Sequence,
    pub(super) changes: Changes,
    pub(super) waiting: TimerCounts,
    pub(super) effects: Effects,
    pub(super) durability: BatchDurability,
    pub(super) began: Instant,
}

impl RecordedBatch {
    /// Answers the callers of a batch that the bucket may never get.
    pub(super) fn answer_in_doubt(&mut self) {
        let awaited = |job: &mut Job| job.urgency == Urgency::Awaited;
        self.jobs.extract_if(.., awaited).for_each(|job| job.release(Err(StoreError::InDoubt)));
    }
}
