//! Filling a batch that shares one sync.
//!
//! A batch is closed as soon as the queue is empty. It waits longer only if more items are known to be on their way, or
//! if no caller waits for its answer. On devices with quick syncs this turns batches of one or two into large ones, and
//! saves the processor time that each commit costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// A batcher: takes the queued items, and those that arrive within the wait that `batch_wait` returns.
pub(super) struct Batcher<'a, T, P: Fn(&[T]) -> Duration> {
    inbox: &'a Receiver<T>,
    began: Instant,
    most: usize,
    batch_wait: P,
}

impl<'a, T, P: Fn(&[T]) -> Duration> Batcher<'a, T, P> {
    /// Collects at most `most` items. `batch_wait` gets the items so far and returns how long to wait from now.
    pub(super) fn new(inbox: &'a Receiver<T>, most: usize, batch_wait: P) -> Self {
        Self { inbox, began: Instant::now(), most, batch_wait }
    }

    /// Returns the next item for `batch`, if one arrives in time.
    pub(super) fn next(&self, batch: &[T]) -> Option<T> {
        if batch.len() >= self.most {
            return None;
        }
        self.inbox.try_recv().ok().or_else(|| {
            let left = (self.batch_wait)(batch).saturating_sub(self.began.elapsed());
            if left.is_zero() { None } else { self.inbox.recv_timeout(left).ok() }
        })
    }

    /// Returns the whole batch, beginning with `first`.
    pub(super) fn all(self, first: T) -> Vec<T> {
        let mut batch = vec![first];
        while let Some(next) = self.next(&batch) {
            batch.push(next);
        }
        batch
    }
}

/// Number of announced submissions: being composed and signed, or with a body that is not written yet.
#[derive(Clone, Default)]
pub(super) struct PendingCount(Arc<AtomicUsize>);

/// One announced submission, withdrawn when dropped.
pub struct PendingGuard(PendingCount);

impl PendingCount {
    pub(super) fn announce(&self) -> PendingGuard {
        self.0.fetch_add(1, Ordering::AcqRel);
        PendingGuard(self.clone())
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl PendingGuard {
    /// Returns whether no other submission is announced. Waiting for one would then be pointless.
    pub fn is_alone(&self) -> bool {
        self.0.count() == 1
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_batch_takes_the_queued_items_up_to_its_limit() {
        let (sender, inbox) = channel();
        (1..10).for_each(|number| sender.send(number).unwrap());
        let gathering = |most| Batcher::new(&inbox, most, |_| Duration::ZERO);
        assert_eq!(gathering(4).all(0), [0, 1, 2, 3]);
        assert_eq!(gathering(100).all(0), [0, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn an_item_that_allows_no_wait_closes_the_batch() {
        let (sender, inbox) = channel();
        let day = Duration::from_secs(86_400);
        let batch_wait = |batch: &[u32]| if batch.contains(&9) { Duration::ZERO } else { day };
        let arrival = std::thread::spawn(move || sender.send(9).map(|()| sender));
        assert_eq!(Batcher::new(&inbox, 100, batch_wait).all(0), [0, 9]);
        drop(arrival.join().unwrap());
    }

    #[test]
    fn a_pending_guard_counts_until_it_is_dropped() {
        let announced = PendingCount::default();
        let one = announced.announce();
        assert!(announced.count() == 1 && one.is_alone());
        let other = announced.announce();
        assert!(!one.is_alone() && !other.is_alone());
        drop((one, other));
        assert_eq!(announced.count(), 0);
    }
}
