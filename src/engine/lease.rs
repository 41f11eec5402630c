//! In-memory leases on messages. A task takes a message's lease before it sends or withdraws the message. A crash
//! releases all leases; the rows show the remaining work.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::base::id::MessageId;

/// Time for which [`Leases::take_soon`] waits: an attempt's outcome is visible a moment before its lease is released.
const SOON: Duration = Duration::from_millis(200);

/// All leases.
#[derive(Clone, Default)]
pub struct Leases(Arc<Shared>);

#[derive(Default)]
struct Shared {
    taken: Mutex<HashSet<MessageId>>,
    freed: Notify,
}

/// Exclusive right to change one message, until this value is dropped.
pub struct Lease {
    leases: Leases,
    message: MessageId,
}

impl Leases {
    /// Takes the lease of `message`, unless it is taken.
    pub fn take(&self, message: MessageId) -> Option<Lease> {
        let taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(message);
        taken.then(|| Lease { leases: self.clone(), message })
    }

    /// Returns whether the lease of `message` is taken.
    pub fn is_taken(&self, message: MessageId) -> bool {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).contains(&message)
    }

    /// Returns the messages whose lease is taken.
    pub fn taken(&self) -> Vec<MessageId> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Takes the lease of `message`. Waits briefly for a holder that is about to release it.
    pub async fn take_soon(&self, message: MessageId) -> Option<Lease> {
        self.take_within(message, SOON).await
    }

    /// Takes the lease of `message`. Waits at most `patience` of the machine's own time.
    pub async fn take_within(&self, message: MessageId, patience: Duration) -> Option<Lease> {
        let wait = async {
            loop {
                // Subscribe before the check. Otherwise a release in between would be missed.
                let freed = self.0.freed.notified();
                if let Some(lease) = self.take(message) {
                    return lease;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, wait).await.ok()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.0.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.message);
        self.leases.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_at_most_one_lease() {
        let leases = Leases::default();
        let lease = leases.take(MessageId::default()).unwrap();
        assert!(leases.take(MessageId::default()).is_none());
        drop(lease);
        assert!(leases.take(MessageId::default()).is_some());
    }

    #[tokio::test]
    async fn a_short_wait_gets_a_lease_that_is_released_meanwhile() {
        let leases = Leases::default();
        let lease = leases.take(MessageId::default()).unwrap();
        let (taken, ()) = tokio::join!(leases.take_soon(MessageId::default()), async { drop(lease) });
        assert!(taken.is_some());
        assert!(leases.take_soon(MessageId::default()).await.is_none());
    }
}
