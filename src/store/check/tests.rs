//! Tests of the check: it reports nothing for an intact store, and finds every planted fault.

use std::time::Duration;

use super::*;
use crate::base::id::MessageId;
use crate::store::backup::Extent;
use crate::store::op::settle_transfer::TransferEnd;
use crate::store::restore;
use crate::store::testing::{START, Sender, TestStore};
use crate::store::timer::{Timer, TimerKind};

/// Creates a closed store with a bit of everything.
fn store() -> (TestStore, Vec<MessageId>) {
    let mut test = TestStore::new();
    let sender = test.sender();
    test.endpoint(sender.account, None);
    let ids: Vec<_> = ["a@example.net", "b@example.net", "c@example.net"].map(|to| accept(&sender, to)).into();
    sender.settle(ids[0], TransferEnd::Delivered);
    drop(sender.accept_once("d@example.net", 1, 1));
    test.close();
    (test, ids)
}

fn accept(sender: &Sender<'_>, to: &str) -> MessageId {
    sender.accept_with_body(to, 2, b"a body of some length")
}

fn checked(test: &TestStore) -> Report {
    check(test.directory(), START, KeyPlace::WithStore, &mut |_| {}).unwrap()
}

/// Returns the failures that a check finds after `change`.
fn after(change: impl FnOnce(&TestStore, &[MessageId])) -> Vec<(Rule, String)> {
    let (mut test, ids) = store();
    test.open().unwrap();
    change(&test, &ids);
    test.close();
    checked(&test).failures.into_iter().map(|failure| (failure.rule, failure.what)).collect()
}

fn rules(found: &[(Rule, String)]) -> Vec<Rule> {
    found.iter().map(|(rule, _)| *rule).collect()
}

/// Removes the finding about the one message that has no body in these tests.
fn without_bodiless(found: Vec<(Rule, String)>) -> Vec<(Rule, String)> {
    found.into_iter().filter(|(_, what)| !what.contains("is missing before its deadline")).collect()
}

#[test]
fn an_intact_store_has_no_failures_and_stays_unchanged() {
    let (test, _) = store();
    let files = || {
        let mut found = Vec::new();
        let mut waiting = vec![test.directory().to_owned()];
        while let Some(path) = waiting.pop() {
            for entry in std::fs::read_dir(path).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    waiting.push(path);
                } else {
                    found.push((path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        found.sort();
        found
    };
    let before = files();
    let report = checked(&test);
    let found = report.failures.into_iter().map(|failure| (failure.rule, failure.what)).collect();
    assert_eq!(without_bodiless(found), []);
    assert_eq!((report.bodies, report.segments, report.rows["messages"]), (3, 1, 4));
    assert!(before == files(), "the check writes nothing");
}

#[test]
fn refuses_an_open_store_and_a_missing_one() {
    let mut test = TestStore::new();
    let now = START;
    let check = |directory: &Path| check(directory, now, KeyPlace::WithStore, &mut |_| {});
    assert!(matches!(check(test.directory()), Err(InspectError::Locked)));
    test.close();
    assert!(check(test.directory()).is_ok());
    let none = tempfile::tempdir().unwrap();
    assert!(matches!(check(none.path()), Err(InspectError::NoStore)));
}

#[test]
fn finds_a_damaged_name_in_the_log_of_the_replica() {
    let damaged = |name: &str| {
        after(|test, _| {
            let directory = test.directory().join("replica");
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("holder"), name).unwrap();
        })
    };
    assert_eq!(rules(&without_bodiless(damaged("mail-00ff\n"))), []);
    assert_eq!(rules(&without_bodiless(damaged("ma\0il"))), [Rule::Replica]);
}

#[test]
fn refuses_a_directory_whose_restore_was_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("restoring")).unwrap();
    let checked = check(directory.path(), START, KeyPlace::WithStore, &mut |_| {});
    assert!(matches!(checked, Err(InspectError::HalfRestored)));
}

#[test]
fn finds_a_missing_row_through_each_row_that_refers_to_it() {
    for (table, expected) in [
        (Table::Transfers, Rule::Partner),
        (Table::Timeline, Rule::Partner),
        (Table::EventLog, Rule::Partner),
        (Table::EventLogByType, Rule::Partner),
        (Table::KeysByHash, Rule::Partner),
        (Table::DomainsByName, Rule::Partner),
        (Table::AccountsByHint, Rule::Partner),
        (Table::Accounts, Rule::Partner),
        (Table::DeliveriesByEndpoint, Rule::Partner),
        (Table::Deliveries, Rule::Partner),
        (Table::IdempotencyByExpiry, Rule::Partner),
        (Table::Waiting, Rule::Queue),
    ] {
        let found = after(|test, _| match test.keys(table, &[]).first() {
            Some(key) => test.put(table, key, None),
            // The stores of these tests have no API key; a key without a hash serves as well.
            None => assert_eq!(table, Table::KeysByHash),
        });
        let found = without_bodiless(found);
        assert!(table == Table::KeysByHash || rules(&found).contains(&expected), "{table:?}: {found:?}");
    }
}

#[test]
fn finds_a_message_without_a_timer_and_a_timer_without_a_message() {
    for kind in [TimerKind::Transfer, TimerKind::Delivery] {
        let found = after(|test, _| {
            let timer = test.timers(kind)[0];
            test.put(Table::Timers, &timer.encode(), None);
        });
        assert_eq!(rules(&without_bodiless(found)), [Rule::Queue], "{kind:?}");
        let found = after(|test, _| {
            let timer = Timer { due: START + Duration::from_secs(9), ..test.timers(kind)[0] };
            test.put(Table::Timers, &timer.encode(), Some(&[]));
        });
        assert_eq!(rules(&without_bodiless(found)), [Rule::Queue], "{kind:?}");
    }
    let found = after(|test, _| {
        let content = test.timers(TimerKind::Content)[0];
        test.put(Table::Timers, &content.encode(), None);
    });
    assert!(found.iter().any(|(rule, what)| *rule == Rule::Content && what.contains("no timer")), "{found:?}");
}

#[test]
fn reports_an_undecodable_row_with_its_table() {
    for table in [Table::Messages, Table::Transfers, Table::Deliveries, Table::Timeline, Table::Domains] {
        let found = after(|test, _| {
            let key = test.keys(table, &[]).remove(0);
            test.put(table, &key, Some(b"\x07nonsense"));
        });
        let named = found.iter().any(|(rule, what)| *rule == Rule::Row && what.contains(table.name()));
        assert!(named, "{table:?}: {found:?}");
    }
    let found = after(|test, _| test.put(Table::Timers, b"odd", Some(&[])));
    assert!(rules(&found).contains(&Rule::Row), "{found:?}");
}

#[test]
fn finds_a_flipped_bit_in_a_segment_and_a_lost_segment() {
    let (test, ids) = store();
    let bucket = std::fs::read_dir(test.directory().join("content")).unwrap();
    let bucket = bucket.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
    let segment = bucket.join("000000.segment");
    let whole = std::fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    damaged[3] ^= 1;
    std::fs::write(&segment, &damaged).unwrap();
    let found = checked(&test).failures;
    let hit = found.iter().filter(|failure| failure.what.contains("does not open")).collect::<Vec<_>>();
    assert_eq!((hit.len(), hit[0].rule), (1, Rule::Content), "{found:?}");
    assert!(hit[0].what.contains(&ids[0].to_string()), "{hit:?}");
    std::fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
    assert!(checked(&test).failures.iter().any(|failure| failure.what.contains("could not read")));
    std::fs::remove_file(&segment).unwrap();
    assert_eq!(checked(&test).bodies, 0);
}

#[test]
fn finds_a_wrong_and_a_missing_master_key() {
    let (test, _) = store();
    let path = test.directory().join("master.key");
    std::fs::write(&path, [1; 32]).unwrap();
    assert_eq!(checked(&test).failures[0].rule, Rule::MasterKey);
    std::fs::remove_file(&path).unwrap();
    let report = checked(&test);
    assert_eq!((report.failures[0].rule, report.bodies_unread), (Rule::MasterKey, 4));
}

#[test]
fn finds_database_damage_without_aborting_the_check() {
    let (test, _) = store();
    let path = test.directory().join("postrider.redb");
    let whole = std::fs::read(&path).unwrap();
    let mut found = 0;
    for place in (4096..whole.len()).step_by(whole.len() / 40) {
        let mut damaged = whole.clone();
        let end = (place + 4096).min(damaged.len());
        damaged[place..end].fill(0xa5);
        std::fs::write(&path, &damaged).unwrap();
        found += usize::from(checked(&test).failures.iter().any(|failure| failure.rule == Rule::Database));
        assert!(std::fs::read(&path).unwrap() == damaged);
    }
    assert!(found > 0, "some used pages were damaged");
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(checked(&test).failed > 0);
    std::fs::write(&path, b"not a database at all").unwrap();
    assert_eq!(checked(&test).failures[0].rule, Rule::Database);
}

#[test]
fn expired_or_excluded_content_is_not_a_failure() {
    let (mut test, _) = store();
    let after_the_end = START + Duration::from_secs(40 * 24 * 3600);
    std::fs::remove_dir_all(test.directory().join("content")).unwrap();
    let report = check(test.directory(), after_the_end, KeyPlace::WithStore, &mut |_| {}).unwrap();
    assert_eq!((report.failed, report.bodies), (0, 0), "{:?}", report.failures);
    assert_eq!(checked(&test).failed, 4);

    test.open().unwrap();
    let mut bytes = Vec::new();
    test.store().back_up(START, Extent { content: false, master_key: true }, &[], &mut bytes).unwrap();
    let directory = tempfile::tempdir().unwrap();
    restore::restore(&bytes[..], directory.path(), None, &[], &mut |_, _| {}).unwrap();
    let report = check(directory.path(), START, KeyPlace::WithStore, &mut |_| {}).unwrap();
    assert_eq!((report.failed, report.bodies_left_out), (0, 4), "{:?}", report.failures);
}

#[test]
fn checks_a_store_after_a_crash_without_recovering_it() {
    let test = TestStore::new();
    let sender = test.sender();
    accept(&sender, "a@example.net");
    // Files of a store that was not closed, as after a crash.
    let copy = tempfile::tempdir().unwrap();
    for file in ["postrider.redb", "journal", "master.key"] {
        std::fs::copy(test.directory().join(file), copy.path().join(file)).unwrap();
    }
    let report = check(copy.path(), START + Duration::from_secs(7200), KeyPlace::WithStore, &mut |_| {}).unwrap();
    assert_eq!(report.failed, 0, "{:?}", report.failures);
    assert_eq!(report.rows["messages"], 1);
}
