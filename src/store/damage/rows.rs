//! Tests of damaged rows: operations that need the row fail, the row never counts as absent, and all other work
//! continues.

use std::time::Duration;

use redb::ReadableTable as _;

use crate::base::id::{AccountId, Ulid};
use crate::domain::account::QuotaLimits;
use crate::domain::sending_domain::DomainStatus;
use crate::domain::stream::Stream;
use crate::machine::delivery::Stage;
use crate::machine::retention::Bucket;
use crate::store::Store;
use crate::store::content::Place;
use crate::store::error::{OpError, StoreError};
use crate::store::op::Op;
use crate::store::op::accept::Accept;
use crate::store::op::admission::IdempotencyClaim;
use crate::store::op::clock_doubt::{BeginDoubt, EndDoubt, SettleDoubt};
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::op::stored_content;
use crate::store::op::suppression::{Suppress, Suppression};
use crate::store::op::sweep::{ContentDestroyed, SweepIdempotency};
use crate::store::read::{OnDamage, Order, Read, after_prefix};
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::message::{MessageRow, TransferRow};
use crate::store::row::suppression::SuppressionReason;
use crate::store::row::totals::OutstandingRow;
use crate::store::schema::{self, Table, meta};
use crate::store::testing::{START, Sender, TestStore};
use crate::store::timer::{Timer, TimerKind};
use crate::store::timer_cache::Due;

impl Store {
    /// Flips a bit in the middle of the stored value at `key`.
    pub(crate) fn damage_row(&self, table: Table, key: &[u8]) {
        // A row whose writer was answered before it became visible is visible to the next snapshot.
        drop(self.snapshot().unwrap());
        let transaction = self.database.begin_write().unwrap();
        {
            let mut opened = transaction.open_table(table.definition()).unwrap();
            let mut stored = opened.get(key).unwrap().unwrap().value().to_vec();
            let middle = stored.len() / 2;
            stored[middle] ^= 4;
            opened.insert(key, stored.as_slice()).unwrap();
        }
        transaction.commit().unwrap();
    }
}

/// Returns whether `op` failed because of a damaged row of `table` and the store still works.
fn fails_at<O: Op>(test: &TestStore, table: Table, op: O) -> bool {
    let failed = matches!(test.commit(op), Err(OpError::Failed(StoreError::Damaged { table: at, .. })) if at == table);
    failed && test.store().health().failure().is_none()
}

fn once(sender: &Sender<'_>, to: &str, key: u8) -> Accept {
    let claim = IdempotencyClaim { key_hash: [key; 32], body_hash: [1; 32] };
    Accept { idempotency: Some(claim), ..sender.message(to) }
}

#[test]
fn a_submission_is_refused_if_a_row_that_it_depends_on_is_damaged() {
    for table in [Table::Accounts, Table::Domains, Table::DomainsByName, Table::Quotas, Table::Suppressions] {
        let test = TestStore::new();
        let sender = test.sender();
        sender.accept("a@example.net");
        let suppression = Suppression::of("b@example.net".parse().unwrap(), SuppressionReason::Manual);
        test.done(Suppress { account: sender.account, suppression, waiting: vec![] });
        test.store().damage_row(table, &test.keys(table, &[])[0]);
        assert!(fails_at(&test, table, sender.message("b@example.net")), "{table:?}");
        assert_eq!(test.count(Table::Messages, &[]), 1);
        if table == Table::Suppressions {
            sender.accept("c@example.net");
        }
    }
}

#[test]
fn a_damaged_idempotency_record_prevents_a_second_acceptance() {
    let test = TestStore::new();
    let sender = test.sender();
    test.done(once(&sender, "a@example.net", 1));
    test.store().damage_row(Table::Idempotency, &test.keys(Table::Idempotency, &[])[0]);
    assert!(fails_at(&test, Table::Idempotency, once(&sender, "a@example.net", 1)));
    test.done(once(&sender, "a@example.net", 2));
    assert_eq!(test.count(Table::Messages, &[]), 2);
}

#[test]
fn a_missing_account_row_refuses_only_its_own_messages() {
    let test = TestStore::new();
    let sender = test.sender();
    test.put(Table::Accounts, sender.account.as_bytes(), None);
    let refused = test.commit(sender.message("a@example.net"));
    assert!(matches!(refused, Err(OpError::Failed(StoreError::Row { table: Table::Accounts, .. }))));
    assert!(test.store().health().failure().is_none());
    assert!(test.account(QuotaLimits::default()) != sender.account);
}

#[test]
fn an_outcome_is_recorded_despite_a_damaged_webhook_and_index() {
    let test = TestStore::new();
    let sender = test.sender();
    let broken = test.endpoint(sender.account, None);
    let whole = test.endpoint(sender.account, None);
    let message = sender.accept("a@example.net");
    test.store().damage_row(Table::Endpoints, &schema::endpoint(sender.account, broken));
    for key in test.keys(Table::Outcomes, &[]) {
        test.store().damage_row(Table::Outcomes, &key);
    }
    sender.settle(message, TransferEnd::Delivered);
    let transfer: TransferRow = test.row(&sender.key(message));
    assert_eq!(transfer.state.status().as_str(), "delivered");
    let owed = test.count(Table::DeliveriesByEndpoint, &schema::endpoint(sender.account, whole));
    assert_eq!(owed, 2, "the intact endpoint is owed both events");
    let damage = &test.store().meters().damage;
    assert!(damage.met.read() > 0);
}

#[test]
fn sweeps_skip_damaged_rows() {
    let test = TestStore::new();
    let sender = test.sender();
    for key in 1..=3 {
        test.done(once(&sender, "a@example.net", key));
    }
    let [by_expiry, bound] = [Table::IdempotencyByExpiry, Table::Idempotency].map(|table| test.keys(table, &[]));
    test.store().damage_row(Table::IdempotencyByExpiry, &by_expiry[0]);
    test.store().damage_row(Table::Idempotency, &bound[1]);
    let [timer] = test.timers(TimerKind::Idempotency)[..] else { panic!("one timer") };
    test.set_now(timer.due + Duration::from_secs(86_400));
    test.done(SweepIdempotency { due: timer.due });
    let left = |table: Table| {
        let everything: (&[u8], &[u8]) = (&[], &after_prefix(&[]));
        let mut rows = 0;
        test.snapshot()
            .scan_stored(table, everything, Order::Ascending, &mut |_, _| {
                rows += 1;
                Ok(std::ops::ControlFlow::Continue(()))
            })
            .unwrap();
        rows
    };
    assert_eq!(left(Table::IdempotencyByExpiry), 1, "the damaged row stays, and the others are swept");
    assert!(left(Table::Idempotency) <= 2);
}

#[test]
fn a_damaged_timer_does_not_delay_others() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = ["a@example.net", "b@example.net", "c@example.net"].map(|to| sender.accept(to));
    let timers = test.timers(TimerKind::Transfer);
    test.store().damage_row(Table::Timers, &timers[0].encode());
    let mut test = test;
    test.reopen();
    let cache = std::sync::Arc::clone(test.store().timers());
    cache.refill(START, || test.store().snapshot()).unwrap();
    let Due { timers: due, .. } = cache.take_due(START, 100);
    let transfers: Vec<_> = due.iter().filter(|timer| timer.kind == TimerKind::Transfer).collect();
    assert_eq!(transfers.len(), messages.len(), "the due time comes from the message's row");
}

/// Arms a timer.
#[derive(serde::Serialize, serde::Deserialize)]
struct Arm(Timer);

impl Op for Arm {
    type Reply = ();
    type Refusal = crate::store::op::Infallible;

    fn apply(&self, tables: &mut crate::store::tables::Tables<'_>) -> Result<(), OpError<Self::Refusal>> {
        tables.arm(self.0);
        Ok(())
    }
}

#[test]
fn a_damaged_housekeeping_timer_fires_unless_its_key_may_be_wrong() {
    let mut test = TestStore::new();
    let (account, gone) = (test.sender().account, Ulid([7; 16]));
    let live = test.endpoint(account, None).0;
    let domain = test.domain(account, "example.org", Stream::Transactional, DomainStatus::Pending).0;
    let stranger = AccountId(gone);
    let of_store = |kind| Timer::of_store(START, kind);
    let of = |kind, account, id| Timer::new(START, kind, account, id);
    use TimerKind::*;
    let fires = [
        of_store(EventLog),
        of_store(Idempotency),
        of_store(Content),
        of_store(TlsReports),
        of_store(Deliveries),
        of(StsPolicy, AccountId::default(), gone),
        of(TlsReport, AccountId::default(), gone),
        of(EndpointEnd, account, gone),
        of(Unpark, account, live),
        of(Reputation, account, Ulid::default()),
        of(MessageIndex, account, Ulid::default()),
        of(SuppressionImport, account, gone),
    ];
    let stays = [
        of(EndpointEnd, account, live),
        of(EndpointEnd, stranger, gone),
        of(EventLog, stranger, gone),
        of(Content, account, Ulid::default()),
        of(MessageIndex, stranger, Ulid::default()),
        of(DomainCheck, account, domain),
        of(DkimRotation, account, domain),
    ];
    for timer in fires.iter().chain(&stays) {
        test.done(Arm(*timer));
        // A snapshot waits until the row is in the database.
        drop(test.snapshot());
        test.store().damage_row(Table::Timers, &timer.encode());
    }
    test.reopen();
    let cache = std::sync::Arc::clone(test.store().timers());
    cache.refill(START, || test.store().snapshot()).unwrap();
    let due = cache.take_due(START, 100).timers;
    assert!(fires.iter().all(|timer| due.contains(timer)), "{due:?}");
    assert!(stays.iter().all(|timer| !due.contains(timer)), "{due:?}");
}

#[test]
fn a_scan_fails_at_a_damaged_row_or_skips_it() {
    let test = TestStore::new();
    let sender = test.sender();
    test.endpoint(sender.account, None);
    for to in ["a@example.net", "b@example.net", "c@example.net"] {
        sender.accept(to);
    }
    let keys = test.keys(Table::Deliveries, &[]);
    test.store().damage_row(Table::Deliveries, &keys[1]);
    let snapshot = test.snapshot();
    assert!(snapshot.rows::<DeliveryRow>(&[], 9).is_err_and(|error| error.is_of_row()));
    let sound = snapshot.sound_rows::<DeliveryRow>(&[], 9).unwrap();
    assert_eq!(sound.iter().map(|(key, _)| key).collect::<Vec<_>>(), [&keys[0], &keys[2]]);
    assert!(sound.iter().all(|(_, row)| matches!(row.state.stage, Stage::Pending { .. })));
    for order in [Order::Ascending, Order::Descending] {
        let range: (&[u8], &[u8]) = (&[], &after_prefix(&[]));
        assert_eq!(snapshot.keys_with(Table::Deliveries, range, order, OnDamage::Skip, 9).unwrap().len(), 2);
    }
    assert!(snapshot.get(Table::Deliveries, &keys[1]).is_err());
    assert!(snapshot.sound_row::<DeliveryRow>(&keys[1]).unwrap().is_none());
}

#[test]
fn a_settling_operation_replaces_or_removes_its_damaged_timer() {
    let test = TestStore::new();
    let sender = test.sender();
    let message = test.done(once(&sender, "a@example.net", 1));
    assert!(!message.is_replay);
    let message = sender.accept("b@example.net");
    let kinds = [TimerKind::Transfer, TimerKind::Content, TimerKind::Idempotency];
    for key in test.keys(Table::Timers, &[]) {
        if Timer::decode(&key).is_some_and(|timer| kinds.contains(&timer.kind)) {
            test.store().damage_row(Table::Timers, &key);
        }
    }
    test.done(once(&sender, "c@example.net", 2));
    sender.settle(message, TransferEnd::Delivered);
    assert!(test.store().health().failure().is_none());
    let waiting = test.store().meters().waiting().transfers;
    assert_eq!(waiting, 2, "only the unsettled timer still counts");
    let sound = test.snapshot().sound_keys(Table::Timers, &[], &after_prefix(&[]), Order::Ascending, 99).unwrap();
    let kinds: Vec<_> = sound.iter().filter_map(|key| Timer::decode(key)).map(|timer| timer.kind).collect();
    assert!(kinds.contains(&TimerKind::Content) && kinds.contains(&TimerKind::Idempotency), "{kinds:?}");
}

#[test]
fn outcomes_are_recorded_despite_damaged_webhook_counts() {
    let mut test = TestStore::new();
    let (account, domain) = {
        let sender = test.sender();
        test.endpoint(sender.account, None);
        let message = sender.accept("a@example.net");
        let counts = test.keys(Table::Outstanding, &[]);
        test.store().damage_row(Table::Outstanding, &counts[0]);
        sender.settle(message, TransferEnd::Delivered);
        assert_eq!(test.row::<TransferRow>(&sender.key(message)).state.status().as_str(), "delivered");
        sender.accept("b@example.net");
        (sender.account, sender.domain)
    };
    test.reopen();
    let endpoint = test.keys(Table::Endpoints, account.as_bytes()).remove(0);
    assert_eq!(test.row::<OutstandingRow>(&endpoint).deliveries, 3, "recounted at start");
    Sender::of(&test, account, domain).accept("c@example.net");
}

#[test]
fn a_damaged_content_count_does_not_delay_destruction() {
    let mut test = TestStore::new();
    test.sender().accept_with_body("a@example.net", 2, &[7; 3000]);
    let counts = test.keys(Table::StoredContentByBucket, &[]);
    test.store().damage_row(Table::StoredContentByBucket, &counts[0]);
    let [end] = test.timers(TimerKind::Content)[..] else { panic!("one bucket") };
    test.set_now(end.due);
    test.done(ContentDestroyed { bucket: end.due });
    assert_eq!(test.count(Table::StoredContentByBucket, &[]), 0);
    test.reopen();
    assert_eq!(test.count(Table::StoredContent, &[]), 0, "recounted at start");
}

#[test]
fn a_damaged_content_total_refuses_nothing_and_is_recounted_at_start() {
    let mut test = TestStore::new();
    let sender = test.sender();
    let (account, domain) = (sender.account, sender.domain);
    sender.accept_with_body("a@example.net", 2, &[7; 3000]);
    let one = stored_content::used(&test.snapshot(), account).unwrap();
    test.store().damage_row(Table::StoredContent, account.as_bytes());
    assert_eq!(stored_content::used(&test.snapshot(), account).unwrap(), 0);
    test.done(Accept { stored_bytes_max: 100_000, ..sender.message("b@example.net") });
    sender.accept_with_body("c@example.net", 2, &[7; 3000]);
    assert_eq!(stored_content::used(&test.snapshot(), account).unwrap(), one);
    test.reopen();
    assert_eq!(stored_content::used(&test.snapshot(), account).unwrap(), 2 * one);
    Sender::of(&test, account, domain).accept("d@example.net");
}

#[test]
fn a_damaged_clock_doubt_blocks_no_message_and_can_end() {
    let test = TestStore::new();
    let sender = test.sender();
    test.done(BeginDoubt { number: 3 });
    test.store().damage_row(Table::ClockDoubts, &test.keys(Table::ClockDoubts, &[])[0]);
    test.done(BeginDoubt { number: 3 });
    let mut accept = sender.message("a@example.net");
    accept.message.place = Place::unknown(Bucket { end: START + Duration::from_secs(3600) }.in_doubt(3).end);
    let key = sender.key(accept.id);
    let give_up_at = accept.message.give_up_at;
    test.done(accept);
    test.done(EndDoubt { number: 3, until: test.now(), offset_ms: 5000 });
    while !test.done(SettleDoubt { number: 3 }) {}
    assert_eq!(
        test.row::<MessageRow>(&key).give_up_at,
        give_up_at.moved_by(5000),
        "ending the doubt moves the accepted message"
    );
}

#[test]
fn a_store_opens_despite_damaged_counts() {
    let mut test = TestStore::new();
    test.sender().accept("a@example.net");
    test.reopen();
    for fact in [meta::WAITING, meta::TOTALS] {
        test.store().damage_row(Table::Meta, fact);
    }
    test.reopen();
    assert_eq!(test.store().meters().waiting().transfers, 1);
}
