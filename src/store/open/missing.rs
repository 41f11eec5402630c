//! Tests of starts where a file of the store is missing: none goes on as if nothing had been in it.

use std::fs;

use crate::store::check::{KeyPlace, check};
use crate::store::inspect::InspectError;
use crate::store::journal::tests::killed;
use crate::store::journal::{self, Damage};
use crate::store::open::{FILE, OnJournalDamage, OpenError};
use crate::store::testing::TestStore;

#[test]
fn a_missing_journal_is_damage_and_a_store_without_one_was_never_opened() {
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
    assert!(accepted.store().standstill().unwrap().is_some(), "queued mail is on hold");
}

#[test]
fn a_database_that_is_missing_or_empty_beside_a_journal_is_damage_and_nothing_is_written() {
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
