//! Sweeping webhook deliveries and their attempts once they are 30 days old (contract 7), in slices that never delay
//! accepting. The timer of a slice contains the place at which it continues.
//!
//! A delivery that is still outstanding at that age, because it was held, first ends as failed, so that the account can
//! see it (contract 5). The sweep of the next day removes it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sweep::oldest_kept;
use super::{Infallible, Op, outstanding};
use crate::base::id::{AccountId, DeliveryId, Ulid};
use crate::base::time::Timestamp;
use crate::machine::delivery::Input;
use crate::store::error::{OpError, StoreError};
use crate::store::read::{Order, Read, after_prefix};
use crate::store::row::delivery::DeliveryRow;
use crate::store::schema::{self, Table};
use crate::store::tables::Tables;
use crate::store::timer::{Timer, TimerKind};

/// Number of rows that one operation reads, and of accounts that it skips.
const SLICE: usize = 256;
/// Interval between sweeps of the deliveries.
const STEP: Duration = Duration::from_secs(24 * 3600);

/// Sweeps a slice of the deliveries.
#[derive(Debug, Serialize, Deserialize)]
pub struct SweepDeliveries {
    /// The timer that was served; its account and identifier are the last ones that were checked.
    pub timer: Timer,
}

/// A delivery that was checked.
#[derive(Clone, Copy)]
struct ScannedDelivery {
    account: AccountId,
    delivery: DeliveryId,
}

impl Op for SweepDeliveries {
    type Reply = ();
    type Refusal = Infallible;

    fn apply(&self, tables: &mut Tables<'_>) -> Result<(), OpError<Infallible>> {
        tables.disarm(self.timer);
        let cutoff = oldest_kept(tables, tables.expiry())?;
        let mut last = ScannedDelivery { account: self.timer.account, delivery: DeliveryId(self.timer.id) };
        let mut from = [schema::delivery(last.account, last.delivery).as_slice(), &[0]].concat();
        for _ in 0..SLICE {
            let Some(seen) = next_delivery(tables, &from)? else {
                tables.arm(Timer::of_store(tables.now() + STEP, TimerKind::Deliveries));
                return Ok(());
            };
            from = if seen.delivery.0 < cutoff {
                sweep(tables, seen)?;
                [schema::delivery(seen.account, seen.delivery).as_slice(), &[0]].concat()
            } else {
                // Identifiers sort by time: the rest of this account is newer.
                after_prefix(seen.account.as_bytes())
            };
            last = seen;
        }
        // Continue after an account that was skipped.
        let id = if last.delivery.0 < cutoff { last.delivery.0 } else { Ulid([u8::MAX; 16]) };
        tables.arm(Timer::new(tables.now(), TimerKind::Deliveries, last.account, id));
        Ok(())
    }
}

fn next_delivery(tables: &Tables<'_>, from: &[u8]) -> Result<Option<ScannedDelivery>, StoreError> {
    let keys = tables.sound_keys(Table::Deliveries, from, &after_prefix(&[]), Order::Ascending, 1)?;
    Ok(keys.first().and_then(|key| {
        let (account, delivery) = key.split_first_chunk::<16>()?;
        Some(ScannedDelivery {
            account: AccountId(Ulid(*account)),
            delivery: DeliveryId(Ulid(delivery.try_into().ok()?)),
        })
    }))
}

fn sweep(tables: &mut Tables<'_>, ScannedDelivery { account, delivery }: ScannedDelivery) -> Result<(), StoreError> {
    let key = schema::delivery(account, delivery);
    let Some(mut row) = tables.sound_row::<DeliveryRow>(&key)? else { return Ok(()) };
    if let Some(due) = row.state.due(Timestamp::ZERO) {
        tables.disarm(Timer::new(due, TimerKind::Delivery, account, delivery.0));
        tables.remove(Table::Parked, &schema::parked(account, row.endpoint, due, delivery));
        row.state = row.state.step(Input::Outlived, tables.now()).state;
        tables.put(&key, &row);
        return outstanding::ended(tables, account, delivery, &row);
    }
    for number in 1..=row.state.attempts {
        tables.remove(Table::Attempts, &schema::attempt(account, delivery, number));
    }
    if outstanding::latest(tables, account, row.endpoint, row.event)? == Some(delivery) {
        tables.remove(Table::Redelivered, &schema::redelivered(account, row.endpoint, row.event));
    }
    tables.remove(Table::DeliveriesByEndpoint, &schema::delivery_of_endpoint(account, row.endpoint, delivery));
    tables.remove(Table::Deliveries, &key);
    outstanding::removed(tables, account, delivery, &row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::account::QuotaLimits;
    use crate::machine::delivery::Stage;
    use crate::store::op::endpoint::UpdateEndpoint;
    use crate::store::op::redeliver::TestEndpoint;
    use crate::store::op::settle_delivery::{Attempt, DeliveryEnd, SettleDelivery};
    use crate::store::testing::TestStore;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn run(test: &TestStore) {
        let [timer] = test.timers(TimerKind::Deliveries)[..] else { panic!("one timer at all times") };
        test.set_now(timer.due.max(test.now()));
        test.done(SweepDeliveries { timer });
    }

    fn rows(test: &TestStore) -> [usize; 4] {
        [Table::Deliveries, Table::DeliveriesByEndpoint, Table::Attempts, Table::Parked]
            .map(|table| test.count(table, &[]))
    }

    fn deliver(test: &TestStore, account: AccountId, delivery: DeliveryId) {
        let row: DeliveryRow = test.row(&schema::delivery(account, delivery));
        let attempt = Attempt {
            at: test.now(),
            ended_at: test.now(),
            status: Some(200),
            error: None,
            duration_ms: 1,
            peer: None,
            response_body: None,
        };
        let due = row.state.due(Timestamp::ZERO).unwrap();
        test.done(SettleDelivery { account, delivery, due, end: DeliveryEnd::Attempted(attempt) });
    }

    #[test]
    fn a_delivery_and_its_attempts_are_removed_after_30_days() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let endpoint = test.endpoint(account, None);
        for _ in 0..2 {
            let delivery = test.done(TestEndpoint { account, endpoint });
            deliver(&test, account, delivery);
            test.pass(DAY);
        }
        run(&test);
        assert_eq!(rows(&test), [2, 2, 2, 0]);
        test.set_now(test.now() + 28 * DAY + Duration::from_millis(1));
        run(&test);
        assert_eq!(rows(&test), [1, 1, 1, 0]);
        run(&test);
        assert_eq!(rows(&test), [0; 4]);
    }

    #[test]
    fn a_delivery_held_for_30_days_fails_first_and_is_removed_a_day_later() {
        let test = TestStore::new();
        let account = test.account(QuotaLimits::default());
        let endpoint = test.endpoint(account, None);
        let (url, events, description) = (None, None, None);
        test.done(UpdateEndpoint { account, endpoint, url, events, description, enabled: Some(false) });
        let delivery = test.done(TestEndpoint { account, endpoint });
        assert_eq!(rows(&test), [1, 1, 0, 1]);
        test.pass(30 * DAY + Duration::from_millis(1));
        run(&test);
        let row: DeliveryRow = test.row(&schema::delivery(account, delivery));
        assert_eq!((row.state.stage, rows(&test)), (Stage::Failed, [1, 1, 0, 0]));
        run(&test);
        assert_eq!(rows(&test), [0; 4]);
    }

    #[test]
    fn each_slice_continues_at_the_end_of_the_last_one() {
        let test = TestStore::new();
        for count in [SLICE, 3, 0, 3] {
            let account = test.account(QuotaLimits::default());
            let endpoint = test.endpoint(account, None);
            for _ in 0..count {
                let delivery = test.done(TestEndpoint { account, endpoint });
                deliver(&test, account, delivery);
            }
        }
        let young = test.keys(Table::Endpoints, &[]).len();
        test.pass(31 * DAY);
        let mut left = Vec::new();
        for _ in 0..2 {
            run(&test);
            left.push(test.count(Table::Deliveries, &[]));
        }
        assert_eq!((young, left), (4, vec![6, 0]));
        let [timer] = test.timers(TimerKind::Deliveries)[..] else { panic!("one timer at all times") };
        assert_eq!(timer, Timer::of_store(test.now() + STEP, TimerKind::Deliveries));
    }
}
