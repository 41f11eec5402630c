//! Replication for the interfaces: its status, and the request for a base.

use std::sync::Arc;

use super::shared::Shared;
use super::status::ReplicaStatus;
use crate::base::time::Timestamp;
use crate::engine::bucket::meters::BucketMeters;
use crate::store::replica::Unconfirmed;

/// Replication of a running active machine.
pub struct Replication {
    shared: Arc<Shared>,
    /// Metrics of the requests to the bucket.
    pub meters: Option<Arc<BucketMeters>>,
}

impl Replication {
    /// Creates the interface of the tasks that share `shared`.
    pub const fn new(shared: Arc<Shared>, meters: Option<Arc<BucketMeters>>) -> Self {
        Self { shared, meters }
    }

    /// Returns the status at `now`.
    pub fn status(&self, now: Timestamp) -> ReplicaStatus {
        self.shared.status(now)
    }

    /// Returns the number and size of records that the bucket lacks.
    pub fn unconfirmed(&self) -> Unconfirmed {
        self.shared.outbox.unconfirmed()
    }

    /// Returns the number of gaps that only a new base closed.
    pub fn resyncs(&self) -> u64 {
        self.shared.resyncs()
    }

    /// Returns whether a change may be accepted now.
    pub(super) async fn may_accept(&self) -> bool {
        // A batch that waits for the bucket blocks all others, so further changes are refused.
        !self.shared.outbox.is_in_doubt() && self.shared.lease.may_accept().await
    }

    /// Returns whether sending is allowed now.
    pub(super) async fn may_send(&self) -> bool {
        self.shared.lease.may_send().await
    }

    /// Waits until sending is allowed. Returns false if it never will be.
    pub(super) async fn wait_to_send(&self) -> bool {
        self.shared.lease.wait_to_send().await
    }

    /// Returns whether sending is allowed, as far as is known.
    pub(super) fn is_sending(&self) -> bool {
        self.shared.lease.is_sending()
    }

    /// Returns whether the service may accept work.
    pub fn is_ready(&self) -> bool {
        !self.shared.outbox.is_in_doubt() && self.shared.lease.is_ready()
    }

    /// Requests a base. Waits until it is complete and the objects that it replaces are removed.
    pub async fn make_base(&self) {
        // The sender is part of the shared state until the base is finished, so the channel stays open.
        drop(self.shared.base_requests.ask().await);
    }
}
