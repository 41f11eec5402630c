//! Tests of opening: one process at a time, and refusal of later versions and wrong master keys.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use redb::Database;

use super::*;
use crate::base::secret::MasterKey;
use crate::store::changes::Changes;
use crate::store::limits::Limits;
use crate::store::schema::{Table, meta};
use crate::store::testing::TestStore;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn created_files_are_accessible_only_to_their_owner() {
    let mut test = TestStore::new();
    let inner = test.directory().join("made/deep");
    let store = Store::open_within(&inner, test.surroundings(), Duration::ZERO, StartOptions::default()).unwrap();
    store.close();
    assert_eq!(mode(&inner), 0o700);
    for file in [FILE, "master.key", "content/keys"] {
        assert_eq!(mode(&inner.join(file)), 0o600, "{file}");
    }
    assert_eq!(fs::read(inner.join("master.key")).unwrap().len(), MasterKey::LENGTH);
}

#[test]
fn an_open_directory_is_locked_and_stays_unchanged() {
    let mut test = TestStore::new();
    let surroundings = test.surroundings();
    let second = Store::open_within(test.directory(), surroundings, Duration::ZERO, StartOptions::default());
    assert!(matches!(second, Err(OpenError::Locked)));
    test.sender().accept("b@example.net");
    test.reopen();
    assert_eq!(test.count(Table::Messages, &[]), 1);
}

#[test]
fn waits_for_the_lock_of_an_ending_process() {
    let mut test = TestStore::new();
    let surroundings = test.surroundings();
    let directory = test.directory().to_owned();
    let waiting = thread::spawn(move || {
        Store::open_within(&directory, surroundings, LOCK_PATIENCE, StartOptions::default()).map(|_| ())
    });
    test.close();
    assert!(waiting.join().unwrap().is_ok());
}

#[test]
fn a_store_of_a_later_format_is_refused_and_unchanged() {
    let mut test = TestStore::new();
    test.close();
    let path = test.directory().join(FILE);
    let database = Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    let mut changes = Changes::default();
    changes.put(Table::Meta, meta::FORMAT.to_vec(), Some((FORMAT + 1).to_be_bytes().to_vec()));
    changes.write_to(&transaction).unwrap();
    transaction.commit().unwrap();
    drop(database);
    for _ in 0..2 {
        assert!(matches!(test.open(), Err(OpenError::Newer { found }) if found == FORMAT + 1));
    }
}

#[test]
fn a_wrong_master_key_is_refused_even_without_stored_bodies() {
    let mut test = TestStore::new();
    test.close();
    let path = test.directory().join("master.key");
    let own = fs::read(&path).unwrap();
    fs::write(&path, [9; MasterKey::LENGTH]).unwrap();
    assert!(matches!(test.open(), Err(OpenError::WrongMasterKey)));
    fs::write(&path, [9; 31]).unwrap();
    assert!(matches!(test.open(), Err(OpenError::Io { .. })));
    fs::write(&path, own).unwrap();
    assert!(test.open().is_ok());
}

#[test]
fn a_lost_master_key_is_not_replaced() {
    let mut test = TestStore::new();
    test.close();
    let path = test.directory().join("master.key");
    fs::remove_file(&path).unwrap();
    assert!(matches!(test.open(), Err(OpenError::Io { .. })));
    assert!(!path.exists());
}

#[test]
fn a_start_reports_progress_while_it_counts_rows() {
    let mut test = TestStore::new();
    test.sender().accept("a@example.net");
    for lacking in [&[][..], &[meta::TOTALS], &[meta::TOTALS, meta::WAITING]] {
        lacking.iter().for_each(|fact| test.put(Table::Meta, fact, None));
        test.close();
        let reports = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&reports);
        let progress = Rc::new(move |work| sink.borrow_mut().push(work));
        let options = StartOptions { progress, ..StartOptions::default() };
        let surroundings = test.surroundings();
        Store::open_within(test.directory(), surroundings, Duration::ZERO, options).unwrap().close();
        assert_eq!(*reports.borrow(), vec![StartWork::Counting(1); lacking.len()]);
        test.open().unwrap();
    }
}

#[test]
fn the_disk_reserve_is_released_before_the_database_is_opened() {
    let mut test = TestStore::new();
    test.close();
    let (directory, surroundings) = (test.directory().to_owned(), test.surroundings());
    let kept = || fs::metadata(directory.join(reserve::FILE)).unwrap().len();
    fs::write(directory.join(reserve::FILE), [0; 4096]).unwrap();
    // The damaged database ends this start.
    fs::write(directory.join(FILE), [1; 8192]).unwrap();
    let limits = Limits { reserve_short_bytes: u64::MAX, ..Limits::default() };
    let options = StartOptions { limits, ..StartOptions::default() };
    let opened = Store::open_within(&directory, surroundings, Duration::ZERO, options);
    assert!(matches!(opened, Err(OpenError::Damaged { .. })));
    assert_eq!(kept(), 0);
}
