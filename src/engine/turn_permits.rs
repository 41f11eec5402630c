//! Permits for which owners take turns: accounts, or networks of strangers. One owner's requests never keep another's
//! waiting for longer than a turn.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::work_slots::{Owner, WorkSlot, WorkSlots};
use crate::base::id::AccountId;
use crate::machine::fair_permits::FairLimit;

type Limit<O> = FairLimit<oneshot::Sender<TurnPermit<O>>, O>;

/// The permits.
pub(super) struct TurnPermits<O: Copy + Eq + Hash = AccountId>(Arc<Mutex<Limit<O>>>);

/// A permit, released when dropped.
pub(super) struct TurnPermit<O: Copy + Eq + Hash = AccountId> {
    permits: TurnPermits<O>,
    owner: O,
}

impl<O: Copy + Eq + Hash> TurnPermits<O> {
    /// Creates `count` permits, of which no owner gets more than half.
    pub(super) fn new(count: usize) -> Self {
        Self::of(FairLimit::new(count))
    }

    /// Creates `count` permits, of which a single owner may hold all. At most `extra` permits more serve the others.
    pub(super) fn exceedable(count: usize, extra: usize) -> Self {
        Self::of(FairLimit::exceedable(count, extra))
    }

    fn of(limit: Limit<O>) -> Self {
        Self(Arc::new(Mutex::new(limit)))
    }

    fn limit(&self) -> MutexGuard<'_, Limit<O>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit. Returns `None` if the permits are gone, which never happens.
    pub(super) async fn take(&self, owner: O) -> Option<TurnPermit<O>> {
        // The withdrawal is dropped after the receiver, and recognises a cancelled request by that.
        let mut withdrawal = Withdrawal { permits: self, is_needed: true };
        let (sender, granted) = oneshot::channel();
        self.limit().request(owner, sender);
        self.grant();
        let permit = granted.await.ok();
        withdrawal.is_needed = false;
        permit
    }

    /// Increases the number of permits to at least `count`.
    pub(super) fn raise(&self, count: usize) {
        self.limit().raise(count);
    }

    /// Returns whether a request waits for a permit.
    pub(super) fn has_waiters(&self) -> bool {
        self.limit().has_waiters()
    }

    /// Returns whether nobody else has these permits, holds one of them, or waits for one.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Grants the free permits.
    fn grant(&self) {
        loop {
            let granted = self.limit().grant();
            let Some((owner, waiter)) = granted else { return };
            // If the waiter is gone, dropping the permit returns it.
            drop(waiter.send(TurnPermit { permits: self.clone(), owner }));
        }
    }

    /// Returns the number of requests that wait for a permit.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.limit().waiting()
    }
}

impl<O: Copy + Eq + Hash> Clone for TurnPermits<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: Copy + Eq + Hash> TurnPermit<O> {
    /// Transfers the permit to another owner.
    pub(super) fn lend(&mut self, owner: O) {
        if owner != self.owner {
            self.permits.limit().transfer(self.owner, owner);
            self.owner = owner;
            self.permits.grant();
        }
    }

    /// Returns whether a request waits for such a permit.
    pub(super) fn is_wanted(&self) -> bool {
        self.permits.has_waiters()
    }
}

impl<O: Copy + Eq + Hash> Drop for TurnPermit<O> {
    fn drop(&mut self) {
        self.permits.limit().release(self.owner);
        self.permits.grant();
    }
}

/// A queue of bounded length in which owners take turns.
pub(super) struct TurnQueue<O: Owner = AccountId> {
    slots: WorkSlots<O>,
    permits: TurnPermits<O>,
}

/// A turn with its slot in the queue, both released when dropped.
pub(super) struct QueuedTurn<O: Owner = AccountId> {
    _permit: TurnPermit<O>,
    _slot: WorkSlot<O>,
}

impl<O: Owner> TurnQueue<O> {
    /// Creates a queue with `at_once` permits. At most `most` requests hold a permit or wait for one, of one owner at
    /// most `of_owner`.
    pub(super) fn new(at_once: usize, most: usize, of_owner: usize) -> Self {
        Self { slots: WorkSlots::new(most, of_owner), permits: TurnPermits::new(at_once) }
    }

    /// Waits for the owner's turn; `None` if the queue, or the owner's part of it, is full.
    pub(super) async fn take(&self, owner: O) -> Option<QueuedTurn<O>> {
        let slot = self.slots.take(owner)?;
        let permit = self.permits.take(owner).await?;
        Some(QueuedTurn { _permit: permit, _slot: slot })
    }

    /// Takes a slot without a turn; `None` as in [`Self::take`].
    #[cfg(test)]
    pub(super) fn occupy(&self, owner: O) -> Option<WorkSlot<O>> {
        self.slots.take(owner)
    }

    /// Returns the number of requests that hold a permit or wait for one.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.slots.taken()
    }
}

/// Removes the requests of cancelled waiters from the queue when dropped.
struct Withdrawal<'a, O: Copy + Eq + Hash> {
    permits: &'a TurnPermits<O>,
    is_needed: bool,
}

impl<O: Copy + Eq + Hash> Drop for Withdrawal<'_, O> {
    fn drop(&mut self) {
        if self.is_needed {
            self.permits.limit().withdraw(oneshot::Sender::is_closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    /// Returns the permit if it is granted by now.
    fn granted(waits: Pin<&mut impl Future<Output = Option<TurnPermit<u8>>>>) -> Option<TurnPermit<u8>> {
        match waits.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => permit,
            Poll::Pending => None,
        }
    }

    #[test]
    fn owners_take_turns() {
        let permits = TurnPermits::new(1);
        let mut waiting: Vec<_> = [1, 1, 1, 2].map(|owner| Box::pin(permits.take(owner))).into();
        let mut permits_in_order = Vec::new();
        for _ in 0..4 {
            let mut held: Vec<_> = waiting.iter_mut().map(|waits| granted(waits.as_mut())).collect();
            let place = held.iter().position(Option::is_some).unwrap();
            drop(waiting.remove(place));
            permits_in_order.extend(held.remove(place).map(|permit| permit.owner));
        }
        assert_eq!(permits_in_order, [1, 1, 2, 1]);
    }

    #[test]
    fn a_cancelled_request_leaves_the_queue() {
        let permits = TurnPermits::new(1);
        let held = granted(Box::pin(permits.take(1)).as_mut());
        let mut waits = Box::pin(permits.take(2));
        assert!(held.is_some() && granted(waits.as_mut()).is_none());
        assert_eq!(permits.waiting(), 1);
        drop(waits);
        assert_eq!(permits.waiting(), 0);
    }
}
