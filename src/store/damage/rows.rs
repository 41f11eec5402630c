//! Tests of damaged rows: what needs one fails, the row never counts as absent, and everything else goes on.

use redb::ReadableTable as _;

use crate::domain::account::QuotaLimits;
use crate::machine::delivery::Stage;
use crate::store::Store;
use crate::store::error::{Stop, StoreError};
use crate::store::near::Due;
use crate::store::op::Op;
use crate::store::op::accept::Accept;
use crate::store::op::admission::IdempotencyClaim;
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::op::suppression::{Suppress, Suppression};
use crate::store::op::sweep::{ContentDestroyed, SweepIdempotency};
use crate::store::read::{OnDamage, Order, Read, after_prefix};
use crate::store::row::delivery::DeliveryRow;
use crate::store::row::message::TransferRow;
use crate::store::row::suppression::SuppressionReason;
use crate::store::row::totals::OutstandingRow;
use crate::store::schema::{self, Table, meta};
use crate::store::testing::{START, Sender, TestStore};
use crate::store::timer::{Timer, TimerKind};

impl Store {
    /// Flips a bit in the middle of what is stored at `key`.
    pub(crate) fn damage_row(&self, table: Table, key: &[u8]) {
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

/// Whether `op` failed because of a damaged row of `table`, and the store goes on.
fn fails_at<O: Op>(test: &TestStore, table: Table, op: O) -> bool {
    let failed = matches!(test.commit(op), Err(Stop::Failed(StoreError::Damaged { table: at, .. })) if at == table);
    failed && test.store().health().failure().is_none()
}

fn once(sender: &Sender<'_>, to: &str, key: u8) -> Accept {
    let claim = IdempotencyClaim { key_hash: [key; 32], body_hash: [1; 32] };
    Accept { idempotency: Some(claim), ..sender.message(to) }
}

#[test]
fn a_message_is_refused_where_a_row_that_decides_on_it_is_damaged() {
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
fn a_damaged_idempotency_record_never_lets_a_message_be_accepted_again() {
    let test = TestStore::new();
    let sender = test.sender();
    test.done(once(&sender, "a@example.net", 1));
    test.store().damage_row(Table::Idempotency, &test.keys(Table::Idempotency, &[])[0]);
    assert!(fails_at(&test, Table::Idempotency, once(&sender, "a@example.net", 1)));
    test.done(once(&sender, "a@example.net", 2));
    assert_eq!(test.count(Table::Messages, &[]), 2);
}

#[test]
fn a_missing_account_refuses_its_messages_and_ends_nothing() {
    let test = TestStore::new();
    let sender = test.sender();
    test.put(Table::Accounts, sender.account.as_bytes(), None);
    let refused = test.commit(sender.message("a@example.net"));
    assert!(matches!(refused, Err(Stop::Failed(StoreError::Row { table: Table::Accounts, .. }))));
    assert!(test.store().health().failure().is_none());
    assert!(test.account(QuotaLimits::default()) != sender.account);
}

#[test]
fn an_outcome_is_recorded_beside_a_damaged_webhook_and_index() {
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
    assert_eq!(owed, 2, "the whole endpoint is owed both events");
    let damage = &test.store().meters().damage;
    assert!(damage.met.read() > 0);
}

#[test]
fn sweeps_pass_by_damaged_rows() {
    let test = TestStore::new();
    let sender = test.sender();
    for key in 1..=3 {
        test.done(once(&sender, "a@example.net", key));
    }
    let [by_expiry, bound] = [Table::IdempotencyByExpiry, Table::Idempotency].map(|table| test.keys(table, &[]));
    test.store().damage_row(Table::IdempotencyByExpiry, &by_expiry[0]);
    test.store().damage_row(Table::Idempotency, &bound[1]);
    let [timer] = test.timers(TimerKind::Idempotency)[..] else { panic!("one timer") };
    test.set_now(timer.due + std::time::Duration::from_secs(86_400));
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
    assert_eq!(left(Table::IdempotencyByExpiry), 1, "the damaged row stays, the others are swept");
    assert!(left(Table::Idempotency) <= 2);
}

#[test]
fn a_damaged_timer_holds_up_no_other() {
    let test = TestStore::new();
    let sender = test.sender();
    let messages = ["a@example.net", "b@example.net", "c@example.net"].map(|to| sender.accept(to));
    let timers = test.timers(TimerKind::Transfer);
    test.store().damage_row(Table::Timers, &timers[0].encode());
    let mut test = test;
    test.reopen();
    let near = std::sync::Arc::clone(test.store().near());
    near.refill(START, || test.store().snapshot()).unwrap();
    let Due { timers: due, .. } = near.take_due(START, 100);
    let transfers: Vec<_> = due.iter().filter(|timer| timer.kind == TimerKind::Transfer).collect();
    assert_eq!(transfers.len(), messages.len(), "the message says that it is due then");
}

#[test]
fn a_scan_fails_at_a_damaged_row_or_leaves_it_out() {
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
fn a_damaged_timer_is_replaced_or_removed_by_the_operation_that_settles_it() {
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
    assert_eq!(waiting, 2, "the damaged timer that was settled counts no more, the other does");
    let sound = test.snapshot().sound_keys(Table::Timers, &[], &after_prefix(&[]), Order::Ascending, 99).unwrap();
    let kinds: Vec<_> = sound.iter().filter_map(|key| Timer::decode(key)).map(|timer| timer.kind).collect();
    assert!(kinds.contains(&TimerKind::Content) && kinds.contains(&TimerKind::Idempotency), "{kinds:?}");
}

#[test]
fn outcomes_are_recorded_though_the_counts_of_webhooks_are_damaged() {
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
    assert_eq!(test.row::<OutstandingRow>(&endpoint).deliveries, 3, "counted again by the start");
    Sender::of(&test, account, domain).accept("c@example.net");
}

#[test]
fn a_damaged_count_of_content_keeps_no_bucket_from_its_end() {
    let mut test = TestStore::new();
    test.sender().accept_with_body("a@example.net", 2, &[7; 3000]);
    let counts = test.keys(Table::StoredContentByBucket, &[]);
    test.store().damage_row(Table::StoredContentByBucket, &counts[0]);
    let [end] = test.timers(TimerKind::Content)[..] else { panic!("one bucket") };
    test.set_now(end.due);
    test.done(ContentDestroyed { bucket: end.due });
    assert_eq!(test.count(Table::StoredContentByBucket, &[]), 0);
    test.reopen();
    assert_eq!(test.count(Table::StoredContent, &[]), 0, "counted again by the start");
}

#[test]
fn a_store_opens_though_the_counts_among_its_facts_are_damaged() {
    let mut test = TestStore::new();
    test.sender().accept("a@example.net");
    test.reopen();
    for fact in [meta::WAITING, meta::TOTALS] {
        test.store().damage_row(Table::Meta, fact);
    }
    test.reopen();
    assert_eq!(test.store().meters().waiting().transfers, 1);
}
