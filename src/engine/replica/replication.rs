//! Replication as the interfaces see it: its status, and the request for a base.

use std::sync::Arc;

use super::shared::Shared;
use super::status::ReplicaStatus;
use crate::base::time::Timestamp;
use crate::engine::bucket::meters::BucketMeters;
use crate::store::replica::Unconfirmed;

/// The replication of a running active.
pub struct Replication {
    shared: Arc<Shared>,
    /// Requests to the bucket.
    pub meters: Option<Arc<BucketMeters>>,
}

impl Replication {
    /// That of the tasks that share `shared`.
    pub const fn new(shared: Arc<Shared>, meters: Option<Arc<BucketMeters>>) -> Self {
        Self { shared, meters }
    }

    /// The status at `now`.
    pub fn status(&self, now: Timestamp) -> ReplicaStatus {
        self.shared.status(now)
    }

    /// Counts of the records that the bucket lacks.
    pub fn unconfirmed(&self) -> Unconfirmed {
        self.shared.outbox.unconfirmed()
    }

    /// Number of gaps that only a new base bridged.
    pub fn resyncs(&self) -> u64 {
        self.shared.resyncs()
    }

    /// Has a base made now, and waits until it is finished and what it replaces is collected.
    pub async fn make_base(&self) {
        // The sender is part of the shared state, so it lives.
        drop(self.shared.ask_for_base().changed().await);
    }
}
