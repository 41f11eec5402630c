//! Memory limit of the messages that are being received or accepted, over all connections of submission.

use std::sync::{Arc, Mutex, PoisonError};

use crate::base::id::AccountId;
use crate::machine::shares::Shares;

/// Maximum number of bytes of all messages in flight.
const ALL: usize = 256 << 20;
/// Maximum number of bytes of one account's messages in flight.
const EACH: usize = 192 << 20;

/// The reservations of all connections, by account.
pub(super) struct Memory(Shares<AccountId>);

impl Default for Memory {
    fn default() -> Self {
        Self(Shares::new(ALL, EACH))
    }
}

/// The reservation of one connection, released when it is dropped.
pub(super) struct Reservation {
    memory: Arc<Mutex<Memory>>,
    account: AccountId,
    bytes: usize,
}

impl Reservation {
    /// Creates an empty reservation for a message of `account`.
    pub(super) const fn new(memory: Arc<Mutex<Memory>>, account: AccountId) -> Self {
        Self { memory, account, bytes: 0 }
    }

    /// Reserves this many more bytes; false if that exceeds a limit.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let is_lent = memory.0.take(&self.account, bytes).is_ok();
        if is_lent {
            self.bytes += bytes;
        }
        is_lent
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).0.give_back(&self.account, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn an_account_has_192_mib_and_all_accounts_have_256_mib() {
        let memory = Arc::default();
        let of = |account| Reservation::new(Arc::clone(&memory), AccountId(Ulid([account; 16])));
        let (mut one, mut other) = (of(1), of(2));
        assert!(one.grow(EACH) && !one.grow(1));
        assert!(other.grow(ALL - EACH) && !other.grow(1));
        drop(one);
        assert!(other.grow(1) && of(1).grow(EACH - 1));
    }
}
