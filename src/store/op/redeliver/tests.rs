//! Tests of requested deliveries.

use super::*;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::domain::limits::OUTSTANDING_DELIVERIES_COUNT;
use crate::store::op::endpoint::UpdateEndpoint;
use crate::store::op::endpoint_end::DeleteEndpoint;
use crate::store::op::settle_delivery::{Attempt, DeliveryEnd, EndpointChange, SettleDelivery};
use crate::store::row::totals::OutstandingRow;
use crate::store::schema::meta;
use crate::store::testing::{Sender, TestStore};
use crate::store::timer::TimerKind;

fn latest(test: &TestStore) -> DeliveryId {
    DeliveryId(Ulid(*test.keys(Table::Deliveries, &[]).pop().unwrap().last_chunk::<16>().unwrap()))
}

fn row(test: &TestStore, sender: &Sender<'_>, delivery: DeliveryId) -> DeliveryRow {
    test.row(&schema::delivery(sender.account, delivery))
}

fn settle(test: &TestStore, sender: &Sender<'_>, delivery: DeliveryId, end: DeliveryEnd) {
    let due = row(test, sender, delivery).state.due(Timestamp::ZERO).unwrap();
    assert_eq!(test.done(SettleDelivery { account: sender.account, delivery, due, end }), EndpointChange::None);
}

fn attempt(test: &TestStore, error: Option<&str>) -> DeliveryEnd {
    let now = test.now();
    let error = error.map(str::to_owned);
    DeliveryEnd::Attempted(Attempt {
        at: now,
        ended_at: now,
        status: None,
        error,
        duration_ms: 1,
        peer: None,
        response_body: None,
    })
}

/// Runs a replay. Returns the number of deliveries that it created, and of operations.
fn replay(test: &TestStore, sender: &Sender<'_>, endpoint: EndpointId, of: ReplayOf, since: Timestamp) -> (u64, usize) {
    let since = Ulid::new(since, [0; 10]);
    let replay = Replay { account: sender.account, endpoint, of, since, until: latest(test).0.next() };
    let (mut created, mut slices, mut from) = (0, 0, since);
    loop {
        let Ok(found) = replay.search(&test.snapshot(), from) else { panic!("the search failed") };
        if !found.rows.is_empty() {
            let slice = test.done(ReplaySlice { replay, rows: found.rows });
            assert!(!slice.is_full);
            created += slice.created;
            slices += 1;
        }
        let Some(next) = found.next else { return (created, slices) };
        from = next;
    }
}

/// Ends every outstanding delivery.
fn end_all(test: &TestStore, sender: &Sender<'_>) {
    for timer in test.timers(TimerKind::Delivery) {
        settle(test, sender, DeliveryId(timer.id), DeliveryEnd::Abandoned);
    }
}

fn outstanding(test: &TestStore, sender: &Sender<'_>, endpoint: EndpointId) -> u64 {
    outstanding::count(&test.snapshot(), sender.account, endpoint).unwrap()
}

#[test]
fn a_test_is_attempted_like_any_delivery_but_not_counted() {
    let test = TestStore::new();
    let sender = test.sender();
    let endpoint = test.endpoint(sender.account, Some(&[EventType::Bounced]));
    let delivery = test.done(TestEndpoint { account: sender.account, endpoint });
    let DeliveryPayload::Test { body } = row(&test, &sender, delivery).owed else { panic!("a test") };
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["type"], &body["message_id"]), (&"test".into(), &serde_json::Value::Null));
    assert_eq!(test.count(Table::EventLog, &[]), 0);
    settle(&test, &sender, delivery, attempt(&test, Some("timeout")));
    assert_eq!(row(&test, &sender, delivery).state.attempts, 1);
    assert_eq!(test.count(Table::Attempts, &[]), 1);
    let row: EndpointRow = test.row(&schema::endpoint(sender.account, endpoint));
    assert_eq!((row.state.consecutive_failures(), row.last_failure_at), (0, None));
    settle(&test, &sender, delivery, attempt(&test, None));
    let row: EndpointRow = test.row(&schema::endpoint(sender.account, endpoint));
    assert_eq!(row.last_success_at, None);
}

#[test]
fn a_redelivery_is_a_new_delivery_of_the_same_event() {
    let test = TestStore::new();
    let sender = test.sender();
    test.endpoint(sender.account, None);
    sender.accept("b@example.net");
    let first = latest(&test);
    settle(&test, &sender, first, DeliveryEnd::Abandoned);
    let again = test.done(Redeliver { account: sender.account, delivery: first });
    let (old, new) = (row(&test, &sender, first), row(&test, &sender, again));
    assert_ne!(first, again);
    assert_eq!((old.event, old.state.stage), (new.event, Stage::Failed));
    assert_eq!((new.state.attempts, new.state.due(Timestamp::ZERO)), (0, Some(test.now())));
}

#[test]
fn a_replay_resends_all_events_since_a_time_in_slices_but_not_its_own_deliveries() {
    let test = TestStore::new();
    let sender = test.sender();
    let early = test.endpoint(sender.account, None);
    sender.accept("b@example.net");
    test.pass(std::time::Duration::from_secs(60));
    let since = test.now();
    for _ in 0..SLICE + 3 {
        sender.accept("b@example.net");
    }
    end_all(&test, &sender);
    let count = SLICE as u64 + 3;
    assert_eq!(replay(&test, &sender, early, ReplayOf::All, since), (count, 2));
    let other = test.endpoint(sender.account, Some(&[EventType::Bounced]));
    assert_eq!(replay(&test, &sender, other, ReplayOf::All, since).0, 0);
    end_all(&test, &sender);
    assert_eq!(replay(&test, &sender, early, ReplayOf::All, Timestamp::ZERO).0, count + 1);
}

#[test]
fn a_replay_skips_events_with_an_outstanding_delivery() {
    let test = TestStore::new();
    let sender = test.sender();
    let endpoint = test.endpoint(sender.account, None);
    let other = test.endpoint(sender.account, None);
    let all = || replay(&test, &sender, endpoint, ReplayOf::All, Timestamp::ZERO);
    sender.accept("b@example.net");
    sender.accept("c@example.net");
    assert_eq!(all(), (0, 0), "both are pending, and nothing is written");
    let held = UpdateEndpoint {
        account: sender.account,
        endpoint,
        url: None,
        events: None,
        description: None,
        enabled: Some(false),
    };
    test.done(held);
    assert_eq!(all(), (0, 0), "both are held");
    end_all(&test, &sender);
    assert_eq!((outstanding(&test, &sender, endpoint), outstanding(&test, &sender, other)), (0, 0));
    assert_eq!((all().0, all().0), (2, 0), "once, even if it is requested again");
    assert_eq!(outstanding(&test, &sender, endpoint), 2);
    assert_eq!(replay(&test, &sender, other, ReplayOf::All, Timestamp::ZERO).0, 2, "endpoints are independent");
}

#[test]
fn an_event_is_owed_while_any_of_its_deliveries_is_outstanding() {
    let test = TestStore::new();
    let sender = test.sender();
    let endpoint = test.endpoint(sender.account, None);
    let event = || {
        sender.accept("b@example.net");
        latest(&test)
    };
    let first = event();
    // Identifiers that directly follow the event's belong to first deliveries.
    test.pass(std::time::Duration::from_secs(1));
    let again = || test.done(Redeliver { account: sender.account, delivery: first });
    let (second, third) = (again(), again());
    let all = || replay(&test, &sender, endpoint, ReplayOf::All, Timestamp::ZERO).0;
    for (ended, left) in [(first, 2), (third, 1)] {
        settle(&test, &sender, ended, DeliveryEnd::Abandoned);
        assert_eq!((all(), outstanding(&test, &sender, endpoint)), (0, left));
    }
    settle(&test, &sender, second, attempt(&test, None));
    assert_eq!((outstanding(&test, &sender, endpoint), all()), (0, 1));
    // Earlier versions did not count later deliveries.
    let (key, last) = (schema::redelivered(sender.account, endpoint, row(&test, &sender, first).event), latest(&test));
    test.put(Table::Redelivered, &key, Some(last.as_bytes()));
    assert_eq!(all(), 0);
    settle(&test, &sender, last, DeliveryEnd::Abandoned);
    assert_eq!(all(), 1);
}

#[test]
fn an_endpoint_at_its_limit_gets_new_events_but_no_requested_deliveries() {
    let mut test = TestStore::new();
    let sender = test.sender();
    let (account, endpoint) = (sender.account, test.endpoint(sender.account, None));
    sender.accept("b@example.net");
    sender.accept("b@example.net");
    let ended = latest(&test);
    end_all(&test, &sender);
    let one_less = OutstandingRow { deliveries: OUTSTANDING_DELIVERIES_COUNT - 1 };
    test.write(&schema::endpoint(account, endpoint), &one_less);
    let domain = sender.domain;
    test.reopen();
    let sender = Sender::of(&test, account, domain);
    let since = Ulid::default();
    let replay = Replay { account, endpoint, of: ReplayOf::All, since, until: latest(&test).0.next() };
    let Ok(found) = replay.search(&test.snapshot(), since) else { panic!("the search failed") };
    assert_eq!(test.done(ReplaySlice { replay, rows: found.rows }), Replayed { created: 1, is_full: true });
    let is_too_many =
        |answer| matches!(answer, Err(OpError::Refused(RedeliverRefusal::TooManyOutstanding { created: 0 })));
    assert!(is_too_many(test.commit(Redeliver { account, delivery: ended })));
    assert!(is_too_many(test.commit(TestEndpoint { account, endpoint })));
    let owed = test.count(Table::Deliveries, &[]);
    sender.accept("b@example.net");
    assert_eq!(test.count(Table::Deliveries, &[]), owed + 1, "new events are always owed");
}

#[test]
fn an_account_has_a_limit_of_stored_requested_deliveries() {
    let mut test = TestStore::new();
    let sender = test.sender();
    let (account, endpoint) = (sender.account, test.endpoint(sender.account, None));
    sender.accept("b@example.net");
    let first = latest(&test);
    end_all(&test, &sender);
    test.write(account.as_bytes(), &OutstandingRow { deliveries: OUTSTANDING_DELIVERIES_COUNT - 1 });
    let domain = sender.domain;
    test.reopen();
    let sender = Sender::of(&test, account, domain);
    for _ in 0..5 {
        sender.accept("b@example.net");
    }
    test.done(Redeliver { account, delivery: first });
    end_all(&test, &sender);
    let is_refused = |test: &TestStore, endpoint| {
        let answer = test.commit(TestEndpoint { account, endpoint });
        matches!(answer, Err(OpError::Refused(RedeliverRefusal::TooManyOutstanding { created: 0 })))
    };
    assert!(is_refused(&test, endpoint), "ended deliveries are stored as well");
    test.done(DeleteEndpoint { account, endpoint });
    assert!(is_refused(&test, test.endpoint(account, None)), "a new endpoint does not reset the count");
}

#[test]
fn a_replay_of_failures_uses_the_latest_delivery_of_each_event() {
    let test = TestStore::new();
    let sender = test.sender();
    let endpoint = test.endpoint(sender.account, None);
    let before = test.now();
    let owed = || {
        sender.accept("b@example.net");
        latest(&test)
    };
    let (failed, mended, _pending) = (owed(), owed(), owed());
    for delivery in [failed, mended] {
        settle(&test, &sender, delivery, DeliveryEnd::Abandoned);
    }
    let again = test.done(Redeliver { account: sender.account, delivery: mended });
    settle(&test, &sender, again, attempt(&test, None));
    assert_eq!(replay(&test, &sender, endpoint, ReplayOf::Failed, before), (1, 1));
    let replayed = latest(&test);
    assert_eq!(row(&test, &sender, replayed).event, row(&test, &sender, failed).event);
    assert_eq!(replay(&test, &sender, endpoint, ReplayOf::Failed, before).0, 0, "it is outstanding");
    settle(&test, &sender, replayed, DeliveryEnd::Abandoned);
    assert_eq!(replay(&test, &sender, endpoint, ReplayOf::Failed, before).0, 1, "once, not once per failed delivery");
}

#[test]
fn deliveries_of_an_earlier_version_are_counted_at_start() {
    let mut test = TestStore::new();
    let sender = test.sender();
    let (account, endpoint) = (sender.account, test.endpoint(sender.account, None));
    for _ in 0..3 {
        sender.accept("b@example.net");
    }
    settle(&test, &sender, latest(&test), DeliveryEnd::Abandoned);
    let key = schema::endpoint(account, endpoint);
    test.put(Table::Outstanding, &key, None);
    test.put(Table::Meta, meta::TOTALS, None);
    test.reopen();
    assert_eq!(outstanding::count(&test.snapshot(), account, endpoint).unwrap(), 2);
    test.write(&key, &OutstandingRow { deliveries: 7 });
    test.reopen();
    assert_eq!(outstanding::count(&test.snapshot(), account, endpoint).unwrap(), 7, "counted once");
}
