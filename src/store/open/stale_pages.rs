//! A page of the database that the disk replaced by its own older copy is damage, and hides no row.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::verifying::verify;
use super::{FILE, OpenError, StartOptions, Store};
use crate::store::disk::FileSystem;
use crate::store::read::{Order, Read as _, after_prefix};
use crate::store::schema::Table;
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

/// Replaces each changed page by that of `old`, and returns in how many cases the verification reports damage. Where it
/// reports none, the store has every row.
fn reported_pages(test: &mut TestStore, directory: &Path, old: &[u8]) -> usize {
    let new = fs::read(directory.join(FILE)).unwrap();
    let pages = 1..new.len().min(old.len()) / PAGE;
    let mut reported = 0;
    for page in pages.map(|page| page * PAGE..(page + 1) * PAGE) {
        if new[page.clone()] == old[page.clone()] {
            continue;
        }
        let tried = tempfile::tempdir().unwrap();
        copy(directory, tried.path());
        let mut mixed = new.clone();
        mixed[page.clone()].copy_from_slice(&old[page.clone()]);
        fs::write(tried.path().join(FILE), mixed).unwrap();
        match verify(&FileSystem, tried.path(), u64::MAX, &|_| {}) {
            Ok(()) => {
                let options = StartOptions::default();
                let store = Store::open_within(tried.path(), test.surroundings(), Duration::ZERO, options).unwrap();
                let (rows, all) = (store.snapshot().unwrap(), after_prefix(&[]));
                let count = |table| rows.keys(table, &[], &all, Order::Ascending, usize::MAX).unwrap().len();
                assert_eq!(count(Table::Messages), 2 * MESSAGES, "page {page:?} hides rows");
                assert_eq!(count(Table::EventLog), 2 * MESSAGES, "page {page:?} hides rows");
                drop(rows);
                store.close();
            }
            Err(OpenError::Damaged { .. }) => reported += 1,
            Err(error) => panic!("{error}"),
        }
    }
    reported
}

#[test]
fn an_older_copy_of_any_page_is_reported_or_hides_nothing() {
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
    test.open().unwrap();
    let killed = tempfile::tempdir().unwrap();
    copy(test.directory(), killed.path());
    test.close();
    for directory in [closed.path(), killed.path()] {
        verify(&FileSystem, directory, u64::MAX, &|_| {}).unwrap();
        assert!(reported_pages(&mut test, directory, &old) > 5);
    }
}
