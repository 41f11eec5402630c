//! Bringing a store of an earlier format forward (contract 8 "Running"), when it is opened.
//!
//! Every format but the first has one [`Step`], from the format before it: a function over the tables. All steps that a
//! store needs run in one transaction behind a backup of its rows, so that a store is of one format or of another and
//! nothing between, whatever happens meanwhile. Bodies are in no table, and no step touches them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::backup::{self, BackupError};
use super::content::segment::sync_directory;
use super::disk::FileSystem;
use super::error::StoreError;
use super::open::OpenError;
use super::schema::{Table, meta};
use crate::base::time::Timestamp;

/// How many rows are rewritten between two words on progress.
const STEP_ROWS: u64 = 100_000;
/// How many rows are held in memory at once.
const PAGE: usize = 1_000;

/// The way from one format to the next.
pub(super) struct Step {
    /// The format that it begins with; it ends with the next.
    pub(super) from: u32,
    /// What it changes, for the log.
    pub(super) what: &'static str,
    /// Changes the rows. What it needs to know it finds in them: the same rows give the same rows.
    pub(super) apply: fn(&mut Rows<'_>) -> Result<(), StoreError>,
}

/// Every step that there is, in order. `schema::FORMAT` is the format behind the last.
pub(super) const STEPS: &[Step] = &[];

/// The tables of a store that is on its way, by the names that they had in its format.
pub(super) struct Rows<'txn> {
    transaction: &'txn WriteTransaction,
    rewritten: u64,
}

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;

impl Rows<'_> {
    /// Gives every row of a table the value that `change` makes of it; none removes it.
    #[cfg_attr(not(test), expect(dead_code, reason = "the first format has no step before it"))]
    pub(super) fn rewrite(
        &mut self,
        table: &str,
        change: impl Fn(&[u8], &[u8]) -> Result<Option<Vec<u8>>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut opened = self.transaction.open_table(Definition::new(table))?;
        let mut from = Vec::new();
        loop {
            let mut page = Vec::new();
            for row in opened.range::<&[u8]>(from.as_slice()..)?.take(PAGE) {
                let (key, value) = row?;
                page.push((key.value().to_vec(), change(key.value(), value.value())?));
            }
            let Some((last, _)) = page.last() else { return Ok(()) };
            from = [last.as_slice(), &[0]].concat();
            for (key, value) in page {
                match value {
                    Some(value) => opened.insert(key.as_slice(), value.as_slice())?.is_some(),
                    None => opened.remove(key.as_slice())?.is_some(),
                };
                self.rewritten += 1;
                if self.rewritten.is_multiple_of(STEP_ROWS) {
                    tracing::info!(rows = self.rewritten, "bringing the store forward");
                }
            }
        }
    }
}

/// Brings the store in `database` from the format that it has to `current`, if it has an earlier one.
///
/// # Errors
/// [`OpenError::Newer`]; [`OpenError::NotMigrated`] where it could not be, and is as it was.
pub(super) fn bring_forward(
    database: &Database,
    directory: &Path,
    now: Timestamp,
    current: u32,
    steps: &[Step],
) -> Result<(), OpenError> {
    refuse_newer(database, current)?;
    let Some(found) = format_of(database)?.filter(|found| *found < current) else { return Ok(()) };
    let failed = |error: String| OpenError::NotMigrated { found, error };
    let file = back_up(database, directory, now, found).map_err(|error| failed(error.to_string()))?;
    tracing::warn!(
        from = found, to = current, backup = %file,
        "the store was made by an earlier version: its rows are backed up, and it is brought forward now"
    );
    migrate(database, found, current, steps).map_err(|error| failed(error.to_string()))?;
    tracing::warn!(format = current, "the store was brought forward");
    Ok(())
}

/// Refuses what a later version of this program wrote, before anything in it is touched.
///
/// # Errors
/// [`OpenError::Newer`].
pub(super) fn refuse_newer(database: &Database, current: u32) -> Result<(), OpenError> {
    match format_of(database)? {
        Some(found) if found > current => Err(OpenError::Newer { found }),
        Some(_) | None => Ok(()),
    }
}

/// The format of a store; none where nothing is in it yet.
fn format_of(database: &Database) -> Result<Option<u32>, StoreError> {
    let transaction = database.begin_read()?;
    match transaction.open_table(Table::Meta.definition()) {
        Ok(table) => {
            let stored = table.get(meta::FORMAT)?;
            Ok(stored.and_then(|bytes| bytes.value().try_into().ok()).map(u32::from_be_bytes))
        }
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn migrate(database: &Database, found: u32, current: u32, steps: &[Step]) -> Result<(), StoreError> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate).map_err(|error| StoreError::Database(error.to_string()))?;
    let mut rows = Rows { transaction: &transaction, rewritten: 0 };
    for from in found..current {
        let step = steps.iter().find(|step| step.from == from);
        let step = step.ok_or_else(|| StoreError::Database(format!("no way leads on from format {from}")))?;
        tracing::info!(from, step = step.what, "bringing the store forward");
        (step.apply)(&mut rows)?;
    }
    transaction.open_table(Table::Meta.definition())?.insert(meta::FORMAT, current.to_be_bytes().as_slice())?;
    Ok(transaction.commit()?)
}

/// Keeps the rows as they are beside the store, and answers the file's name. One of an earlier try is replaced: since
/// then the earlier version may have gone on.
fn back_up(database: &Database, directory: &Path, now: Timestamp, format: u32) -> Result<String, BackupError> {
    let name = format!("format-{format}.backup");
    let (file, unfinished) = (directory.join(&name), directory.join(format!("{name}.unfinished")));
    let mut options = OpenOptions::new();
    let written: Result<File, BackupError> = (|| {
        let opened = options.create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        let mut out = BufWriter::new(opened);
        backup::rows_of(&database.begin_read().map_err(StoreError::from)?, now, format, &mut out)?;
        out.flush()?;
        Ok(out.into_inner().map_err(io::IntoInnerError::into_error)?)
    })();
    match written.and_then(|written| Ok(written.sync_all()?)) {
        Ok(()) => {
            fs::rename(&unfinished, &file)?;
            sync_directory(&FileSystem, directory)?;
            Ok(file.display().to_string())
        }
        Err(error) => {
            // A full disk is not to stay full by it.
            drop(fs::remove_file(&unfinished));
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::op::account::CreateAccount;
    use crate::store::read::Read;
    use crate::store::restore;
    use crate::store::schema::FORMAT;
    use crate::store::testing::{START, TestStore};

    /// Two made-up formats: account names in capitals, then the hints gone.
    const MADE_UP: &[Step] = &[
        Step { from: FORMAT, what: "shout", apply: |rows| rows.rewrite("accounts", |_, value| Ok(Some(loud(value)))) },
        Step { from: FORMAT + 1, what: "forget", apply: |rows| rows.rewrite("accounts_by_hint", |_, _| Ok(None)) },
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
        Database::open(test.directory().join("postrider.redb")).unwrap()
    }

    fn rows(database: &Database, table: &str) -> Vec<Vec<u8>> {
        let transaction = database.begin_read().unwrap();
        let table = transaction.open_table(Definition::new(table)).unwrap();
        table.iter().unwrap().map(|row| row.unwrap().1.value().to_vec()).collect()
    }

    fn forward(test: &TestStore, current: u32, steps: &[Step]) -> Result<(), OpenError> {
        bring_forward(&database(test), test.directory(), START, current, steps)
    }

    #[test]
    fn the_formats_have_their_steps() {
        let from: Vec<_> = STEPS.iter().map(|step| step.from).collect();
        assert_eq!(from, (1..FORMAT).collect::<Vec<_>>());
    }

    #[test]
    fn an_older_store_is_brought_forward_step_by_step_behind_a_backup() {
        let test = store();
        let before = rows(&database(&test), "accounts");
        forward(&test, FORMAT + 2, MADE_UP).unwrap();
        let after = database(&test);
        assert_eq!(rows(&after, "accounts"), before.iter().map(|row| loud(row)).collect::<Vec<_>>());
        assert_eq!(rows(&after, "accounts_by_hint"), Vec::<Vec<u8>>::new());
        assert_eq!(format_of(&after).unwrap(), Some(FORMAT + 2));
        drop(after);
        forward(&test, FORMAT + 2, MADE_UP).unwrap();

        let file = File::open(test.directory().join(format!("format-{FORMAT}.backup"))).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let key = crate::store::master_key::read_raw(&test.directory().join("master.key")).unwrap();
        restore::restore(file, directory.path(), Some(key), &[], &mut |_, _| {}).unwrap();
        let old = TestStore::in_directory(directory);
        assert_eq!(old.keys(Table::Accounts, &[]).len(), 1);
        assert_eq!(
            old.snapshot().get(Table::Accounts, &old.keys(Table::Accounts, &[])[0]).unwrap(),
            before.first().cloned()
        );
    }

    #[test]
    fn a_step_that_fails_leaves_the_store_as_it_was() {
        let mut test = store();
        let broken = Step { from: FORMAT + 1, what: "break", apply: |_| Err(StoreError::Closed) };
        let steps = [Step { from: FORMAT, what: "shout", apply: MADE_UP[0].apply }, broken];
        assert!(matches!(forward(&test, FORMAT + 2, &steps), Err(OpenError::NotMigrated { found: FORMAT, .. })));
        assert!(forward(&test, FORMAT + 2, &steps[..1]).is_err(), "a way with a gap leads nowhere");
        test.open().unwrap();
        assert_eq!(test.count(Table::AccountsByHint, &[]), 1);
        let account = crate::domain::account::Account::new(
            crate::base::id::AccountId::default(),
            "Other".parse().unwrap(),
            crate::domain::account::QuotaLimits::default(),
            START,
        );
        test.done(CreateAccount { account });
    }

    #[test]
    fn a_new_store_needs_no_way_and_a_newer_one_has_none() {
        let empty = tempfile::tempdir().unwrap();
        let database = Database::create(empty.path().join("new.redb")).unwrap();
        bring_forward(&database, empty.path(), START, FORMAT, STEPS).unwrap();
        let test = store();
        forward(&test, FORMAT + 2, MADE_UP).unwrap();
        assert!(matches!(forward(&test, FORMAT, STEPS), Err(OpenError::Newer { found }) if found == FORMAT + 2));
    }
}
