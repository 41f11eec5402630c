//! Slots for expensive work, such as following the event log: a limited number in total, and a smaller number per
//! account, or per other owner.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::id::AccountId;

/// The slots.
pub(super) struct WorkSlots<O: Owner = AccountId> {
    most: usize,
    of_owner: usize,
    /// Further slots for owners without one.
    reserve: usize,
    taken: Arc<Mutex<UsedSlots<O>>>,
}

/// Owner of slots.
pub(super) trait Owner: Copy + Eq + Hash {}

impl<O: Copy + Eq + Hash> Owner for O {}

struct UsedSlots<O> {
    all: usize,
    by_owner: HashMap<O, usize>,
}

/// A used slot, released when dropped.
pub(super) struct WorkSlot<O: Owner = AccountId> {
    taken: Arc<Mutex<UsedSlots<O>>>,
    owner: O,
}

impl<O: Owner> WorkSlots<O> {
    /// Creates `most` slots in total, and at most `of_owner` per owner.
    pub(super) fn new(most: usize, of_owner: usize) -> Self {
        let taken = UsedSlots { all: 0, by_owner: HashMap::new() };
        Self { most, of_owner, reserve: 0, taken: Arc::new(Mutex::new(taken)) }
    }

    /// Adds slots that only owners without a slot can take. So a few owners can't take all.
    pub(super) fn with_reserve(self, reserve: usize) -> Self {
        Self { reserve, ..self }
    }

    /// Returns the number of used slots.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }

    /// Takes a slot for an owner; `None` if all slots, or all of the owner's, are used.
    pub(super) fn take(&self, owner: O) -> Option<WorkSlot<O>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_owner = taken.by_owner.get(&owner).copied().unwrap_or(0);
        let most = if of_owner == 0 { self.most.saturating_add(self.reserve) } else { self.most };
        if taken.all >= most || of_owner >= self.of_owner {
            return None;
        }
        taken.all += 1;
        taken.by_owner.insert(owner, of_owner + 1);
        Some(WorkSlot { taken: Arc::clone(&self.taken), owner })
    }
}

impl<O: Owner> Drop for WorkSlot<O> {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        match taken.by_owner.get_mut(&self.owner) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(taken.by_owner.remove(&self.owner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;

    #[test]
    fn an_account_gets_at_most_its_share_and_a_dropped_slot_is_free_again() {
        let slots = WorkSlots::new(3, 2).with_reserve(3);
        let account = |byte| AccountId(Ulid([byte; 16]));
        let first = slots.take(account(1));
        let _second = slots.take(account(1)).unwrap();
        assert!(first.is_some() && slots.take(account(1)).is_none());
        let _other = slots.take(account(2)).unwrap();
        assert!(slots.take(account(2)).is_none(), "all are used");
        let further = [3, 4, 5].map(|byte| slots.take(account(byte)).expect("it has none yet"));
        assert!(slots.take(account(6)).is_none());
        drop((first, further));
        assert_eq!(slots.taken(), 2);
        assert!(slots.take(account(3)).is_some());
        drop(slots.take(account(1)).unwrap());
    }
}
