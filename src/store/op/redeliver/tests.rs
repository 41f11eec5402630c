//! Stories of deliveries that are asked for.

use super::*;
use crate::base::time::Timestamp;
use crate::domain::event::EventType;
use crate::store::op::settle_delivery::{Attempt, DeliveryEnd, EndpointChange, SettleDelivery};
use crate::store::testing::{Sender, TestStore};

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

/// All slices of a replay; how many deliveries it made, and in how many operations.
fn replay(test: &TestStore, sender: &Sender<'_>, endpoint: EndpointId, of: ReplayOf, since: Timestamp) -> (u64, usize) {
    let since = Ulid::new(since, [0; 10]);
    let until = latest(test).0.next();
    let mut op = Replay { account: sender.account, endpoint, of, since, from: since, until };
    let (mut created, mut slices) = (0, 0);
    loop {
        let slice = test.done(op.clone());
        created += slice.created;
        slices += 1;
        match slice.next {
            Some(next) => op.from = next,
            None => return (created, slices),
        }
    }
}

#[test]
fn a_test_is_attempted_like_any_delivery_and_counts_for_nothing() {
    let test = TestStore::new();
    let sender = test.sender();
    let endpoint = test.endpoint(sender.account, Some(&[EventType::Bounced]));
    let delivery = test.done(TestEndpoint { account: sender.account, endpoint });
    let Owed::Test { body } = row(&test, &sender, delivery).owed else { panic!("a test") };
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["type"], &body["message_id"]), (&"test".into(), &serde_json::Value::Null));
    assert_eq!(test.count(Table::EventLog, &[]), 0);
    settle(&test, &sender, delivery, attempt(&test, Some("timeout")));
    assert_eq!(row(&test, &sender, delivery).state.attempts, 1);
    assert_eq!(test.count(Table::Attempts, &[]), 1);
    let standing: EndpointRow = test.row(&schema::endpoint(sender.account, endpoint));
    assert_eq!((standing.state.consecutive_failures(), standing.last_failure_at), (0, None));
    settle(&test, &sender, delivery, attempt(&test, None));
    let standing: EndpointRow = test.row(&schema::endpoint(sender.account, endpoint));
    assert_eq!(standing.last_success_at, None);
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
fn a_replay_makes_all_events_since_then_in_slices_and_not_its_own() {
    let test = TestStore::new();
    let sender = test.sender();
    let early = test.endpoint(sender.account, None);
    sender.accept("b@example.net");
    test.pass(std::time::Duration::from_secs(60));
    let since = test.now();
    for _ in 0..SLICE + 3 {
        sender.accept("b@example.net");
    }
    let count = SLICE as u64 + 3;
    assert_eq!(replay(&test, &sender, early, ReplayOf::All, since), (count, 2));
    let other = test.endpoint(sender.account, Some(&[EventType::Bounced]));
    assert_eq!(replay(&test, &sender, other, ReplayOf::All, since).0, 0);
    assert_eq!(replay(&test, &sender, early, ReplayOf::All, Timestamp::ZERO).0, count + 1);
}

#[test]
fn a_replay_of_what_failed_goes_by_the_latest_delivery_of_each_event() {
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
    assert_eq!(replay(&test, &sender, endpoint, ReplayOf::Failed, before).0, 0, "it is on its way");
    settle(&test, &sender, replayed, DeliveryEnd::Abandoned);
    assert_eq!(replay(&test, &sender, endpoint, ReplayOf::Failed, before).0, 1, "once, not for each that failed");
}
