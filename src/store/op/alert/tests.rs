//! Tests of the operations about alerts.

use super::*;
use crate::domain::account::QuotaLimits;
use crate::domain::alert::{Severity, Subject, SubjectKind};
use crate::store::op::alert_time::{ExpireAlert, RemindAlert};
use crate::store::testing::TestStore;

const HOUR: Duration = Duration::from_secs(3600);

fn low(severity: Severity) -> Sighting {
    Sighting::new(Condition::DiskLow, severity, "little disk space", "12 MiB are free")
}

fn record(test: &TestStore, found: Option<Severity>) -> ChangedAlerts {
    let findings = vec![Finding::of_service(Condition::DiskLow, found.map(low))];
    test.done(RecordFindings { findings })
}

fn row(test: &TestStore, id: AlertId) -> AlertRow {
    test.row(&schema::alert(AccountId::default(), id))
}

#[test]
fn an_alert_opens_once_and_ends_when_its_condition_ends() {
    let test = TestStore::new();
    let opened = record(&test, Some(Severity::Warning)).opened;
    assert_eq!(opened.len(), 1);
    assert_eq!(record(&test, Some(Severity::Warning)), ChangedAlerts::default());
    assert_eq!(test.count(Table::OpenAlerts, &[]), 1);
    test.pass(HOUR);
    assert_eq!(record(&test, None).resolved, opened);
    let alert = row(&test, opened[0]);
    assert_eq!((alert.opened_at + HOUR, alert.resolved_at), (test.now(), Some(test.now())));
    let kinds: Vec<_> = alert.announcements.iter().map(|announcement| announcement.kind).collect();
    assert_eq!(kinds, [NoticeKind::Opened, NoticeKind::Resolved]);
    assert_eq!(test.count(Table::OpenAlerts, &[]), 0);
    assert_eq!(record(&test, None), ChangedAlerts::default());
}

#[test]
fn a_condition_that_returns_within_an_hour_reopens_its_alert_without_a_notice() {
    let test = TestStore::new();
    let opened = record(&test, Some(Severity::Warning)).opened;
    record(&test, None);
    test.pass(HOUR / 2);
    assert_eq!(record(&test, Some(Severity::Warning)).opened, opened);
    let alert = row(&test, opened[0]);
    assert_eq!((alert.resolved_at, alert.announcements.len()), (None, 2));
    assert!(test.timers(TimerKind::AlertExpiry).is_empty());
}

#[test]
fn a_critical_alert_has_a_reminder_while_it_is_open() {
    let test = TestStore::new();
    let opened = record(&test, Some(Severity::Critical)).opened;
    let timer = test.timers(TimerKind::AlertReminder)[0];
    assert_eq!(timer.due, test.now() + 24 * HOUR);
    test.pass(24 * HOUR);
    test.done(RemindAlert { timer });
    assert_eq!(row(&test, opened[0]).announcements.last().unwrap().kind, NoticeKind::Reminder);
    assert_eq!(test.timers(TimerKind::AlertReminder)[0].due, test.now() + 24 * HOUR);
    record(&test, None);
    assert!(test.timers(TimerKind::AlertReminder).is_empty());
}

#[test]
fn an_alert_is_kept_for_90_days_after_its_end() {
    let test = TestStore::new();
    let opened = record(&test, Some(Severity::Warning)).opened;
    record(&test, None);
    let timer = test.timers(TimerKind::AlertExpiry)[0];
    assert_eq!(timer.due, test.now() + KEPT);
    test.set_now(timer.due);
    test.done(ExpireAlert { timer });
    for table in [Table::Alerts, Table::AlertStates, Table::AlertOwners, Table::OpenAlerts] {
        assert_eq!(test.count(table, &[]), 0, "{table:?} {opened:?}");
    }
    assert!(test.timers(TimerKind::AlertAnnouncement).is_empty());
}

#[test]
fn each_subject_has_its_own_alert_and_unknown_subjects_keep_theirs() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let sighting = |name: &str| {
        let found = Sighting::new(Condition::ProviderBlocking, Severity::Warning, "blocked", "9 of 50");
        found.of(Subject::named(SubjectKind::Provider, name))
    };
    let check = |found: Vec<Sighting>, unknown: &[&str]| {
        let unknown = unknown.iter().map(|name| (*name).to_owned()).collect();
        let finding = Finding { account, condition: Condition::ProviderBlocking, found, unknown };
        test.done(RecordFindings { findings: vec![finding] })
    };
    assert_eq!(check(vec![sighting("google"), sighting("yahoo")], &[]).opened.len(), 2);
    assert_eq!(check(vec![sighting("google")], &["yahoo"]), ChangedAlerts::default());
    assert_eq!(check(vec![sighting("google")], &[]).resolved.len(), 1);
}

#[test]
fn a_past_condition_opens_and_ends_its_alert_at_once() {
    let test = TestStore::new();
    let sighting = Sighting::new(Condition::UncleanStop, Severity::Warning, "killed", "a marker was left");
    let raise = || test.done(RaiseAlert { account: AccountId::default(), sighting: sighting.clone(), is_over: true });
    let first = raise().resolved;
    let alert = row(&test, first[0]);
    assert_eq!((alert.resolved_at, alert.announcements.len()), (Some(test.now()), 1));
    test.pass(HOUR / 2);
    assert_eq!(raise().resolved, first);
    assert_eq!(row(&test, first[0]).announcements.len(), 1);
    assert_eq!(test.timers(TimerKind::AlertExpiry).len(), 1);
    test.pass(HOUR / 2);
    assert_ne!(raise().resolved, first);
}

#[test]
fn each_sign_in_from_a_new_browser_has_its_own_alert_and_one_an_hour_is_announced() {
    let test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    let sign_in = |seen: &str| {
        let sighting = Sighting::new(Condition::NewSignIn, Severity::Info, "New sign-in to the panel", seen);
        test.done(RaiseAlert { account, sighting, is_over: true }).resolved[0]
    };
    let row = |id| test.row::<AlertRow>(&schema::alert(account, id));
    let first = sign_in("From 192.0.2.1.");
    let before = row(first);
    test.pass(HOUR / 2);
    let second = row(sign_in("From 192.0.2.2."));
    assert_eq!(row(first), before, "the first stays as it was");
    assert_eq!((second.seen.as_str(), second.opened_at), ("From 192.0.2.2.", test.now()));
    assert_eq!((before.announcements.len(), second.announcements.len()), (1, 0));
    test.pass(HOUR / 2);
    assert_eq!(row(sign_in("From 192.0.2.3.")).announcements.len(), 1);
    assert_eq!((test.count(Table::Alerts, &[]), test.timers(TimerKind::AlertExpiry).len()), (3, 3));
}

#[test]
fn a_new_alert_replaces_a_damaged_one() {
    let test = TestStore::new();
    let opened = record(&test, Some(Severity::Warning)).opened;
    let key = schema::alert(AccountId::default(), opened[0]);
    test.put(Table::Alerts, &key, Some(b"\xff"));
    assert_eq!(record(&test, None), ChangedAlerts::default());
    assert_eq!(record(&test, Some(Severity::Warning)).opened.len(), 1);
}
