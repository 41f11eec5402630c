//! Filling a batch that will share a sync.
//!
//! Nobody waits for company that may never come: a batch is closed at once unless it is known that more is on its way,
//! or that nobody waits for its answer. Where syncs are quick this makes batches of many out of batches of one or two,
//! and every commit has its price in processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// `first`, what waits behind it, and what comes while `patience`, asked again after each arrival, lasts. At most
/// `most`.
pub(super) fn gather<T>(inbox: &Receiver<T>, first: T, most: usize, patience: impl Fn(&[T]) -> Duration) -> Vec<T> {
    let began = Instant::now();
    let mut batch = vec![first];
    loop {
        batch.extend(inbox.try_iter().take(most - batch.len()));
        let left = patience(&batch).saturating_sub(began.elapsed());
        if batch.len() >= most || left.is_zero() {
            return batch;
        }
        match inbox.recv_timeout(left) {
            Ok(next) => batch.push(next),
            Err(_) => return batch,
        }
    }
}

/// How many submissions are being composed and signed, and will soon have a body to append.
#[derive(Clone, Default)]
pub(super) struct Announced(Arc<AtomicUsize>);

/// One announced submission; taken back when it is dropped.
pub struct Announcement(Announced);

impl Announced {
    pub(super) fn announce(&self) -> Announcement {
        self.0.fetch_add(1, Ordering::AcqRel);
        Announcement(self.clone())
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_batch_takes_what_waits_and_no_more_than_it_may() {
        let (sender, inbox) = channel();
        (1..10).for_each(|number| sender.send(number).unwrap());
        assert_eq!(gather(&inbox, 0, 4, |_| Duration::ZERO), [0, 1, 2, 3]);
        assert_eq!(gather(&inbox, 0, 100, |_| Duration::ZERO), [0, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn an_arrival_that_is_waited_for_closes_a_patient_batch() {
        let (sender, inbox) = channel();
        let day = Duration::from_secs(86_400);
        let patience = |batch: &[u32]| if batch.contains(&9) { Duration::ZERO } else { day };
        let arrival = std::thread::spawn(move || sender.send(9).map(|()| sender));
        assert_eq!(gather(&inbox, 0, 100, patience), [0, 9]);
        drop(arrival.join().unwrap());
    }

    #[test]
    fn an_announcement_counts_until_it_is_dropped() {
        let announced = Announced::default();
        let one = announced.announce();
        assert_eq!(announced.count(), 1);
        drop(one);
        assert_eq!(announced.count(), 0);
    }
}
