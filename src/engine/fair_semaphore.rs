//! A fair semaphore over a [`Budget`], for connections, queries, and the memory of bodies. Workers wait here for their
//! permits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::machine::budget::{Budget, Claim, ClaimId};

/// One of this many parts is reserved for sites that are known to answer.
const PROVEN_PART: u32 = 4;
/// One of this many parts is available to sites that did not answer.
const SILENT_PART: u32 = 16;

/// The semaphore; permits are counted in units.
pub(super) struct FairSemaphore(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified when a claim has to wait.
    wanted: Notify,
}

struct State {
    budget: Budget,
    waiters: HashMap<ClaimId, oneshot::Sender<FairPermit>>,
}

/// Permit, released when dropped.
pub(super) struct FairPermit {
    semaphore: Arc<Shared>,
    claim: Claim,
}

impl FairSemaphore {
    pub(super) fn new(units: u32) -> Self {
        let state = State { budget: Budget::new(units), waiters: HashMap::new() };
        Self(Arc::new(Shared { state: Mutex::new(state), wanted: Notify::new() }))
    }

    /// Returns the part of `units` for sites that are not known to answer.
    pub(super) fn of_unproven(units: u32) -> Self {
        Self::new(units - units / PROVEN_PART)
    }

    /// Returns the part of `units` for sites that did not answer.
    pub(super) fn of_silent(units: u32) -> Self {
        Self::new((units / SILENT_PART).max(2))
    }

    /// Waits until `claim` has its turn. Returns `None` if the semaphore is closed, which never happens.
    pub(super) async fn take(&self, claim: Claim) -> Option<FairPermit> {
        if let Some(permit) = self.take_now(claim) {
            return Some(permit);
        }
        let semaphore = &self.0;
        let (sender, mut receiver) = oneshot::channel();
        let id = {
            let mut state = semaphore.state();
            let id = state.budget.request(claim);
            state.waiters.insert(id, sender);
            id
        };
        // Dropping this future withdraws the claim, which may have blocked others.
        let _withdraws = WithdrawOnDrop { semaphore, id, claim };
        semaphore.serve();
        if let Ok(permit) = receiver.try_recv() {
            return Some(permit);
        }
        semaphore.wanted.notify_one();
        receiver.await.ok()
    }

    /// Returns a permit if the units of `claim` are free and no other claim waits.
    pub(super) fn take_now(&self, claim: Claim) -> Option<FairPermit> {
        let is_granted = self.0.state().budget.take_now(claim);
        is_granted.then(|| FairPermit { semaphore: Arc::clone(&self.0), claim })
    }

    /// Returns the number of units in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> u32 {
        self.0.state().budget.used()
    }

    /// Returns whether any claim waits.
    pub(super) fn has_waiters(&self) -> bool {
        self.0.state().budget.has_waiters()
    }

    /// Resolves while a claim waits. Holders of unneeded permits should then release them.
    pub(super) async fn wanted(&self) {
        loop {
            // Subscribe before the check. Otherwise a claim in between would be missed.
            let wanted = self.0.wanted.notified();
            if self.has_waiters() {
                return;
            }
            wanted.await;
        }
    }

    /// Wakes another task that waits for [`Self::wanted`], because the current one has no permit to release.
    pub(super) fn pass_on(&self) {
        self.0.wanted.notify_one();
    }

    /// Reuses a permit of one message for the message of `claim`. Returns false if marketing would exceed its share.
    pub(super) fn lend(&self, taken: &mut FairPermit, claim: Claim) -> bool {
        let is_lent = self.0.state().budget.transfer(&taken.claim, &claim);
        if is_lent {
            taken.claim = Claim { units: taken.claim.units, ..claim };
            self.0.serve();
        }
        is_lent
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants permits to the claims whose turn it is.
    fn serve(self: &Arc<Self>) {
        let mut served = Vec::new();
        let mut state = self.state();
        while let Some((id, claim)) = state.budget.grant() {
            let permit = FairPermit { semaphore: Arc::clone(self), claim };
            served.push((state.waiters.remove(&id), permit));
        }
        // The permit is sent without the lock: if the receiver is gone, the dropped permit takes the lock again.
        drop(state);
        for (sender, permit) in served {
            drop(sender.map(|sender| sender.send(permit)));
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        self.semaphore.state().budget.release(&self.claim);
        self.semaphore.serve();
    }
}

/// Withdraws a waiting claim when dropped, then serves the next one.
struct WithdrawOnDrop<'a> {
    semaphore: &'a Arc<Shared>,
    id: ClaimId,
    claim: Claim,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.semaphore.state();
        let waited = state.waiters.remove(&self.id).is_some();
        if waited {
            state.budget.withdraw(self.id, &self.claim);
        }
        drop(state);
        if waited {
            self.semaphore.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use crate::base::id::{AccountId, Ulid};
    use crate::domain::stream::Stream;

    fn claim(stream: Stream, units: u32) -> Claim {
        Claim { stream, account: AccountId(Ulid::default()), site: None, network: None, units }
    }

    /// Takes a permit that is available at once.
    fn now(semaphore: &FairSemaphore, stream: Stream, units: u32) -> Option<FairPermit> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(semaphore.take(claim(stream, units))).poll(&mut context) {
            Poll::Ready(taken) => taken,
            Poll::Pending => None,
        }
    }

    #[test]
    fn marketing_leaves_a_quarter_to_transactional_mail() {
        let semaphore = FairSemaphore::new(8);
        let marketing: Vec<_> = std::iter::from_fn(|| now(&semaphore, Stream::Marketing, 1)).collect();
        assert_eq!(marketing.len(), 6);
        let transactional: Vec<_> = std::iter::from_fn(|| now(&semaphore, Stream::Transactional, 1)).collect();
        assert_eq!(transactional.len(), 2);
        drop(marketing);
        let again: Vec<_> = std::iter::from_fn(|| now(&semaphore, Stream::Transactional, 1)).collect();
        assert_eq!(again.len(), 6);
    }

    #[test]
    fn the_smallest_semaphores_still_serve_both_streams() {
        for units in [0, 1, 2, 3] {
            let semaphore = FairSemaphore::new(units);
            assert!(now(&semaphore, Stream::Marketing, 1).is_some(), "{units}");
            assert!(now(&semaphore, Stream::Transactional, 1).is_some(), "{units}");
        }
        let semaphore = FairSemaphore::new(2);
        let _marketing = now(&semaphore, Stream::Marketing, 1).unwrap();
        assert!(now(&semaphore, Stream::Marketing, 1).is_none() && now(&semaphore, Stream::Transactional, 1).is_some());
    }

    #[test]
    fn a_claim_larger_than_the_budget_counts_as_the_whole_budget() {
        let semaphore = FairSemaphore::new(8);
        let large = now(&semaphore, Stream::Marketing, 100).unwrap();
        assert!(
            now(&semaphore, Stream::Transactional, 2).is_some() && now(&semaphore, Stream::Transactional, 3).is_none()
        );
        drop(large);
        assert!(now(&semaphore, Stream::Transactional, 100).is_some());
    }

    #[test]
    fn a_permit_is_lent_to_the_other_stream_if_its_share_allows() {
        let semaphore = FairSemaphore::new(2);
        let mut first = now(&semaphore, Stream::Transactional, 1).unwrap();
        let mut second = now(&semaphore, Stream::Transactional, 1).unwrap();
        assert!(
            semaphore.lend(&mut first, claim(Stream::Marketing, 1))
                && !semaphore.lend(&mut second, claim(Stream::Marketing, 1))
        );
        assert!(
            semaphore.lend(&mut first, claim(Stream::Transactional, 1))
                && semaphore.lend(&mut second, claim(Stream::Marketing, 1))
        );
    }

    #[test]
    fn a_marketing_claim_never_precedes_a_waiting_transactional_one() {
        let semaphore = FairSemaphore::new(8);
        let mut context = Context::from_waker(Waker::noop());
        let mut taken: Vec<_> = std::iter::from_fn(|| now(&semaphore, Stream::Transactional, 1)).collect();
        assert_eq!(taken.len(), 8);
        let mut large = pin!(semaphore.take(claim(Stream::Marketing, 6)));
        let mut small = pin!(semaphore.take(claim(Stream::Marketing, 1)));
        let mut transactional = pin!(semaphore.take(claim(Stream::Transactional, 1)));
        assert!(large.as_mut().poll(&mut context).is_pending() && small.as_mut().poll(&mut context).is_pending());
        assert!(transactional.as_mut().poll(&mut context).is_pending());
        taken.pop();
        let Poll::Ready(Some(first)) = transactional.as_mut().poll(&mut context) else { panic!("it must be granted") };
        taken.truncate(2);
        assert!(large.as_mut().poll(&mut context).is_pending() && small.as_mut().poll(&mut context).is_pending());
        let second = now(&semaphore, Stream::Transactional, 2).unwrap();
        drop((first, taken));
        assert!(large.as_mut().poll(&mut context).is_ready(), "the large claim is granted next");
        drop(second);
    }

    #[test]
    fn a_withdrawn_claim_blocks_no_other() {
        let semaphore = FairSemaphore::new(8);
        let mut context = Context::from_waker(Waker::noop());
        let taken = now(&semaphore, Stream::Transactional, 4).unwrap();
        let mut large = Box::pin(semaphore.take(claim(Stream::Transactional, 8)));
        let mut small = pin!(semaphore.take(claim(Stream::Transactional, 1)));
        assert!(large.as_mut().poll(&mut context).is_pending() && small.as_mut().poll(&mut context).is_pending());
        drop(large);
        assert!(small.as_mut().poll(&mut context).is_ready());
        drop(taken);
        assert!(now(&semaphore, Stream::Transactional, 7).is_some());
    }

    #[tokio::test]
    async fn holders_of_unneeded_permits_are_notified_of_waiting_claims() {
        let semaphore = FairSemaphore::new(1);
        let taken = now(&semaphore, Stream::Transactional, 1).unwrap();
        let giver = async {
            semaphore.wanted().await;
            drop(taken);
        };
        let (second, ()) = tokio::join!(semaphore.take(claim(Stream::Transactional, 1)), giver);
        assert!(second.is_some());
    }

    #[test]
    fn holders_are_notified_as_long_as_a_claim_waits() {
        let semaphore = FairSemaphore::new(1);
        let taken = now(&semaphore, Stream::Transactional, 1).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(semaphore.take(claim(Stream::Transactional, 1)));
        let mut second = Box::pin(semaphore.take(claim(Stream::Marketing, 1)));
        assert!(!semaphore.has_waiters());
        assert!(first.as_mut().poll(&mut context).is_pending() && second.as_mut().poll(&mut context).is_pending());
        assert!(semaphore.has_waiters());
        drop(taken);
        let Poll::Ready(given) = first.as_mut().poll(&mut context) else { panic!("the first claim must be granted") };
        assert!(semaphore.has_waiters(), "the second claim still waits");
        drop(second);
        assert!(!semaphore.has_waiters());
        drop(given);
    }
}
