//! Slots for long-running work, such as following the event log: a limited number in total, and a smaller number per
//! account.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::id::AccountId;

/// The slots.
pub(super) struct WorkSlots {
    most: usize,
    of_account: usize,
    taken: Arc<Mutex<UsedSlots>>,
}

#[derive(Default)]
struct UsedSlots {
    all: usize,
    by_account: HashMap<AccountId, usize>,
}

/// A used slot, released when dropped.
pub(super) struct WorkSlot {
    taken: Arc<Mutex<UsedSlots>>,
    account: AccountId,
}

impl WorkSlots {
    /// Creates `most` slots in total, and at most `of_account` per account.
    pub(super) fn new(most: usize, of_account: usize) -> Self {
        Self { most, of_account, taken: Arc::default() }
    }

    /// Returns the number of used slots.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }

    /// Takes a slot for an account; `None` if all slots, or all of the account's, are used.
    pub(super) fn take(&self, account: AccountId) -> Option<WorkSlot> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_account = taken.by_account.get(&account).copied().unwrap_or(0);
        if taken.all >= self.most || of_account >= self.of_account {
            return None;
        }
        taken.all += 1;
        taken.by_account.insert(account, of_account + 1);
        Some(WorkSlot { taken: Arc::clone(&self.taken), account })
    }
}

impl Drop for WorkSlot {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        match taken.by_account.get_mut(&self.account) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(taken.by_account.remove(&self.account)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn an_account_gets_at_most_its_share_and_a_dropped_slot_is_free_again() {
        let slots = WorkSlots::new(3, 2);
        let account = |byte| AccountId(Ulid([byte; 16]));
        let first = slots.take(account(1));
        let _second = slots.take(account(1)).unwrap();
        assert!(first.is_some() && slots.take(account(1)).is_none());
        let _other = slots.take(account(2)).unwrap();
        assert!(slots.take(account(3)).is_none());
        drop(first);
        assert_eq!(slots.taken(), 2);
        assert!(slots.take(account(3)).is_some());
        drop(slots.take(account(1)).unwrap());
    }
}
