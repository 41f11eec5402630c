//! Permission by the replica's lease, required for accepting and sending. It is always granted without replication.

use crate::engine::Engine;

impl Engine {
    /// Returns whether a change may be accepted now. May wait for the bucket's confirmation, at most as long as a
    /// lease.
    pub async fn may_accept(&self) -> bool {
        match self.replication.get() {
            Some(replication) => replication.may_accept().await,
            None => true,
        }
    }

    /// Returns whether a final dot or a webhook request may be sent now. May wait for the bucket's confirmation, at
    /// most as long as a lease.
    pub async fn may_send(&self) -> bool {
        match self.replication.get() {
            Some(replication) => replication.may_send().await,
            None => true,
        }
    }

    /// Waits until sending is allowed. Returns false if it never will be, because another machine owns the log or this
    /// machine stops.
    pub async fn wait_to_send(&self) -> bool {
        match self.replication.get() {
            Some(replication) => replication.wait_to_send().await,
            None => true,
        }
    }

    /// Returns whether mail waits for the bucket's confirmation.
    pub fn waits_for_replica(&self) -> bool {
        self.replication.get().is_some_and(|replication| !replication.is_sending())
    }
}
