//! Due timers that are not served yet, for monitoring. Only a bounded number of the first rows in the timers table is
//! read.

use std::ops::ControlFlow;

use super::Store;
use super::error::StoreError;
use super::read::{Order, Read};
use super::schema::Table;
use super::timer::{Timer, TimerKind};
use crate::base::time::Timestamp;

/// Maximum number of due timers that are counted, which takes some milliseconds.
pub const COUNTED_MAX: usize = 10_000;

/// Due timers, in flight or waiting for a worker, among the first [`COUNTED_MAX`] timers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DueNow {
    /// Messages.
    pub transfers: u64,
    /// Webhook deliveries.
    pub deliveries: u64,
    /// Due time of the message that has been due longest.
    pub oldest_transfer: Option<Timestamp>,
}

impl Store {
    /// Returns the timers that are due at `now` and not on hold.
    ///
    /// # Errors
    /// Database errors.
    pub fn due_now(&self, now: Timestamp) -> Result<DueNow, StoreError> {
        let (mut due, mut seen) = (DueNow::default(), 0);
        let until = Timer::first_after(now);
        let hold = self.restore_hold()?;
        let is_free = |timer: &Timer| !hold.is_some_and(|restored| restored.holds(timer));
        self.snapshot()?.scan_sound(Table::Timers, &[], &until, Order::Ascending, &mut |key, _| {
            seen += 1;
            match Timer::decode(key).filter(is_free).map(|timer| (timer.kind, timer.due)) {
                Some((TimerKind::Transfer, at)) => {
                    due.transfers += 1;
                    due.oldest_transfer.get_or_insert(at);
                }
                Some((TimerKind::Delivery, _)) => due.deliveries += 1,
                // Postrider's internal maintenance.
                Some(_) | None => {}
            }
            Ok(if seen < COUNTED_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{START, TestStore};
    use std::time::Duration;

    #[test]
    fn a_message_is_due_from_acceptance_until_it_is_served() {
        let store = TestStore::new();
        assert_eq!(store.store().due_now(START).unwrap(), DueNow::default());
        store.sender().accept("ann@receiver.test");
        let later = START + Duration::from_secs(60);
        let due = store.store().due_now(later).unwrap();
        assert_eq!((due.transfers, due.deliveries, due.oldest_transfer), (1, 0, Some(START)));
        assert_eq!(store.store().due_now(Timestamp::from_millis(START.as_millis() - 1)).unwrap(), DueNow::default());
    }
}
