//! Tests of the hourly counts: the row of each outcome, messages counted once, and the maximum number of rows.

use super::*;
use crate::base::id::MessageId;
use crate::domain::event::{AttemptFacts, Bounce, BounceKind, BounceSource, Complaint};
use crate::machine::transfer::AttemptProgress;
use crate::store::op::Op;
use crate::store::op::accept::Accept;
use crate::store::op::report::{RecordReport, ReportMeaning, ReportedMessage};
use crate::store::op::settle_transfer::{SettleTransfer, TransferEnd};
use crate::store::op::sweep::SweepEvents;
use crate::store::testing::{START, Sender, TestStore};

const HOUR: Duration = Duration::from_secs(3600);

fn bounce(kind: BounceKind) -> Bounce {
    Bounce {
        kind,
        category: "invalid_recipient".to_owned(),
        status: None,
        source: BounceSource::Smtp,
        rule: "r".to_owned(),
        advice: String::new(),
        suppressed: false,
    }
}

fn settle(test: &TestStore, sender: &Sender<'_>, message: MessageId, end: TransferEnd, provider: Option<&str>) {
    let due = test.row::<TransferRow>(&sender.key(message)).due.unwrap_or_default();
    let (account, provider) = (sender.account, provider.map(str::to_owned));
    let facts = AttemptFacts::default();
    test.done(SettleTransfer {
        account,
        message,
        due,
        end,
        facts,
        provider,
        random: [0; 4],
        others: vec![],
        transcript: None,
    });
}

fn record_report(test: &TestStore, sender: &Sender<'_>, message: MessageId, news: ReportMeaning) {
    let (account, wire, others) = (sender.account, AttemptProgress::Idle, vec![]);
    test.done(RecordReport { messages: vec![ReportedMessage { account, message, wire, news, others }] });
}

fn returned() -> ReportMeaning {
    ReportMeaning::Bounced { facts: AttemptFacts::default(), bounce: bounce(BounceKind::Hard) }
}

fn complaint() -> ReportMeaning {
    ReportMeaning::Complained(Complaint { feedback_type: None, reporter: None })
}

/// Returns the counts of the hour by provider.
fn counted(test: &TestStore, account: AccountId, hour: u32) -> Vec<(String, OutcomeCounts)> {
    let mut rows = Vec::new();
    scan(&test.snapshot(), account, hour, hour + 1, &mut |row| {
        assert_eq!((row.hour, row.stream), (hour, Stream::Transactional));
        rows.push((row.provider.to_owned(), row.counts));
    })
    .unwrap();
    rows
}

#[test]
fn outcomes_count_for_the_hour_of_acceptance_and_the_contacted_provider() {
    let test = TestStore::new();
    let sender = test.sender();
    let [taken, refused, unroutable] = ["a@example.net", "b@example.net", "c@example.net"].map(|to| sender.accept(to));
    test.pass(3 * HOUR);
    settle(&test, &sender, taken, TransferEnd::Deferred { bounce: None, not_before: None }, Some(OTHER));
    settle(&test, &sender, taken, TransferEnd::Delivered, Some("google"));
    settle(&test, &sender, refused, TransferEnd::Bounced(bounce(BounceKind::Block)), Some("google"));
    settle(&test, &sender, unroutable, TransferEnd::Bounced(bounce(BounceKind::Hard)), None);
    test.pass(30 * HOUR);
    record_report(&test, &sender, taken, complaint());
    let none = OutcomeCounts::default();
    let nobody = OutcomeCounts { accepted: 3, bounced_hard: 1, ..none };
    let mut google = OutcomeCounts { delivered: 1, bounced_block: 1, complained: 1, ..none };
    google.delivery_times[14] = 1;
    let expected = [("", nobody), ("google", google), (OTHER, OutcomeCounts { deferred: 1, ..none })];
    assert_eq!(
        counted(&test, sender.account, hour_of(START)),
        expected.map(|(provider, counts)| (provider.to_owned(), counts))
    );
    assert_eq!(test.count(Table::Outcomes, &[]), 3, "later hours have no counts");
}

#[test]
fn a_message_that_was_delivered_and_bounced_is_one_message_in_either_order() {
    let test = TestStore::new();
    let sender = test.sender();
    let [late, overtaken] = ["a@example.net", "b@example.net"].map(|to| sender.accept(to));
    settle(&test, &sender, late, TransferEnd::Delivered, Some("google"));
    record_report(&test, &sender, late, returned());
    record_report(&test, &sender, late, returned());
    // The report arrives before the outcome of an attempt in flight.
    let (account, wire, others) = (sender.account, AttemptProgress::Busy, vec![]);
    let news = ReportedMessage { account, message: overtaken, wire, news: returned(), others };
    test.done(RecordReport { messages: vec![news] });
    settle(&test, &sender, overtaken, TransferEnd::Delivered, Some("google"));
    let mut total = OutcomeCounts::default();
    counted(&test, account, hour_of(START)).iter().for_each(|(_, counts)| total.add(counts));
    assert_eq!((total.delivered, total.bounced(), total.returned, total.answered()), (2, 2, 2, 2));
    assert_eq!(total.figures().bounces.count, 2);
}

#[test]
fn bounces_and_complaints_trigger_an_evaluation_within_a_minute_and_deliveries_do_not() {
    let test = TestStore::new();
    let sender = test.sender();
    let [taken, refused] = ["a@example.net", "b@example.net"].map(|to| sender.accept(to));
    settle(&test, &sender, taken, TransferEnd::Delivered, Some(OTHER));
    assert!(test.timers(TimerKind::Reputation).is_empty());
    test.pass(Duration::from_secs(10));
    settle(&test, &sender, refused, TransferEnd::Bounced(bounce(BounceKind::Hard)), Some(OTHER));
    test.pass(Duration::from_secs(10));
    record_report(&test, &sender, taken, complaint());
    assert_eq!(test.timers(TimerKind::Reputation), [judged_at(sender.account, START + Duration::from_secs(60))]);
}

#[test]
fn outcomes_above_the_row_limit_still_count_for_their_stream() {
    let test = TestStore::new();
    let sender = test.sender();
    for n in 0..ROWS_MAX + 3 {
        let message = sender.accept("a@example.net");
        settle(&test, &sender, message, TransferEnd::Delivered, Some(&format!("provider-{n}")));
    }
    let rows = counted(&test, sender.account, hour_of(START));
    assert_eq!(rows.len(), ROWS_MAX + 1);
    let delivered: u64 = rows.iter().map(|(_, counts)| counts.delivered).sum();
    assert_eq!(delivered, ROWS_MAX as u64 + 3);
    // One row counts accepted messages.
    let rest = schema::outcomes(sender.account, hour_of(START), Stream::Transactional, DomainId::default(), OTHER);
    assert_eq!(test.row::<OutcomeCounts>(&rest).delivered, 4);
}

#[test]
fn counts_are_removed_after_400_days_and_later_outcomes_are_ignored() {
    let test = TestStore::new();
    let sender = test.sender();
    let message = sender.accept("a@example.net");
    settle(&test, &sender, message, TransferEnd::Delivered, Some(OTHER));
    test.pass(HOUR);
    sender.accept("b@example.net");
    let sweep = || test.timers(TimerKind::EventLog)[0].due;
    test.set_now(START + KEPT);
    test.done(SweepEvents { due: sweep() });
    assert_eq!(test.count(Table::Outcomes, &[]), 3, "the counts have not expired yet");
    test.set_now(START + KEPT + HOUR);
    test.done(SweepEvents { due: sweep() });
    assert_eq!(test.count(Table::Outcomes, &[]), 1);
    record_report(&test, &sender, message, complaint());
    assert_eq!(test.count(Table::Outcomes, &[]), 1);
}

/// Measures accepting and delivering a message, with and without counting.
///
/// `cargo test --release --lib measure_the_cost_of_counting -- --ignored --nocapture`
#[test]
#[ignore = "prints a measurement"]
fn measure_the_cost_of_counting() {
    const OPS: u32 = 10_000;
    let quota = crate::domain::account::QuotaLimits { per_hour: u64::MAX, per_day: u64::MAX };
    for (what, age) in [("warm-up", HOUR), ("counted", HOUR), ("not counted", KEPT + HOUR), ("counted", HOUR)] {
        let test = TestStore::new();
        let sender = test.sender_with(quota);
        let mut messages: Vec<Accept> = (0..OPS).map(|_| sender.message("a@example.net")).collect();
        messages.iter_mut().for_each(|accept| accept.message.created_at = START - age);
        let settle = |accept: &Accept| SettleTransfer {
            account: sender.account,
            message: accept.id,
            due: START,
            end: TransferEnd::Delivered,
            facts: AttemptFacts::default(),
            provider: Some("google".to_owned()),
            random: [0; 4],
            others: vec![],
            transcript: None,
        };
        let settles: Vec<_> = messages.iter().map(settle).collect();
        println!("{what}: accept {:?}, settle {:?}", each(&test, messages), each(&test, settles));
    }
}

/// Commits all operations, and returns the duration of one.
fn each<O: Op>(test: &TestStore, ops: Vec<O>) -> Duration {
    let (done, all) = std::sync::mpsc::channel();
    let (began, count) = (std::time::Instant::now(), ops.len());
    for op in ops {
        let done = done.clone();
        test.store().post(op, move |answer| done.send(answer.is_ok()).unwrap());
    }
    assert!((0..count).all(|_| all.recv().unwrap()));
    began.elapsed() / u32::try_from(count).unwrap()
}
