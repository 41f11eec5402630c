//! Tests of reports: each is recorded once, ends the right messages, and suppresses only the right addresses.

use super::*;
use crate::domain::event::{BounceKind, BounceSource};
use crate::machine::transfer::Status;
use crate::store::op::settle_transfer::{SettleOutcome, SettleTransfer, TransferEnd};
use crate::store::row::suppression::SuppressionRow;
use crate::store::schema::Table;
use crate::store::testing::{Sender, TestStore};
use crate::store::timer::TimerKind;

fn bounce(suppressed: bool) -> Bounce {
    Bounce {
        kind: BounceKind::Hard,
        category: "invalid_recipient".into(),
        status: Some("5.1.1".into()),
        source: BounceSource::Dsn,
        rule: "enhanced-5.1.1".into(),
        advice: "Correct the address.".into(),
        suppressed,
    }
}

fn bounced(suppressed: bool) -> ReportMeaning {
    let facts = AttemptFacts {
        smtp_code: Some(550),
        smtp_response: Some("550 5.1.1 gone".into()),
        mx_host: Some("inner.example.net".into()),
        ..AttemptFacts::default()
    };
    ReportMeaning::Bounced { facts, bounce: bounce(suppressed) }
}

fn delayed() -> ReportMeaning {
    ReportMeaning::Delayed {
        facts: AttemptFacts::default(),
        bounce: Bounce { kind: BounceKind::Soft, ..bounce(false) },
    }
}

fn complained() -> ReportMeaning {
    ReportMeaning::Complained(Complaint { feedback_type: Some("abuse".into()), reporter: Some("Provider/1".into()) })
}

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

    fn delivered(test: &'a TestStore) -> Self {
        let scenario = Self::of(test);
        assert_eq!(scenario.settle(TransferEnd::Delivered), SettleOutcome::Recorded);
        scenario
    }

    /// Returns the news about another message of the same sender.
    fn another(&self) -> Self {
        Self { message: self.sender.accept("c@example.net"), ..*self }
    }

    fn settle(&self, end: TransferEnd) -> SettleOutcome {
        let (account, message) = (self.sender.account, self.message);
        let due = self.transfer().due.unwrap_or_default();
        let facts = AttemptFacts { smtp_code: Some(250), relay: Some("direct".into()), ..AttemptFacts::default() };
        let provider = Some("google".to_owned());
        self.test.done(SettleTransfer {
            account,
            message,
            due,
            end,
            facts,
            provider,
            random: [0; 4],
            others: vec![],
            transcript: None,
        })
    }

    fn report_with(&self, wire: AttemptProgress, news: ReportMeaning) -> usize {
        let (account, message) = (self.sender.account, self.message);
        self.test
            .done(RecordReport { messages: vec![ReportedMessage { account, message, wire, news, others: vec![] }] })
    }

    fn record_report(&self, news: ReportMeaning) -> usize {
        self.report_with(AttemptProgress::Idle, news)
    }

    fn transfer(&self) -> TransferRow {
        self.test.row(&self.sender.key(self.message))
    }

    fn events(&self) -> Vec<serde_json::Value> {
        let snapshot = self.test.snapshot();
        let keys = self.test.keys(Table::Timeline, &self.sender.key(self.message));
        let bytes = keys.iter().map(|key| snapshot.get(Table::Timeline, key).unwrap().unwrap());
        bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap()).collect()
    }

    fn types(&self) -> Vec<String> {
        self.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    fn suppression(&self) -> Option<SuppressionRow> {
        self.test.snapshot().row(&schema::named(self.sender.account, b"b@example.net")).unwrap()
    }
}

#[test]
fn a_late_bounce_is_recorded_with_its_reply_and_suppresses_the_address_once() {
    let test = TestStore::new();
    let scenario = Scenario::delivered(&test);
    test.pass(std::time::Duration::from_secs(60));
    assert_eq!(scenario.record_report(bounced(true)), 1);
    let transfer = scenario.transfer();
    assert_eq!((transfer.state.status(), transfer.status_at), (Status::Bounced, test.now()));
    assert_eq!((transfer.last.smtp_code, transfer.last.relay.as_deref()), (Some(550), Some("direct")));
    assert!(transfer.delivered_at.is_some());
    let event = scenario.events().pop().unwrap();
    assert_eq!((event["type"].as_str(), event["bounce"]["source"].as_str()), (Some("bounced"), Some("dsn")));
    assert_eq!((event["smtp_code"].as_u64(), event["mx_host"].as_str()), (Some(550), Some("inner.example.net")));
    assert!(event["attempt"].is_null() && event["bounce"]["suppressed"] == true);
    let row = scenario.suppression().unwrap();
    assert_eq!(
        (row.reason, row.message, row.smtp_code),
        (SuppressionReason::Bounce, Some(scenario.message), Some(550))
    );

    assert_eq!(scenario.record_report(bounced(true)), 0);
    assert_eq!(scenario.types(), ["queued", "delivered", "bounced"]);
}

#[test]
fn a_bounce_not_caused_by_the_address_does_not_suppress_it() {
    let test = TestStore::new();
    let scenario = Scenario::delivered(&test);
    assert_eq!(scenario.record_report(bounced(false)), 1);
    assert!(scenario.suppression().is_none());
}

#[test]
fn a_complaint_outranks_a_bounce_and_always_suppresses() {
    let test = TestStore::new();
    let scenario = Scenario::delivered(&test);
    scenario.record_report(complained());
    assert_eq!(scenario.record_report(bounced(true)), 1);
    assert_eq!((scenario.record_report(complained()), scenario.transfer().state.status()), (0, Status::Complained));
    assert_eq!(scenario.types(), ["queued", "delivered", "complained", "bounced"]);
    let complaint = &scenario.events()[2]["complaint"];
    assert_eq!(complaint, &serde_json::json!({"feedback_type": "abuse", "reporter": "Provider/1"}));
    let row = scenario.suppression().unwrap();
    assert_eq!((row.reason, row.message), (SuppressionReason::Complaint, Some(scenario.message)));
    assert_eq!(scenario.transfer().last.smtp_code, Some(250), "the record explains the current status");
}

#[test]
fn a_delay_is_recorded_once_and_changes_no_status_or_attempt() {
    let test = TestStore::new();
    let scenario = Scenario::delivered(&test);
    assert_eq!((scenario.record_report(delayed()), scenario.record_report(delayed())), (1, 0));
    assert_eq!(scenario.types(), ["queued", "delivered", "deferred"]);
    assert_eq!(scenario.transfer().state.status(), Status::Delivered);

    let waiting = scenario.another();
    waiting.record_report(delayed());
    assert!(waiting.transfer().due.is_some() && test.timers(TimerKind::Transfer).len() == 1);
}

#[test]
fn a_report_that_ends_a_queued_message_stops_its_retries() {
    for news in [bounced(false), complained()] {
        let test = TestStore::new();
        let scenario = Scenario::of(&test);
        scenario.settle(TransferEnd::Deferred { bounce: None, not_before: None });
        let due = scenario.transfer().due;
        assert_eq!(scenario.record_report(news), 1);
        assert_eq!((due.is_some(), scenario.transfer().due), (true, None));
        assert!(test.timers(TimerKind::Transfer).is_empty());
    }
}

#[test]
fn a_message_in_flight_ends_by_its_own_outcome() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    assert_eq!(scenario.report_with(AttemptProgress::Busy, bounced(true)), 1);
    assert_eq!(scenario.settle(TransferEnd::Delivered), SettleOutcome::Recorded);
    assert_eq!(scenario.types(), ["queued", "bounced", "delivered"]);
    let transfer = scenario.transfer();
    assert_eq!((transfer.state.status(), transfer.attempts), (Status::Bounced, 1));
    assert_eq!(transfer.last.smtp_code, Some(550));
    assert!(test.timers(TimerKind::Transfer).is_empty());
}

#[test]
fn a_crash_in_flight_after_a_report_ends_the_message_without_a_retry() {
    let test = TestStore::new();
    let scenario = Scenario::of(&test);
    scenario.report_with(AttemptProgress::Busy, bounced(true));
    assert_eq!(test.timers(TimerKind::Transfer).len(), 1);
    assert_eq!(scenario.settle(TransferEnd::Over), SettleOutcome::Recorded);
    assert_eq!((scenario.transfer().attempts, scenario.transfer().due), (0, None));
    assert!(test.timers(TimerKind::Transfer).is_empty());
    assert_eq!(scenario.types(), ["queued", "bounced"]);
}

#[test]
fn a_report_may_cover_several_messages_and_ignores_unknown_ones() {
    let test = TestStore::new();
    let one = Scenario::delivered(&test);
    let two = one.another();
    let about = |scenario: &Scenario<'_>, message| ReportedMessage {
        account: scenario.sender.account,
        message,
        wire: AttemptProgress::Idle,
        news: bounced(false),
        others: vec![],
    };
    let unknown = about(&one, MessageId::default());
    let messages = vec![about(&one, one.message), unknown, about(&two, two.message)];
    assert_eq!(test.done(RecordReport { messages }), 2);
    assert_eq!((one.types().len(), two.types()), (3, vec!["queued".to_owned(), "bounced".to_owned()]));
}

#[test]
fn other_messages_to_the_suppressed_address_end_in_the_same_transaction() {
    for (news, left) in [(bounced(true), Status::Suppressed), (bounced(false), Status::Queued)] {
        let test = TestStore::new();
        let scenario = Scenario::delivered(&test);
        let waiting = Scenario { message: scenario.sender.accept("b@EXAMPLE.net"), ..scenario };
        let (account, message) = (scenario.sender.account, scenario.message);
        let news =
            ReportedMessage { account, message, wire: AttemptProgress::Idle, news, others: vec![waiting.message] };
        test.done(RecordReport { messages: vec![news] });
        assert_eq!(waiting.transfer().state.status(), left);
    }
}
