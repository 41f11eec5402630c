//! A page of the database that the disk replaced by its own older copy is damage, and hides no row.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::verifying::{is_requested, request, verify};
use super::{FILE, OpenError, StartOptions, Store, Workers};
use crate::base::id::AccountId;
use crate::domain::account::QuotaLimits;
use crate::store::disk::FileSystem;
use crate::store::error::StoreError;
use crate::store::op::suppression::{ImportSuppressions, Suppression};
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::row::suppression::SuppressionReason;
use crate::store::schema::Table;
use crate::store::single_threaded::Turns;
use crate::store::testing::{Sender, TestStore};

const PAGE: usize = 4096;
const MESSAGES: usize = 60;

/// Copies the files of `from` into `to`.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// Accepts messages.
fn accept(test: &TestStore, sender: Sender<'_>) {
    for _ in 0..MESSAGES {
        sender.accept("b@example.net");
    }
    drop(test.snapshot());
}

/// Calls `each` with copies of `directory`, in each of which one changed page of the database is that of `old`.
fn with_each_stale_page(directory: &Path, old: &[u8], mut each: impl FnMut(usize, &Path)) {
    let new = fs::read(directory.join(FILE)).unwrap();
    for page in 1..new.len().min(old.len()) / PAGE {
        let range = page * PAGE..(page + 1) * PAGE;
        if new[range.clone()] == old[range.clone()] {
            continue;
        }
        let tried = tempfile::tempdir().unwrap();
        copy(directory, tried.path());
        let mut mixed = new.clone();
        mixed[range.clone()].copy_from_slice(&old[range]);
        fs::write(tried.path().join(FILE), mixed).unwrap();
        each(page, tried.path());
    }
}

/// Replaces each changed page by that of `old`, and returns in how many cases the verification reports damage. If it
/// reports none, the store has every row.
fn reported_pages(test: &mut TestStore, directory: &Path, old: &[u8]) -> usize {
    let mut reported = 0;
    with_each_stale_page(directory, old, |page, tried| match verify(&FileSystem, tried, u64::MAX, &|_| {}) {
        Ok(()) => {
            let options = StartOptions::default();
            let store = Store::open_within(tried, test.surroundings(), Duration::ZERO, options).unwrap();
            let (rows, all) = (store.snapshot().unwrap(), after_prefix(&[]));
            let count = |table| rows.keys(table, &[], &all, Order::Ascending, usize::MAX).unwrap().len();
            assert_eq!(count(Table::Messages), 2 * MESSAGES, "page {page:?} hides rows");
            assert_eq!(count(Table::EventLog), 2 * MESSAGES, "page {page:?} hides rows");
            drop(rows);
            store.close();
        }
        Err(OpenError::Damaged { .. }) => reported += 1,
        Err(error) => panic!("{error}"),
    });
    reported
}

/// Returns a store with messages that was closed, the database file before the later half of them, and that half's
/// directory.
fn closed_store() -> (TestStore, Vec<u8>, tempfile::TempDir) {
    let mut test = TestStore::new();
    let sender = test.sender();
    let (account, domain) = (sender.account, sender.domain);
    accept(&test, sender);
    test.close();
    let old = fs::read(test.directory().join(FILE)).unwrap();
    test.open().unwrap();
    accept(&test, Sender::of(&test, account, domain));
    test.close();
    let closed = tempfile::tempdir().unwrap();
    copy(test.directory(), closed.path());
    (test, old, closed)
}

/// Returns the import of 50 suppressions, different ones for each `number`.
fn suppressions(account: AccountId, number: u32) -> ImportSuppressions {
    let address = |index| format!("a{}@{number}.example", index * 7919 % 50).parse().unwrap();
    let suppressions = (0..50).map(|index| Suppression::of(address(index), SuppressionReason::Manual)).collect();
    ImportSuppressions { account, suppressions, waiting: Vec::new() }
}

/// Opens the store in `directory` as one that is too large to verify before the start, without its threads.
fn open_as_large(test: &mut TestStore, directory: &Path) -> Result<(Store, Workers), OpenError> {
    let options = StartOptions { verified_bytes_max: 1, ..StartOptions::default() };
    Store::open_on(Arc::new(FileSystem), directory, test.surroundings(), Duration::ZERO, options)
}

#[test]
fn an_older_copy_of_any_page_is_reported_or_hides_nothing() {
    let (mut test, old, closed) = closed_store();
    test.open().unwrap();
    let killed = tempfile::tempdir().unwrap();
    copy(test.directory(), killed.path());
    test.close();
    for directory in [closed.path(), killed.path()] {
        verify(&FileSystem, directory, u64::MAX, &|_| {}).unwrap();
        assert!(reported_pages(&mut test, directory, &old) > 5);
    }
}

#[test]
fn a_stale_page_of_a_large_database_fails_the_service_and_then_prevents_its_start() {
    let (mut test, old, closed) = closed_store();
    let mut failed = 0;
    with_each_stale_page(closed.path(), &old, |_, tried| {
        let Ok((store, workers)) = open_as_large(&mut test, tried) else { return };
        store.start(workers, || {}).unwrap();
        let threads = std::mem::take(&mut *store.threads.lock().unwrap());
        let [appender, writer, verifier] = threads.try_into().unwrap();
        verifier.join().unwrap();
        let failure = store.health().failure().cloned();
        *store.threads.lock().unwrap() = vec![appender, writer];
        store.close();
        drop(store);
        let Some(failure) = failure else { return };
        assert!(matches!(failure, StoreError::Corrupted(_)), "{failure}");
        let again = open_as_large(&mut test, tried);
        assert!(matches!(again.err(), Some(OpenError::Damaged { .. })));
        failed += 1;
    });
    assert!(failed > 3, "{failed}");
}

#[test]
fn pages_are_verified_beside_a_service_that_changes_them() {
    let mut test = TestStore::new();
    let account = test.account(QuotaLimits::default());
    test.close();
    let closed = tempfile::tempdir().unwrap();
    copy(test.directory(), closed.path());
    for round in 0..20 {
        let (store, mut workers) = open_as_large(&mut test, closed.path()).unwrap();
        let pages = workers.pinned_pages.take().unwrap();
        let mut turns = Turns::new(workers);
        for number in 0..10 {
            store.post(suppressions(account, round * 10 + number), |done| assert_eq!(done.unwrap(), 50));
            turns.settle();
            turns.checkpoint_now();
        }
        pages.verify().unwrap();
        assert!(!is_requested(&FileSystem, closed.path()));
        drop((store, turns));
    }
}

#[test]
fn a_verified_database_is_not_verified_again_before_the_next_start() {
    let (_, _, closed) = closed_store();
    request(&FileSystem, closed.path()).unwrap();
    assert!(is_requested(&FileSystem, closed.path()));
    verify(&FileSystem, closed.path(), 1, &|_| {}).unwrap();
    assert!(!is_requested(&FileSystem, closed.path()));
}

#[test]
fn closing_the_store_ends_the_verification() {
    let (mut test, _, closed) = closed_store();
    let (store, mut workers) = open_as_large(&mut test, closed.path()).unwrap();
    let pages = workers.pinned_pages.take().unwrap();
    store.close();
    pages.verify().unwrap();
    assert!(!is_requested(&FileSystem, closed.path()));
}
