//! Tests of settling an attempt: its outcome is recorded once, together with the next timer.

use super::*;
use crate::domain::event::{BounceKind, BounceSource};
use crate::store::op::admission::Refusal;
use crate::store::op::sweep::SweepEvents;
use crate::store::row::Row;
use crate::store::row::suppression::SuppressionRow;
use crate::store::schema::Table;
use crate::store::testing::{Sender, TestStore};

const MINUTE: Duration = Duration::from_secs(60);

fn bounce(suppressed: bool) -> Bounce {
    Bounce {
        kind: BounceKind::Hard,
        category: "invalid_recipient".into(),
        status: Some("5.1.1".into()),
        source: BounceSource::Smtp,
        rule: "enhanced-5.1.1".into(),
        advice: "Correct the address.".into(),
        suppressed,
    }
}

fn facts(code: u16) -> AttemptFacts {
    AttemptFacts { smtp_code: Some(code), smtp_response: Some(format!("{code} said so")), ..AttemptFacts::default() }
}

fn deferred() -> TransferEnd {
    TransferEnd::Deferred { bounce: None, not_before: None }
}

/// One message for a test.
struct Scenario<'a> {
    test: &'a TestStore,
    sender: Sender<'a>,
    message: MessageId,
}

impl<'a> Scenario<'a> {
    fn of(test: &'a TestStore) -> Self {
        let sender = test.sender();
        Self { test, sender, message: sender.accept("B@example.net") }
    }

    fn transfer(&self) -> TransferRow {
        self.test.row(&self.sender.key(self.message))
    }

    fn status(&self) -> &'static str {
        self.transfer().state.status().as_str()
    }

    /// Serves the message's timer at its due time.
    fn settle(&self, end: TransferEnd, facts: AttemptFacts, random: [u8; 4]) -> SettleOutcome {
        let due = self.transfer().due.unwrap_or_default();
        self.test.set_now(due.max(self.test.now()));
        self.settle_timer(due, end, facts, random)
    }

    fn settle_timer(&self, due: Timestamp, end: TransferEnd, facts: AttemptFacts, random: [u8; 4]) -> SettleOutcome {
        let (account, message) = (self.sender.account, self.message);
        self.test.done(SettleTransfer {
            account,
            message,
            due,
            end,
            facts,
            provider: None,
            random,
            others: vec![],
            transcript: Some("> RCPT TO:<b@example.net>\n".to_owned()),
        })
    }

    fn events(&self) -> Vec<serde_json::Value> {
        let snapshot = self.test.snapshot();
        let keys = self.test.keys(Table::Timeline, &self.sender.key(self.message));
        let bytes = keys.iter().map(|key| snapshot.get(Table::Timeline, key).unwrap().unwrap());
        bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap()).collect()
    }

    fn last_event(&self) -> serde_json::Value {
        self.events().pop().unwrap()
    }

    fn due_timers(&self) -> Vec<Timestamp> {
        self.test.timers(TimerKind::Transfer).iter().map(|timer| timer.due).collect()
    }
}

#[test]
fn a_delivered_message_has_no_further_attempt() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    test.pass(MINUTE);
    assert_eq!(scenario.settle(TransferEnd::Delivered, facts(250), [0; 4]), SettleOutcome::Recorded);
    let transfer = scenario.transfer();
    assert_eq!(scenario.status(), "delivered");
    assert_eq!((transfer.attempts, transfer.due, transfer.delivered_at), (1, None, Some(test.now())));
    assert_eq!((transfer.status_at, transfer.last.smtp_code), (test.now(), Some(250)));
    assert!(scenario.due_timers().is_empty());
    let event = scenario.last_event();
    assert_eq!((event["type"].as_str(), event["attempt"].as_u64()), (Some("delivered"), Some(1)));
    assert_eq!(event["smtp_response"], "250 said so");
    assert!(event["next_attempt_at"].is_null());
}

#[test]
fn deferrals_follow_the_schedule_within_ten_percent() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let draws = [[0; 4], [255; 4], [128, 0, 0, 0], [0; 4], [255; 4], [0; 4], [0; 4], [0; 4]];
    for ((attempt, minutes), random) in (1..).zip([1, 2, 4, 8, 15, 30, 60, 60]).zip(draws) {
        assert_eq!(scenario.settle(deferred(), facts(451), random), SettleOutcome::Recorded);
        let transfer = scenario.transfer();
        let due = transfer.due.unwrap();
        let wait = due.since(test.now());
        assert!(wait >= minutes * MINUTE * 9 / 10 && wait <= minutes * MINUTE * 11 / 10, "{attempt}: {wait:?}");
        assert_eq!((scenario.status(), transfer.attempts), ("deferred", attempt));
        assert_eq!(scenario.due_timers(), [due], "exactly one timer");
        let event = scenario.last_event();
        assert_eq!(event["next_attempt_at"], due.to_string());
        assert_eq!(event["attempt"], attempt);
    }
    assert_eq!(scenario.events().len(), 9, "queued, and eight deferrals");
}

#[test]
fn a_delay_requested_by_the_site_postpones_but_never_advances_an_attempt() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let until = |time| TransferEnd::Deferred { bounce: None, not_before: Some(time) };
    let late = test.now() + 10 * MINUTE;
    scenario.settle(until(late), facts(421), [0; 4]);
    assert_eq!(scenario.transfer().due, Some(late));
    scenario.settle(until(test.now()), facts(421), [0; 4]);
    assert_eq!(scenario.transfer().due, Some(late + 2 * MINUTE * 9 / 10));
}

#[test]
fn a_message_without_time_for_another_attempt_waits_for_its_expiry() {
    let test = TestStore::new();
    let sender = test.sender();
    let mut accept = sender.message("b@example.net");
    let end = test.now() + MINUTE / 2;
    accept.message.give_up_at = end;
    let scenario = Scenario { test: &test, sender, message: accept.id };
    assert!(!test.done(accept).is_replay);
    let not_before = Some(test.now() + MINUTE / 4);
    scenario.settle(TransferEnd::Deferred { bounce: None, not_before }, facts(451), [0; 4]);
    assert_eq!((scenario.status(), scenario.transfer().due), ("deferred", Some(end)));
    assert!(scenario.last_event()["next_attempt_at"].is_null(), "the timer at the expiry is not an attempt");
    scenario.settle(TransferEnd::GaveUp(bounce(false)), AttemptFacts::default(), [0; 4]);
    assert_eq!((scenario.status(), scenario.transfer().attempts), ("failed", 1));
    assert!(scenario.due_timers().is_empty());
    assert!(scenario.last_event()["attempt"].is_null());
    assert_eq!(test.count(Table::Suppressions, &[]), 0, "giving up never suppresses");
}

#[test]
fn a_bounce_suppresses_the_address_if_its_rule_says_so() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    scenario.settle(TransferEnd::Bounced(bounce(true)), facts(550), [0; 4]);
    assert_eq!((scenario.status(), scenario.due_timers()), ("bounced", Vec::new()));
    assert_eq!(scenario.last_event()["bounce"]["suppressed"], true);
    let row: SuppressionRow = test.row(&schema::named(scenario.sender.account, b"b@example.net"));
    assert_eq!((row.reason, row.message), (SuppressionReason::Bounce, Some(scenario.message)));
    let found =
        test.snapshot().get(Table::SuppressionsById, &schema::suppression(scenario.sender.account, row.id)).unwrap();
    assert_eq!(found.as_deref(), Some(b"b@example.net".as_slice()));
    assert_eq!((row.email.as_str(), row.smtp_code), ("B@example.net", Some(550)));
    let again = scenario.sender.message("b@EXAMPLE.net");
    assert_eq!(test.answer_of(again).unwrap_err(), Refusal::RecipientSuppressed);
    assert!(test.answer_of(scenario.sender.message("b+x@example.net")).is_ok(), "no folding of addresses");
}

#[test]
fn a_bounce_with_another_cause_suppresses_no_address() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    scenario.settle(TransferEnd::Bounced(bounce(false)), facts(554), [0; 4]);
    assert_eq!((scenario.status(), test.count(Table::Suppressions, &[])), ("bounced", 0));
}

#[test]
fn a_message_to_a_newly_suppressed_address_ends_without_an_attempt() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    scenario.settle(TransferEnd::Suppressed, AttemptFacts::default(), [0; 4]);
    assert_eq!((scenario.status(), scenario.transfer().attempts), ("suppressed", 0));
    assert_eq!(scenario.last_event()["type"], "suppressed");
}

#[test]
fn a_stale_timer_is_removed_without_effect() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let first = scenario.transfer().due.unwrap();
    scenario.settle(deferred(), facts(451), [0; 4]);
    let before = scenario.transfer();
    let settled = scenario.settle_timer(first, TransferEnd::Delivered, facts(250), [0; 4]);
    assert_eq!(settled, SettleOutcome::Stale);
    let after = scenario.transfer();
    assert_eq!((after.state, after.attempts, after.due), (before.state, before.attempts, before.due));
    assert_eq!((scenario.events().len(), scenario.due_timers()), (2, vec![before.due.unwrap()]));
}

#[test]
fn an_outcome_recorded_twice_counts_once() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let due = scenario.transfer().due.unwrap();
    assert_eq!(scenario.settle_timer(due, TransferEnd::Delivered, facts(250), [0; 4]), SettleOutcome::Recorded);
    assert_eq!(scenario.settle_timer(due, TransferEnd::Delivered, facts(250), [0; 4]), SettleOutcome::Stale);
    assert_eq!((scenario.events().len(), scenario.transfer().attempts), (2, 1));
}

#[test]
fn a_postponed_message_gets_no_attempt_and_no_event() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let until = test.now() + 5 * MINUTE;
    scenario.settle(TransferEnd::Postponed { until }, AttemptFacts::default(), [0; 4]);
    assert_eq!((scenario.status(), scenario.transfer().attempts, scenario.due_timers()), ("queued", 0, vec![until]));
    assert_eq!(scenario.events().len(), 1);
    scenario.settle(TransferEnd::Postponed { until: Timestamp::MAX }, AttemptFacts::default(), [0; 4]);
    let message: MessageRow = test.row(&scenario.sender.key(scenario.message));
    assert_eq!(scenario.due_timers(), [message.give_up_at], "never after the message's expiry");
}

#[test]
fn a_message_is_set_aside_after_three_crashes() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    for status in ["deferred", "deferred", "failed"] {
        scenario.settle(TransferEnd::Crashed, AttemptFacts::default(), [0; 4]);
        assert_eq!((scenario.status(), scenario.last_event()["type"].as_str()), (status, Some(status)));
    }
    assert!(scenario.due_timers().is_empty());
}

#[test]
fn the_transcript_of_a_failed_attempt_is_kept_as_long_as_its_event() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    scenario.settle(deferred(), facts(451), [0; 4]);
    let event = test.keys(Table::Timeline, &scenario.sender.key(scenario.message)).pop().unwrap();
    assert_eq!(test.keys(Table::Transcripts, &[]), [event], "for the event of the failure");
    scenario.settle(TransferEnd::Delivered, facts(250), [0; 4]);
    assert_eq!(test.count(Table::Transcripts, &[]), 1, "a success keeps no transcript");
    let [timer] = <[_; 1]>::try_from(test.timers(TimerKind::EventLog)).unwrap();
    for (days, left) in [(29, 1), (2, 0)] {
        test.pass(MINUTE * 60 * 24 * days);
        let due = test.timers(TimerKind::EventLog).first().map_or(timer.due, |timer| timer.due);
        test.done(SweepEvents { due });
        assert_eq!(test.count(Table::Transcripts, &[]), left);
    }
    assert_eq!(scenario.events().len(), 3, "the timeline stays");
}

#[test]
fn unreadable_content_defers_its_message_once_and_fails_it_after_an_hour() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let events = || test.count(Table::Timeline, &scenario.sender.key(scenario.message));
    let unreadable = || scenario.settle(TransferEnd::Unreadable, AttemptFacts::default(), [0; 4]);
    let before = events();
    unreadable();
    let began = test.now();
    assert_eq!((scenario.status(), scenario.transfer().attempts, events()), ("deferred", 0, before + 1));
    for minute in 1..60 {
        unreadable();
        assert_eq!(test.now(), began + minute * MINUTE, "it is retried every minute");
        assert_eq!((scenario.status(), events()), ("deferred", before + 1), "one event says so");
    }
    unreadable();
    assert_eq!((scenario.status(), scenario.transfer().due, events()), ("failed", None, before + 2));
}

#[test]
fn the_hour_of_unreadable_content_restarts_after_an_attempt() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    let unreadable = || scenario.settle(TransferEnd::Unreadable, AttemptFacts::default(), [0; 4]);
    (0..50).for_each(|_| assert_eq!(unreadable(), SettleOutcome::Recorded));
    scenario.settle(deferred(), facts(450), [0; 4]);
    assert_eq!(scenario.transfer().unreadable_since, None);
    (0..50).for_each(|_| assert_eq!(unreadable(), SettleOutcome::Recorded));
    assert_eq!(scenario.status(), "deferred");
}

#[test]
fn a_transfer_of_version_1_decodes_as_one_with_readable_content() {
    let row = TransferRow { attempts: 7, ..TransferRow::queued(crate::store::testing::START) };
    let mut bytes = row.encode();
    bytes[0] = 1;
    assert_eq!(bytes.pop(), Some(0), "the last field is absent");
    assert_eq!(TransferRow::decode(&bytes).unwrap().encode(), row.encode());
}
