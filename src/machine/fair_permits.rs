//! A semaphore that grants its permits to owners in turn, mostly accounts. No owner holds more than half of them, so
//! the work of one never blocks another's completely. Within an owner's queue the order is first in, first out.

use std::collections::HashMap;
use std::hash::Hash;

use super::fair_queue::FairQueue;
use crate::base::id::AccountId;

/// The permits and the waiters.
#[derive(Debug)]
pub struct FairLimit<T, O = AccountId> {
    free: usize,
    each: usize,
    held: HashMap<O, usize>,
    waiting: FairQueue<T, O>,
}

impl<T, O: Copy + Eq + Hash> FairLimit<T, O> {
    /// Creates a semaphore with this number of permits, at least one.
    pub fn new(permits: usize) -> Self {
        let free = permits.max(1);
        Self { free, each: free.div_ceil(2), held: HashMap::new(), waiting: FairQueue::default() }
    }

    /// Queues `waiter` after the others of its owner.
    pub fn request(&mut self, owner: O, waiter: T) {
        self.waiting.push(owner, waiter);
    }

    /// Removes the waiters for which `leaves` returns true.
    pub fn withdraw(&mut self, leaves: impl Fn(&T) -> bool) {
        drop(self.waiting.extract(leaves));
    }

    /// Grants a free permit to the next owner below its limit, and returns its first waiter.
    pub fn grant(&mut self) -> Option<(O, T)> {
        if self.free == 0 {
            return None;
        }
        let (owner, waiter) =
            self.waiting.pop_with_owner(|owner| self.held.get(owner).is_none_or(|held| *held < self.each))?;
        self.free -= 1;
        *self.held.entry(owner).or_default() += 1;
        Some((owner, waiter))
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
        self.free += 1;
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

    proptest! {
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
