//! A semaphore that grants its permits to owners in turn, mostly accounts. Within an owner's queue the order is first
//! in, first out. The work of one owner never blocks another's completely, in one of two ways:
//!
//! - No owner ever holds more than half of the permits, for work that ends soon.
//! - An owner may hold all permits while no other waits, for work that may take minutes. Others are then served beyond
//!   the number of permits: what an owner holds above its half doesn't count against them, and an owner that holds
//!   nothing gets a permit at once. A fixed number bounds both.

use std::collections::HashMap;
use std::hash::Hash;

use super::fair_queue::FairQueue;
use crate::base::id::AccountId;

/// The permits and the waiters.
#[derive(Debug)]
pub struct FairLimit<T, O = AccountId> {
    permits: usize,
    /// Number of permits beyond `permits`. `None`: no owner holds more than half.
    extra: Option<usize>,
    used: usize,
    held: HashMap<O, usize>,
    waiting: FairQueue<T, O>,
}

impl<T, O: Copy + Eq + Hash> FairLimit<T, O> {
    /// Creates a semaphore with this number of permits, at least one, of which no owner gets more than half.
    pub fn new(permits: usize) -> Self {
        Self { permits: permits.max(1), extra: None, used: 0, held: HashMap::new(), waiting: FairQueue::default() }
    }

    /// Creates a semaphore with this number of permits, at least one, of which a single owner may hold all. At most
    /// `extra` permits more serve the others.
    pub fn exceedable(permits: usize, extra: usize) -> Self {
        Self { extra: Some(extra), ..Self::new(permits) }
    }

    /// Increases the number of permits to at least `permits`.
    pub fn raise(&mut self, permits: usize) {
        self.permits = self.permits.max(permits);
    }

    /// Queues `waiter` after the others of its owner.
    pub fn request(&mut self, owner: O, waiter: T) {
        self.waiting.push(owner, waiter);
    }

    /// Removes the waiters for which `leaves` returns true.
    pub fn withdraw(&mut self, leaves: impl Fn(&T) -> bool) {
        drop(self.waiting.extract(leaves));
    }

    /// Grants a permit to the next owner that may have one, and returns its first waiter.
    pub fn grant(&mut self) -> Option<(O, T)> {
        let next = self.next()?;
        let (owner, waiter) = self.waiting.pop_with_owner(|owner| *owner == next)?;
        self.count(owner);
        Some((owner, waiter))
    }

    /// Returns the waiting owner that gets the next permit.
    fn next(&self) -> Option<O> {
        let (share, is_free) = (self.share(), self.used < self.permits);
        let Some(extra) = self.extra else {
            return self.waiting.next_owner(|owner| is_free && self.held_by(owner) < share);
        };
        // An owner within its share has no part in this sum.
        let beyond: usize = self.held.values().map(|held| held.saturating_sub(share)).sum();
        let has_room = self.used - beyond.min(extra) < self.permits;
        let within = || self.waiting.next_owner(|owner| has_room && self.held_by(owner) < share);
        let alone = || self.waiting.next_owner(|_| is_free);
        let new = || {
            self.waiting.next_owner(|owner| self.held_by(owner) == 0 && self.used < self.permits.saturating_add(extra))
        };
        within().or_else(alone).or_else(new)
    }

    fn held_by(&self, owner: &O) -> usize {
        self.held.get(owner).copied().unwrap_or_default()
    }

    const fn share(&self) -> usize {
        self.permits.div_ceil(2)
    }

    fn count(&mut self, owner: O) {
        self.used += 1;
        *self.held.entry(owner).or_default() += 1;
    }

    /// Transfers a permit to another owner, who goes on with the first one's work.
    pub fn transfer(&mut self, from: O, to: O) {
        self.release(from);
        self.count(to);
    }

    /// Returns whether a request waits for a permit.
    pub fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of requests that wait for a permit.
    #[cfg(test)]
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Releases a permit.
    pub fn release(&mut self, owner: O) {
        let Some(held) = self.held.get_mut(&owner) else { return };
        *held -= 1;
        if *held == 0 {
            self.held.remove(&owner);
        }
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use proptest::prelude::*;

    fn account(number: u8) -> AccountId {
        AccountId(Ulid([number; 16]))
    }

    #[test]
    fn one_account_gets_at_most_half_and_the_others_take_turns() {
        let mut permits = FairLimit::new(4);
        (0..100).for_each(|n| permits.request(account(1), n));
        let mut granted = || permits.grant().map(|(_, waiter)| waiter);
        assert_eq!([granted(), granted(), granted()], [Some(0), Some(1), None]);
        permits.request(account(2), 200);
        permits.request(account(3), 300);
        permits.request(account(2), 201);
        let granted: Vec<_> = std::iter::from_fn(|| permits.grant()).map(|(_, waiter)| waiter).collect();
        assert_eq!(granted, [200, 300]);
        permits.release(account(1));
        assert_eq!(permits.grant(), Some((account(1), 2)));
        permits.release(account(3));
        assert_eq!(permits.grant(), Some((account(2), 201)), "the first account already holds half");
    }

    #[test]
    fn one_account_may_hold_all_and_others_are_then_served_beyond_them() {
        let mut permits = FairLimit::exceedable(4, 3);
        (0..100).for_each(|n| permits.request(account(1), n));
        let granted = |permits: &mut FairLimit<i32>| -> Vec<_> {
            std::iter::from_fn(|| permits.grant()).map(|(_, waiter)| waiter).collect()
        };
        assert_eq!(granted(&mut permits), [0, 1, 2, 3]);
        (0..4).for_each(|n| permits.request(account(2), 200 + n));
        assert_eq!(granted(&mut permits), [200, 201], "what the first account holds beyond its half does not count");
        permits.request(account(3), 300);
        assert_eq!(granted(&mut permits), [300], "an account without a permit gets one");
        permits.request(account(4), 400);
        assert_eq!(granted(&mut permits), Vec::<i32>::new(), "seven permits are all");
        permits.withdraw(|waiter| *waiter < 200);
        (0..4).for_each(|_| permits.release(account(1)));
        assert_eq!(granted(&mut permits), [400]);
        permits.transfer(account(3), account(4));
        assert_eq!(granted(&mut permits), Vec::<i32>::new(), "two accounts have two permits each");
        permits.raise(5);
        permits.raise(1);
        assert_eq!(granted(&mut permits), [202]);
    }

    proptest! {
        #[test]
        fn an_exceedable_limit_serves_every_new_owner_at_once_within_its_bound(
            permits in 1usize..6,
            extra in 0usize..5,
            steps in prop::collection::vec((any::<bool>(), 0u8..6), 0..80),
        ) {
            let (mut fair, mut held) = (FairLimit::exceedable(permits, extra), Vec::new());
            for (is_request, number) in steps {
                if is_request {
                    fair.request(account(number), number);
                } else if !held.is_empty() {
                    fair.release(account(held.swap_remove(usize::from(number) % held.len())));
                }
                while let Some((_, number)) = fair.grant() {
                    held.push(number);
                }
                prop_assert!(held.len() <= permits + extra);
                let is_new = |account: &AccountId| held.iter().all(|other| *other != account.0.0[0]);
                prop_assert!(held.len() == permits + extra || !fair.waiting.has_of(is_new));
                prop_assert!(held.len() >= permits || fair.waiting.is_empty());
            }
        }

        #[test]
        fn grants_never_exceed_the_permits_and_no_permit_stays_free_while_a_request_may_have_it(
            permits in 1usize..9,
            steps in prop::collection::vec((any::<bool>(), 0u8..4), 0..80),
        ) {
            let (mut fair, mut held, mut waiting) = (FairLimit::new(permits), Vec::new(), 0);
            for (is_request, number) in steps {
                if is_request {
                    fair.request(account(number), number);
                    waiting += 1;
                } else if !held.is_empty() {
                    fair.release(account(held.swap_remove(usize::from(number) % held.len())));
                }
                while let Some((own, number)) = fair.grant() {
                    prop_assert_eq!(own, account(number));
                    held.push(number);
                    waiting -= 1;
                }
                let of = |number: u8| held.iter().filter(|other| **other == number).count();
                prop_assert!(held.len() <= permits && (0..4).all(|number| of(number) <= permits.div_ceil(2)));
                let may_have_more = fair.waiting.has_of(|account| of(account.0.0[0]) < permits.div_ceil(2));
                prop_assert!(held.len() == permits || !may_have_more);
                prop_assert_eq!(fair.waiting(), waiting);
            }
        }
    }
}
