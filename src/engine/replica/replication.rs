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

    /// Whether a change may be accepted now.
    pub(super) async fn may_accept(&self) -> bool {
        // A batch that waits for the bucket holds up all others, so nothing more is taken.
        !self.shared.outbox.is_in_doubt() && self.shared.lease.may_accept().await
    }

    /// Whether something may be sent now.
    pub(super) async fn may_send(&self) -> bool {
        self.shared.lease.may_send().await
    }

    /// Waits until something may be sent; false once nothing will be.
    pub(super) async fn wait_to_send(&self) -> bool {
        self.shared.lease.wait_to_send().await
    }

    /// Whether something may be sent, as far as is known.
    pub(super) fn is_sending(&self) -> bool {
        self.shared.lease.is_sending()
    }

    /// Whether the service may take work.
    pub fn is_ready(&self) -> bool {
        !self.shared.outbox.is_in_doubt() && self.shared.lease.is_ready()
    }

    /// Has a base made now, and waits until it is finished and what it replaces is collected.
    pub async fn make_base(&self) {
        // The sender is part of the shared state, so it lives.
        drop(self.shared.ask_for_base().changed().await);
    }
}
