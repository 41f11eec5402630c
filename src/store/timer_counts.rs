//! Counts of waiting timers of transfers and webhook deliveries, due or not. They are stored, and change in the same
//! transactions as the timers, so that a start need not count millions of them.

use std::ops::ControlFlow;

use super::error::StoreError;
use super::read::{OnDamage, Order, Read};
use super::schema::Table;
use super::timer::TimerKind;
use super::totals::CountingReport;

/// Numbers of waiting timers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimerCounts {
    /// Messages whose transfer has not ended.
    pub transfers: u64,
    /// Webhook deliveries that are not settled. Deliveries of disabled endpoints are parked and not counted.
    pub deliveries: u64,
}

/// Change in the numbers of waiting timers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WaitingChange {
    transfers: i64,
    deliveries: i64,
}

impl WaitingChange {
    /// Records whether the timer at `key` of the timers table existed before (`was_there`) and exists now (`is_there`).
    pub(super) fn note(&mut self, key: &[u8], was_there: bool, is_there: bool) {
        let change = i64::from(is_there) - i64::from(was_there);
        match key.get(8) {
            Some(&kind) if kind == TimerKind::Transfer as u8 => self.transfers += change,
            Some(&kind) if kind == TimerKind::Delivery as u8 => self.deliveries += change,
            Some(_) | None => {}
        }
    }
}

impl TimerCounts {
    /// Returns the count after `change`.
    pub(super) const fn changed(self, change: WaitingChange) -> Self {
        Self {
            transfers: self.transfers.saturating_add_signed(change.transfers),
            deliveries: self.deliveries.saturating_add_signed(change.deliveries),
        }
    }

    pub(super) fn encode(self) -> [u8; 16] {
        (u128::from(self.transfers) << 64 | u128::from(self.deliveries)).to_be_bytes()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (transfers, deliveries) = bytes.split_first_chunk()?;
        let deliveries = u64::from_be_bytes(deliveries.try_into().ok()?);
        Some(Self { transfers: u64::from_be_bytes(*transfers), deliveries })
    }

    /// Counts the timers of `tables`, for a store without counts.
    pub(super) fn count(tables: &impl Read, report: &dyn Fn(u64)) -> Result<Self, StoreError> {
        let (mut found, counted) = (WaitingChange::default(), CountingReport::begin(report));
        // A damaged timer counts, as it does when it is armed or disarmed.
        let range: (&[u8], &[u8]) = (&[], &[u8::MAX; 9]);
        tables.scan_with(Table::Timers, range, Order::Ascending, OnDamage::Key, &mut |key, _| {
            found.note(key, false, true);
            counted.row();
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self::default().changed(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::meta;
    use crate::store::testing::{START, TestStore};
    use crate::store::timer::Timer;

    #[test]
    fn a_timer_armed_repeatedly_is_counted_once() {
        let timer = Timer::of_store(START, TimerKind::Transfer).encode();
        let mut change = WaitingChange::default();
        change.note(&timer, false, true);
        change.note(&timer, true, true);
        change.note(&Timer::of_store(START, TimerKind::Content).encode(), false, true);
        assert_eq!(change, WaitingChange { transfers: 1, deliveries: 0 });
        change.note(&timer, true, false);
        change.note(&timer, false, false);
        assert_eq!(change, WaitingChange::default());
    }

    #[test]
    fn counts_survive_a_restart_and_are_recounted_if_missing() {
        let mut store = TestStore::new();
        let expected = TimerCounts { transfers: 1, deliveries: 0 };
        store.sender().accept("ann@receiver.test");
        assert_eq!(store.store().meters().waiting(), expected);
        store.reopen();
        assert_eq!(store.store().meters().waiting(), expected);
        store.put(Table::Meta, meta::WAITING, None);
        store.reopen();
        assert_eq!(store.store().meters().waiting(), expected);
        assert_eq!(TimerCounts::decode(&expected.encode()), Some(expected));
    }
}
