//! Tests of starts with a missing or foreign file of the store: the store never continues as if it had been empty.

use std::fs;

use crate::store::check::{KeyPlace, Rule, check};
use crate::store::inspect::InspectError;
use crate::store::journal::tests::killed;
use crate::store::journal::{self, Damage};
use crate::store::open::{FILE, OnJournalDamage, OpenError};
use crate::store::read::{Order, Read};
use crate::store::schema::Table;
use crate::store::testing::{Sender, TestStore};

#[test]
fn a_missing_journal_of_an_opened_store_is_damage() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept("a@example.net");
    let left = killed(&test);
    fs::remove_file(left.path().join(journal::FILE)).unwrap();
    let report = check(left.path(), test.now(), KeyPlace::WithStore, &mut |_| {}).unwrap();
    assert!(report.failed > 0);
    let (left, error) = TestStore::refused_in_directory(left, OnJournalDamage::Refuse);
    assert!(matches!(error, OpenError::JournalDamaged(Damage::Missing)), "{error}");
    assert!(!left.path().join(journal::FILE).exists(), "the refused start changed nothing");
    let accepted = TestStore::try_in_directory(left, OnJournalDamage::Accept).ok().unwrap();
    assert!(accepted.store().restore_hold().unwrap().is_some(), "queued mail is on hold");
}

#[test]
fn a_missing_or_empty_database_beside_a_journal_is_damage_and_nothing_is_written() {
    let test = TestStore::new();
    let sender = test.sender();
    sender.accept("a@example.net");
    for is_empty in [true, false] {
        let left = killed(&test);
        let journal = fs::read(left.path().join(journal::FILE)).unwrap();
        let database = left.path().join(FILE);
        if is_empty { fs::write(&database, b"") } else { fs::remove_file(&database) }.unwrap();
        let checked = check(left.path(), test.now(), KeyPlace::WithStore, &mut |_| {});
        assert!(matches!(checked, Err(InspectError::Lost(_))));
        let (left, error) = TestStore::refused_in_directory(left, OnJournalDamage::Refuse);
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        assert_eq!(fs::read(left.path().join(journal::FILE)).unwrap(), journal);
    }
}

fn journal_of(test: &TestStore) -> Vec<u8> {
    fs::read(test.directory().join(journal::FILE)).unwrap()
}

/// Returns the number of messages in a store.
fn sent(test: &TestStore) -> usize {
    test.snapshot().keys(Table::Messages, &[], &[u8::MAX; 64], Order::Ascending, usize::MAX).unwrap().len()
}

#[test]
fn an_emptied_overwritten_or_replaced_journal_prevents_a_start_and_changes_nothing() {
    let mut test = TestStore::new();
    let Sender { account, domain, .. } = test.sender();
    let idle = journal_of(&test);
    Sender::of(&test, account, domain).accept("earlier@example.net");
    let earlier = journal_of(&test);
    test.reopen();
    for is_idle in [true, false] {
        if !is_idle {
            Sender::of(&test, account, domain).accept("newest@example.net");
        }
        let length = journal_of(&test).len();
        for bytes in [&[], vec![0; length].as_slice(), vec![b'x'; length].as_slice(), &idle, &earlier] {
            let left = killed(&test);
            fs::write(left.path().join(journal::FILE), bytes).unwrap();
            let report = check(left.path(), test.now(), KeyPlace::WithStore, &mut |_| {}).unwrap();
            assert!(report.failures.iter().any(|failure| failure.rule == Rule::Journal), "{:?}", report.failures);
            let (left, error) = TestStore::refused_in_directory(left, OnJournalDamage::Refuse);
            assert!(matches!(error, OpenError::JournalDamaged(Damage::Foreign)), "{error}");
            assert_eq!(fs::read(left.path().join(journal::FILE)).unwrap(), bytes);
            let after = TestStore::try_in_directory(left, OnJournalDamage::Accept).unwrap();
            assert_eq!(sent(&after), 1, "the database rows are there");
            assert!(after.store().restore_hold().unwrap().is_some(), "queued mail is on hold");
        }
    }
}
