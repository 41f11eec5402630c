//! Leases on messages. A lease is the right to decide about a message. It has one of two states:
//!
//! ```text
//!   (free) --reserve--> Reserved <--step back / begin--> Exclusive <--take-- (free)
//!                           |                                ^
//!                           +------ take: revoked -----------+
//! ```
//!
//! A worker reserves the message that it is about to send. Until its MAIL is written, an operation that takes the lease
//! revokes the reservation. An exclusive lease is never revoked.

use std::collections::HashMap;

use crate::base::id::MessageId;

/// Identifies a lease. Numbers are never reused, so an outdated lease changes nothing.
pub type LeaseNumber = u64;

/// State of a message's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// A worker is about to send the message.
    Reserved,
    /// MAIL has been written or the outcome is being committed, or an operation decides about the message.
    Exclusive,
}

/// An exclusive lease that was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct TakenLease<R> {
    /// Number of the lease.
    pub number: LeaseNumber,
    /// Handle of the reservation that this revoked.
    pub revoked: Option<R>,
}

/// All leases. `R` is a worker's handle, returned when its reservation is revoked.
#[derive(Debug)]
pub struct LeaseTable<R> {
    entries: HashMap<MessageId, Entry<R>>,
    last: LeaseNumber,
}

#[derive(Debug)]
struct Entry<R> {
    number: LeaseNumber,
    state: LeaseState,
    handle: Option<R>,
}

impl<R> Default for LeaseTable<R> {
    fn default() -> Self {
        Self { entries: HashMap::new(), last: 0 }
    }
}

impl<R> LeaseTable<R> {
    /// Reserves `message` for a worker, unless there is a lease on it.
    pub fn reserve(&mut self, message: MessageId, handle: R) -> Option<LeaseNumber> {
        if self.entries.contains_key(&message) {
            return None;
        }
        Some(self.add(message, LeaseState::Reserved, Some(handle)))
    }

    /// Takes an exclusive lease on `message`, and revokes a reservation. Returns `None` if the current lease is
    /// exclusive.
    pub fn take(&mut self, message: MessageId) -> Option<TakenLease<R>> {
        if self.state(message) == Some(LeaseState::Exclusive) {
            return None;
        }
        let revoked = self.entries.remove(&message).and_then(|entry| entry.handle);
        let number = self.add(message, LeaseState::Exclusive, None);
        Some(TakenLease { number, revoked })
    }

    fn add(&mut self, message: MessageId, state: LeaseState, handle: Option<R>) -> LeaseNumber {
        self.last += 1;
        self.entries.insert(message, Entry { number: self.last, state, handle });
        self.last
    }

    /// Makes a lease exclusive, right before MAIL. Returns false if it was revoked.
    pub fn begin(&mut self, message: MessageId, number: LeaseNumber) -> bool {
        let entry = self.entry(message, number);
        entry.map(|entry| entry.state = LeaseState::Exclusive).is_some()
    }

    /// Makes a worker's lease a reservation again: its message waits for another server.
    pub fn step_back(&mut self, message: MessageId, number: LeaseNumber) {
        if let Some(entry) = self.entry(message, number).filter(|entry| entry.handle.is_some()) {
            entry.state = LeaseState::Reserved;
        }
    }

    /// Ends a lease. A revoked one has ended already.
    pub fn release(&mut self, message: MessageId, number: LeaseNumber) {
        if self.entry(message, number).is_some() {
            self.entries.remove(&message);
        }
    }

    fn entry(&mut self, message: MessageId, number: LeaseNumber) -> Option<&mut Entry<R>> {
        self.entries.get_mut(&message).filter(|entry| entry.number == number)
    }

    /// Returns the state of the lease on `message`.
    pub fn state(&self, message: MessageId) -> Option<LeaseState> {
        self.entries.get(&message).map(|entry| entry.state)
    }

    /// Returns the handle of the worker with the lease on `message`.
    pub fn handle(&self, message: MessageId) -> Option<&R> {
        self.entries.get(&message)?.handle.as_ref()
    }

    /// Iterates over the leased messages, in arbitrary order.
    pub fn messages(&self) -> impl Iterator<Item = MessageId> {
        self.entries.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::Ulid;
    use proptest::prelude::*;

    const MESSAGE: MessageId = MessageId(Ulid([7; 16]));

    #[test]
    fn a_reservation_is_revoked_until_it_begins() {
        let mut table = LeaseTable::default();
        let first = table.reserve(MESSAGE, "first").unwrap();
        assert_eq!((table.reserve(MESSAGE, "second"), table.state(MESSAGE)), (None, Some(LeaseState::Reserved)));
        let taken = table.take(MESSAGE).unwrap();
        assert_eq!((taken.revoked, table.begin(MESSAGE, first)), (Some("first"), false));
        table.release(MESSAGE, first);
        assert_eq!(table.state(MESSAGE), Some(LeaseState::Exclusive), "a revoked lease releases nothing");
        table.release(MESSAGE, taken.number);
        let second = table.reserve(MESSAGE, "second").unwrap();
        assert!(table.begin(MESSAGE, second) && table.take(MESSAGE).is_none());
        table.step_back(MESSAGE, second);
        assert_eq!(table.take(MESSAGE).unwrap().revoked, Some("second"), "it waits for another server");
    }

    #[test]
    fn an_operation_s_lease_stays_exclusive() {
        let mut table = LeaseTable::<()>::default();
        let TakenLease { number, revoked } = table.take(MESSAGE).unwrap();
        table.step_back(MESSAGE, number);
        assert_eq!((revoked, table.take(MESSAGE)), (None, None));
    }

    proptest! {
        #[test]
        fn at_most_one_holder_decides_and_every_revoked_one_is_notified(steps in prop::collection::vec(0u8..6, 0..60)) {
            let mut table = LeaseTable::default();
            // The model: the worker that has the lease and whether it has begun; the operation that has it.
            let (mut worker, mut operation, mut outdated) = (None::<(LeaseNumber, bool)>, None, Vec::new());
            for step in steps {
                match (step, worker, operation) {
                    (0, _, _) => {
                        let reserved = table.reserve(MESSAGE, ());
                        prop_assert_eq!(reserved.is_some(), worker.is_none() && operation.is_none());
                        worker = worker.or(reserved.map(|number| (number, false)));
                    }
                    (1, _, _) => {
                        let taken = table.take(MESSAGE);
                        let is_free = operation.is_none() && worker.is_none_or(|(_, has_begun)| !has_begun);
                        prop_assert_eq!(taken.is_some(), is_free);
                        if let Some(taken) = taken {
                            prop_assert_eq!(taken.revoked.is_some(), worker.is_some());
                            outdated.extend(worker.take().map(|(number, _)| number));
                            operation = Some(taken.number);
                        }
                    }
                    (2, Some((number, _)), _) => {
                        prop_assert!(table.begin(MESSAGE, number));
                        worker = Some((number, true));
                    }
                    (3, Some((number, _)), _) => {
                        table.step_back(MESSAGE, number);
                        worker = Some((number, false));
                    }
                    (4, Some((number, _)), _) => {
                        table.release(MESSAGE, number);
                        (worker, outdated) = (None, [outdated, vec![number]].concat());
                    }
                    (5, _, Some(number)) => {
                        table.release(MESSAGE, number);
                        (operation, outdated) = (None, [outdated, vec![number]].concat());
                    }
                    _ => {
                        for number in &outdated {
                            prop_assert!(!table.begin(MESSAGE, *number));
                            table.release(MESSAGE, *number);
                        }
                    }
                }
                let state = match (worker, operation) {
                    (Some((_, false)), None) => Some(LeaseState::Reserved),
                    (Some((_, true)), None) | (None, Some(_)) => Some(LeaseState::Exclusive),
                    (None, None) => None,
                    both => panic!("{both:?} have the lease"),
                };
                prop_assert_eq!(table.state(MESSAGE), state);
            }
        }
    }
}
