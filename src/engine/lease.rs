//! Who may decide over a message at this moment: one lease each, in memory, taken by whoever puts it on the wire or
//! withdraws it. A crash frees them all; the rows say what is still to be done.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::id::MessageId;

/// All leases.
#[derive(Clone, Default)]
pub struct Leases(Arc<Mutex<HashSet<MessageId>>>);

/// The right to decide over one message, until it is dropped.
pub struct Lease {
    leases: Leases,
    message: MessageId,
}

impl Leases {
    /// Takes the lease of `message`, unless somebody has it.
    pub fn take(&self, message: MessageId) -> Option<Lease> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(message);
        taken.then(|| Lease { leases: self.clone(), message })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.message);
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
}
