//! Tests of webhook deliveries: the exact schedule, the tenth failure, and deliveries that wait for an endpoint to be
//! enabled.

use std::time::Duration;

use super::*;
use crate::base::id::Ulid;
use crate::domain::event::EventType;
use crate::machine::delivery::Stage;
use crate::store::op::endpoint::UpdateEndpoint;
use crate::store::op::suspension::{ResumeAccount, SuspendAccount};
use crate::store::row::audit::AuditRow;
use crate::store::testing::{Sender, TestStore};

const TOOK: Duration = Duration::from_millis(1234);

/// An endpoint subscribed to `queued` events, and a sender whose messages cause them.
struct Scenario<'a> {
    test: &'a TestStore,
    sender: Sender<'a>,
    endpoint: EndpointId,
}

impl<'a> Scenario<'a> {
    fn of(test: &'a TestStore) -> Self {
        let sender = test.sender();
        Self { test, sender, endpoint: test.endpoint(sender.account, Some(&[EventType::Queued])) }
    }

    /// Causes an event, and returns its delivery.
    fn delivery(&self) -> DeliveryId {
        self.sender.accept("b@example.net");
        DeliveryId(Ulid(*self.test.keys(Table::Deliveries, &[]).pop().unwrap().last_chunk::<16>().unwrap()))
    }

    fn row(&self, delivery: DeliveryId) -> DeliveryRow {
        self.test.row(&schema::delivery(self.sender.account, delivery))
    }

    fn due(&self, delivery: DeliveryId) -> Timestamp {
        self.row(delivery).state.due(Timestamp::ZERO).unwrap()
    }

    fn endpoint(&self) -> EndpointRow {
        self.test.row(&schema::endpoint(self.sender.account, self.endpoint))
    }

    /// Serves the delivery's timer at its due time.
    fn settle(&self, delivery: DeliveryId, end: DeliveryEnd) -> EndpointChange {
        let due = self.due(delivery);
        self.test.done(SettleDelivery { account: self.sender.account, delivery, due, end })
    }

    fn fail(&self, delivery: DeliveryId) -> EndpointChange {
        self.attempt(delivery, Some(503), Some("status"))
    }

    fn succeed(&self, delivery: DeliveryId) -> EndpointChange {
        self.attempt(delivery, Some(204), None)
    }

    fn attempt(&self, delivery: DeliveryId, status: Option<u16>, error: Option<&str>) -> EndpointChange {
        let at = self.due(delivery).max(self.test.now());
        let ended_at = at + TOOK;
        self.test.set_now(ended_at + Duration::from_millis(5));
        let error = error.map(str::to_owned);
        let attempt = Attempt { at, ended_at, status, error, duration_ms: 1234, peer: None, response_body: None };
        self.settle(delivery, DeliveryEnd::Attempted(attempt))
    }

    fn enable(&self, enabled: bool) {
        let (account, endpoint) = (self.sender.account, self.endpoint);
        let (url, events, description) = (None, None, None);
        self.test.done(UpdateEndpoint { account, endpoint, url, events, description, enabled: Some(enabled) });
    }

    fn timers(&self) -> Vec<(Timestamp, Ulid)> {
        self.test.timers(TimerKind::Delivery).iter().map(|timer| (timer.due, timer.id)).collect()
    }
}

#[test]
fn retries_follow_the_schedule_exactly_and_end_after_the_seventh() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let delivery = scenario.delivery();
    for (number, delay) in (1..).zip([60, 300, 1800, 7200, 21_600, 86_400]) {
        let began = scenario.due(delivery);
        assert_eq!(scenario.fail(delivery), EndpointChange::None);
        let due = began + TOOK + Duration::from_secs(delay);
        assert_eq!(scenario.row(delivery).state.attempts, number);
        assert_eq!(scenario.timers(), [(due, delivery.0)], "measured from the attempt's end, and only one timer");
    }
    scenario.fail(delivery);
    assert_eq!(scenario.row(delivery).state.stage, Stage::Failed);
    assert!(scenario.timers().is_empty());
    let attempts = test.keys(Table::Attempts, &schema::delivery(scenario.sender.account, delivery));
    assert_eq!(attempts.len(), 7);
    let last: AttemptRow = test.row(&attempts[6]);
    assert_eq!((last.status, last.error.as_deref(), last.duration_ms), (Some(503), Some("status"), 1234));
    assert_eq!(scenario.endpoint().state.consecutive_failures(), 7);
}

#[test]
fn a_2xx_ends_the_delivery_and_resets_the_failure_count() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let delivery = scenario.delivery();
    scenario.fail(delivery);
    scenario.succeed(delivery);
    assert_eq!((scenario.row(delivery).state.stage, scenario.row(delivery).state.attempts), (Stage::Delivered, 2));
    assert!(scenario.timers().is_empty());
    let endpoint = scenario.endpoint();
    assert_eq!(endpoint.state.consecutive_failures(), 0);
    assert_eq!(
        endpoint.last_success_at.unwrap().since(endpoint.last_failure_at.unwrap()),
        Duration::from_secs(60) + TOOK
    );
}

#[test]
fn only_the_tenth_failure_in_a_row_disables_the_endpoint() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let first = scenario.delivery();
    (0..5).for_each(|_| assert_eq!(scenario.fail(first), EndpointChange::None));
    let second = scenario.delivery();
    (0..4).for_each(|_| assert_eq!(scenario.fail(second), EndpointChange::None));
    assert!(scenario.endpoint().state.is_enabled());
    assert_eq!(scenario.fail(first), EndpointChange::Disabled(scenario.endpoint));
    let endpoint = scenario.endpoint();
    assert_eq!(endpoint.state.disabled_at(), Some(test.now()));
    assert_eq!(endpoint.state.disabled_reason(), Some("Disabled after repeated failures"));
    let lines = test.snapshot().rows::<AuditRow>(scenario.sender.account.as_bytes(), 9).unwrap();
    let [(_, AuditRow { actor, change, .. })] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((actor, change.action), (&Actor::Service, Action::WebhookDisabled));
    assert_eq!(change.object, scenario.endpoint.to_string());
    // A delivery that was still in flight has no effect.
    scenario.succeed(second);
    assert!(!scenario.endpoint().state.is_enabled());
}

#[test]
fn a_parked_delivery_keeps_its_attempt_count_and_due_time() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let (overdue, scheduled) = (scenario.delivery(), scenario.delivery());
    (0..3).for_each(|_| assert_eq!(scenario.fail(scheduled), EndpointChange::None));
    let due = scenario.due(scheduled);
    scenario.enable(false);
    scenario.settle(overdue, DeliveryEnd::Parked);
    scenario.settle(scheduled, DeliveryEnd::Parked);
    assert!(scenario.timers().is_empty());
    assert_eq!(test.count(Table::Parked, &[]), 2);
    let fresh = scenario.delivery();
    assert_eq!(test.count(Table::Parked, &[]), 3, "later events are held too");

    test.pass(Duration::from_secs(60));
    scenario.enable(true);
    assert_eq!(test.count(Table::Parked, &[]), 0);
    assert!(due > test.now());
    assert_eq!(scenario.timers(), [(test.now(), overdue.0), (test.now(), fresh.0), (due, scheduled.0)]);
    assert_eq!(scenario.row(scheduled).state.attempts, 3);
    assert_eq!(scenario.due(overdue), test.now());
    scenario.succeed(overdue);
    assert_eq!(scenario.row(overdue).state.stage, Stage::Delivered);
}

#[test]
fn a_delivery_parked_too_late_stays_due() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let delivery = scenario.delivery();
    scenario.enable(false);
    scenario.enable(true);
    scenario.settle(delivery, DeliveryEnd::Parked);
    assert_eq!(test.count(Table::Parked, &[]), 0);
    assert_eq!(scenario.timers(), [(scenario.due(delivery), delivery.0)]);
}

#[test]
fn parked_deliveries_become_due_in_slices_oldest_first() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    scenario.enable(false);
    let count = UNPARK_SLICE + 10;
    for _ in 0..count {
        scenario.sender.accept("b@example.net");
    }
    scenario.enable(true);
    let [more] = test.timers(TimerKind::Unpark)[..] else { panic!("a timer for the rest") };
    let first = test.keys(Table::Deliveries, &[]);
    let oldest = first[..UNPARK_SLICE].iter().map(|key| Ulid(*key.last_chunk::<16>().unwrap()));
    assert!(scenario.timers().iter().map(|(_, id)| *id).eq(oldest));
    test.done(Unpark { account: scenario.sender.account, endpoint: scenario.endpoint, due: more.due });
    assert_eq!((scenario.timers().len(), test.count(Table::Parked, &[])), (count, 0));
    assert!(test.timers(TimerKind::Unpark).is_empty());
}

#[test]
fn deliveries_stay_parked_if_their_endpoint_is_disabled_again() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    scenario.enable(false);
    let delivery = scenario.delivery();
    test.done(Unpark { account: scenario.sender.account, endpoint: scenario.endpoint, due: test.now() });
    assert_eq!((scenario.timers().len(), test.count(Table::Parked, &[])), (0, 1));
    assert!(matches!(scenario.row(delivery).state.stage, Stage::Pending { .. }));
}

#[test]
fn an_abandoned_delivery_fails_without_an_attempt() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let delivery = scenario.delivery();
    scenario.settle(delivery, DeliveryEnd::Abandoned);
    assert_eq!((scenario.row(delivery).state.stage, scenario.row(delivery).state.attempts), (Stage::Failed, 0));
    assert!(scenario.timers().is_empty());
    assert_eq!(scenario.endpoint().state.consecutive_failures(), 0);
}

#[test]
fn a_timer_served_late_leaves_the_delivery_one_timer() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let delivery = scenario.delivery();
    let stale = scenario.due(delivery);
    scenario.fail(delivery);
    let (account, end) = (scenario.sender.account, DeliveryEnd::Parked);
    test.done(SettleDelivery { account, delivery, due: stale, end });
    assert_eq!(scenario.timers(), [(scenario.due(delivery), delivery.0)]);
    scenario.succeed(delivery);
    let end = DeliveryEnd::Abandoned;
    test.done(SettleDelivery { account, delivery, due: stale, end });
    assert_eq!(scenario.row(delivery).state.stage, Stage::Delivered, "an ended delivery does not change");
}

#[test]
fn overflowing_deliveries_of_an_enabled_endpoint_are_parked_until_their_timer() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let deliveries = [scenario.delivery(), scenario.delivery()];
    for (delivery, unparking) in deliveries.into_iter().zip([UnparkTimer::Arm, UnparkTimer::Armed]) {
        scenario.settle(delivery, DeliveryEnd::Overflowed(unparking));
    }
    assert!(test.timers(TimerKind::Delivery).is_empty());
    let [timer] = test.timers(TimerKind::Unpark)[..] else { panic!("one timer for both") };
    test.done(Unpark { account: scenario.sender.account, endpoint: scenario.endpoint, due: timer.due });
    assert_eq!((test.timers(TimerKind::Delivery).len(), test.count(Table::Parked, &[])), (2, 0));
    assert_eq!(deliveries.map(|delivery| scenario.row(delivery).state.attempts), [0, 0]);
}

#[test]
fn counted_failures_are_kept_until_a_success_or_a_reactivation() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let (first, second) = (scenario.delivery(), scenario.delivery());
    scenario.fail(first);
    scenario.fail(second);
    scenario.fail(first);
    let failed = |delivery, number| FailedAttempt { delivery, number };
    assert_eq!(scenario.endpoint().failed, [failed(first, 1), failed(second, 1), failed(first, 2)]);
    scenario.succeed(second);
    assert!(scenario.endpoint().failed.is_empty());
    let others: Vec<_> = (0..11).map(|_| scenario.delivery()).collect();
    for delivery in &others {
        scenario.fail(*delivery);
    }
    let kept: Vec<_> = others[..10].iter().map(|delivery| failed(*delivery, 1)).collect();
    assert_eq!(scenario.endpoint().failed, kept, "deliveries in flight at that time do not count");
    scenario.enable(true);
    assert!(scenario.endpoint().failed.is_empty());
}

#[test]
fn deliveries_of_a_suspended_account_are_parked_until_it_is_resumed() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let delivery = scenario.delivery();
    let account = scenario.sender.account;
    test.done(SuspendAccount { account, reason: "unpaid".parse().unwrap() });
    scenario.settle(delivery, DeliveryEnd::Parked);
    assert_eq!((scenario.timers().len(), scenario.row(delivery).state.attempts), (0, 0));
    let unpark = |due| test.done(Unpark { account, endpoint: scenario.endpoint, due });
    unpark(test.now());
    assert_eq!(scenario.timers().len(), 0, "enabling an endpoint does not end the suspension");
    test.done(ResumeAccount { account });
    let timer = test.timers(TimerKind::Unpark)[0];
    unpark(timer.due);
    assert_eq!((scenario.timers().len(), test.timers(TimerKind::Unpark).len()), (1, 0));
    scenario.succeed(delivery);
    assert_eq!(scenario.row(delivery).state.stage, Stage::Delivered);
}
