//! Tests of the operations about notices.

use std::time::Duration;

use super::*;
use crate::domain::alert::{Condition, Severity, Sighting, Subject, SubjectKind};
use crate::store::op::alert::RaiseAlert;
use crate::store::testing::TestStore;

const SECOND: Duration = Duration::from_secs(1);

/// Opens an alert and announces it to `addresses`.
fn open(test: &TestStore, name: &str, addresses: &[&str], webhook: Option<&[u8]>) -> AlertId {
    let sighting = Sighting::new(Condition::RelayFailing, Severity::Critical, "a relay fails", "535 no");
    let sighting = sighting.of(Subject::named(SubjectKind::Relay, name));
    let account = AccountId::default();
    let alert = test.done(RaiseAlert { account, sighting, is_over: false }).opened[0];
    let timer = *test.timers(TimerKind::AlertAnnouncement).iter().find(|timer| timer.id == alert.0).unwrap();
    let row: AlertRow = test.row(&schema::alert(account, alert));
    let telling = AlertChangeNotice {
        announcement: row.announcements[0],
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        webhook: webhook.map(<[u8]>::to_vec),
    };
    test.done(Announce { timer, tellings: vec![telling] });
    alert
}

fn notices(test: &TestStore) -> Vec<(NoticeId, NoticeRow)> {
    let rows = test.snapshot().rows::<NoticeRow>(&[], 1000).unwrap();
    let id = |key: Vec<u8>| NoticeId(crate::base::id::Ulid(key.try_into().unwrap()));
    rows.into_iter().map(|(key, row)| (id(key), row)).collect()
}

fn settle(test: &TestStore, notice: &(NoticeId, NoticeRow), end: NoticeEnd, items: usize) {
    test.done(SettleNotice { notice: notice.0, due: notice.1.due, end, items });
}

fn shown(test: &TestStore, alert: AlertId) -> Vec<(Channel, NoticeStatus, Option<String>)> {
    let row: AlertRow = test.row(&schema::alert(AccountId::default(), alert));
    row.notices.into_iter().map(|notice| (notice.channel, notice.status, notice.relay)).collect()
}

#[test]
fn changes_within_10_seconds_share_one_mail_per_address() {
    let test = TestStore::new();
    let first = open(&test, "a", &["ops@example.net", "ann@example.net"], None);
    test.pass(9 * SECOND);
    let second = open(&test, "b", &["ops@example.net"], None);
    let found = notices(&test);
    let items: Vec<_> = found.iter().map(|(_, row)| row.content.items().len()).collect();
    assert_eq!(items, [2, 1]);
    assert_eq!(found[0].1.due, test.now() + SECOND);
    settle(&test, &found[0], NoticeEnd::Sent(Some("direct".to_owned())), 2);
    let sent = (Channel::Email, NoticeStatus::Sent, Some("direct".to_owned()));
    assert_eq!(shown(&test, first), [sent.clone(), (Channel::Email, NoticeStatus::Pending, None)]);
    assert_eq!(shown(&test, second), [sent]);
    assert_eq!(notices(&test).len(), 1);
}

#[test]
fn a_change_during_an_attempt_goes_into_the_next_mail() {
    let test = TestStore::new();
    open(&test, "a", &["ops@example.net"], None);
    let late = open(&test, "b", &["ops@example.net"], None);
    settle(&test, &notices(&test)[0], NoticeEnd::Sent(None), 1);
    assert_eq!(shown(&test, late), [(Channel::Email, NoticeStatus::Pending, None)]);
    let next = notices(&test);
    assert_eq!((next.len(), next[0].1.content.items()[0].alert), (1, late));
    settle(&test, &next[0], NoticeEnd::Sent(None), 1);
    assert_eq!(shown(&test, late), [(Channel::Email, NoticeStatus::Sent, None)]);
}

#[test]
fn a_mail_refused_for_a_day_fails_without_an_alert() {
    let test = TestStore::new();
    let alert = open(&test, "a", &["ops@example.net"], None);
    let mut attempts = 0;
    while let Some(notice) = notices(&test).first().cloned() {
        test.set_now(notice.1.due);
        settle(&test, &notice, NoticeEnd::NotTaken { at: test.now() }, 1);
        attempts += 1;
    }
    assert_eq!(attempts, 29);
    assert_eq!(shown(&test, alert), [(Channel::Email, NoticeStatus::Failed, None)]);
    assert_eq!((test.count(Table::Alerts, &[]), test.timers(TimerKind::Notice).len()), (1, 0));
}

#[test]
fn an_address_gets_30_mails_an_hour_and_further_changes_are_collected() {
    let test = TestStore::new();
    for number in 0..40 {
        open(&test, &format!("r{number}"), &["ops@example.net"], None);
        test.pass(11 * SECOND);
        for notice in notices(&test) {
            if notice.1.due <= test.now() {
                settle(&test, &notice, NoticeEnd::Sent(None), 1);
            }
        }
    }
    let waiting = notices(&test);
    assert_eq!((waiting.len(), waiting[0].1.content.items().len()), (1, 10));
    assert!(waiting[0].1.due >= test.now() + 3000 * SECOND);
}

#[test]
fn mails_of_an_outage_are_merged_into_one() {
    let test = TestStore::new();
    let refuse = || {
        for notice in notices(&test) {
            if notice.1.due <= test.now() {
                let items = notice.1.content.items().len();
                settle(&test, &notice, NoticeEnd::NotTaken { at: test.now() }, items);
            }
        }
    };
    let alerts: Vec<_> = (0..60)
        .map(|number| {
            let alert = open(&test, &format!("r{number}"), &["ops@example.net", "ann@example.net"], None);
            test.pass(11 * SECOND);
            refuse();
            alert
        })
        .collect();
    test.pass(3600 * SECOND);
    refuse();
    let items = || notices(&test).iter().map(|(_, row)| row.content.items().len()).collect::<Vec<_>>();
    assert_eq!(items(), [60, 60]);
    assert_eq!(test.timers(TimerKind::Notice).len(), 2);
    test.pass(60 * SECOND);
    for notice in notices(&test) {
        settle(&test, &notice, NoticeEnd::Sent(None), 60);
    }
    for alert in alerts {
        assert_eq!(shown(&test, alert), vec![(Channel::Email, NoticeStatus::Sent, None); 2]);
    }
    assert_eq!((notices(&test).len(), test.timers(TimerKind::Notice).len()), (0, 0));
}

#[test]
fn a_change_that_waits_with_later_ones_fails_at_its_own_time() {
    let test = TestStore::new();
    let first = open(&test, "first", &["ops@example.net"], None);
    for number in 0..30 {
        open(&test, &format!("r{number}"), &["ops@example.net"], None);
        for _ in 0..60 {
            test.pass(60 * SECOND);
            for notice in notices(&test) {
                if notice.1.due <= test.now() {
                    settle(&test, &notice, NoticeEnd::NotTaken { at: test.now() }, notice.1.content.items().len());
                }
            }
        }
    }
    assert_eq!(shown(&test, first), [(Channel::Email, NoticeStatus::Failed, None)]);
    assert_eq!(notices(&test).len(), 1);
}

#[test]
fn a_later_change_does_not_prolong_the_retries_of_an_earlier_one() {
    let test = TestStore::new();
    let refuse_for = |hours: u32| {
        for _ in 0..hours * 60 {
            test.pass(60 * SECOND);
            for notice in notices(&test).into_iter().filter(|notice| notice.1.due <= test.now()) {
                settle(&test, &notice, NoticeEnd::NotTaken { at: test.now() }, notice.1.content.items().len());
            }
        }
    };
    let status = |alert| shown(&test, alert)[0].1;
    let first = open(&test, "first", &["ops@example.net"], None);
    refuse_for(24);
    let later = open(&test, "later", &["ops@example.net"], None);
    refuse_for(1);
    assert_eq!((status(first), status(later), notices(&test).len()), (NoticeStatus::Pending, NoticeStatus::Pending, 1));
    refuse_for(2);
    assert_eq!((status(first), status(later)), (NoticeStatus::Failed, NoticeStatus::Pending));
    refuse_for(24);
    assert_eq!((status(later), notices(&test).len()), (NoticeStatus::Failed, 0));
}

#[test]
fn a_webhook_request_is_tried_seven_times() {
    let test = TestStore::new();
    let alert = open(&test, "a", &[], Some(b"{}"));
    let mut dues = Vec::new();
    while let Some(notice) = notices(&test).first().cloned() {
        dues.push(notice.1.due);
        test.set_now(notice.1.due);
        settle(&test, &notice, NoticeEnd::NotTaken { at: test.now() }, 1);
    }
    let waits: Vec<_> = dues.windows(2).map(|pair| pair[1].since(pair[0]).as_secs()).collect();
    assert_eq!(waits, [60, 300, 1800, 7200, 21_600, 86_400]);
    assert_eq!(shown(&test, alert), [(Channel::Webhook, NoticeStatus::Failed, None)]);
}
