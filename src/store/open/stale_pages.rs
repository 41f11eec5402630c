//! A page of the database that the disk replaced by its own older copy is damage, and hides no row.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{FILE, OpenError, StartOptions, Store};
use crate::store::error::StoreError;
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

/// Opens `directory` with each changed page replaced by that of `old`. Returns in how many cases the start or a read
/// reported damage.
fn reported_pages(test: &mut TestStore, directory: &Path, old: &[u8]) -> usize {
    let new = fs::read(directory.join(FILE)).unwrap();
    let pages = 1..new.len().min(old.len()) / PAGE;
    let mut refused = 0;
    for page in pages.map(|page| page * PAGE..(page + 1) * PAGE) {
        if new[page.clone()] == old[page.clone()] {
            continue;
        }
        let tried = tempfile::tempdir().unwrap();
        copy(directory, tried.path());
        let mut mixed = new.clone();
        mixed[page.clone()].copy_from_slice(&old[page.clone()]);
        fs::write(tried.path().join(FILE), mixed).unwrap();
        let options = StartOptions { verified_bytes_max: u64::MAX, ..StartOptions::default() };
        match Store::open_within(tried.path(), test.surroundings(), Duration::ZERO, options) {
            Ok(store) => {
                let all = after_prefix(&[]);
                let rows = store.snapshot().unwrap().keys(Table::Messages, &[], &all, Order::Ascending, usize::MAX);
                match rows {
                    Ok(rows) => assert_eq!(rows.len(), 2 * MESSAGES, "page {page:?} hides rows"),
                    Err(StoreError::Damaged { .. }) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
                store.close();
            }
            Err(OpenError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    refused
}

#[test]
fn an_older_copy_of_any_page_prevents_a_start_or_hides_nothing() {
    let mut test = TestStore::new();
    let sender = test.sender();
    let (account, domain) = (sender.account, sender.domain);
    accept(&test, sender);
    test.close();
    let old = fs::read(test.directory().join(FILE)).unwrap();
    test.open().unwrap();
    accept(&test, Sender::of(&test, account, domain));
    let killed = tempfile::tempdir().unwrap();
    copy(test.directory(), killed.path());
    test.close();
    let closed = tempfile::tempdir().unwrap();
    copy(test.directory(), closed.path());
    assert!(reported_pages(&mut test, closed.path(), &old) > 5);
    reported_pages(&mut test, killed.path(), &old);
}
