//! Leases on messages, in memory: whoever sends or withdraws a message takes its lease first. A crash frees them all;
//! the rows say what is still to be done.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::base::id::MessageId;

/// Time for which [`Leases::take_soon`] waits: an attempt's outcome can be seen a moment before its lease is returned.
const SOON: Duration = Duration::from_millis(200);

/// All leases.
#[derive(Clone, Default)]
pub struct Leases(Arc<Shared>);

#[derive(Default)]
struct Shared {
    taken: Mutex<HashSet<MessageId>>,
    freed: Notify,
}

/// The right to decide over one message, until it is dropped.
pub struct Lease {
    leases: Leases,
    message: MessageId,
}

impl Leases {
    /// Takes the lease of `message`, unless somebody has it.
    pub fn take(&self, message: MessageId) -> Option<Lease> {
        let taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(message);
        taken.then(|| Lease { leases: self.clone(), message })
    }

    /// Whether somebody has the lease of `message`.
    pub fn is_taken(&self, message: MessageId) -> bool {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).contains(&message)
    }

    /// The messages whose lease somebody has.
    pub fn taken(&self) -> Vec<MessageId> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// Takes the lease of `message`, waiting for whoever is about to give it back.
    pub async fn take_soon(&self, message: MessageId) -> Option<Lease> {
        self.take_within(message, SOON).await
    }

    /// The same, waiting up to `patience`, in the machine's own time.
    pub async fn take_within(&self, message: MessageId, patience: Duration) -> Option<Lease> {
        let wait = async {
            loop {
                // Asked for before the look, so that what is given back in between is not missed.
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
    fn a_message_is_leased_to_one_at_a_time() {
        let leases = Leases::default();
        let lease = leases.take(MessageId::default()).unwrap();
        assert!(leases.take(MessageId::default()).is_none());
        drop(lease);
        assert!(leases.take(MessageId::default()).is_some());
    }

    #[tokio::test]
    async fn whoever_waits_a_little_gets_what_is_given_back_meanwhile() {
        let leases = Leases::default();
        let lease = leases.take(MessageId::default()).unwrap();
        let (taken, ()) = tokio::join!(leases.take_soon(MessageId::default()), async { drop(lease) });
        assert!(taken.is_some());
        assert!(leases.take_soon(MessageId::default()).await.is_none());
    }
}
