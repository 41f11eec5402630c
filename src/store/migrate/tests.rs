//! Tests of migrations, over made-up formats and over a store of format 1 made from one of the current format.

use std::cell::{Cell, RefCell};
use std::{fs, io};

use redb::{Builder, DatabaseError, ReadableTable, TableDefinition, TableHandle};

use super::*;
use crate::store::disk::{Entry, FileSystem};
use crate::store::read::Read;
use crate::store::replica::{Follower, Position, ReplicaDisk};
use crate::store::restore;
use crate::store::testing::{START, TestStore};

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

/// Two made-up formats: account names in upper case, then no hints.
const MADE_UP: &[Step] = &[
    Step {
        from: FORMAT,
        what: "shout",
        value: |table, _, value| Some(if table == "accounts" { loud(&value) } else { value }),
    },
    Step { from: FORMAT + 1, what: "forget", value: |table, _, value| (table != "accounts_by_hint").then_some(value) },
];

fn loud(value: &[u8]) -> Vec<u8> {
    value.to_ascii_uppercase()
}

fn store() -> TestStore {
    let mut test = TestStore::new();
    test.account(crate::domain::account::QuotaLimits::default());
    test.close();
    test
}

fn database(test: &TestStore) -> Database {
    Database::open(test.directory().join(FILE)).unwrap()
}

/// Returns every row of every table as stored.
fn everything(database: &Database) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let transaction = database.begin_read().unwrap();
    let names: Vec<_> = transaction.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
    let mut rows = Vec::new();
    for name in names {
        let table = transaction.open_table(Definition::new(&name)).unwrap();
        for row in table.iter().unwrap() {
            let (key, value) = row.unwrap();
            rows.push((name.clone(), key.value().to_vec(), value.value().to_vec()));
        }
    }
    rows.sort();
    rows
}

fn rows(database: &Database, table: &str) -> Vec<Vec<u8>> {
    everything(database).into_iter().filter(|(name, ..)| name == table).map(|(_, _, value)| value).collect()
}

fn forward_reporting(
    test: &TestStore,
    current: u32,
    steps: &[Step],
    progress: &dyn Fn(Migration),
) -> Result<bool, OpenError> {
    let environment = Environment { disk: &FileSystem, directory: test.directory(), now: START, progress };
    migrate(&database(test), &environment, current, steps)
}

fn forward_store(test: &TestStore, current: u32, steps: &[Step]) -> Result<bool, OpenError> {
    forward_reporting(test, current, steps, &|_| {})
}

/// Removes the checksums from a store: format 1 had none.
fn make_format_1(test: &TestStore) {
    let opened = database(test);
    let rows = everything(&opened);
    let transaction = opened.begin_write().unwrap();
    for (name, key, stored) in rows {
        let mut table = transaction.open_table(Definition::new(&name)).unwrap();
        let value = checksum::open(&name, &key, &stored).unwrap();
        table.insert(key.as_slice(), value).unwrap();
    }
    let mut facts = transaction.open_table(Table::Meta.definition()).unwrap();
    facts.insert(meta::FORMAT, 1_u32.to_be_bytes().as_slice()).unwrap();
    drop(facts);
    transaction.commit().unwrap();
}

/// A disk with 1 KiB left.
struct Short(FileSystem);

impl Disk for Short {
    fn free_bytes(&self, _directory: &Path) -> io::Result<u64> {
        Ok(1 << 10)
    }

    fn open(&self, path: &Path, opening: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.0.open(path, opening)
    }

    fn open_database(&self, path: &Path, builder: &Builder) -> Result<Database, DatabaseError> {
        self.0.open_database(path, builder)
    }

    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        self.0.list(directory)
    }

    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.create_directory(directory)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.remove_directory(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.sync_directory(directory)
    }

    fn flush_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.flush_directory(directory)
    }
}

/// Creates a store of format 1 with more rows than one transaction copies.
fn large_store() -> TestStore {
    let test = store();
    make_format_1(&test);
    let opened = database(&test);
    let transaction = opened.begin_write().unwrap();
    {
        let mut table = transaction.open_table(Definition::new("waiting")).unwrap();
        for number in 0..12_000_u32 {
            table.insert(number.to_be_bytes().as_slice(), &[][..]).unwrap();
        }
    }
    transaction.commit().unwrap();
    test
}

#[test]
fn every_format_has_a_step() {
    let from: Vec<_> = STEPS.iter().map(|step| step.from).collect();
    assert_eq!(from, (1..FORMAT).collect::<Vec<_>>());
}

#[test]
fn an_older_store_is_migrated_step_by_step_after_a_backup() {
    let test = store();
    let before = rows(&database(&test), "accounts");
    assert!(forward_store(&test, FORMAT + 2, MADE_UP).unwrap());
    let after = database(&test);
    assert_eq!(rows(&after, "accounts"), before.iter().map(|row| loud(row)).collect::<Vec<_>>());
    assert_eq!(rows(&after, "accounts_by_hint"), Vec::<Vec<u8>>::new());
    assert_eq!(format_of(&after).unwrap(), Some(FORMAT + 2));
    drop(after);
    assert!(!forward_store(&test, FORMAT + 2, MADE_UP).unwrap());
    assert!(!copy::path(test.directory()).exists());

    let file = fs::File::open(test.directory().join(format!("format-{FORMAT}.backup"))).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let key = crate::store::master_key::read_raw(&test.directory().join("master.key")).unwrap();
    restore::restore(file, directory.path(), Some(key), &[], &mut |_, _| {}).unwrap();
    let old = TestStore::in_directory(directory);
    let keys = old.keys(Table::Accounts, &[]);
    assert_eq!(keys.len(), 1);
    let account = old.snapshot().get(Table::Accounts, &keys[0]).unwrap().unwrap();
    assert_eq!(checksum::stored("accounts", &keys[0], &account), before[0]);
}

#[test]
fn format_1_gets_checksums() {
    let mut test = store();
    let present = everything(&database(&test));
    make_format_1(&test);
    assert!(forward_store(&test, FORMAT, STEPS).unwrap());
    assert!(everything(&database(&test)) == present);
    test.open().unwrap();
    assert_eq!(test.keys(Table::Accounts, &[]).len(), 1);
}

#[test]
fn a_wrong_master_key_is_refused_before_the_migration() {
    let mut test = store();
    make_format_1(&test);
    let old = everything(&database(&test));
    let path = test.directory().join("master.key");
    let own = fs::read(&path).unwrap();
    fs::write(&path, [9; 32]).unwrap();
    assert!(matches!(test.open(), Err(OpenError::WrongMasterKey)));
    assert!(everything(&database(&test)) == old);
    assert!(!test.directory().join("format-1.backup").exists());
    fs::write(&path, own).unwrap();
    test.open().unwrap();
    test.close();
    assert_eq!(format_of(&database(&test)).unwrap(), Some(FORMAT));
}

#[test]
fn a_migration_uses_many_transactions_and_continues_after_a_kill() {
    // Stop after so many reports, like a kill: committed work stays, and nothing is cleaned up.
    for ended_after in [1, 2, 3, 5, 8] {
        let test = large_store();
        let (reports, at_kill) = (Cell::new(0), RefCell::new(None));
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            forward_reporting(&test, FORMAT, STEPS, &|migration| {
                reports.set(reports.get() + 1);
                if reports.get() == ended_after {
                    at_kill.replace(Some(migration));
                    panic!("killed");
                }
            })
        }));
        assert!(killed.is_err(), "there are at least {ended_after} reports");
        assert_eq!(format_of(&database(&test)).unwrap(), Some(1), "the store is unchanged");
        let first = RefCell::new(None);
        assert!(
            forward_reporting(&test, FORMAT, STEPS, &|migration| {
                first.borrow_mut().get_or_insert(migration);
            })
            .unwrap()
        );
        let (first, at_kill) = (first.take(), at_kill.take().unwrap());
        if at_kill.rows > at_kill.of / 2 {
            let goes_on = first.is_none_or(|first| first.rows > at_kill.rows);
            assert!(goes_on, "it continues after {at_kill:?}: {first:?}");
        }
        assert_eq!(rows(&database(&test), "waiting").len(), 12_000);
        assert!(
            everything(&database(&test)).iter().all(|(name, key, stored)| checksum::open(name, key, stored).is_some())
        );
    }
}

#[test]
fn a_copy_of_an_earlier_state_is_discarded() {
    let test = large_store();
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        forward_reporting(&test, FORMAT, STEPS, &|migration| assert!(migration.rows < migration.of * 3 / 4, "killed"))
    }));
    assert!(killed.is_err() && copy::path(test.directory()).exists());
    // The earlier version has used the store since.
    let opened = database(&test);
    let transaction = opened.begin_write().unwrap();
    {
        let mut facts = transaction.open_table(Table::Meta.definition()).unwrap();
        facts.insert(meta::JOURNAL, [9_u8; 16].as_slice()).unwrap();
        let mut accounts = transaction.open_table(Definition::new("accounts")).unwrap();
        accounts.insert([1_u8].as_slice(), [2_u8].as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(opened);
    assert!(forward_store(&test, FORMAT, STEPS).unwrap());
    assert_eq!(rows(&database(&test), "accounts").len(), 2);
}

#[test]
fn a_migration_without_space_changes_nothing() {
    let test = large_store();
    let before = everything(&database(&test));
    let short = Short(FileSystem);
    let environment = Environment { disk: &short, directory: test.directory(), now: START, progress: &|_| {} };
    let refused = migrate(&database(&test), &environment, FORMAT, STEPS).unwrap_err();
    assert!(refused.to_string().contains("MiB must be free"), "{refused}");
    assert!(everything(&database(&test)) == before);
    let names: Vec<_> = fs::read_dir(test.directory()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("migrating")), "{names:?}");
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("backup")), "{names:?}");
}

#[test]
fn a_store_of_format_1_follows_a_log_before_its_migration() {
    let mut test = store();
    make_format_1(&test);
    let entropy = || Arc::new(crate::base::entropy::SeededEntropy::new(1));
    let position = Position { slot: 3, ..Position::default() };
    let mut follower = Follower::open(&ReplicaDisk::default(), test.directory(), START, entropy()).unwrap();
    assert_eq!((follower.format().unwrap(), follower.position()), (1, None));
    follower.end_slot(position).unwrap();
    follower.checkpoint().unwrap();
    drop(follower);
    let follower = Follower::open(&ReplicaDisk::default(), test.directory(), START, entropy()).unwrap();
    assert_eq!(follower.position(), Some(position));
    drop(follower);
    test.open().unwrap();
    assert_eq!(test.count(Table::AccountsByHint, &[]), 1);
}

#[test]
fn a_missing_step_fails_the_migration() {
    let mut test = store();
    let failed = forward_store(&test, FORMAT + 2, &MADE_UP[..1]);
    assert!(matches!(failed, Err(OpenError::NotMigrated { found: FORMAT, .. })));
    test.open().unwrap();
    assert_eq!(test.count(Table::AccountsByHint, &[]), 1);
}

#[test]
fn a_new_store_needs_no_migration_and_a_newer_one_is_refused() {
    let test = store();
    forward_store(&test, FORMAT + 2, MADE_UP).unwrap();
    assert!(matches!(forward_store(&test, FORMAT, STEPS), Err(OpenError::Newer { found }) if found == FORMAT + 2));
}

#[test]
fn a_damaged_format_never_looks_like_a_new_store() {
    let mut test = store();
    for damaged in [Some(&[0, 0, 0, 0][..]), Some(&[2]), None] {
        let opened = database(&test);
        let transaction = opened.begin_write().unwrap();
        {
            let mut facts = transaction.open_table(Table::Meta.definition()).unwrap();
            match damaged {
                Some(value) => drop(facts.insert(meta::FORMAT, value).unwrap()),
                None => drop(facts.remove(meta::FORMAT).unwrap()),
            }
        }
        transaction.commit().unwrap();
        drop(opened);
        assert!(matches!(test.open(), Err(OpenError::Damaged { .. })), "{damaged:?}");
    }
}
