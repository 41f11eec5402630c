//! Tests of accepting: all or nothing, checks in the contract's order, and an exact quota.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::*;
use crate::base::id::EndpointId;
use crate::domain::account::QuotaLimits;
use crate::domain::sending_domain::DomainStatus;
use crate::machine::quota::{Quota, Window};
use crate::store::op::endpoint::UpdateEndpoint;
use crate::store::op::sweep::SweepIdempotency;
use crate::store::row::delivery::DeliveryRow;
use crate::store::testing::{Sender, TestStore};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn refusal(test: &TestStore, accept: Accept) -> Option<Refusal> {
    test.answer_of(accept).err()
}

#[test]
fn an_accepted_message_has_all_its_rows() {
    let test = TestStore::new();
    let sender = test.sender();
    let id = sender.accept("b@example.net");
    let transfer: TransferRow = test.row(&sender.key(id));
    assert_eq!((transfer.state.status().as_str(), transfer.due), ("queued", Some(test.now())));
    let row: MessageRow = test.row(&sender.key(id));
    assert_eq!(row.to.as_given(), "b@example.net");
    assert_eq!(test.row::<Quota>(sender.account.as_bytes()).hour_used, 1);
    let due = Timer::new(test.now(), TimerKind::Transfer, sender.account, id.0);
    assert_eq!(test.timers(TimerKind::Transfer), [due]);
    sender.accept("c@example.net");
    assert_eq!(test.timers(TimerKind::Content).len(), 1, "one timer for all content with the same deadline");
}

#[test]
fn the_quota_is_exact_and_never_exceeded() {
    let test = TestStore::new();
    let sender = test.sender_with(QuotaLimits { per_hour: 40, per_day: 1000 });
    let remaining = Mutex::new(Vec::new());
    let refused = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    match test.answer_of(sender.message("b@example.net")) {
                        Ok(accepted) => remaining.lock().unwrap().push(accepted.quota.hour.remaining),
                        Err(Refusal::QuotaExhausted(exhausted)) => {
                            assert_eq!((exhausted.window, exhausted.retry_after_secs), (Window::Hour, 3600));
                            *refused.lock().unwrap() += 1;
                        }
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let mut remaining = remaining.into_inner().unwrap();
    remaining.sort_unstable();
    assert_eq!(remaining, (0..40).collect::<Vec<_>>(), "each 202 reports its own place in the window");
    assert_eq!(*refused.lock().unwrap(), 60);
    assert_eq!(test.count(Table::Messages, sender.account.as_bytes()), 40);
    test.pass(Duration::from_secs(3600));
    assert!(refusal(&test, sender.message("b@example.net")).is_none());
}

#[test]
fn a_replay_returns_the_first_answer_and_uses_no_quota() {
    let test = TestStore::new();
    let sender = test.sender();
    let first = sender.accept_once("b@example.net", 1, 1).unwrap();
    let again = sender.accept_once("b@example.net", 1, 1).unwrap();
    assert!(!first.is_replay && again.is_replay);
    assert_eq!((again.answer, again.quota), (first.answer, first.quota));
    assert_eq!(sender.accept_once("b@example.net", 1, 2).unwrap_err(), Refusal::IdempotencyMismatch);
    assert!(!sender.accept_once("b@example.net", 2, 2).unwrap().is_replay);
    assert_eq!(test.count(Table::Messages, &[]), 2);
}

#[test]
fn only_one_of_many_requests_with_the_same_key_is_accepted() {
    let test = TestStore::new();
    let sender = test.sender();
    let ask = || sender.accept_once("b@example.net", 1, 1).unwrap();
    let answers: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| !answer.is_replay).count(), 1);
    assert!(answers.iter().all(|answer| answer.answer == answers[0].answer));
    assert_eq!(test.count(Table::Messages, &[]), 1);
}

#[test]
fn a_key_is_bound_for_exactly_24_hours_and_across_a_restart() {
    let mut test = TestStore::new();
    let (account, domain) = {
        let sender = test.sender();
        sender.accept_once("b@example.net", 1, 1).unwrap();
        (sender.account, sender.domain)
    };
    test.reopen();
    test.pass(DAY - Duration::from_millis(1));
    let sender = Sender::of(&test, account, domain);
    assert!(sender.accept_once("b@example.net", 1, 1).unwrap().is_replay);
    test.pass(Duration::from_millis(1));
    assert!(
        !sender.accept_once("b@example.net", 1, 2).unwrap().is_replay,
        "the key is free again, also for another body"
    );
    assert_eq!(sender.accept_once("b@example.net", 1, 1).unwrap_err(), Refusal::IdempotencyMismatch);
}

#[test]
fn a_sweep_removes_expired_keys_and_keeps_rebound_ones() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept_once("b@example.net", 1, 1).unwrap();
    sender.accept_once("b@example.net", 2, 1).unwrap();
    let [sweep] = test.timers(TimerKind::Idempotency)[..] else { panic!("one timer a minute") };
    test.set_now(sweep.due);
    sender.accept_once("b@example.net", 2, 2).unwrap();
    test.done(SweepIdempotency { due: sweep.due });
    assert_eq!(test.count(Table::Idempotency, &[]), 1);
    assert_eq!(test.count(Table::IdempotencyByExpiry, &[]), 1);
    assert_eq!(sender.accept_once("b@example.net", 2, 1).unwrap_err(), Refusal::IdempotencyMismatch);
    assert_eq!(test.timers(TimerKind::Idempotency).len(), 1, "for the key that was bound again");
}

#[test]
fn a_refused_request_leaves_its_key_unbound_and_no_rows() {
    let test = TestStore::new();
    let sender = test.sender_with(QuotaLimits { per_hour: 0, per_day: 0 });
    assert!(matches!(sender.accept_once("b@example.net", 1, 1), Err(Refusal::QuotaExhausted(_))));
    for table in [Table::Messages, Table::Idempotency, Table::Timeline, Table::EventLog, Table::Quotas] {
        assert_eq!(test.count(table, &[]), 0, "{}", table.name());
    }
    assert!(test.timers(TimerKind::Transfer).is_empty());
}

#[test]
fn domain_checks_follow_the_order_of_the_contract() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let of = |domain| Sender::of(&test, account, domain).message("b@example.net");
    let nobody = of(crate::base::id::DomainId::default());
    assert_eq!(refusal(&test, nobody), Some(Refusal::DomainUnknown));

    let news = test.domain(account, "example.com", Stream::Marketing, DomainStatus::Pending);
    let stream = Stream::Marketing;
    let limited = Accept { key_stream: Some(Stream::Transactional), ..of(news) };
    assert_eq!(refusal(&test, limited), Some(Refusal::StreamForbidden { stream }));
    assert_eq!(refusal(&test, of(news)), Some(Refusal::UnsubscribeUrlMissing));
    let mut with_url = of(news);
    with_url.message.unsubscribe_url = Some("https://example.com/u".into());
    with_url.message.stream = stream;
    assert_eq!(refusal(&test, with_url), Some(Refusal::DomainUnverified));
}

#[test]
fn another_accounts_domain_is_unknown() {
    let test = TestStore::new();
    let owner = test.sender();
    let stranger = test.account(QuotaLimits::default());
    let accept = Sender::of(&test, stranger, owner.domain).message("b@example.net");
    assert_eq!(refusal(&test, accept), Some(Refusal::DomainUnknown));
}

#[test]
fn a_message_composed_for_the_wrong_stream_is_composed_again() {
    let test = TestStore::new();
    let sender = test.sender();
    let mut accept = sender.message("b@example.net");
    accept.message.stream = Stream::Marketing;
    assert_eq!(refusal(&test, accept), Some(Refusal::DomainChanged));
}

#[test]
fn timeline_log_and_webhooks_refer_to_the_same_event() {
    let test = TestStore::new();
    let sender = test.sender();
    test.endpoint(sender.account, None);
    let id = sender.accept("b@example.net");
    let [timeline] = &test.keys(Table::Timeline, &sender.key(id))[..] else { panic!("one event") };
    let bytes = test.snapshot().get(Table::Timeline, timeline).unwrap().unwrap();
    let event: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let event_id: crate::base::id::EventId = event["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(timeline[32..], event_id.as_bytes()[..]);
    assert_eq!(event["type"], "queued");
    assert_eq!(event["message_id"], id.to_string());
    assert_eq!(event["message_id_header"], format!("<{id}@example.com>"));
    assert_eq!(event["subject"], "Grüße");
    assert_eq!(event["metadata"]["order"], "42");
    assert_eq!(event["created_at"], test.now().to_string());
    assert!(event["bounce"].is_null() && event["smtp_code"].is_null() && event["attempt"].is_null());
    assert_eq!(test.keys(Table::EventLog, &[]), [schema::event(sender.account, event_id)]);
    let by_type = schema::event_of_type(sender.account, EventType::Queued, event_id);
    assert_eq!(test.keys(Table::EventLogByType, &[]), [by_type]);
    let delivery: DeliveryRow = test.row(&test.keys(Table::Deliveries, &[])[0]);
    assert_eq!((delivery.event, delivery.owed.message()), (event_id, Some(id)));
}

#[test]
fn an_event_has_deliveries_only_to_endpoints_subscribed_to_its_type() {
    let test = TestStore::new();
    let sender = test.sender();
    let all = test.endpoint(sender.account, None);
    let queued = test.endpoint(sender.account, Some(&[EventType::Queued, EventType::Bounced]));
    test.endpoint(sender.account, Some(&[EventType::Delivered]));
    test.endpoint(test.account(QuotaLimits::default()), None);
    let stopped = test.endpoint(sender.account, None);
    let (account, enabled) = (sender.account, Some(false));
    test.done(UpdateEndpoint { account, endpoint: stopped, url: None, events: None, description: None, enabled });
    sender.accept("b@example.net");
    let of = |endpoint: EndpointId| {
        test.keys(Table::DeliveriesByEndpoint, &schema::owned(sender.account, endpoint.as_bytes()))
    };
    assert_eq!([all, queued, stopped].map(|endpoint| of(endpoint).len()), [1, 1, 1]);
    assert_eq!(test.count(Table::Deliveries, &[]), 3);
    let due: Vec<_> = test.timers(TimerKind::Delivery).iter().map(|timer| (timer.due, timer.id)).collect();
    let id = |endpoint| Ulid(*of(endpoint)[0].last_chunk::<16>().unwrap());
    let mut owed = [(test.now(), id(all)), (test.now(), id(queued))];
    owed.sort_unstable();
    assert_eq!(due, owed);
    let parked = test.keys(Table::Parked, &schema::owned(sender.account, stopped.as_bytes()));
    assert_eq!(schema::parked_parts(&parked[0]).unwrap().1.0, id(stopped));
}

#[test]
fn the_event_log_is_swept_by_one_timer_for_all_accounts() {
    let test = TestStore::new();
    for _ in 0..3 {
        test.account(QuotaLimits::default());
        test.pass(Duration::from_secs(1));
    }
    assert_eq!(test.timers(TimerKind::EventLog).len(), 1);
}
